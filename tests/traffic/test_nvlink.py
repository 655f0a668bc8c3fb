"""NVLink: whether messages meet or not, all take the time that fluids take."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from topologies.fabric import Fabric
from topologies.rail import rail_fabric
from traffic.clock import NEVER, in_seconds, ps
from traffic.fluid.network import FluidNetwork
from traffic.fluid.nvlink import Nvlink
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


def ends_s(fabric: Fabric, posted: list[Batch]) -> dict[int, float]:
    """Return when each message arrives over NVLink, counted in the order in which they are posted."""
    nvlink, first, ends = Nvlink(fabric), 0, dict[int, float]()

    def advance(until_ps: int) -> None:
        while (at_ps := nvlink.next_ps) <= until_ps and at_ps < NEVER:
            ends.update(dict.fromkeys(nvlink.advance(at_ps), in_seconds(at_ps)))

    for at_s, rows in posted:
        advance(ps(at_s))
        nvlink.post(messages_of(rows), range(first, first + len(rows)), ps(at_s))
        first += len(rows)
    advance(NEVER)
    return ends


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
    nvlink, ends = Nvlink(FABRIC), dict[int, float]()
    nvlink.couple(first, 0, 0)
    assert in_seconds(nvlink.next_ps) == pytest.approx(busiest_s(first))
    nvlink.couple(second, 1, 0)
    while (at_ps := nvlink.next_ps) < NEVER:
        for number in nvlink.advance(at_ps):
            assert number not in ends
            ends[number] = in_seconds(at_ps)
    assert ends.keys() == {0, 1}
    for number, part in enumerate((first, second)):
        assert ends[number] >= busiest_s(part) * (1 - 1e-9)
    assert max(ends.values()) <= (busiest_s(first) + busiest_s(second)) * (1 + 1e-9)
