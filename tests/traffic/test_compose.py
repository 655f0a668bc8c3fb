"""Jobs made of jobs: what composing keeps, what waits for what, and what is refused."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.traffic.job_cases import jobs
from topologies.errors import DemandError
from traffic.collectives.point_to_point import PointToPoint
from traffic.compose import MOST_NODES, Repeat, one_after_another, placed, side_by_side, unfolded
from traffic.job import Collective, Compute, Job, Node

SENT = Collective("a", PointToPoint(((0, 1, 5),)))
ONE = Job("one", 4, (SENT,))
several_jobs = st.integers(1, 3).flatmap(
    lambda count: st.tuples(*(jobs(name=f"part {number}") for number in range(count)))
)


def within(part: str, job: Job) -> list[Node]:
    """Return the nodes of a part as they were before composing, arrows from outside left out."""
    found: list[Node] = []
    for node in job.nodes:
        if node.name.startswith(f"{part}/"):
            after = tuple(name.removeprefix(f"{part}/") for name in node.after if name.startswith(f"{part}/"))
            name = node.name.removeprefix(f"{part}/")
            if isinstance(node, Compute):
                found.append(Compute(name, node.gpus, node.duration_s, after, node.durations_s))
            else:
                found.append(Collective(name, node.pattern, after))
    return found


def before(job: Job) -> dict[str, set[str]]:
    """Return what must have ended before each node starts, however indirectly."""
    after = {node.name: node.after for node in job.nodes}
    found: dict[str, set[str]] = {}

    def all_before(name: str) -> set[str]:
        if name not in found:
            found[name] = {earlier for one in after[name] for earlier in (one, *all_before(one))}
        return found[name]

    return {name: all_before(name) for name in after}


@given(several_jobs)
def test_composing_keeps_every_node_its_bytes_and_its_arrows(parts: tuple[Job, ...]) -> None:
    for whole in (one_after_another("whole", parts), side_by_side("whole", parts)):
        assert len(whole.nodes) == sum(len(part.nodes) for part in parts)
        for part in parts:
            assert within(part.name, whole) == list(part.nodes)


@given(several_jobs)
def test_side_by_side_adds_no_arrow_and_one_after_another_orders_all(parts: tuple[Job, ...]) -> None:
    beside, ordered = before(side_by_side("whole", parts)), before(one_after_another("whole", parts))
    for number, part in enumerate(parts):
        names = {f"{part.name}/{node.name}" for node in part.nodes}
        earlier = {f"{each.name}/{node.name}" for each in parts[:number] for node in each.nodes}
        for name in names:
            assert beside[name] <= names
            assert ordered[name] - names == earlier


@given(jobs(), st.permutations(range(9)))
def test_a_placed_job_is_the_same_job_between_other_gpus(job: Job, order: list[int]) -> None:
    gpus = order[: job.gpus]
    found = placed(job, gpus, of=9)
    assert (found.gpus, found.note) == (9, job.note)
    for node, was in zip(found.nodes, job.nodes, strict=True):
        if isinstance(node, Compute) and isinstance(was, Compute):
            assert replace(node, gpus=was.gpus) == was
            assert node.gpus == tuple(gpus[gpu] for gpu in was.gpus)
        elif isinstance(node, Collective) and isinstance(was, Collective):
            assert replace(node, pattern=was.pattern) == was
            assert node.pattern == was.pattern.renumbered(gpus)


@given(jobs(name="part"), st.integers(1, 4))
def test_a_repeated_job_is_copies_of_it_one_after_another(job: Job, times: int) -> None:
    whole = unfolded("whole", 4, [Repeat(job, times)])
    copies = [Job(f"part[{time}]", 4, job.nodes) for time in range(times)]
    assert whole.nodes == one_after_another("whole", copies).nodes


@pytest.mark.parametrize("times", [1, 2, 4])
def test_a_repeated_node_waits_for_itself_and_ends_with_its_last_time(times: int) -> None:
    first, last = Compute("first", (0,), 1.0), Compute("last", (0,), 1.0, ("a",))
    node = Collective("a", SENT.pattern, ("first",))
    parts: list[Node | Repeat] = [last, Repeat(node, times), first]
    whole = unfolded("whole", 4, parts)
    arrows = {node.name: node.after for node in whole.nodes}
    expected = {f"a[{time}]": (f"a[{time - 1}]",) if time else ("first",) for time in range(times)}
    assert arrows == {"first": (), "last": (f"a[{times - 1}]",), **expected}


def test_parts_inside_parts_wait_for_each_other_by_name() -> None:
    layer = Job("layer", 4, (Compute("in", (0,), 1.0), Compute("out", (1,), 1.0)))
    parts: list[Node | Repeat] = [
        Repeat(layer, 2, ("a",)),
        SENT,
        Repeat(Job("end", 4, (SENT,)), 1, ("layer",)),
    ]
    arrows = {node.name: node.after for node in unfolded("whole", 4, parts).nodes}
    assert arrows == {
        "layer[0]/in": ("a",),
        "layer[0]/out": ("a",),
        "layer[1]/in": ("layer[0]/in", "layer[0]/out"),
        "layer[1]/out": ("layer[0]/in", "layer[0]/out"),
        "a": (),
        "end[0]/a": ("layer[1]/in", "layer[1]/out"),
    }


def test_notes_are_kept_each_once() -> None:
    parts = [
        Job(name, 4, (SENT,), note) for name, note in (("a", "synthetic"), ("b", ""), ("c", "synthetic"))
    ]
    assert side_by_side("whole", parts).note == "synthetic"


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        ((), "job 'whole' has no part"),
        ((ONE, ONE), "2 parts of job 'whole' are named 'one'; name them apart"),
        ((ONE, Job("two", 2, (SENT,))), "'one' is for 4 GPUs, and 'two' for 2; place both on one fabric"),
    ],
)
def test_what_cannot_be_composed_is_refused(parts: Sequence[Job], sentence: str) -> None:
    for compose in (one_after_another, side_by_side):
        with pytest.raises(DemandError, match=sentence):
            compose("whole", parts)


def test_a_start_is_a_time_of_the_whole_job() -> None:
    first, second = (Job(name, 4, (replace(SENT, at_s=1.0),)) for name in ("first", "second"))
    assert [node.at_s for node in side_by_side("whole", [first, second]).nodes] == [1.0, 1.0]
    assert one_after_another("whole", [first, ONE]).nodes[0].at_s == 1.0
    with pytest.raises(DemandError, match="starts at a time of the job, and part 'second' when others have"):
        one_after_another("whole", [first, second])


@pytest.mark.parametrize(
    ("gpus", "sentence"),
    [
        ((0, 1, 2), "'one' is for 4 GPUs, and is placed on 3"),
        ((0, 1, 2, 2), "'one' is placed on GPU 2 twice"),
        ((0, 1, 2, 8), "'one' is placed on GPU 8 of 8 GPUs; count them from 0"),
        ((0, 1, 2, -1), "'one' is placed on GPU -1 of 8 GPUs"),
    ],
)
def test_where_a_job_cannot_be_placed_is_refused(gpus: Sequence[int], sentence: str) -> None:
    with pytest.raises(DemandError, match=sentence):
        placed(ONE, gpus, of=8)


@pytest.mark.parametrize(
    ("part", "times", "sentence"),
    [
        (SENT, 0, "'a' runs 0 times"),
        (ONE, MOST_NODES + 1, "'one' makes 100,001 nodes; make at most 100,000"),
    ],
)
def test_what_cannot_be_repeated_is_refused(part: Job | Collective, times: int, sentence: str) -> None:
    with pytest.raises(DemandError, match=sentence):
        Repeat(part, times)


def test_parts_that_would_make_too_many_arrows_are_refused() -> None:
    wide = tuple(Compute(f"{number}", (0,), 1.0) for number in range(4000))
    parts = [Job(name, 1, wide) for name in ("one", "two")]
    with pytest.raises(DemandError, match="part 'two' makes 16,000,000 arrows, from all its last nodes"):
        one_after_another("whole", parts)
    with pytest.raises(DemandError, match=r"part 'one' makes 32,000,000 arrows.*; end it with one node"):
        Repeat(parts[0], 3)
    ended = Compute("end", (), 0.0, tuple(node.name for node in wide))
    assert len(unfolded("whole", 1, [Repeat(Job("one", 1, (*wide, ended)), 2)]).nodes) == 8002


def test_parts_that_do_not_fit_are_refused() -> None:
    with pytest.raises(DemandError, match="part 'one' is for 4 GPUs, and the job has 2"):
        unfolded("whole", 2, [Repeat(ONE, 1)])
    with pytest.raises(DemandError, match="2 parts of job 'whole' are named 'a'"):
        unfolded("whole", 4, [SENT, Repeat(SENT, 2)])
    with pytest.raises(DemandError, match=r"waits for 'b', which job 'whole' has not"):
        unfolded("whole", 4, [Repeat(ONE, 1, ("b",))])
