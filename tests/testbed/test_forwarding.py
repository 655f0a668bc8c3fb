"""Servers that forward, as fluids: closed forms, legs that follow the circuits, and what is refused."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.core.run import Run
from testbed.model.backend import FluidBackend
from tests.examples import examples
from tests.testbed.forwarding_cases import (
    WARM_UP_S,
    Forwarding,
    around,
    becomes_direct,
    pinned,
    ring_fabric,
    stride_circuits,
)
from tests.testbed.run_cases import DELAY_S
from topologies.errors import ScenarioError, StuckError
from traffic.records import legs_of
from traffic.scheme import OverCircuits

RATE_BPS = 8e9
SECOND = 1_000_000_000
"""What a NIC carries in a second [bytes]."""


def fluid(case: Forwarding) -> Run:
    return case.run(FluidBackend(case.fabric, case.delay_s))


def took_s(run: Run) -> list[float]:
    """Return how long each message took [s]."""
    return [round(at - WARM_UP_S, 9) for at in run.messages["end_s"].tolist()]


def test_queue_pairs_share_the_hop_of_a_server_that_forwards() -> None:
    case = Forwarding(
        ring_fabric(8, RATE_BPS), ((0, 3, SECOND), (1, 2, SECOND), (2, 3, SECOND)), stride_circuits(8, 1)
    )
    run = fluid(case)
    assert run.messages["path"].tolist() == [
        f"{SECOND}@h0:0,ocs0:3,h1:0,ocs0:5,h2:0,ocs0:7",
        f"{SECOND}@h1:0,ocs0:5",
        f"{SECOND}@h2:0,ocs0:7",
    ]
    assert took_s(run) == [2.0, 2.0, 2.0]


@settings(max_examples=examples(8, 25))
@given(st.integers(3, 9).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n - 1))))
def test_a_permutation_of_a_stride_over_a_ring_takes_its_hops(sizes: tuple[int, int]) -> None:
    servers, stride = sizes
    messages = tuple((server, (server + stride) % servers, SECOND) for server in range(servers))
    run = fluid(Forwarding(ring_fabric(servers, RATE_BPS), messages, stride_circuits(servers, 1)))
    hops = min(stride, servers - stride)
    paths = legs_of(run.messages)["path"]
    assert paths.str.count("h").tolist() == [hops] * servers
    assert took_s(run) == pytest.approx([float(hops)] * servers)


def test_circuits_of_the_stride_make_it_direct() -> None:
    messages = tuple((server, (server + 3) % 8, SECOND) for server in range(8))
    run = fluid(Forwarding(ring_fabric(8, RATE_BPS), messages, stride_circuits(8, 3)))
    assert took_s(run) == pytest.approx([1.0] * 8)


def test_a_queue_pair_stands_while_a_hop_is_dark_and_its_legs_follow_the_circuits() -> None:
    run = fluid(becomes_direct(500_000_000))
    assert took_s(run) == pytest.approx([0.05])  # 10 ms of it dark
    (path,) = run.messages["path"]
    assert path == "250000000@h0:0,ocs0:3,h1:0,ocs0:5 250000000@h0:0,ocs0:5"
    assert run.events["what"].tolist() == ["drained", "lit", "drained", "lit"]


def test_what_a_dead_server_does_not_forward_goes_elsewhere() -> None:
    run = fluid(around(400_000_000))
    assert took_s(run) == pytest.approx([0.034])  # 2 ms until the fault is detected
    (path,) = run.messages["path"]
    assert path == "187500000@h0:0,ocs0:3,h1:0,ocs0:5 212500000@h0:1,ocs0:6,h3:1,ocs0:4"


def test_equal_runs_are_equal_bit_by_bit() -> None:
    one, two = (fluid(becomes_direct(500_000_000)) for _ in range(2))
    assert one.messages.equals(two.messages)


def test_servers_that_no_route_joins_wait_for_light() -> None:
    case = Forwarding(ring_fabric(4), ((0, 2, SECOND),), ((0, 3), (3, 0)))
    with pytest.raises(StuckError, match="nothing is on its way"):
        fluid(case)
    later = replace(case, then=stride_circuits(4, 1), then_s=0.1)
    assert fluid(later).messages["end_s"].item() == pytest.approx(
        WARM_UP_S + 0.1 + DELAY_S + SECOND * 8 / 100e9
    )
    standing = Forwarding(
        replace(ring_fabric(4), servers_forward=False), ((0, 2, SECOND),), stride_circuits(4, 1)
    )
    with pytest.raises(StuckError, match="nothing is on its way"):
        fluid(standing)


def test_a_route_without_a_way_back_carries_nothing() -> None:
    one_way = stride_circuits(4, 1)[::2]
    case = Forwarding(ring_fabric(4), ((0, 2, SECOND),), one_way, scheme=pinned(0, 1))
    with pytest.raises(StuckError):
        fluid(case)


def test_datagrams_are_not_forwarded() -> None:
    case = Forwarding(ring_fabric(4), ((0, 1, SECOND),), stride_circuits(4, 1), scheme=OverCircuits())
    with pytest.raises(ScenarioError, match="datagrams, which servers do not forward"):
        fluid(case)
