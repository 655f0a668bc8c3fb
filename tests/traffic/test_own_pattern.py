"""A user's own pattern as it is written down: its class and its fields, or a sentence that says why not."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import Self

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.experiment.experiment import Experiment
from topologies.errors import DemandError, ScenarioError, TraceError
from topologies.events import View
from topologies.fabric import Port
from topologies.rail import rail_fabric
from traffic.collectives.own_pattern import PATTERN
from traffic.collectives.pattern import EndToEnd, Pattern
from traffic.collectives.ring import Ring
from traffic.faults import KnownRevision, Revisions, cut
from traffic.job import Collective, Job
from traffic.job_bounds import node_bounds_s
from traffic.job_file import job_document, job_of_document, read_job, write_job
from traffic.messages import Messages
from traffic.metrics import bus_bytes
from traffic.ops import Ops, each_alone

HERE = "tests.traffic.test_own_pattern"
WIRED = rail_fabric(2, 2)


@dataclass(frozen=True)
class Sent:
    """What each of some pairs sends."""

    pairs: tuple[tuple[int, int], ...]
    bytes: int = 1
    share: float = 1.0
    say: str = ""
    name = "sent"

    def __post_init__(self) -> None:
        """Refuse a pair of one GPU."""
        if any(source == to for source, to in self.pairs):
            raise DemandError("a GPU sends to itself", "send to another")

    @property
    def gpus(self) -> frozenset[int]:
        return frozenset(gpu for pair in self.pairs for gpu in pair)

    def lower(self, view: View | None = None, *, coupled: bool = False) -> Ops:
        source, to = np.array(self.pairs, dtype=np.int64).reshape(-1, 2).T
        return each_alone(Messages(source, to, np.full(len(source), self.bytes)))

    def renumbered(self, gpus: Sequence[int]) -> Self:
        return replace(self, pairs=tuple((gpus[source], gpus[to]) for source, to in self.pairs))


@dataclass(frozen=True)
class Always(Sent):
    """Sends what it likes, so that its fields do not make it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "bytes", self.bytes + 1)


class Plain(Sent):
    """Is equal by what no field has."""

    def __eq__(self, other: object) -> bool:
        raise IndexError("nothing to compare")

    __hash__ = Sent.__hash__


@dataclass(frozen=True)
class Backwards(Ring):
    """Is derived from one of lightrail's, and not one."""

    def renumbered(self, gpus: Sequence[int]) -> "Backwards":
        """Return the same between other GPUs."""
        return Backwards(tuple(tuple(gpus[gpu] for gpu in ring) for ring in self.rings), self.bytes)


class Outer:
    """Has a class in it."""

    @dataclass(frozen=True)
    class Inner(Sent):
        """Is not found by its module."""


def job_with(pattern: Pattern) -> Job:
    return Job("mine", 4, (Collective("sum", pattern),))


PAIRS = ((0, 1), (2, 3))


@given(
    pairs=st.lists(st.sampled_from([(0, 1), (1, 2), (3, 0)]), min_size=1, max_size=3).map(tuple),
    size=st.integers(1, 1 << 50),
    share=st.floats(0, 1e9),
    say=st.text(),
)
def test_json_gives_back_an_equal_pattern(
    pairs: tuple[tuple[int, int], ...], size: int, share: float, say: str
) -> None:
    job = job_with(Sent(pairs, size, share, say))
    document = json.loads(json.dumps(job_document(job)))
    assert document["nodes"][0]["pattern"] == f"{HERE}:Sent"
    assert job_of_document(document, "job") == job
    experiment = Experiment(WIRED, job, "rails")
    assert Experiment.from_json(experiment.to_json()) == experiment
    assert experiment.own == [f"{HERE}:Sent"]


def test_a_job_file_gives_it_back(tmp_path: Path) -> None:
    job = job_with(Sent(PAIRS, np.int64(4_000_000), 2.0))  # type: ignore[arg-type]
    write_job(job, tmp_path / "mine.json")
    assert read_job(tmp_path / "mine.json") == job


def test_what_is_derived_from_a_pattern_of_lightrails_stays_what_it_is() -> None:
    job = job_with(Backwards(((0, 1, 2),), 3000))
    (node,) = job_of_document(job_document(job), "job").nodes
    assert isinstance(node, Collective)
    assert isinstance(node.pattern, Backwards)
    assert node == job.nodes[0]


