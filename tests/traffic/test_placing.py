"""What a scheme places is looked at: whatever is wrong with it is one sentence, and what is right passes."""

import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.traffic.cases import Work, work_of, works
from topologies.errors import ScenarioError
from topologies.events import View
from topologies.fabric import Fabric, Nic
from topologies.rail import rail_fabric
from traffic.messages import Chunks, Messages
from traffic.placing import placed_by
from traffic.scheme import Choice, Placement, Sprayed, WhileLit
from traffic.spraying.checks import choice
from traffic.spraying.minrtt import MinRtt
from traffic.spraying.policy import Assignment, Lanes, LaneSet, LaneState, Message, QueuePair
from traffic.spraying.rails import Rails
from traffic.spraying.registry import POLICIES, policy_named

FABRIC = rail_fabric(3, 2)
MATRIX = np.zeros((6, 6), dtype=np.int64)
MATRIX[0, 2] = MATRIX[1, 4] = 24  # from server 0 to server 1, and to server 2
WORK = work_of(FABRIC, MATRIX)
SIX = np.arange(6)
PAIRS = (QueuePair(Nic(0, 0), Nic(1, 0)), QueuePair(Nic(0, 1), Nic(2, 1)))
LANES: Any = tuple(LaneSet((pair.source,), (pair.destination,)) for pair in PAIRS)
RIGHT = Assignment(PAIRS, np.array([0, 0, 0, 1, 1, 1]), SIX)


def placed(policy: str, work: Work = WORK) -> Placement | Choice | WhileLit:
    scheme = Sprayed(lambda: policy_named(policy), chunk_bytes=8)
    return placed_by(scheme, View(0.0, work.fabric, {}, frozenset()), work.crossing)


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[object], str]:
    """Make a user's module of one scheme, and return its name."""
    spec = spec_from_file_location("own", tmp_path / "own.py")
    assert spec
    (tmp_path / "own.py").write_text("")

    def named(scheme: object) -> str:
        module = module_from_spec(spec)
        monkeypatch.setattr(module, "scheme", scheme, raising=False)
        monkeypatch.setitem(sys.modules, "own", module)
        return "own:scheme"

    return named


def returning(found: object) -> Callable[..., object]:
    """Return a proactive scheme that returns this, whatever it is asked."""

    def scheme(*, fabric: Fabric, messages: Messages, chunks: Chunks, rng: np.random.Generator) -> object:
        return found

    return scheme


def admitting(found: object) -> type:
    """Return a reactive scheme that admits each message to this."""

    class Own(MinRtt):
        name = "mine"

        def admit(self, *, message: Message) -> Lanes:
            return found  # type: ignore[return-value]

    return Own


@pytest.mark.parametrize("name", [*POLICIES, "ecmp:3", "pxn:3", "reps:3"])
@given(work=works().filter(lambda work: len(work.crossing)))
def test_what_comes_with_lightrail_passes(name: str, work: Work) -> None:
    placed(name, work)


def wrong(**fields: object) -> Assignment:
    """Return the right assignment with some fields of another kind."""
    return replace(RIGHT, **fields)  # type: ignore[arg-type]


