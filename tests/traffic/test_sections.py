"""Sections: barriers as defined, equal sections found whatever their names, and unequal ones kept apart."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.traffic.job_cases import jobs
from traffic.collectives.all_to_all import AllToAll
from traffic.collectives.point_to_point import PointToPoint
from traffic.collectives.ring import Ring
from traffic.compose import Repeat, one_after_another, side_by_side, unfolded
from traffic.demand import Demand
from traffic.job import Collective, Compute, Job, Node, chain
from traffic.sections import contents, in_turn, sections

sequences = st.lists(jobs(), min_size=1, max_size=3).map(
    lambda parts: one_after_another("whole", [replace(part, name=f"{k}") for k, part in enumerate(parts)])
)


def before(job: Job) -> dict[str, frozenset[str]]:
    """Return all that each node waits for, however indirectly."""
    after = {node.name: node.after for node in job.nodes}

    def all_before(name: str) -> frozenset[str]:
        return frozenset(after[name]).union(*map(all_before, after[name]))

    return {name: all_before(name) for name in after}


def barriers(job: Job) -> set[frozenset[str]]:
    """Return what has ended at each barrier, by its definition: of all sets of nodes."""
    waits = before(job)
    return {
        frozenset(ended)
        for size in range(1, len(waits))
        for ended in combinations(waits, size)
        if all((waits[name] <= set(ended)) if name in ended else waits[name] >= set(ended) for name in waits)
    }


@given(st.one_of(jobs(), sequences).filter(lambda job: len(job.nodes) <= 10))
def test_sections_end_at_the_barriers(job: Job) -> None:
    found = [frozenset(node.name for node in section) for section in sections(job)]
    ended = [frozenset[str]().union(*found[:count]) for count in range(1, len(found))]
    assert set(ended) == barriers(job)
    assert len(ended) == len(set(ended))


@given(sequences)
def test_sections_hold_every_node_in_job_order_with_the_arrows_inside_them(job: Job) -> None:
    found = sections(job)
    order = {node.name: number for number, node in enumerate(job.nodes)}
    nodes = {node.name: node for section in found for node in section}
    assert len(nodes) == sum(map(len, found)) == len(job.nodes)
    for section in found:
        names = [node.name for node in section]
        assert names == sorted(names, key=order.__getitem__)
        for node in section:
            was = job.nodes[order[node.name]]
            assert node == replace(was, after=tuple(name for name in was.after if name in names))


@given(jobs(name="part"), st.integers(2, 4))
def test_the_sections_of_a_repeated_part_are_equal_each_time(part: Job, times: int) -> None:
    assert contents(sections(unfolded("whole", 4, [Repeat(part, times)]))) == contents(sections(part)) * times


@given(sequences, st.integers(1, 3))
def test_equal_sections_are_equal_but_for_names_and_others_are_not(job: Job, times: int) -> None:
    found = sections(unfolded("whole", 4, [Repeat(job, times)]))
    content = contents(found)
    for one, other in combinations(range(len(found)), 2):
        assert (content[one] == content[other]) == (nameless(found[one]) == nameless(found[other]))


def nameless(section: tuple[Node, ...]) -> object:
    names = [node.name for node in section]
    return [(_work(node), {names.index(name) for name in node.after}) for node in section]


@given(sequences)
def test_sections_in_turn_are_the_sections_with_barriers_between(job: Job) -> None:
    found = sections(job)
    again = sections(in_turn("whole", 4, {f"{number}": nodes for number, nodes in enumerate(found)}))
    assert [nameless(section) for section in again[::2]] == [nameless(section) for section in found]
    assert {section[0].name for section in again[1::2]} == {f"after {k}/barrier" for k in range(len(found))}


def _work(node: Node) -> object:
    """Return what a node is of, demands without their names."""
    if isinstance(node, Compute):
        return node.gpus, node.duration_s, node.durations_s
    ops = node.pattern.lower()
    moves = ops.moves
    columns = moves.source, moves.destination, moves.bytes, ops.after
    return type(node.pattern), [column.tolist() for column in columns]


MATRIX = np.array([[0, 5, 7], [3, 0, 1], [2, 2, 0]])
NODES: tuple[Node, ...] = (
    Compute("a", (0, 1), 1.0, (), (1.0, 2.0)),
    Collective("b", AllToAll(Demand("tokens", MATRIX)), ("a",)),
    Collective("c", Ring(((0, 1, 2), (2, 1, 0)), 60), ("a",)),
    Compute("d", (2, 1), 3.0, ("b",)),
    Collective("e", PointToPoint(((0, 1, 5), (1, 2, 6))), ("c",)),
    Compute("beside", (2,), 1.0),
)
"""One section, since nothing waits for the last."""


def changed(name: str, **changes: object) -> tuple[Node, ...]:
    """Return `NODES` with one of them changed."""
    return tuple(replace(node, **changes) if node.name == name else node for node in NODES)  # type: ignore[arg-type]


def one_byte_more() -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    matrix = MATRIX.copy()
    matrix[2, 1] += 1
    return matrix


@pytest.mark.parametrize(
    "nodes",
    [
        changed("a", durations_s=(1.0, 2.0000000000000004)),
        changed("a", durations_s=(2.0, 1.0)),
        changed("a", durations_s=()),
        changed("a", gpus=(1, 0)),
        changed("a", gpus=(0, 2)),
        changed("d", duration_s=3.0000000000000004),
        changed("d", gpus=(2, 1, 0)),
        changed("d", after=("c",)),
        changed("d", after=("b", "c")),
        changed("e", after=()),
        changed("b", pattern=AllToAll(Demand("tokens", one_byte_more()))),
        changed("b", pattern=AllToAll(Demand("tokens", MATRIX.T))),
        changed("b", pattern=AllToAll(Demand("tokens", MATRIX), (0, 2, 1))),
        changed("c", pattern=Ring(((0, 1, 2), (2, 1, 0)), 61)),
        changed("c", pattern=Ring(((2, 1, 0), (0, 1, 2)), 60)),
        changed("c", pattern=Ring(((0, 1, 2), (2, 1, 0)), 60, "all-gather")),
        changed("e", pattern=PointToPoint(((0, 1, 5), (1, 2, 5)))),
        changed("e", pattern=PointToPoint(((1, 2, 6), (0, 1, 5)))),
        changed("e", pattern=PointToPoint(((0, 1, 5), (1, 2, 6), (0, 1, 1)))),
        (NODES[0], NODES[2], NODES[1], *NODES[3:]),
        (*NODES, Compute("f", (), 0.0)),
        (*NODES[:4], NODES[5]),
    ],
)
def test_sections_that_differ_in_anything_are_kept_apart(nodes: tuple[Node, ...]) -> None:
    parts = [Job("first", 3, NODES), Job("then", 3, nodes), Job("again", 3, NODES)]
    assert contents(sections(one_after_another("whole", parts))) == [0, 1, 0]


def test_equal_messages_are_equal_whatever_demands_are_called_and_however_they_are_made() -> None:
    nodes = changed("b", pattern=AllToAll(Demand("results", MATRIX.copy(), "synthetic")))
    named = tuple(
        replace(node, name=node.name.upper(), after=tuple(map(str.upper, (*node.after, *node.after))))
        for node in nodes
    )
    assert contents(
        sections(one_after_another("whole", [Job("first", 3, NODES), Job("then", 3, named)]))
    ) == [0, 0]


def test_parts_side_by_side_have_no_barrier_between_them() -> None:
    part = chain("part", 3, NODES)
    beside = side_by_side("whole", [replace(part, name="left"), replace(part, name="right")])
    assert len(sections(beside)) == 1


def test_wide_parts_stay_within_the_arrows_that_a_job_may_have() -> None:
    one, two = (tuple(Compute(f"{number}", (0,), wide_s) for number in range(4000)) for wide_s in (1.0, 2.0))
    assert len(sections(in_turn("whole", 1, {"one": one, "two": two}))) == 4
