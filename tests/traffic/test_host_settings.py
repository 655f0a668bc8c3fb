"""What hosts are set to: in proportion to the emulated network under tcp, out of the way under the others."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topologies.addresses import ENTROPIES
from topologies.errors import ScenarioError
from topologies.fabric import DEFAULT_BUFFER_BYTES, Fabric
from topologies.fat_tree import fat_tree_fabric
from topologies.leaf_spine import leaf_spine_fabric
from topologies.rail import rail_fabric
from traffic.packets import DEFAULT_MTU, LEAST_MTU, MOST_MTU, frame_bytes
from traffic.transports.host_settings import (
    LEAST_WINDOW_PACKETS,
    OF_DATAGRAMS,
    USUAL_WINDOW_PACKETS,
    HostSettings,
    TransportSetup,
    host_settings,
)

FABRICS = [
    rail_fabric(2, 2),
    rail_fabric(4, 2, uplink_bps=25e9),
    leaf_spine_fabric(4, 2, 2),
    fat_tree_fabric(4, gpus=1),
]
TCP = TransportSetup("tcp")
RATES = st.floats(1e-5, 1.0)
DELAYS_S = st.floats(0, 1e-3)
MTUS = st.integers(LEAST_MTU, MOST_MTU)


def dilated(fabric: Fabric, rate: float, mtu: int = DEFAULT_MTU, setup: TransportSetup = TCP) -> HostSettings:
    """Return what hosts are set to where time is stretched as much as rates are lowered."""
    return host_settings(setup, fabric, rate, 1 / rate, mtu)


def full_port_s(fabric: Fabric, rate: float) -> float:
    """Return how long the slowest port takes to empty its full buffer at emulated scale [s]."""
    return 8 * fabric.buffer_bytes / (rate * min(link.rate_bps for link in fabric.links))


@pytest.mark.parametrize("fabric", FABRICS, ids=lambda fabric: fabric.name)
@given(rate=RATES, delay_s=DELAYS_S, mtu=MTUS, buffer_bytes=st.integers(1_000, 1 << 24))
def test_no_packet_that_is_under_way_is_taken_for_lost(
    fabric: Fabric, rate: float, delay_s: float, mtu: int, buffer_bytes: int
) -> None:
    fabric = replace(fabric.with_links(delay_s=delay_s, loss=0.0), buffer_bytes=buffer_bytes)
    hops = 2 * (1 + max(switch.tier for switch in fabric.switches))
    there_and_back_s = 2 * hops * delay_s / rate + full_port_s(fabric, rate)
    assert dilated(fabric, rate, mtu).least_timeout_s >= there_and_back_s


@given(rate=RATES, delay_s=DELAYS_S)
def test_all_stand_to_the_emulated_network_as_they_do_to_the_real_one(rate: float, delay_s: float) -> None:
    fabric = rail_fabric(4, 2).with_links(delay_s=delay_s, loss=0.0)
    real, emulated = dilated(fabric, 1.0), dilated(fabric, rate)
    assert emulated.initial_window_packets == real.initial_window_packets
    assert emulated.least_timeout_s == pytest.approx(real.least_timeout_s / rate)


@given(first_s=DELAYS_S, more_s=DELAYS_S, rate=RATES, mtu=MTUS)
def test_the_initial_window_grows_with_delay_between_its_limits(
    first_s: float, more_s: float, rate: float, mtu: int
) -> None:
    short, long = (
        dilated(rail_fabric(2, 2).with_links(delay_s=delay_s, loss=0.0), rate, mtu).initial_window_packets
        for delay_s in (first_s, first_s + more_s)
    )
    assert LEAST_WINDOW_PACKETS <= short <= long <= USUAL_WINDOW_PACKETS


@pytest.mark.parametrize(("delay_s", "packets"), [(0.0, 2), (1e-6, 8), (1e-3, 10)])
def test_the_initial_window_is_what_the_shortest_path_holds(delay_s: float, packets: int) -> None:
    # 9014 bytes take 0.72 us at 100 Gbit/s; two links of 1 us hold 2 + 4 / 0.72 packets there and back.
    fabric = rail_fabric(2, 2).with_links(delay_s=delay_s, loss=0.0)
    assert dilated(fabric, 1e-3).initial_window_packets == packets


def test_the_least_timeout_is_twice_the_round_trip_through_one_full_port() -> None:
    # 36 Mbit/s empty 2 MiB in 0.466 s; four links carry a packet in 2 ms each.
    packet_s = 8 * frame_bytes(DEFAULT_MTU) / 36e6
    asked_s = 2 * (8 * DEFAULT_BUFFER_BYTES / 36e6 + 4 * packet_s)
    assert dilated(rail_fabric(8, 4), 3.6e-4).least_timeout_s == pytest.approx(asked_s)
    assert asked_s == pytest.approx(0.948, abs=0.001)


@pytest.mark.parametrize("fabric", FABRICS, ids=lambda fabric: fabric.name)
@given(rate=RATES, delay_s=DELAYS_S, mtu=MTUS, buffer_bytes=st.integers(1_000, 1 << 24))
def test_marks_leave_room_for_what_a_path_holds_and_for_what_comes_after_them(
    fabric: Fabric, rate: float, delay_s: float, mtu: int, buffer_bytes: int
) -> None:
    fabric = replace(fabric.with_links(delay_s=delay_s, loss=0.0), buffer_bytes=buffer_bytes)
    marked = dilated(fabric, rate, mtu, TransportSetup("tcp:dctcp"))
    assert replace(marked, congestion_control="cubic", mark_bytes=0) == dilated(fabric, rate, mtu)
    assert marked.mark_bytes <= buffer_bytes / 2
    if marked.mark_bytes < buffer_bytes // 2:
        hops = 2 * (1 + max(switch.tier for switch in fabric.switches))
        slowest_bps = rate * min(link.rate_bps for link in fabric.links)
        held_bytes = (2 * hops * delay_s / rate) * slowest_bps / 8
        assert marked.mark_bytes >= max(held_bytes, USUAL_WINDOW_PACKETS * frame_bytes(mtu))


@given(window=st.integers(1, 1000), timeout_s=st.floats(1e-3, 100), name=st.sampled_from(["tcp", "credit"]))
def test_what_the_user_wants_comes_before_the_rule(window: int, timeout_s: float, name: str) -> None:
    setup = TransportSetup(name, window, timeout_s)
    settings = dilated(rail_fabric(2, 2), 1e-3, setup=setup)
    assert (settings.initial_window_packets, settings.least_timeout_s) == (window, timeout_s)
    ruled = dilated(rail_fabric(2, 2), 1e-3, setup=TransportSetup(name))
    assert dilated(rail_fabric(2, 2), 1e-3, setup=TransportSetup(name, window)).least_timeout_s == (
        ruled.least_timeout_s
    )


@pytest.mark.parametrize("name", ["credit", "ideal", "mine:Control"])
@given(rate=RATES, delay_s=DELAYS_S)
def test_datagrams_leave_tcp_as_linux_has_it(name: str, rate: float, delay_s: float) -> None:
    fabric = rail_fabric(2, 2).with_links(delay_s=delay_s, loss=0.0)
    assert dilated(fabric, rate, setup=TransportSetup(name)) == OF_DATAGRAMS


@pytest.mark.parametrize("entropies", [1, 2, 64])
def test_each_packet_has_as_many_entropies_as_are_asked_for_where_it_is_a_datagram(entropies: int) -> None:
    for name in ("credit", "ideal", "mine:Control"):
        assert TransportSetup(name, entropies=entropies).sprays == entropies
    for name in ("tcp", "tcp:bbr"):
        assert TransportSetup(name, entropies=entropies).sprays is None


def test_a_nic_has_64_entropies_unless_fewer_are_asked_for() -> None:
    assert TransportSetup().sprays == ENTROPIES == 64


@pytest.mark.parametrize("entropies", [-1, 0, 65, 4096])
def test_entropies_that_a_nic_has_not_are_refused(entropies: int) -> None:
    with pytest.raises(ScenarioError) as caught:
        TransportSetup(entropies=entropies)
    assert (caught.value.sentence, caught.value.hint) == (f"{entropies} entropies of a NIC", "give 1 to 64")


@pytest.mark.parametrize(
    ("name", "control"), [("tcp", "cubic"), ("tcp:bbr", "bbr"), ("tcp:reno", "reno"), ("credit", "cubic")]
)
def test_congestion_is_controlled_as_the_name_says(name: str, control: str) -> None:
    assert dilated(rail_fabric(2, 2), 1e-3, setup=TransportSetup(name)).congestion_control == control
