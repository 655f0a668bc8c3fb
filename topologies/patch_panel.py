"""A static patch panel: all NICs on one flat optical switch whose circuits stay for the whole training."""

from topologies.errors import FabricError
from topologies.fabric import (
    DEFAULT_BUFFER_BYTES,
    NVLINK_BPS,
    Fabric,
    Link,
    Port,
    Switch,
    check_links,
    equal_servers,
)

PATCH_PANEL = "patch_panel"
"""The fabric's name."""


def patch_panel_fabric(
    servers: int,
    *,
    nics: int = 8,
    gpus: int | None = None,
    rate_bps: float = 100e9,
    nvlink_bps: float = NVLINK_BPS,
    buffer_bytes: int = DEFAULT_BUFFER_BYTES,
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
    buffer_bytes
        Buffer of a switch port at emulated scale [bytes]; a panel has none.

    Raises
    ------
    FabricError
        If there is no server or no NIC, or a rate is not positive.

    References
    ----------
    mFabric, section 7.1: TopoOpt as a baseline; TopoOpt, section 3.
    """
    if nics < 1:
        raise FabricError(f"servers of {nics} NICs on a patch panel", "give them at least one")
    check_links(servers * nics)
    return Fabric(
        name=PATCH_PANEL,
        servers=equal_servers(servers, nics, gpus, nvlink_bps),
        switches=(Switch("panel0", servers * nics, "ocs"),),
        links=tuple(
            Link(Port(f"h{server}", nic), Port("panel0", server * nics + nic), rate_bps)
            for server in range(servers)
            for nic in range(nics)
        ),
        buffer_bytes=buffer_bytes,
        servers_forward=True,
    )
