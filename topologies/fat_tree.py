"""The fat tree of k-port switches: pods of edge and aggregation switches under a core."""

from topologies.errors import FabricError
from topologies.fabric import DEFAULT_BUFFER_BYTES, NVLINK_BPS, Fabric, Link, Port, Switch, equal_servers


def fat_tree_fabric(
    k: int,
    oversubscription: float = 1,
    *,
    servers: int | None = None,
    nics: int = 1,
    gpus: int | None = None,
    rate_bps: float = 100e9,
    nvlink_bps: float = NVLINK_BPS,
    buffer_bytes: int = DEFAULT_BUFFER_BYTES,
) -> Fabric:
    """Return a fat tree: k pods of k/2 edge and k/2 aggregation switches, and k²/4 core switches.

    Parameters
    ----------
    k
        Ports of every switch, even. There is room for k³/4 NICs, k/2 on each edge switch.
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
    rate_bps
        Rate of a NIC's link [bit/s].
    nvlink_bps
        Rate between two GPUs of a server [bit/s].
    buffer_bytes
        Buffer of a switch port at emulated scale [bytes].

    Raises
    ------
    FabricError
        If k is odd or under 2, the oversubscription is under 1, the servers do not fit, there
        is none, or a rate is not positive.

    References
    ----------
    Al-Fares, Loukissas, Vahdat: A Scalable, Commodity Data Center Network Architecture,
    SIGCOMM 2008, section 2.2 and Figure 3.
    """
    servers = _checked_servers(k, oversubscription, servers, nics)
    down = [
        Link(Port(f"h{nic // nics}", nic % nics), Port(f"edge{nic // (k // 2)}", nic % (k // 2)), rate_bps)
        for nic in range(servers * nics)
    ]
    return Fabric(
        name="fat_tree",
        servers=equal_servers(servers, nics, gpus, nvlink_bps),
        switches=(
            *(Switch(f"edge{index}", k) for index in range(k * k // 2)),
            *(Switch(f"agg{index}", k, tier=1) for index in range(k * k // 2)),
            *(Switch(f"core{index}", k, tier=2) for index in range(k * k // 4)),
        ),
        links=(*down, *_uplinks(k, rate_bps / oversubscription)),
        buffer_bytes=buffer_bytes,
    )


def _checked_servers(k: int, oversubscription: float, servers: int | None, nics: int) -> int:
    """Return how many servers, or the error that they do not fit."""
    if k < 2 or k % 2:
        raise FabricError(f"a fat tree of {k}-port switches", "give an even number of ports, at least 2")
    if not oversubscription >= 1:
        raise FabricError(f"an oversubscription of {oversubscription:g}", "give 1 (non-blocking) or more")
    room = k**3 // 4
    servers = room // max(nics, 1) if servers is None else servers
    if servers * nics > room:
        raise FabricError(
            f"{servers} servers of {nics} NICs on a fat tree with room for {room} NICs",
            "ask for fewer servers or a larger k",
        )
    return servers


def _uplinks(k: int, rate_bps: float) -> list[Link]:
    """Return the links between switches: a pod is a mesh, its j-th upper switch is on the j-th core group."""
    half = k // 2
    pods = [
        Link(Port(f"edge{pod * half + edge}", half + agg), Port(f"agg{pod * half + agg}", edge), rate_bps)
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
