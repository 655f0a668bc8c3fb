"""Bills of fabrics: the paper's prices, its ratios to the printed digits, and only used ports."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topologies.cost import as_printed, pareto_front
from topologies.errors import FabricError
from topologies.fabric import Fabric, Port
from topologies.fabric_bill import DAC_USD, PRICES, fabric_bill
from topologies.fat_tree import fat_tree_fabric, least_k
from topologies.leaf_spine import leaf_spine_fabric
from topologies.mfabric import mfabric_fabric
from topologies.parallel_ocs import parallel_ocs_fabric
from topologies.patch_panel import patch_panel_fabric

rates = st.sampled_from(sorted(PRICES))


def fat_tree(servers: int, rate_bps: float, *, rail_optimised: bool = False) -> Fabric:
    k = least_k(8 * servers)
    return fat_tree_fabric(k, servers=servers, nics=8, rate_bps=rate_bps, rail_optimised=rail_optimised)


def counts(fabric: Fabric) -> dict[str, int]:
    """Return how many of each part a fabric's bill has."""
    return {part.name: quantity for quantity, part in fabric_bill(fabric).parts}


def test_fabrics_of_1024_gpus_at_400_gbit_cost_what_the_paper_counts() -> None:
    assert fabric_bill(fat_tree(128, 400e9)).usd == 11_625_472
    assert fabric_bill(fat_tree(128, 400e9, rail_optimised=True)).usd == 11_625_472
    assert fabric_bill(mfabric_fabric(128, 8, rate_bps=400e9)).usd == 5_078_272
    panel = patch_panel_fabric(128, rate_bps=400e9)
    assert fabric_bill(panel, circuit_port="patch-panel port").usd == 2_465_792
    assert counts(fat_tree(128, 400e9)) == {
        "NIC": 1024,
        "transceiver": 6144,
        "packet-switch port": 5120,
        "fibre": 3072,
    }
    assert counts(mfabric_fabric(128, 8, rate_bps=400e9)) == {
        "NIC": 1024,
        "transceiver": 2304,
        "packet-switch port": 1280,
        "OCS port": 768,
        "fibre": 1536,
    }


@pytest.mark.parametrize("servers", [8, 128])
def test_fat_tree_costs_as_many_times_mfabric_as_the_paper_says(servers: int) -> None:
    ratios = [
        fabric_bill(fat_tree(servers, rate)).usd / fabric_bill(mfabric_fabric(servers, 8, rate_bps=rate)).usd
        for rate in sorted(PRICES)
    ]
    assert [as_printed(ratio) for ratio in ratios] == ["1.52", "1.79", "2.29", "2.33"]
    assert as_printed(sum(ratios) / 4) == "1.98"
    assert as_printed(ratios[2], 3) == "2.289"


def test_mfabric_costs_twice_topoopt_and_not_slightly_more() -> None:
    panel = fabric_bill(patch_panel_fabric(128, rate_bps=400e9), circuit_port="patch-panel port")
    assert as_printed(fabric_bill(mfabric_fabric(128, 8, rate_bps=400e9)).usd / panel.usd) == "2.06"


def test_cables_to_servers_give_the_ratio_of_figure_24() -> None:
    fabrics = fat_tree(512, 400e9), mfabric_fabric(512, 8, rate_bps=400e9)
    ratios = [
        as_printed(tree.usd / mixed.usd)
        for usd in (100, DAC_USD, 800)
        for tree, mixed in [[fabric_bill(fabric, server_cable_usd=usd) for fabric in fabrics]]
    ]
    assert (ratios[0], ratios[-1]) == ("2.16", "2.23")
    assert 2.16 < float(ratios[1]) < 2.23


@given(st.sampled_from([2, 4, 6, 8, 10]), st.integers(1, 8), st.data(), rates)
def test_fat_trees_with_room_left_use_five_ports_a_nic(
    k: int, nics: int, data: st.DataObject, rate: float
) -> None:
    room = k**3 // 4
    nics = min(nics, room)
    servers = data.draw(st.integers(1, room // nics))
    fabric = fat_tree_fabric(k, servers=servers, nics=nics, rate_bps=rate)
    total = servers * nics
    assert counts(fabric) == {
        "NIC": total,
        "transceiver": 6 * total,
        "packet-switch port": 5 * total,
        "fibre": 3 * total,
    }


@given(st.sampled_from([4, 6, 8]), st.integers(1, 4))
def test_oversubscribed_edges_save_ports(k: int, ratio: int) -> None:
    fabric = fat_tree_fabric(k, edge_nics=ratio * k // 2)
    nics = len(fabric.nics)
    assert counts(fabric)["packet-switch port"] == nics + 4 * nics // ratio
    assert counts(fabric)["fibre"] == nics + 2 * nics // ratio


@given(st.integers(1, 6), st.integers(1, 4), st.booleans(), rates)
def test_every_nic_and_packet_port_has_a_transceiver_and_every_link_a_fibre(
    servers: int, ocses: int, packet_switch: bool, rate: float
) -> None:
    fabric = parallel_ocs_fabric(servers, ocses, packet_switch=packet_switch, rate_bps=rate)
    found = counts(fabric)
    assert found["NIC"] == found["fibre"] == len(fabric.links)
    assert found["OCS port"] == servers * ocses
    assert found["transceiver"] == found["NIC"] + found.get("packet-switch port", 0)


def test_links_of_each_rate_have_their_own_price() -> None:
    mixed = mfabric_fabric(1, nics=4, packet_nics=1, one_packet_switch=True, rate_bps=400e9, packet_bps=100e9)
    bill = fabric_bill(mixed)
    assert bill.usd == 659 + 2 * 99 + 187 + 150 + 3 * (1499 + 659 + 520 + 150)
    assert bill.gpu_bps == pytest.approx((100e9 + 3 * 400e9) / 8)


def test_spine_that_leaves_do_not_need_costs_nothing() -> None:
    wide, narrow = leaf_spine_fabric(4, 2, 9), leaf_spine_fabric(4, 2)
    assert counts(wide) == counts(narrow)
    assert any(switch.name == "spine8" for switch in wide.switches)
    assert wide.peer(Port("spine8", 0)).node == "leaf0"


@pytest.mark.parametrize("build", [lambda: fat_tree_fabric(4, 3), lambda: patch_panel_fabric(2, rate_bps=1)])
def test_rate_without_a_price_is_refused(build: Callable[[], Fabric]) -> None:
    with pytest.raises(FabricError, match=r"no price for the link .* build it with links of 100, 200, 400"):
        fabric_bill(build())


points = st.dictionaries(
    st.text(max_size=3), st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=8
)


@given(points)
def test_pareto_front_is_what_nothing_dominates(points: dict[str, tuple[float, float]]) -> None:
    front = pareto_front(points)
    for name, (usd, seconds) in points.items():
        dominators = [
            other
            for other, (a, b) in points.items()
            if a <= usd and b <= seconds and (a < usd or b < seconds)
        ]
        assert (name in front) == (not dominators)
        assert name in front or set(dominators) & set(front)
    assert [points[name][0] for name in front] == sorted(points[name][0] for name in front)