WRONG = {
    "not between the servers": wrong(chunk_qp=np.array([0, 0, 0, 0, 0, 0])),
    "the wrong way round": wrong(queue_pairs=(QueuePair(Nic(1, 0), Nic(0, 0)), PAIRS[1])),
    "no such NIC": wrong(queue_pairs=(QueuePair(Nic(0, 7), Nic(1, 0)), PAIRS[1])),
    "no such server": wrong(queue_pairs=(PAIRS[0], QueuePair(Nic(0, 0), Nic(-1, 0)))),
    "half of the chunks": wrong(order=SIX[::2]),
    "a chunk twice": wrong(order=np.array([0, 1, 2, 3, 3, 4])),
    "chunk -1": wrong(order=np.array([0, 1, 2, 3, 4, -1])),
    "chunk 6": wrong(order=np.array([0, 1, 2, 3, 4, 6])),
    "queue pair 2": wrong(chunk_qp=np.array([0, 0, 0, 1, 1, 2])),
    "queue pair -1": wrong(chunk_qp=np.array([0, 0, 0, -1, 1, 1])),
    "too few": wrong(chunk_qp=SIX[:2]),
    "a matrix": wrong(chunk_qp=np.zeros((6, 1), dtype=np.int64)),
    "floats": wrong(chunk_qp=np.zeros(6)),
    "truths": wrong(order=np.ones(6, dtype=bool)),
    "a list": wrong(chunk_qp=[0, 0, 0, 1, 1, 1]),
    "one queue pair alone": wrong(queue_pairs=PAIRS[0]),
    "texts": wrong(queue_pairs=("a", "b")),
    "ends that are no NICs": wrong(queue_pairs=(QueuePair((0, 0), (1, 0)), PAIRS[1])),  # type: ignore[arg-type]
    "half a NIC": wrong(queue_pairs=(QueuePair(Nic(0, 0.5), Nic(1, 0)), PAIRS[1])),  # type: ignore[arg-type]
    "an entropy too large": wrong(queue_pairs=(replace(PAIRS[0], entropy=4096), PAIRS[1])),
    "one queue pair twice": wrong(queue_pairs=(PAIRS[0], PAIRS[0])),
    "a tuple": (PAIRS, SIX, SIX),
}
SAID = {
    "not between the servers": "placed bytes from GPU 1 to GPU 4 on a queue pair from NIC 0 of server 0 to"
    " NIC 0 of server 1; have it begin at a NIC of the source GPU's server",
    "half of the chunks": "has an array of int64, (3,) for order, with 6 chunks",
    "a chunk twice": "posts chunk 3 2 times; have every chunk once in order",
    "queue pair -1": "has -1 in chunk_qp, with 2 queue pairs; count from 0",
    "no such NIC": "used NIC 0.7, which is not there",
}


@pytest.mark.parametrize("case", WRONG)
def test_a_users_placement_that_is_wrong_is_a_sentence(own: Callable[[object], str], case: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        placed(own(returning(WRONG[case])))
    said = str(refused.value)
    assert said.startswith(f"the scheme 'own:scheme' {SAID.get(case, '')}")
    assert said.endswith("see docs/howto/own_scheme.md") or "see Fabric.nics" in said


@pytest.mark.parametrize("dtype", [np.int8, np.uint64, np.int64])
def test_integers_of_any_size_are_taken(own: Callable[[object], str], dtype: type[np.integer]) -> None:
    found = placed(
        own(returning(replace(RIGHT, chunk_qp=RIGHT.chunk_qp.astype(dtype), order=SIX.astype(dtype))))
    )
    assert isinstance(found, Placement)
    assert (found.qp.tolist(), found.message.tolist(), found.bytes.tolist()) == ([0, 1], [0, 1], [24, 24])


def test_a_users_scheme_cannot_change_what_is_to_be_sent(own: Callable[[object], str]) -> None:
    def halves(*, fabric: Fabric, messages: Messages, chunks: Chunks, rng: np.random.Generator) -> Assignment:
        messages.bytes[:] //= 2
        return RIGHT

    with pytest.raises(ScenarioError, match=r"your scheme raised ValueError .* read-only"):
        placed(own(halves))


def test_a_class_is_checked_as_a_function_is(own: Callable[[object], str]) -> None:
    class Elsewhere(Rails):
        """All that it sends goes to the server after that of the destination."""

        def assign(
            self, *, fabric: Fabric, messages: Messages, chunks: Chunks, rng: np.random.Generator
        ) -> Assignment:
            found = super().assign(fabric=fabric, messages=messages, chunks=chunks, rng=rng)
            moved = [
                replace(pair, destination=Nic(3 - pair.destination.server, pair.destination.nic))
                for pair in found.queue_pairs
            ]
            return replace(found, queue_pairs=tuple(moved))

    with pytest.raises(
        ScenarioError, match=r"placed bytes from GPU 0 to GPU 2 on a queue pair from NIC 0 of server 0 to NIC"
    ):
        placed(own(Elsewhere))


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (
            LANES[:1],
            "admitted the message from GPU 1 to GPU 4 to a queue pair from NIC 0 of server 0 to NIC 0 of",
        ),
        (
            LANES,
            "admitted the message from GPU 0 to GPU 2 to a queue pair from NIC 1 of server 0 to NIC 1 of",
        ),
        ((), "admitted message 0 to no lane; admit each message to one at least"),
        ((LaneSet((), (Nic(1, 0),)),), "admitted message 0 to no lane"),
        (2 * LANES[:1], "has the queue pair 0.0>1.0#0 twice"),
        ((replace(LANES[0], entropies=(1, 1)),), "has the queue pair 0.0>1.0#1 twice"),
        ((replace(LANES[0], entropies=(4096,)),), "has the queue pair 0.0>1.0#4096"),
        ((replace(LANES[0], entropies=range(-1, 3)),), "has the queue pair 0.0>1.0#*"),
        ((replace(LANES[0], entropies=(0.0,)),), "has the queue pair 0.0>1.0#0.0"),
        ((replace(LANES[0], communicator=1),), "has the queue pair 0.0>1.0#0/1; name no communicator"),
        ((replace(LANES[0], sources=("a",)),), "has lanes between what is no tuple of NICs"),
        ((replace(LANES[0], sources=(Nic(0, 7),)),), "used NIC 0.7, which is not there"),
        ((replace(LANES[0], entropies=[0]),), "has lanes between what is no tuple of NICs"),
        ((replace(LANES[0], sources=([],)),), "has lanes between what is no tuple of NICs; give NICs and"),
        (LANES[0], "returned an object of type LaneSet from admit; return a tuple of LaneSet"),
        ((None,), "returned an object of type tuple from admit"),
        (None, "returned an object of type NoneType from admit"),
    ],
)
def test_what_a_users_scheme_admits_to_wrongly_is_a_sentence(
    own: Callable[[object], str], found: object, said: str
) -> None:
    with pytest.raises(ScenarioError) as refused:
        placed(own(admitting(found)))
    assert str(refused.value).partition(" ")[2].partition("' ")[2].startswith(said)


