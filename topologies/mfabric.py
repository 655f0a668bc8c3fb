"""mFabric (published as MixNet): an OCS per region of servers, beside one fat-tree of packet switches.

A server has G GPUs and several NICs: n_e of them on the packet side, which joins all servers, and alpha on
the OCS of its region. A region is the servers of one expert-parallel group; no circuit joins two
regions. NIC k belongs to GPU floor(k G / NICs), its *delegation GPU*, and to a NUMA node, half the NICs each.
The m-th circuit NIC of the i-th server of a region is on port i alpha + m of the OCS, for transmitting and
receiving together: a circuit between two servers is duplex.

The paper does not say which NICs are packet NICs, nor on which NUMA nodes they are: here they are spread
evenly, 0 and 4 of 8 and NIC 0 of the prototype's 4, so that each NUMA node has its share.

For what fails there are servers of a global pool, which have packet NICs only and stand behind all regions,
and a backup GPU in each server, its last, as other machines keep some of a group's GPUs in reserve.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from topologies.big_switch import big_switch_fabric
from topologies.errors import FabricError
from topologies.fabric import (
    NVLINK_BPS,
    Fabric,
    Link,
    Nic,
    Port,
    Server,
    Switch,
    check_links,
)
from topologies.fat_tree import fat_tree_fabric, least_k

NUMA_NODES = 2


@dataclass(frozen=True)
class Region:
    """The servers that one OCS joins."""

    ocs: str
    """The name of the OCS."""
    servers: tuple[int, ...]
    """The servers, by their index in the fabric."""
    nics: tuple[tuple[Nic, ...], ...]
    """The circuit NICs of each."""


def mfabric_fabric(
    servers: int,
    region_servers: int | None = None,
    *,
    gpus: int = 8,
    nics: int = 8,
    packet_nics: int = 2,
    backup_gpu: bool = False,
    spare_servers: int = 0,
    one_packet_switch: bool = False,
    rate_bps: float = 100e9,
    packet_bps: float | None = None,
    nvlink_bps: float = NVLINK_BPS,
) -> Fabric:
    """Return servers whose NICs are partly on a non-blocking fat-tree, and partly on the OCS of their region.

    Parameters
    ----------
    servers
        How many servers.
    region_servers
        How many servers follow each other in a region; by default all are one region.
    gpus, nics
        GPUs and NICs of each server. The prototype has 8 and 4.
    packet_nics
        n_e, how many of the NICs are on the packet side.
    backup_gpu
        Whether each server has one GPU more, which can take the place of another's.
    spare_servers
        How many servers follow those of the regions, with as many GPUs and packet NICs, and no circuit NICs.
    one_packet_switch
        Whether the packet side is one switch, as the prototype's; else it is the smallest fat-tree.
    rate_bps
        Rate of a link to an OCS [bit/s].
    packet_bps
        Rate of the links of the packet side [bit/s], by default that to an OCS.
    nvlink_bps
        Rate between two GPUs of a server [bit/s].

    Raises
    ------
    FabricError
        If there is no server, the regions do not fill the servers, no NIC is left for one of the sides, a
        rate is not positive, or a NIC would belong to another GPU for a backup GPU.

    References
    ----------
    mFabric, sections 4.2, 5.4 (a regional backup GPU, a global pool of servers on packets; where the
    backup GPU is, is ours), 6 (the prototype: 4 servers of 4 NICs, one on packets) and 7.1 (2 of 8).
    """
    region_servers = servers if region_servers is None else region_servers
    if servers < 1 or region_servers < 1 or servers % region_servers:
        raise FabricError(
            f"{servers} servers in regions of {region_servers}", "let a region's servers divide all servers"
        )
    if not 0 < packet_nics < nics:
        raise FabricError(
            f"{packet_nics} packet NICs of {nics}", "leave a server at least one packet and one circuit NIC"
        )
    if spare_servers < 0 or (backup_gpu and gpus % nics):
        raise FabricError(
            f"{spare_servers} spare servers, {gpus} GPUs and {nics} NICs, a backup GPU: {backup_gpu}",
            "give spare servers from 0, and a backup GPU only where each NIC has as many GPUs",
        )
    packet_bps = rate_bps if packet_bps is None else packet_bps
    everywhere = servers + spare_servers
    check_links(everywhere * nics)
    if one_packet_switch:
        packets = big_switch_fabric(everywhere, nics=packet_nics, rate_bps=packet_bps)
    else:
        k = least_k(everywhere * packet_nics)
        packets = fat_tree_fabric(k, servers=everywhere, nics=packet_nics, rate_bps=packet_bps)
    numbers = packet_nic_numbers(nics, packet_nics)
    circuit_nics = [nic for nic in range(nics) if nic not in numbers]
    ocses = [
        Switch(f"ocs{region}", region_servers * len(circuit_nics), "ocs")
        for region in range(servers // region_servers)
    ]
    light = [
        Link(
            Port(f"h{server}", nic),
            Port(f"ocs{server // region_servers}", server % region_servers * len(circuit_nics) + place),
            rate_bps,
        )
        for server in range(servers)
        for place, nic in enumerate(circuit_nics)
    ]
    # Switches that have servers stand first.
    first = sum(switch.tier == 0 for switch in packets.switches)
    return Fabric(
        name="mfabric",
        servers=tuple(
            Server(f"h{server}", nics if server < servers else packet_nics, gpus + backup_gpu, nvlink_bps)
            for server in range(everywhere)
        ),
        switches=(*packets.switches[:first], *ocses, *packets.switches[first:]),
        links=(*_renumbered(packets, servers, numbers), *light),
    )


def packet_nic_numbers(nics: int, packet_nics: int) -> tuple[int, ...]:
    """Return which NICs of a server are packet NICs: spread evenly, so that NUMA nodes share them."""
    return tuple(index * nics // packet_nics for index in range(packet_nics))


def numa_node(server: Server, nic: int) -> int:
    """Return the NUMA node of a server that a NIC is on: 0 has the first half."""
    return nic * NUMA_NODES // server.nics


def region_gpus(fabric: Fabric, gpus: int) -> tuple[int, ...]:
    """Return the first so many GPUs of each server of a region, those of a job: behind them is its backup."""
    return tuple(
        fabric.gpu_offsets[server] + gpu
        for region in regions(fabric)
        for server in region.servers
        for gpu in range(gpus)
    )


def regions(fabric: Fabric) -> tuple[Region, ...]:
    """Return the region of each OCS that has servers on it, in the order of the switches."""
    found: dict[str, dict[int, list[Nic]]] = {
        switch.name: {} for switch in fabric.switches if switch.kind == "ocs"
    }
    for nic in fabric.nics:
        ocs = fabric.peer(fabric.nic_port(nic)).node
        if ocs in found:
            found[ocs].setdefault(nic.server, []).append(nic)
    return tuple(
        Region(ocs, tuple(nics), tuple(tuple(own) for own in nics.values()))
        for ocs, nics in found.items()
        if nics
    )


def _renumbered(packets: Fabric, servers: int, numbers: Sequence[int]) -> Iterator[Link]:
    """Yield the links of the packet side, the NICs of so many servers by their numbers among all of one's."""
    for link in packets.links:
        has_others = packets.server_index.get(link.a.node, servers) < servers
        yield replace(link, a=Port(link.a.node, numbers[link.a.number])) if has_others else link
