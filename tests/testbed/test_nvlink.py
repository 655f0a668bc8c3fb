"""NVLink: whether messages meet or not, all take the time that fluids take."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.core.backend import NVLINK, Arrived, Flows
from testbed.live.nvlink import LiveNvlink
from tests.examples import examples
from topologies.fabric import Fabric
from topologies.rail import rail_fabric
from traffic.clock import NEVER, in_seconds, ps
from traffic.fluid.network import FluidNetwork
from traffic.messages import Messages

FABRIC = rail_fabric(2, 4, nvlink_bps=80.0)
BYTES_S = 10.0
Batch = tuple[float, list[tuple[int, int, int]]]
batches = st.lists(
    st.tuples(
        st.integers(0, 60).map(float),
        st.lists(
            st.tuples(st.integers(0, 3), st.integers(1, 3), st.integers(1, 200)), min_size=1, max_size=4
        ),
    ),
    min_size=1,
    max_size=12,
)


def messages_of(rows: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Return messages between GPUs of the first server, of source, distance to the destination and bytes."""
    return [(source, (source + distance) % 4, size) for source, distance, size in rows]


class Clock:
    """A booted network's time, on which all stays inside servers."""

    def __init__(self, fabric: Fabric) -> None:
        self.now_ps, self.ends = 0, dict[int, float]()
        self.nvlink = LiveNvlink(fabric)

    def pass_until(self, until_ps: int) -> None:
        """Let time pass, and note when each operation arrives."""
        while (due_ps := self.nvlink.due_ps) <= until_ps and due_ps < NEVER:
            self.now_ps = due_ps
            for arrived in self.nvlink.advance(self.now_ps):
                assert arrived.op not in self.ends
                assert arrived.at_ps == self.now_ps
                self.ends[arrived.op] = in_seconds(arrived.at_ps)
        self.now_ps = until_ps if until_ps < NEVER else self.now_ps

    def send(self, moves: Messages, first: int, *, together: bool = False) -> None:
        """Send moves, numbered from a first one on, or all as one operation."""
        op = np.full(len(moves), first) if together else np.arange(first, first + len(moves))
        lane = np.full(len(moves), NVLINK)
        flows = Flows(op, moves.bytes, lane, moves.source, moves.destination, together, inside=True)
        self.nvlink.start([flows], self.now_ps)


def ends_s(fabric: Fabric, posted: list[Batch]) -> dict[int, float]:
    """Return when each message arrives over NVLink, counted in the order in which they are posted."""
    clock, first = Clock(fabric), 0
    for at_s, rows in posted:
        clock.pass_until(ps(at_s))
        clock.send(coupled(rows), first)
        first += len(rows)
    clock.pass_until(NEVER)
    return clock.ends


def fluid_ends_s(posted: list[Batch]) -> dict[int, float]:
    """Return the same if all messages are fluids, whether they meet or not."""
    network, first, ends = FluidNetwork([BYTES_S * 8] * 8), 0, dict[int, float]()
    flows = {(a, b): network.add_flows([(a, 4 + b)])[0] for a in range(4) for b in range(4) if a != b}

    def advance(until_ps: int) -> None:
        while arrived := network.advance(until_ps):
            ends.update((number, in_seconds(at_ps)) for at_ps, number, _ in arrived)

    for at_s, rows in posted:
        advance(ps(at_s))
        messages = messages_of(rows)
        numbers = range(first, first + len(rows))
        network.post([flows[a, b] for a, b, _ in messages], [size for *_, size in messages], list(numbers))
        first += len(rows)
    advance(NEVER)
    return ends


@settings(max_examples=examples(40, 200), deadline=None)
@given(batches)
def test_messages_take_the_time_of_fluids(drawn: list[Batch]) -> None:
    posted = sorted(drawn, key=lambda batch: batch[0])
    ours, fluids = ends_s(FABRIC, posted), fluid_ends_s(posted)
    assert ours.keys() == fluids.keys()
    for number, end_s in fluids.items():
        assert ours[number] == pytest.approx(end_s, rel=1e-9, abs=1e-9)


def coupled(rows: list[tuple[int, int, int]]) -> Messages:
    source, destination, size = np.array(messages_of(rows), dtype=np.int64).T
    return Messages(source, destination, size)


def busiest_s(*parts: Messages) -> float:
    """Return what the busiest GPU takes, out or in."""
    size = np.concatenate([part.bytes for part in parts])
    ends = ([part.source for part in parts], [part.destination for part in parts])
    return float(max(np.bincount(np.concatenate(end), size).max() for end in ends) / BYTES_S)


@given(batches.filter(lambda drawn: len(drawn) > 1))
def test_coupled_messages_end_together_when_their_busiest_gpu_does_and_share_when_they_meet(
    drawn: list[Batch],
) -> None:
    first, second = (coupled(rows) for _, rows in drawn[:2])
    clock = Clock(FABRIC)
    clock.send(first, 0, together=True)
    alone = Clock(FABRIC)
    alone.send(first, 0, together=True)
    alone.pass_until(NEVER)
    assert alone.ends[0] == pytest.approx(busiest_s(first))
    clock.send(second, 1, together=True)
    clock.pass_until(NEVER)
    assert clock.ends.keys() == {0, 1}
    for number, part in enumerate((first, second)):
        assert clock.ends[number] >= busiest_s(part) * (1 - 1e-9)
    assert max(clock.ends.values()) <= (busiest_s(first) + busiest_s(second)) * (1 + 1e-9)


def test_what_arrived_before_anyone_looked_arrives_when_more_is_sent() -> None:
    clock = Clock(FABRIC)
    clock.send(coupled([(0, 1, 10)]), 0)
    due_ps = clock.nvlink.due_ps
    clock.now_ps = due_ps + 7
    clock.send(coupled([(0, 1, 10)]), 1)
    assert clock.nvlink.due_ps <= clock.now_ps
    assert clock.nvlink.advance(clock.now_ps + 1) == [Arrived(0, due_ps + 7, NVLINK)]
    assert clock.nvlink.due_ps == 2 * due_ps + 7
