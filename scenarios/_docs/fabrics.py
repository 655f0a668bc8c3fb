"""The fabrics of the documentation, one of each builder, some with circuits that are lit."""

from dataclasses import dataclass, field

import numpy as np

from controller.schedulers.topoopt import Group, panel_circuits, topology_finder
from topologies.big_switch import big_switch_fabric
from topologies.fabric import Fabric
from topologies.fat_tree import fat_tree_fabric
from topologies.khop_ring import KHopRing, khop_ring_fabric
from topologies.leaf_spine import leaf_spine_fabric
from topologies.light import Configuration, duplex
from topologies.mfabric import mfabric_fabric
from topologies.parallel_ocs import parallel_ocs_fabric
from topologies.patch_panel import facing, flip_name, patch_panel_fabric, sharded_panel_fabric
from topologies.rail import rail_fabric


@dataclass(frozen=True)
class Drawn:
    """A fabric of a picture."""

    fabric: Fabric
    circuits: Configuration = field(default_factory=dict)


def docs_fabrics() -> dict[str, Drawn]:
    """Return the fabrics by the names of their pictures."""
    panel = patch_panel_fabric(12, nics=4)
    shifted = {f"ocs{ocs}": tuple((i, (i + 1 + ocs) % 8) for i in range(8)) for ocs in range(4)}
    facing_0 = {flip_name(server): facing(4, 0) for server in range(4)}
    return {
        "rail": Drawn(rail_fabric(8, 4)),
        "leaf_spine": Drawn(leaf_spine_fabric(8, 4, 2, nics=2, uplink_bps=50e9)),
        "fat_tree": Drawn(fat_tree_fabric(4)),
        "big_switch": Drawn(big_switch_fabric(8, nics=4)),
        "parallel_ocs": Drawn(parallel_ocs_fabric(8, 4), shifted),
        "patch_panel": Drawn(panel, _found(panel)),
        "sharded_panel": Drawn(
            sharded_panel_fabric(4), {**facing_0, "panel0": duplex([(0, 4), (5, 9), (10, 14), (15, 3)])}
        ),
        "mfabric": Drawn(
            mfabric_fabric(8, 4, one_packet_switch=True),
            {"ocs0": duplex([(0, 6), (1, 12), (7, 18), (13, 19)])},
        ),
        "khop_ring": Drawn(khop_ring_fabric(KHopRing(4, 4, 2, closed=False))),
    }


def _found(panel: Fabric) -> Configuration:
    """Return the circuits of TopoOpt's TopologyFinder for an AllReduce over all servers."""
    servers = len(panel.servers)
    everybody = [Group(tuple(range(servers)), 100)]
    plan = topology_finder(everybody, np.zeros((servers, servers)), servers=servers, degree=4)
    return dict(panel_circuits(panel, plan))
