"""Relays: which servers forward for one whose packet NICs have all failed."""

import numpy as np
import pytest

from tests.traffic.delegated_bounds import bounds
from tests.traffic.test_delegation import MEGABYTE, lit_view, sent
from topologies.events import View
from topologies.fabric import Nic
from topologies.mfabric import mfabric_fabric
from topologies.packet_part import cut_off
from traffic.delegated import Delegated, DelegatedSetup
from traffic.delegation import Lanes
from traffic.relays import RelayHop

FABRIC = mfabric_fabric(4, gpus=1, nics=4, packet_nics=2)
"""Circuit NICs 1 and 3."""
DEMAND = np.array([[0, 9, 2, 4], [0, 0, 0, 0], [0, 0, 0, 8], [0, 0, 0, 0]]) * MEGABYTE
CIRCUITS = np.array([[0, 1, 1, 0], [0, 0, 0, 0], [0, 0, 0, 1], [0, 0, 0, 0]])
"""0 to 1, 0 to 2 and 2 to 3, so that 0 to 3 goes over packets."""


def view_of(*cut: int) -> View:
    """Return the circuits, and servers that have lost their packet NICs."""
    ports = [FABRIC.nic_port(Nic(server, nic)) for server in cut for nic in (0, 2)]
    return View(0.0, FABRIC, lit_view(FABRIC, CIRCUITS).lit, FABRIC.both_ends(ports))


def test_only_servers_without_any_packet_nic_are_cut_off() -> None:
    assert cut_off(FABRIC, view_of(0, 2).failed) == {0, 2}
    assert not cut_off(FABRIC, FABRIC.both_ends([FABRIC.nic_port(Nic(0, nic)) for nic in (0, 1, 3)]))


def test_the_relay_has_a_circuit_and_the_fewest_packet_bytes_then_the_lowest_index() -> None:
    messages = sent(DEMAND)
    paths = Lanes().paths(view_of(0), messages)
    assert paths == [(), (), (RelayHop(0, 1, True), RelayHop(1, 3, False)), ()]
    busy = DEMAND + np.array([[0] * 4, [0, 0, 0, 1], [0] * 4, [0] * 4])  # 1 to 3 goes over packets
    paths = Lanes().paths(view_of(0), sent(busy))
    assert paths[2] == (RelayHop(0, 2, True), RelayHop(2, 3, False))


def test_it_comes_back_the_same_way_and_both_ends_may_need_one() -> None:
    back = Lanes().paths(view_of(0), sent(DEMAND.T.copy()))
    assert (RelayHop(3, 1, False), RelayHop(1, 0, True)) in back
    both = Lanes().paths(view_of(0, 3), sent(DEMAND))
    assert both[2] == (RelayHop(0, 1, True), RelayHop(1, 2, False), RelayHop(2, 3, True))


def test_other_collectives_take_a_circuit_to_their_server_if_there_is_one() -> None:
    paths = Lanes(light=False).paths(view_of(0), sent(DEMAND))
    assert paths == [
        (RelayHop(0, 1, True),),
        (RelayHop(0, 2, True),),
        (RelayHop(0, 1, True), RelayHop(1, 3, False)),
        (),
    ]


def test_nobody_relays_where_no_circuit_leads_to_packet_nics() -> None:
    assert Lanes().paths(view_of(0, 1, 2), sent(DEMAND))[2] is None


def test_circuit_and_relay_carry_the_sum() -> None:
    view = view_of(0)
    found = Delegated().delegate(view, sent(DEMAND))
    # 9 MB of its own and 4 MB that server 1 relays cross the circuit of servers 0 and 1.
    assert bounds(view, found).transfer_s == pytest.approx(8 * 13 * MEGABYTE / 100e9)
    assert bounds(view_of(), Delegated().delegate(view_of(), sent(DEMAND))).transfer_s == pytest.approx(
        8 * 9 * MEGABYTE / 100e9
    )


def test_bytes_are_gathered_at_the_first_hop_and_scattered_behind_the_last() -> None:
    fabric = mfabric_fabric(4, gpus=4, nics=4, packet_nics=2)
    gpus = np.kron(DEMAND, np.eye(4, dtype=np.int64))
    lit = lit_view(fabric, CIRCUITS).lit
    failed = fabric.both_ends([fabric.nic_port(Nic(0, nic)) for nic in (0, 2)])
    found = Delegated().delegate(View(0.0, fabric, lit, failed), sent(gpus))
    leaving = {pair.source.nic for pair in found.lanes.queue_pairs if pair.source.server == 0}
    assert set(found.gather.destination[found.gather.destination < 4].tolist()) == leaving == {1, 3}
    at_last = found.scatter.source[found.scatter.source >= 12]
    assert {0, 2} <= {gpu - 12 for gpu in at_last.tolist()}  # the packet NICs of server 3


def test_spilling_leaves_alone_what_is_relayed() -> None:
    paths = Lanes(spill=True).paths(view_of(0), sent(DEMAND))
    assert paths[2] == (RelayHop(0, 1, True), RelayHop(1, 3, False))
    found = Delegated(DelegatedSetup(spill=True)).delegate(view_of(0), sent(DEMAND))
    assert found.lanes.bytes.sum() == DEMAND.sum() + 4 * MEGABYTE