def test_what_a_revision_adds_may_be_of_one_too() -> None:
    revisions = Revisions((KnownRevision("cut", ("sum",), job_with(Sent(((1, 2),)))),))
    fault = cut("cut", (Port("h0", 0),))
    revised = Experiment(WIRED, job_with(Sent(PAIRS)), "rails", faults=(fault,), revisions=revisions)
    assert Experiment.from_json(revised.to_json()) == revised


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        (Sent(PAIRS, say=object()), "it holds an object of type object"),  # type: ignore[arg-type]
        (Sent(PAIRS, share=float("nan")), "not JSON compliant"),
        (Sent(PAIRS, say=["a"]), "is not equal to it"),  # type: ignore[arg-type]
        (Always(PAIRS), "is not equal to it"),
        (Plain(PAIRS), "your pattern raised IndexError at .*: nothing to compare"),
        (Outer.Inner(PAIRS), "its class is in another class or a function"),
    ],
)
def test_what_cannot_be_written_down_is_refused_in_a_sentence(pattern: Pattern, why: str) -> None:
    experiment = Experiment(WIRED, job_with(pattern), "rails")
    said = f"^node 'sum': the pattern '{HERE}:.*' cannot be written down: .*{why}.*; .*"
    with pytest.raises(DemandError, match=said):
        experiment.to_json()


@pytest.mark.parametrize(
    ("name", "fields", "why"),
    [
        ("nowhere:Sent", {}, "the pattern 'nowhere:Sent' cannot be imported"),
        (f"{HERE}:Nothing", {}, f"the pattern '{HERE}:Nothing' cannot be imported"),
        (f"{HERE}:job_with", {"pattern": 1}, "job_with' is not a pattern; name a class with name, gpus"),
        (
            "subprocess:Popen",
            {"args": ["touch", "there"]},
            "'subprocess:Popen' cannot be loaded: ",
        ),
        (f"{HERE}:Sent", {"size": 1}, "your pattern raised TypeError in .*size"),
        (f"{HERE}:Sent", {"pairs": [[0, 0]]}, "a GPU sends to itself"),
        (f"{HERE}:Sent", {"pairs": 7}, "your pattern raised TypeError at .*test_own_pattern.py:"),
    ],
)
def test_a_file_that_names_no_pattern_is_refused_with_the_place(
    name: str, fields: dict[str, object], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    document = job_document(job_with(Sent(PAIRS)))
    document["nodes"][0] |= {"pattern": name, "fields": fields}
    with pytest.raises(TraceError, match=rf"job, nodes\[0\]: .*{why}"):
        job_of_document(document, "job")
    text = json.loads(Experiment(WIRED, job_with(Sent(PAIRS)), "rails").to_json())
    with pytest.raises(ScenarioError, match=rf"not a valid experiment: job: .*nodes\[0\]: .*{why}"):
        Experiment.from_json(json.dumps(text | {"job": document}))
    assert not any(tmp_path.iterdir())


def test_a_class_without_what_a_pattern_has_is_named() -> None:
    with pytest.raises(ScenarioError, match="is not a pattern: it has no name"):
        PATTERN.value(f"{HERE}:Nameless", {})


class Nameless:
    """Has the methods alone."""

    def lower(self) -> None: ...

    def renumbered(self) -> None: ...


@dataclass(frozen=True)
class Returns(Sent):
    """Returns what other operations become."""

    what: str = ""

    def lower(self, view: View | None = None, *, coupled: bool = False) -> Ops:
        """Return them."""
        right = super().lower(view, coupled=coupled)
        (part,) = right.parts
        moves, size = part.moves, len(part.moves)
        if self.what == "raises":
            raise IndexError("no message")

        def moved(**columns: object) -> Ops:
            return replace(right, parts=(replace(part, moves=replace(moves, **columns)),))  # type: ignore[arg-type]

        changed: dict[str, object] = {
            "nothing": None,
            "no parts": replace(right, parts=(moves,)),  # type: ignore[arg-type]
            "a text": replace(right, parts=(replace(part, moves="all"),)),  # type: ignore[arg-type]
            "nobody": moved(source=moves.source + 9),
            "no bytes": moved(bytes=moves.bytes * 0),
            "floats": moved(bytes=moves.bytes / 2),
            "too few": moved(source=moves.source[:1]),
            "a list": replace(right, after=[(0, 1)]),  # type: ignore[arg-type]
            "one by one": replace(right, after=np.arange(2)),
            "others": replace(right, after=np.array([[0, size]])),
            "each other": replace(right, after=np.array([[0, 1], [1, 0]])),
            "one connection": replace(right, parts=(replace(part, channel=np.zeros(1, dtype=np.int64)),)),
            "together": replace(right, parts=(replace(part, together=True),)),
            "nowhere": replace(right, parts=(replace(part, medium=9),)),
            "half": moved(bytes=moves.bytes // 2) if coupled else right,
        }
        return changed[self.what]  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("raises", "your pattern raised IndexError at "),
        ("nothing", "are an object of type NoneType; see docs/howto/own_pattern.md"),
        ("no parts", "are no tuple of parts; see"),
        ("a text", "have moves of type str; see"),
        ("nobody", "have the source 9, which is not among its gpus"),
        ("no bytes", "have a move of 0 bytes"),
        ("floats", "have no array of integers for bytes"),
        ("too few", "have source of the shape (1,), and not (2,)"),
        ("a list", "have no array of pairs of integers for after"),
        ("one by one", "have no array of pairs of integers for after"),
        ("others", "are 2, and some wait for others"),
        ("each other", "wait for each other: "),
        ("one connection", "have channel of the shape (1,), and not (2,)"),
        ("nowhere", "say what they go over, which their scheme decides; see"),
        ("together", "go together where they may not be coupled; see"),
        ("half", "carry other bytes when they may be coupled"),
    ],
)
def test_operations_that_cannot_be_carried_out_are_refused_before_anything_runs(what: str, said: str) -> None:
    with pytest.raises((DemandError, ScenarioError)) as refused:
        Experiment(WIRED, job_with(Returns(PAIRS, 8, what=what)), "rails")
    expected = said if what == "raises" else f"the operations of the pattern '{HERE}:Returns' {said}"
    assert str(refused.value).startswith(expected)


