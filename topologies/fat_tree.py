"""The fat tree of k-port switches: pods of edge and aggregation switches under a core."""

from topologies.errors import FabricError
from topologies.fabric import (
    NVLINK_BPS,
    Fabric,
    Link,
    Port,
    Switch,
    check_links,
    equal_servers,
    nic_links,
)


def fat_tree_fabric(
    k: int,
    oversubscription: float = 1,
    *,
    servers: int | None = None,
    nics: int = 1,
    gpus: int | None = None,
    edge_nics: int | None = None,
    rail_optimised: bool = False,
    rate_bps: float = 100e9,
    nvlink_bps: float = NVLINK_BPS,
) -> Fabric:
    """Return a fat tree: k pods of k/2 edge and k/2 aggregation switches, and k²/4 core switches.

    Parameters
    ----------
    k
        Ports of every switch, even. There is room for k³/4 NICs, k/2 on each edge switch, or for
        ``edge_nics`` on each.
    oversubscription
        What the NICs of an edge switch send at most over what its uplinks carry, at least 1,
        which is non-blocking. The links between switches have the NICs' rate divided by it,
        so that the tiers above the edge block no further.
    servers
        How many servers; they fill the edge switches in order. By default as many as fit.
    nics
        NICs of each server, side by side on its edge switch where they fit.
    gpus
        GPUs of each server, by default as many as NICs.
    edge_nics
        NICs on each edge switch, by default k/2. With o k/2 edge switches are oversubscribed o to 1, have
        that many ports more, and all links have the NICs' rate; the tiers above do not block.
    rail_optimised
        Whether NIC n of as many servers as an edge switch has room for is on one edge switch, and not all
        NICs of a server.
    rate_bps
        Rate of a NIC's link [bit/s].
    nvlink_bps
        Rate between two GPUs of a server [bit/s].

    Raises
    ------
    FabricError
        If k is odd or under 2, the oversubscription is under 1, the servers do not fit, there
        is none, an edge switch has no NIC, or a rate is not positive.

    References
    ----------
    Al-Fares, Loukissas, Vahdat: A Scalable, Commodity Data Center Network Architecture,
    SIGCOMM 2008, section 2.2 and Figure 3; mFabric, section 7.1, for an edge oversubscribed 3 to 1.
    """
    _check_tree(k, oversubscription)
    edge_nics = k // 2 if edge_nics is None else edge_nics
    servers = _checked_servers(k * k // 2, edge_nics, servers, nics, rail_optimised)
    check_links(servers * nics + k**3 // 2)

    def end(server: int, nic: int) -> Port:
        place = _rail_place(server, nic, nics, edge_nics) if rail_optimised else server * nics + nic
        return Port(f"edge{place // edge_nics}", place % edge_nics)

    return Fabric(
        name="fat_tree",
        servers=equal_servers(servers, nics, gpus, nvlink_bps),
        switches=(
            *(Switch(f"edge{index}", edge_nics + k // 2) for index in range(k * k // 2)),
            *(Switch(f"agg{index}", k, tier=1) for index in range(k * k // 2)),
            *(Switch(f"core{index}", k, tier=2) for index in range(k * k // 4)),
        ),
        links=(
            *nic_links(servers, nics, end, rate_bps),
            *_uplinks(k, edge_nics, rate_bps / oversubscription),
        ),
    )


def least_k(nics: int) -> int:
    """Return the fewest ports of a fat tree's switches, even, so that it has room for so many NICs.

    Raises
    ------
    FabricError
        If no fabric has so many.
    """
    check_links(nics)
    k = 2
    while k**3 // 4 < nics:
        k += 2
    return k


def _check_tree(k: int, oversubscription: float) -> None:
    if k < 2 or k % 2:
        raise FabricError(f"a fat tree of {k}-port switches", "give an even number of ports, at least 2")
    if not oversubscription >= 1:
        raise FabricError(f"an oversubscription of {oversubscription:g}", "give 1 (non-blocking) or more")


def _checked_servers(edges: int, edge_nics: int, servers: int | None, nics: int, rail_optimised: bool) -> int:
    """Return how many servers, or the error that they do not fit."""
    if edge_nics < 1:
        raise FabricError(f"{edge_nics} NICs on an edge switch", "give it at least one")
    room = edges * edge_nics
    most = edges // max(nics, 1) * edge_nics if rail_optimised else room // max(nics, 1)
    servers = most if servers is None else servers
    if nics and servers > most:
        raise FabricError(
            f"{servers} servers of {nics} NICs on a fat tree with room for {room} NICs",
            "ask for fewer servers or a larger k",
        )
    return servers


def _rail_place(server: int, nic: int, nics: int, edge_nics: int) -> int:
    """Return the place of a NIC on the edge switches, counted through, where each of these is one rail's."""
    group, place = divmod(server, edge_nics)
    return (group * nics + nic) * edge_nics + place


def _uplinks(k: int, edge_nics: int, rate_bps: float) -> list[Link]:
    """Return the links between switches: a pod is a mesh, its j-th upper switch is on the j-th core group."""
    half = k // 2
    pods = [
        Link(
            Port(f"edge{pod * half + edge}", edge_nics + agg), Port(f"agg{pod * half + agg}", edge), rate_bps
        )
        for pod in range(k)
        for edge in range(half)
        for agg in range(half)
    ]
    cores = [
        Link(Port(f"agg{pod * half + agg}", half + core), Port(f"core{agg * half + core}", pod), rate_bps)
        for pod in range(k)
        for agg in range(half)
        for core in range(half)
    ]
    return pods + cores
