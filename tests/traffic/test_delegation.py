"""Topology-aware all-to-all: the worked example, conservation of bytes in every leg, and its bounds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from controller.schedulers.mfabric import (
    circuit_counts,
    circuit_order,
    circuits_of,
    nic_mapping,
    server_demand,
    transfer_bound_s,
    transfer_s,
)
from tests.examples import examples
from tests.traffic.delegated_bounds import bounds
from topologies.errors import ScenarioError
from topologies.events import View
from topologies.fabric import Fabric
from topologies.fat_tree import fat_tree_fabric
from topologies.mfabric import mfabric_fabric, regions
from traffic.bounds import busiest_server_s
from traffic.delegated import Delegated
from traffic.delegation import Delegation, Lanes, delegation
from traffic.demand import Demand
from traffic.messages import Messages, messages_of

Matrix = NDArray[np.int64]
MEGABYTE = 1_000_000
EXAMPLE = np.array([[0, 90, 10, 20], [70, 0, 30, 40], [20, 10, 0, 25], [10, 20, 15, 0]]) * MEGABYTE
"""The spec's worked example between four servers."""


def lit_view(fabric: Fabric, demand: Matrix) -> View:
    """Return what is seen when Algorithm 1's circuits are lit for a demand between servers."""
    (region,) = regions(fabric)
    order = circuit_order(demand, len(region.nics[0]))
    counts = circuit_counts(order, len(demand))
    circuits = circuits_of(fabric, region, nic_mapping(fabric, region, counts, demand))
    return View(0.0, fabric, {region.ocs: circuits.pairs}, frozenset())


def dark(fabric: Fabric) -> View:
    return View(0.0, fabric, {region.ocs: () for region in regions(fabric)}, frozenset())


def sent(matrix: Matrix) -> Messages:
    return messages_of(Demand("drawn", matrix))


@pytest.mark.parametrize(("alpha", "packet_nics", "transfer_ms"), [(3, 1, 7.2), (4, 2, 3.6), (6, 2, 2.4)])
def test_worked_example(alpha: int, packet_nics: int, transfer_ms: float) -> None:
    fabric = mfabric_fabric(4, gpus=1, nics=alpha + packet_nics, packet_nics=packet_nics)
    view = lit_view(fabric, EXAMPLE)
    found = bounds(view, delegation(view, sent(EXAMPLE), Lanes()))
    assert found.transfer_s * 1e3 == pytest.approx(transfer_ms)
    assert found.in_turn_s == found.pipelined_s == found.transfer_s  # one GPU per server gathers nothing


@pytest.mark.parametrize(("nics", "bound_ms"), [(4, 2.8), (6, 1.8667), (8, 1.4)])
def test_bound_of_servers_of_the_worked_example(nics: int, bound_ms: float) -> None:
    fabric = mfabric_fabric(4, gpus=1, nics=nics, packet_nics=1)
    assert busiest_server_s(sent(EXAMPLE), fabric) * 1e3 == pytest.approx(bound_ms, rel=1e-4)
    assert busiest_server_s(sent(EXAMPLE), fabric) == pytest.approx(transfer_bound_s(EXAMPLE, nics, 100e9))


def test_gather_and_scatter_of_a_drawing() -> None:
    """GPUs 0, 1 on server 0, and 2, 3 on server 1; NIC k belongs to GPU k of each."""
    fabric = fat_tree_fabric(4, servers=2, nics=2, gpus=2, rate_bps=8e9, nvlink_bps=80e9)
    matrix = np.zeros((4, 4), dtype=np.int64)
    matrix[0, 3], matrix[1, 0] = 1000, 500
    view = View(0.0, fabric, {}, frozenset())
    found = delegation(view, sent(matrix), Lanes())
    assert rows(found.gather) == [(0, 1, 500)]
    assert rows(found.inside) == [(1, 0, 500)]
    assert rows(found.scatter) == [(2, 3, 500)]
    assert rows(found.between) == [(0, 2, 1000)]
    assert sorted(found.lanes.bytes.tolist()) == [500, 500]
    ends = [(str(pair.source), str(pair.destination)) for pair in found.lanes.queue_pairs]
    assert [a[-1] for a, _ in ends] == [b[-1] for _, b in ends] == ["0", "1"]
    inside_s = 8 * 500 / 80e9
    assert bounds(view, found) == pytest.approx((inside_s, 8 * 500 / 8e9, inside_s, inside_s))
    assert bounds(view, found).in_turn_s == pytest.approx(2 * inside_s + 5e-7)
    assert bounds(view, found).pipelined_s == pytest.approx(5e-7)


def rows(messages: Messages) -> list[tuple[int, int, int]]:
    columns = (messages.source.tolist(), messages.destination.tolist(), messages.bytes.tolist())
    return list(zip(*columns, strict=True))


demands = st.integers(0, 2**32 - 1).map(
    lambda seed: np.random.default_rng(seed).integers(0, 1000, (16, 16)) * 1000
)
"""Between the 16 GPUs of four servers."""