ONE_OR_OTHER = cycle((np.array([True, False]), np.array([False, True])))
"""Which of two messages a pattern owes when it is asked."""


@dataclass(frozen=True)
class Passes(Sent):
    """Owes something else from end to end than it moves."""

    what: str = ""

    @property
    def end_to_end(self) -> EndToEnd:
        right = EndToEnd(self.lower().moves, ((0, 1), (2, 3)))
        if self.what == "raises":
            raise IndexError("no message")
        if self.what == "lacks":
            raise AttributeError("no message")
        changed: dict[str, object] = {
            "": right,
            "nothing": None,
            "nobody": replace(right, messages=replace(right.messages, source=right.messages.source + 9)),
            "itself": replace(right, messages=replace(right.messages, destination=right.messages.source)),
            "more": replace(right, messages=replace(right.messages, bytes=right.messages.bytes + 1)),
            "others each time": replace(right, messages=right.messages.select(next(ONE_OR_OTHER))),
            "twice": replace(right, nodes=((0, 1), (1, 2))),
            "no number": replace(right, nodes=((0.0, 1.0),)),  # type: ignore[arg-type]
            "others": replace(right, nodes=((0, 9),)),
            "a list": replace(right, nodes=[0, 1]),  # type: ignore[arg-type]
        }
        return changed[self.what]  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("raises", "your pattern raised IndexError at "),
        ("lacks", "your pattern raised AttributeError at "),
        ("itself", "have a message from a GPU to itself"),
        ("more", "have more bytes than it moves"),
        ("others each time", "are others each time that they are asked for"),
        ("no number", "have nodes with what is no number of a GPU, or with one twice"),
        ("nothing", "are an object of type NoneType; see docs/howto/own_pattern.md"),
        ("nobody", "have the source 9, which is not among its gpus"),
        ("twice", "have nodes with what is no number of a GPU, or with one twice"),
        ("others", "have nodes with a GPU that is not among its gpus"),
        ("a list", "have nodes that are no tuple of tuples"),
    ],
)
def test_what_it_owes_from_end_to_end_is_checked_too(what: str, said: str) -> None:
    with pytest.raises((DemandError, ScenarioError)) as refused:
        Experiment(WIRED, job_with(Passes(PAIRS, 8, what=what)), "rails")
    own = f"the operations of the pattern '{HERE}:Passes.end_to_end' {said}"
    assert str(refused.value).startswith(said if what in ("raises", "lacks") else own)


def test_bus_bandwidth_and_bound_are_of_what_it_owes_from_end_to_end() -> None:
    """GPU 0 sends to GPU 1 beside it; GPUs 0 and 1 are a node, and so are 2 and 3: nothing leaves one."""
    moves, passes = Sent(((0, 2), (2, 0)), 8), Passes(PAIRS, 8)
    sent, owed = (
        node_bounds_s(job_with(pattern), rail_fabric(2, 2, rate_bps=8.0)) for pattern in (moves, passes)
    )
    assert (sent, owed) == ({"sum": 4.0}, {"sum": 0.0})
    assert bus_bytes(moves) == bus_bytes(passes) == 8
