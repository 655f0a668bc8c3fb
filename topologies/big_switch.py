"""The big switch: every NIC on one packet switch, the ideal that other fabrics are compared with."""

from topologies.fabric import NVLINK_BPS, Fabric, Port, Switch, check_links, equal_servers, nic_links


def big_switch_fabric(
    servers: int,
    *,
    nics: int = 1,
    gpus: int | None = None,
    rate_bps: float = 100e9,
    nvlink_bps: float = NVLINK_BPS,
) -> Fabric:
    """Return a fabric of one switch, whose port s * nics + n has NIC n of server s.

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
    TopoOpt, section 5.1: the *ideal switch*.
    """
    check_links(servers * nics)
    return Fabric(
        name="big_switch",
        servers=equal_servers(servers, nics, gpus, nvlink_bps),
        switches=(Switch("switch0", servers * nics),),
        links=tuple(
            nic_links(servers, nics, lambda server, nic: Port("switch0", server * nics + nic), rate_bps)
        ),
    )
