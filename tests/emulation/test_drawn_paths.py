"""1,000 datagrams drawn over fabrics whose switches route: each takes the path that is computed."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest

from controller.packet.flow_table import FlowTables
from controller.packet.routing import forwarding_rules
from testbed.machine import multipath
from testbed.network.tap import Tap
from tests.controller.test_routing import with_uplinks
from tests.emulation.conftest import Booted
from tests.emulation.test_entropies import sent
from topologies.addresses import ENTROPIES
from topologies.fabric import Fabric, Link
from topologies.fat_tree import fat_tree_fabric
from topologies.leaf_spine import leaf_spine_fabric
from topologies.rail import rail_fabric
from traffic.spraying.policy import QueuePair
from traffic.transports.datagram_sockets import datagram_ends

pytestmark = pytest.mark.emulation

PAIRS, EACH = 25, 8
"""Of each of five fabrics: pairs of NICs, and datagrams of other entropies between two."""


def drawn(fabric: Fabric, rng: np.random.Generator) -> list[list[QueuePair]]:
    """Return lanes between NICs of different servers, those between two NICs together."""
    found = list[list[QueuePair]]()
    while len(found) < PAIRS:
        source, destination = (fabric.nics[at] for at in rng.choice(len(fabric.nics), 2, replace=False))
        if source.server != destination.server:
            entropies = rng.choice(ENTROPIES, EACH, replace=False).tolist()
            found.append([QueuePair(source, destination, entropy) for entropy in entropies])
    return found


def trunks(fabric: Fabric, ends: Sequence[tuple[str, str]]) -> frozenset[Link]:
    """Return the links between switches of these names."""
    return frozenset(link for link in fabric.links if (link.a.node, link.b.node) in ends)


@pytest.mark.parametrize(
    ("fabric", "fail"),
    [
        pytest.param(leaf_spine_fabric(6, 3, 4, nics=2), (), id="four spines"),
        pytest.param(
            with_uplinks(leaf_spine_fabric(4, 2, 3, nics=2), (1.0, 1.4, 3.0)), (), id="unlike spines"
        ),
        pytest.param(fat_tree_fabric(4), (), id="fat-tree"),
        pytest.param(rail_fabric(4, 4, 5), (), id="rails under spines"),
        pytest.param(
            leaf_spine_fabric(6, 3, 4, nics=2),
            (("leaf0", "spine1"), ("leaf2", "spine0"), ("leaf2", "spine3")),
            id="three links dead",
        ),
    ],
)
def test_drawn_datagrams_take_the_paths_of_the_kernels_hash(
    booted: Booted, fabric: Fabric, fail: Sequence[tuple[str, str]]
) -> None:
    failed = trunks(fabric, fail)
    assert len(failed) == len(fail)
    tables = FlowTables(fabric, forwarding_rules(fabric, failed), failed, "kernel")
    lanes = drawn(fabric, np.random.default_rng(len(fabric.links)))
    with booted(fabric, datapath="route") as net:
        if failed:
            net.network.turn_links(failed, works=False)
            net.network.follow([link.a for link in failed])
        with Tap(net.network.wiring) as tap:
            for some in lanes:
                assert len(sent(net, some)) == EACH
            asked = [lane for some in lanes for lane in some]
            seen = tap.paths(asked, partial(datagram_ends, fabric))
    expected = [tables.datagram_path(lane.source, lane.destination, lane.entropy) for lane in asked]
    assert list(seen) == expected
    assert len({path[1:] for path in seen}) > PAIRS, "packets spread"


@pytest.mark.usefixtures("sandbox")
def test_a_kernel_that_picks_otherwise_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert multipath.picks_as_computed()
    monkeypatch.setattr(multipath, "SEED", multipath.SEED + 1)
    assert not multipath.picks_as_computed.__wrapped__()
