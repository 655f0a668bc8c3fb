"""The leaf-spine fabric: all NICs of a server on one leaf, leaves and spines fully meshed."""

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


def leaf_spine_fabric(
    servers: int,
    leaves: int,
    spines: int | None = None,
    *,
    nics: int = 1,
    gpus: int | None = None,
    rate_bps: float = 100e9,
    uplink_bps: float | None = None,
    nvlink_bps: float = NVLINK_BPS,
) -> Fabric:
    """Return a leaf-spine fabric, the servers in blocks on the leaves.

    Parameters
    ----------
    servers
        How many servers; each leaf has the same number, the last ones one less where it
        does not divide.
    leaves
        How many leaves, at most as many as servers.
    spines
        How many spines, each with one link to every leaf. By default as many as a leaf has
        NICs, which makes it non-blocking with uplinks of NIC rate. A single leaf needs none.
    nics
        NICs of each server.
    gpus
        GPUs of each server, by default as many as NICs.
    rate_bps
        Rate of a NIC's link [bit/s].
    uplink_bps
        Rate of a leaf-spine link [bit/s], by default that of a NIC.
    nvlink_bps
        Rate between two GPUs of a server [bit/s].

    Raises
    ------
    FabricError
        If there is no server, a leaf would have none, several leaves have no spine, or a rate
        is not positive.

    References
    ----------
    Alizadeh et al.: CONGA, SIGCOMM 2014, section 2.
    """
    if nics < 1 or not 1 <= leaves <= servers:
        raise FabricError(
            f"a leaf-spine fabric of {servers} servers with {nics} NICs and {leaves} leaves",
            "ask for at least one NIC and one leaf, and as many servers as leaves or more",
        )
    check_links(servers * nics)
    uplink_bps = rate_bps if uplink_bps is None else uplink_bps
    blocks = [servers // leaves + (leaf < servers % leaves) for leaf in range(leaves)]
    down_ports = max(blocks) * nics
    spines = (down_ports if leaves > 1 else 0) if spines is None else spines
    if spines < 0 or (leaves > 1 and not spines):
        raise FabricError(f"{spines} spines over {leaves} leaves", "ask for at least one spine")
    check_links(servers * nics + leaves * spines)
    home = [(f"leaf{leaf}", place * nics) for leaf, block in enumerate(blocks) for place in range(block)]
    down = nic_links(
        servers, nics, lambda server, nic: Port(home[server][0], home[server][1] + nic), rate_bps
    )
    up = [
        Link(Port(f"leaf{leaf}", down_ports + spine), Port(f"spine{spine}", leaf), uplink_bps)
        for leaf in range(leaves)
        for spine in range(spines)
    ]
    return Fabric(
        name="leaf_spine",
        servers=equal_servers(servers, nics, gpus, nvlink_bps),
        switches=(
            *(Switch(f"leaf{leaf}", down_ports + spines) for leaf in range(leaves)),
            *(Switch(f"spine{spine}", leaves, tier=1) for spine in range(spines)),
        ),
        links=(*down, *up),
    )