@settings(max_examples=examples(6, 20))
@given(demands, st.integers(1, 6), st.booleans())
def test_every_leg_carries_what_the_others_do(matrix: Matrix, alpha: int, spill: bool) -> None:
    fabric = mfabric_fabric(4, gpus=4, nics=alpha + 2, packet_nics=2)
    demand = server_demand(np.where(np.eye(16), 0, matrix), [4] * 4).astype(np.int64)
    view = lit_view(fabric, demand)
    found = delegation(view, sent(matrix), Lanes(spill=spill))
    between = np.zeros((4, 4), dtype=np.int64)
    np.add.at(between, (found.between.source // 4, found.between.destination // 4), found.between.bytes)
    assert (between == demand).all()
    parcels = np.bincount(found.lanes.message, found.lanes.bytes, len(found.between))
    assert (parcels == found.between.bytes).all()
    assert_flows_balance(fabric, found)
    times = bounds(view, found)
    assert busiest_server_s(sent(matrix), fabric) <= times.transfer_s * (1 + 1e-6)
    assert times.pipelined_s <= times.in_turn_s
    if not spill:
        counts = np.zeros((4, 4), dtype=np.intp)
        for pair in (pair for ocs in view.lit for pair in view.lit[ocs]):
            counts[pair[0] // alpha, pair[1] // alpha] += 1
        assert times.transfer_s == pytest.approx(transfer_s(demand, counts, 2, 100e9), rel=1e-5)


def assert_flows_balance(fabric: Fabric, found: Delegation) -> None:
    """After gather a GPU has of other servers' bytes what its NICs send, and so on at the other end."""
    gpus = 16
    crossing = found.messages.select(found.pair >= 0)
    leaving = np.bincount(crossing.source, crossing.bytes, gpus)
    arriving = np.bincount(crossing.destination, crossing.bytes, gpus)
    sends, receives = np.zeros(gpus), np.zeros(gpus)
    for qp, size in zip(found.lanes.qp.tolist(), found.lanes.bytes.tolist(), strict=True):
        pair = found.lanes.queue_pairs[qp]
        sends[fabric.pinned_gpu(pair.source)] += size
        receives[fabric.pinned_gpu(pair.destination)] += size
    gathered = leaving + moved_in(found.gather, gpus)
    scattered = receives + moved_in(found.scatter, gpus)
    assert gathered == pytest.approx(sends, abs=64)  # hops are rounded to bytes
    assert scattered == pytest.approx(arriving, abs=64)


def moved_in(messages: Messages, gpus: int) -> NDArray[np.float64]:
    """Return what each GPU receives of messages, less what it sends."""
    ends = (messages.destination, messages.source)
    into, out = (np.bincount(each, messages.bytes, gpus) for each in ends)
    return np.asarray(into - out, dtype=float)


def test_spill_takes_the_least_time_in_which_packet_nics_carry_the_surplus() -> None:
    fabric = mfabric_fabric(2, gpus=1, nics=3, packet_nics=2)
    demand = np.array([[0, 90], [30, 0]]) * MEGABYTE
    view = lit_view(fabric, demand)
    plain = bounds(view, delegation(view, sent(demand), Lanes()))
    spilled = bounds(view, delegation(view, sent(demand), Lanes(spill=True)))
    assert plain.transfer_s == pytest.approx(7.2e-3)  # one circuit of 100 Gbit/s
    assert spilled.transfer_s == pytest.approx(2.4e-3)  # and two packet NICs


def test_two_hops_share_the_circuits_of_the_server_between() -> None:
    fabric = mfabric_fabric(3, gpus=1, nics=3, packet_nics=1)
    line = np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]]) * MEGABYTE
    demand = np.array([[0, 1, 1], [1, 0, 1], [1, 1, 0]]) * MEGABYTE
    lit = lit_view(fabric, line).lit
    forwarding = Fabric(fabric.name, fabric.servers, fabric.switches, fabric.links, servers_forward=True)
    view = View(0.0, forwarding, lit, frozenset())
    found = delegation(view, sent(demand), Lanes(two_hops=True))
    assert all(pair.source.nic for pair in found.lanes.queue_pairs)  # NIC 0 is the packet NIC
    assert bounds(view, found).transfer_s == pytest.approx(8 * 2 * MEGABYTE / 100e9, rel=1e-9)
    with pytest.raises(ScenarioError, match="do not forward"):
        delegation(View(0.0, fabric, lit, frozenset()), sent(demand), Lanes(two_hops=True))


def test_lanes_leave_out_what_failed() -> None:
    fabric = mfabric_fabric(2, gpus=2, nics=3, packet_nics=2)
    demand = np.array([[0, 9], [9, 0]]) * MEGABYTE
    view = lit_view(fabric, demand)
    gpus = np.kron(demand, np.eye(2, dtype=np.int64))
    (circuit,) = {nic for nic in fabric.nics if nic.server == 0} - {
        nic for nic in fabric.nics if nic.server == 0 and fabric.peer(fabric.nic_port(nic)).node != "ocs0"
    }
    failed = frozenset({fabric.nic_port(circuit)})
    found = delegation(View(0.0, fabric, view.lit, failed), sent(gpus), Lanes())
    assert circuit not in {pair.source for pair in found.lanes.queue_pairs}
    assert len(found.lanes.queue_pairs) == 4
    everything = frozenset(fabric.nic_port(nic) for nic in fabric.nics)
    with pytest.raises(ScenarioError, match="neither circuits nor packet NICs"):
        Lanes().place(View(0.0, fabric, view.lit, everything), sent(gpus))


def test_equal_all_to_alls_over_equal_circuits_are_one_delegation() -> None:
    fabric = mfabric_fabric(4, gpus=1, nics=4, packet_nics=1)
    scheme, lit = Delegated(), lit_view(fabric, EXAMPLE)
    assert scheme.delegate(lit, sent(EXAMPLE)) is scheme.delegate(lit, sent(EXAMPLE.copy()))
    assert scheme.delegate(lit, sent(EXAMPLE)) is not scheme.delegate(dark(fabric), sent(EXAMPLE))
