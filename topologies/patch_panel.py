"""Patch panels: all NICs on one flat optical switch, or on two of which each server faces one at a time.

The circuits of the one stay for the whole training. With two, one is set for the jobs that come while the
other carries: the look-ahead.
"""

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

PATCH_PANEL, SHARDED_PANEL = "patch_panel", "sharded_panel"
"""The fabrics' names."""
PANELS = ("panel0", "panel1")
"""The two sides of a cluster in shards, whose port s * nics + n is for NIC n of server s."""


def patch_panel_fabric(
    servers: int,
    *,
    nics: int = 8,
    gpus: int | None = None,
    rate_bps: float = 100e9,
    nvlink_bps: float = NVLINK_BPS,
) -> Fabric:
    """Return servers on a patch panel, whose port s * nics + n has NIC n of server s.

    There are no packet switches: servers forward what has no circuit of its own.

    Parameters
    ----------
    servers
        How many servers.
    nics
        NICs of each server.
    gpus
        GPUs of each server, by default as many as NICs.
    rate_bps
        Rate of a NIC's link [bit/s].
    nvlink_bps
        Rate between two GPUs of a server [bit/s].

    Raises
    ------
    FabricError
        If there is no server or no NIC, or a rate is not positive.

    References
    ----------
    mFabric, section 7.1: TopoOpt as a baseline; TopoOpt, section 3.
    """
    check_links(servers * nics)
    return Fabric(
        name=PATCH_PANEL,
        servers=equal_servers(servers, nics, gpus, nvlink_bps),
        switches=(Switch("panel0", servers * nics, "ocs"),),
        links=tuple(
            nic_links(servers, nics, lambda server, nic: Port("panel0", server * nics + nic), rate_bps)
        ),
        servers_forward=True,
    )


def sharded_panel_fabric(
    servers: int,
    *,
    nics: int = 4,
    gpus: int | None = None,
    rate_bps: float = 100e9,
    nvlink_bps: float = NVLINK_BPS,
) -> Fabric:
    """Return servers whose NICs 1x2 switches join to one of two patch panels.

    The 1x2 switches of a server turn together, so they are one OCS, ``flip`` and the server's number, that
    can show two permutations: its port n is NIC n, and port (1 + p) * nics + n leads to panel p. Light from
    server to server crosses the switch of the one, a panel and the switch of the other.

    Parameters
    ----------
    servers, nics, gpus, rate_bps, nvlink_bps
        As of `patch_panel_fabric`.

    Raises
    ------
    FabricError
        If there is no server or no NIC, or a rate is not positive.

    References
    ----------
    TopoOpt, appendix C and Figure 25. It has a pair of panels per NIC of a server; two flat ones, with the
    ports of all, can show the same and circuits from one NIC of a server to another NIC of the next.
    """
    check_links(3 * servers * nics)
    flips = tuple(
        Switch(flip_name(server), 3 * nics, "ocs", permitted=tuple(_faces(nics, panel) for panel in range(2)))
        for server in range(servers)
    )
    links = [
        link
        for server in range(servers)
        for nic in range(nics)
        for link in _arms(server, nic, nics, rate_bps)
    ]
    return Fabric(
        name=SHARDED_PANEL,
        servers=equal_servers(servers, nics, gpus, nvlink_bps),
        switches=(*flips, *(Switch(panel, servers * nics, "ocs") for panel in PANELS)),
        links=tuple(links),
        servers_forward=True,
    )


def flip_name(server: int) -> str:
    """Return the name of the OCS that the 1x2 switches of a server are."""
    return f"flip{server}"


def facing(nics: int, panel: int) -> tuple[tuple[int, int], ...]:
    """Return the circuits by which the 1x2 switches of a server join all its NICs to a panel, 0 or 1."""
    return tuple((a, b) for a, b in enumerate(_faces(nics, panel)) if b != -1)


def _faces(nics: int, panel: int) -> tuple[int, ...]:
    """Return the output port of each port of a server's 1x2 switches, -1 where it is dark."""
    arm = (1 + panel) * nics
    outputs = [-1] * (3 * nics)
    for nic in range(nics):
        outputs[nic], outputs[arm + nic] = arm + nic, nic
    return tuple(outputs)


def _arms(server: int, nic: int, nics: int, rate_bps: float) -> list[Link]:
    """Return the links of a NIC's 1x2 switch: to the NIC, and to both panels."""
    flip = flip_name(server)
    return [
        Link(Port(f"h{server}", nic), Port(flip, nic), rate_bps),
        *(
            Link(Port(flip, (1 + panel) * nics + nic), Port(name, server * nics + nic), rate_bps)
            for panel, name in enumerate(PANELS)
        ),
    ]
