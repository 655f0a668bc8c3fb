"""The fabrics that mFabric's paper compares: what is wired, what it costs, how it is drawn."""

from collections.abc import Callable
from functools import cache, lru_cache, partial

from testbed.report.palette import COLOURS as SCHEMES
from topologies.cost import Bill
from topologies.errors import ScenarioError
from topologies.fabric import Fabric
from topologies.fabric_bill import PRICES, CircuitPort, fabric_bill
from topologies.fat_tree import fat_tree_fabric, least_k
from topologies.mfabric import mfabric_fabric
from topologies.patch_panel import patch_panel_fabric

GPUS, NICS, PACKET_NICS = 8, 8, 2
"""Of a server (mFabric, 7.1)."""
REGION_SERVERS = 8
"""Of mFabric's regions, as with Mixtral 8x22B and DeepSeek-R1; what it costs does not depend on it."""
OVERSUBSCRIPTION = 3
FAT_TREE, RAIL, OVERSUBSCRIBED = "fat-tree", "rail-optimised", "fat-tree 3:1"
MFABRIC, TOPOOPT = "mFabric", "TopoOpt"
DELEGATED = f"{FAT_TREE}, delegated"
"""The fat-tree with mFabric's own all-to-alls, gathered and spread over all NICs of a server."""
RINGS = f"{TOPOOPT}, rings"
"""TopoOpt with the circuits of its published program (`scenarios._mfabric.step.panel`)."""
COLOURS = {
    FAT_TREE: SCHEMES["ecmp"],
    RAIL: SCHEMES["plb"],
    OVERSUBSCRIBED: SCHEMES["minrtt"],
    MFABRIC: SCHEMES["rails"],
    TOPOOPT: SCHEMES["reps"],
}
"""By the fabrics' names, in the order in which they are shown."""
ALL_RATES = tuple(sorted(PRICES))
"""Rates of a NIC that parts have prices for [bit/s]."""


@cache
def bill_of(name: str, servers: int, rate_bps: float, cable_usd: float | None = None) -> Bill:
    """Return the bill of a fabric, by its name.

    Parameters
    ----------
    name
        A key of `COLOURS`.
    servers
        Of 8 GPUs and 8 NICs each; whole regions.
    rate_bps
        Rate of a NIC [bit/s].
    cable_usd
        Of a cable between a server and a packet switch; None with fibres.
    """
    port: CircuitPort = "patch-panel port" if name == TOPOOPT else "OCS port"
    fabric = _fabric(name, servers, rate_bps)
    return fabric_bill(fabric, circuit_port=port, server_cable_usd=cable_usd)


def servers_of(gpus: int) -> int:
    """Return the servers of a cluster; ScenarioError if they are no whole regions."""
    region = REGION_SERVERS * GPUS
    if gpus < region or gpus % region:
        raise ScenarioError(f"a cluster of {gpus} GPUs", f"give multiples of {region}, a region's")
    return gpus // GPUS


def checked_rate(gbps: float) -> float:
    """Return a rate [bit/s]; ScenarioError if parts of it have no price."""
    if gbps * 1e9 not in PRICES:
        known = ", ".join(f"{rate_bps / 1e9:g}" for rate_bps in ALL_RATES)
        raise ScenarioError(f"no prices for {gbps:g} Gbit/s", f"choose from {known}")
    return gbps * 1e9


def gbit(rate_bps: float) -> str:
    """Return a rate in words.

    Examples
    --------
    >>> gbit(400e9)
    '400 Gbit/s'
    """
    return f"{rate_bps / 1e9:g} Gbit/s"


@lru_cache(maxsize=1)
def _fabric(name: str, servers: int, rate_bps: float) -> Fabric:
    return _BUILD[name](servers, rate_bps=rate_bps)


def _fat_tree(servers: int, *, rate_bps: float, rail_optimised: bool = False) -> Fabric:
    k = least_k(servers * NICS)
    return fat_tree_fabric(k, servers=servers, nics=NICS, rate_bps=rate_bps, rail_optimised=rail_optimised)


def _oversubscribed(servers: int, *, rate_bps: float) -> Fabric:
    """Return a fat-tree that is oversubscribed at its edge switches; the tiers above do not block."""
    k = least_k(-(-servers * NICS // OVERSUBSCRIPTION))
    edge_nics = OVERSUBSCRIPTION * k // 2
    return fat_tree_fabric(k, servers=servers, nics=NICS, edge_nics=edge_nics, rate_bps=rate_bps)


_BUILD: dict[str, Callable[..., Fabric]] = {
    FAT_TREE: _fat_tree,
    RAIL: partial(_fat_tree, rail_optimised=True),
    OVERSUBSCRIBED: _oversubscribed,
    MFABRIC: partial(
        mfabric_fabric, region_servers=REGION_SERVERS, gpus=GPUS, nics=NICS, packet_nics=PACKET_NICS
    ),
    TOPOOPT: partial(patch_panel_fabric, nics=NICS),
}
