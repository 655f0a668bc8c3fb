"""The sample of links: senders that do not meet, over all rails, and over uplinks where that is cheap."""

from itertools import chain

import numpy as np
import pytest

from testbed.core.packet_paths import paths_over
from testbed.network.link_sample import sampled_paths
from topologies.big_switch import big_switch_fabric
from topologies.fabric import Fabric
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
@pytest.mark.parametrize("seed", range(5))
def test_no_two_meet_and_no_link_is_slower_than_the_nic(fabric: Fabric, seed: int) -> None:
    paths = sampled_paths(fabric, np.random.default_rng(seed))
    own = paths_over(fabric, datagrams=True)
    assert paths == {queue_pair: own[queue_pair] for queue_pair in paths}
    ports = list(chain.from_iterable(paths.values()))
    assert len(ports) == len(set(ports))
    for queue_pair, path in paths.items():
        assert queue_pair.source.server != queue_pair.destination.server
        assert min(fabric.link_at[port].rate_bps for port in path) >= fabric.nic_rate_bps(queue_pair.source)
    hops = sum(len(path) - 1 for path in paths.values())
    assert len(paths) == 1 or 1 < hops <= len(fabric.servers)


def test_every_nic_and_every_leafs_uplinks_have_their_turn() -> None:
    fabric = rail_fabric(8, 4)
    samples = [sampled_paths(fabric, np.random.default_rng(seed)) for seed in range(30)]
    assert {queue_pair.source for paths in samples for queue_pair in paths} == set(fabric.nics)
    tiers = {switch.name: switch.tier for switch in fabric.switches}
    climbs = {
        port.node
        for paths in samples
        for path in paths.values()
        for port in path
        if port.node in tiers and tiers.get(fabric.peer(port).node, 0) > tiers[port.node]
    }
    assert climbs == {f"leaf{rail}" for rail in range(4)}
    assert all(len({queue_pair.source.nic for queue_pair in paths}) > 1 for paths in samples)


def test_equal_seeds_draw_equal_samples() -> None:
    first, again, other = (sampled_paths(FABRICS[0], np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert first == again != other


def test_a_server_alone_has_no_sample() -> None:
    assert sampled_paths(rail_fabric(1, 4), np.random.default_rng(0)) == {}
