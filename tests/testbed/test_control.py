"""The control's permutation: on paths where all can send at full rate, at the packet rate asked for."""

from collections import Counter

import pytest

from testbed.core.packet_paths import paths_over
from testbed.trust.control import shift
from topologies.big_switch import big_switch_fabric
from topologies.fabric import Fabric, Port
from topologies.fat_tree import fat_tree_fabric
from topologies.leaf_spine import leaf_spine_fabric
from topologies.rail import rail_fabric

FABRICS = [
    rail_fabric(8, 4),
    rail_fabric(8, 4, spines=0),
    rail_fabric(2, 1),
    rail_fabric(8, 4, uplink_bps=50e9),
    leaf_spine_fabric(8, 4, 2),
    fat_tree_fabric(4, gpus=1),
    big_switch_fabric(4, nics=2, gpus=1),
]


@pytest.mark.parametrize("fabric", FABRICS, ids=lambda fabric: fabric.name)
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0, 9.0])
def test_each_nic_sends_to_one_and_hears_one_and_no_link_carries_more_than_its_rate(
    fabric: Fabric, share: float
) -> None:
    all_bps = sum(fabric.nic_rate_bps(nic) for nic in fabric.nics)
    paths = shift(fabric, max(share * all_bps, 1.0))
    own = paths_over(fabric)
    assert paths == {queue_pair: own[queue_pair] for queue_pair in paths}
    assert paths
    for ends in ([pair.source for pair in paths], [pair.destination for pair in paths]):
        assert len(ends) == len(set(ends))
    carried = Counter[Port]()
    for pair, path in paths.items():
        assert pair.source.server != pair.destination.server
        carried.update(dict.fromkeys(path, int(fabric.nic_rate_bps(pair.source))))
    assert all(bps <= fabric.link_at[port].rate_bps for port, bps in carried.items())


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0, 1.8])
def test_it_forwards_what_was_asked_for_and_at_most_a_path_more(share: float) -> None:
    fabric = rail_fabric(8, 4)
    asked = share * 32 * 100e9
    forwarded = sum(100e9 * (len(path) - 1) for path in shift(fabric, asked).values())
    assert asked <= forwarded < asked + 3 * 100e9


def test_a_server_alone_has_none() -> None:
    assert shift(rail_fabric(1, 4), 1e9) == {}
