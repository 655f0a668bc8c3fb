"""Operations: parts are numbered in order, and what is under way stays whose it is."""

import numpy as np
import pytest

from topologies.errors import ScenarioError
from topologies.events import View
from topologies.rail import rail_fabric
from traffic.messages import Messages
from traffic.ops import DARK, OWN, Ops, Part, each_alone, joined
from traffic.placing import lowered_by
from traffic.scheme import Placement

FABRIC = rail_fabric(2, 2)
NOW = View(0.0, FABRIC, {}, frozenset())


def moves(*rows: tuple[int, int, int]) -> Messages:
    return Messages(*np.array(rows, dtype=np.int64).reshape(-1, 3).T)


def test_an_operation_is_a_move_or_all_of_a_part() -> None:
    few = moves((0, 2, 10), (1, 3, 20))
    alone, together = Part(few), Part(few, together=True)
    assert [len(alone), len(together)] == [2, 1]
    ops = Ops((together, alone), np.array([[0, 1], [0, 2]]))
    assert len(ops) == 3
    assert ops.moves.bytes.tolist() == [10, 20, 10, 20]


def test_what_comes_first_waits_for_no_other() -> None:
    few = moves((0, 2, 10), (1, 3, 20))
    ops = Ops((Part(few, together=True), Part(few)), np.array([[0, 1]]))
    assert ops.first.bytes.tolist() == [10, 20, 20]
    assert len(Ops((Part(moves()),)).first) == 0


def test_joined_operations_wait_for_their_own() -> None:
    chain = each_alone(moves((0, 2, 1), (2, 0, 1)), np.array([[0, 1]]))
    assert joined([chain, chain]).after.tolist() == [[0, 1], [2, 3]]
    assert len(joined([chain, chain])) == 4


def test_a_part_keeps_the_columns_of_what_is_selected() -> None:
    part = Part(moves((0, 2, 1), (1, 3, 2)), channel=np.array([5, 6]), of=np.array([8, 9]))
    kept = part.select(np.array([False, True]))
    assert (kept.moves.bytes.tolist(), kept.channel.tolist(), kept.of.tolist()) == ([2], [6], [9])


def test_what_is_not_under_way_is_left_alone() -> None:
    ops = each_alone(moves((0, 2, 1)))
    assert ops.each_under_way(lambda _part: pytest.fail("it was asked")) is ops
    under_way = Ops((Part(moves((0, 2, 1)), of=np.array([7])),))
    assert under_way.each_under_way(lambda part: Ops((part,))) is under_way
    (waits,) = under_way.each_under_way(lambda part: Ops((Part(part.moves, medium=DARK, of=part.of),))).parts
    assert (waits.medium, waits.of.tolist()) == (DARK, [7])


class Losing:
    """A scheme that lowers operations to fewer bytes."""

    name = "losing"

    def place(self, view: View, messages: Messages) -> Placement:
        raise NotImplementedError

    def lower(self, ops: Ops, view: View) -> Ops:
        """Return half of each move."""
        return Ops(tuple(Part(moves((0, 2, int(part.moves.bytes[0]) // 2))) for part in ops.parts))


def test_a_scheme_that_loses_bytes_as_it_lowers_is_refused() -> None:
    with pytest.raises(ScenarioError, match="'losing' lowered operations of 10 bytes to others that bring 5"):
        lowered_by(Losing(), each_alone(moves((0, 2, 10))), NOW)
    assert Part(moves((0, 2, 10))).stage == OWN