@pytest.mark.parametrize("chosen", [-1, 99_999, 1, 2, True, 0.0, "0", None, 0, np.int64(0)])
def test_a_choice_is_none_or_a_lane_that_the_message_has(chosen: object) -> None:
    class Stubborn(MinRtt):
        def choose(self, **_: object) -> int | None:
            return chosen  # type: ignore[return-value]

    states = [LaneState(0, 0.0, True)]
    if chosen is None or (
        type(chosen) is not bool and isinstance(chosen, int | np.integer) and chosen in (0,)
    ):
        assert choice(Stubborn(), 4, states, 0.0) == chosen
        return
    with pytest.raises(
        ScenarioError, match=f"'minrtt' chose .*{chosen}.* for message 4, which has 1 lanes; return"
    ):
        choice(Stubborn(), 4, states, 0.0)


class Odd:
    """A scheme that is no spraying policy, and drops a byte of each message."""

    def place(self, view: View, messages: Messages) -> Placement:
        """Return a byte too few."""
        qp: NDArray[np.int64] = np.arange(2)
        return Placement(PAIRS, qp, np.arange(2), messages.bytes - 1)


def test_a_scheme_of_any_kind_places_all_bytes() -> None:
    with pytest.raises(
        ScenarioError, match="'Odd' placed 23 of 24 bytes from GPU 0 to GPU 2; place each chunk once"
    ):
        placed_by(Odd(), View(0.0, FABRIC, {}, frozenset()), WORK.crossing)


@given(work=works(), data=st.data())
def test_one_chunk_that_goes_astray_is_always_found(work: Work, data: st.DataObject) -> None:
    if not len(work.crossing) or len(work.fabric.servers) < 3:
        return
    found = placed("rails", work)
    assert isinstance(found, Placement)
    parcel = data.draw(st.integers(0, len(found.qp) - 1))
    right = found.queue_pairs[found.qp[parcel]]
    others = [
        pair
        for pair in found.queue_pairs
        if (pair.source.server, pair.destination.server) != (right.source.server, right.destination.server)
    ]
    if not others:
        return
    qp = found.qp.copy()
    qp[parcel] = found.queue_pairs.index(data.draw(st.sampled_from(others)))
    scheme = SimpleNamespace(name="astray", place=lambda _view, _messages: replace(found, qp=qp))
    with pytest.raises(ScenarioError, match="the scheme 'astray' placed bytes from GPU"):
        placed_by(scheme, View(0.0, work.fabric, {}, frozenset()), work.crossing)
