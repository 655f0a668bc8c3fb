"""The rail-optimised fabric: leaf n joins NIC n of every server, spines join the leaves."""

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


def rail_fabric(
    servers: int,
    rails: int,
    spines: int | None = None,
    *,
    rate_bps: float = 100e9,
    uplink_bps: float | None = None,
    nvlink_bps: float = NVLINK_BPS,
) -> Fabric:
    """Return a rail fabric: one leaf per rail, leaves and spines fully meshed.

    Parameters
    ----------
    servers
        How many servers, each with ``rails`` GPUs and as many NICs.
    rails
        How many rails; NIC n of every server is on leaf n.
    spines
        How many spines, each with one link to every leaf. By default as many as servers,
        which makes the leaves non-blocking with uplinks of NIC rate. 0 leaves the rails apart.
    rate_bps
        Rate of a NIC's link [bit/s].
    uplink_bps
        Rate of a leaf-spine link [bit/s], by default that of a NIC.
    nvlink_bps
        Rate between two GPUs of a server [bit/s].

    Raises
    ------
    FabricError
        If there is no server or no rail, there are too many links, or a rate is not positive.

    References
    ----------
    RailS, section IV-A and Figure 3.
    """
    spines = servers if spines is None else spines
    if servers < 1 or rails < 1 or spines < 0:
        raise FabricError(
            f"a rail fabric of {servers} servers, {rails} rails and {spines} spines",
            "ask for at least one server and one rail, and no negative number of spines",
        )
    check_links(rails * (servers + spines))
    uplink_bps = rate_bps if uplink_bps is None else uplink_bps
    down = nic_links(servers, rails, lambda server, rail: Port(f"leaf{rail}", server), rate_bps)
    up = [
        Link(Port(f"leaf{rail}", servers + spine), Port(f"spine{spine}", rail), uplink_bps)
        for rail in range(rails)
        for spine in range(spines)
    ]
    leaves = [Switch(f"leaf{rail}", servers + spines) for rail in range(rails)]
    return Fabric(
        name="rail",
        servers=equal_servers(servers, rails, rails, nvlink_bps),
        switches=(*leaves, *(Switch(f"spine{spine}", rails, tier=1) for spine in range(spines))),
        links=(*down, *up),
    )
