"""Parallel OCSes: NIC k of every server on OCS k, and where asked a packet switch on one more NIC."""

from topologies.errors import FabricError
from topologies.fabric import (
    NVLINK_BPS,
    Fabric,
    Link,
    Port,
    Switch,
    check_links,
    equal_servers,
)


def parallel_ocs_fabric(
    servers: int,
    ocses: int,
    *,
    packet_switch: bool = False,
    gpus: int = 1,
    rate_bps: float = 100e9,
    packet_bps: float | None = None,
    nvlink_bps: float = NVLINK_BPS,
) -> Fabric:
    """Return servers joined by optical circuit switches side by side.

    Parameters
    ----------
    servers
        How many servers, n; port i of every switch has server i.
    ocses
        How many OCSes, s, at least 1 and each with n ports.
    packet_switch
        Whether NIC s of every server is on a packet switch, for what no circuit carries.
    gpus
        GPUs of each server.
    rate_bps
        Rate of a link to an OCS [bit/s].
    packet_bps
        Rate of a link to the packet switch [bit/s], by default that to an OCS.
    nvlink_bps
        Rate between two GPUs of a server [bit/s].

    Raises
    ------
    FabricError
        If there is no server or no OCS, or a rate is not positive.

    References
    ----------
    Spectra, section II: n top-of-rack switches and s parallel OCSes; mFabric, section 4: OCSes
    beside an electrical packet switch.
    """
    if servers < 1 or ocses < 1:
        raise FabricError(
            f"a fabric of {servers} servers and {ocses} parallel OCSes", "ask for at least one of each"
        )
    check_links(servers * (ocses + packet_switch))
    switches = [Switch(f"ocs{index}", servers, "ocs") for index in range(ocses)]
    rates_bps = [rate_bps] * ocses
    if packet_switch:
        switches.append(Switch("eps0", servers))
        rates_bps.append(rate_bps if packet_bps is None else packet_bps)
    return Fabric(
        name="parallel_ocs",
        servers=equal_servers(servers, len(switches), gpus, nvlink_bps),
        switches=tuple(switches),
        links=tuple(
            Link(Port(f"h{server}", nic), Port(switch.name, server), switch_bps)
            for server in range(servers)
            for nic, (switch, switch_bps) in enumerate(zip(switches, rates_bps, strict=True))
        ),
    )
