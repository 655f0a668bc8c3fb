"""The packet part of a fabric: packet switches and what works on them, for schemes that see no more."""

from collections import defaultdict
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import networkx as nx

from topologies.fabric import Fabric, Nic, Port


@dataclass(frozen=True, eq=False)
class PacketPart:
    """A fabric without its OCSes, and without what has failed.

    Servers, GPUs and NICs that are left are numbered anew, in their order; a NIC that failed leaves its slot
    empty.
    """

    fabric: Fabric
    """The packet switches, and the servers that have NICs on them, with these NICs only."""
    nics: dict[Nic, Nic]
    """What each of its NICs is in the whole fabric."""
    gpus: tuple[int, ...]
    """What each GPU of the whole fabric is in it; -1 if its server has no NIC on a packet switch."""


def is_mixed(fabric: Fabric) -> bool:
    """Return whether some NICs are on packet switches, and others on OCSes."""
    if all(switch.kind == "packet" for switch in fabric.switches):
        return False  # at once, for fabrics of many NICs
    return len({on_packet_switch(fabric, nic) for nic in fabric.nics}) == 2


def on_packet_switch(fabric: Fabric, nic: Nic) -> bool:
    """Return whether a NIC is on a packet switch; if not, it is on an OCS."""
    return fabric.switches[fabric.switch_index[fabric.peer(fabric.nic_port(nic)).node]].kind == "packet"


@lru_cache(maxsize=256)
def cut_off(fabric: Fabric, failed: frozenset[Port]) -> frozenset[int]:
    """Return the servers that have NICs on packet switches, all of which have failed."""
    touched = {fabric.server_index[port.node] for port in failed if port.node in fabric.server_index}
    found = set()
    for server in touched:
        ports = [
            fabric.nic_port(Nic(server, nic))
            for nic in range(fabric.servers[server].nics)
            if on_packet_switch(fabric, Nic(server, nic))
        ]
        if ports and failed.issuperset(ports):
            found.add(server)
    return frozenset(found)


@lru_cache(maxsize=4)
def packet_part(fabric: Fabric, failed: frozenset[Port] = frozenset()) -> PacketPart:
    """Return the packet part of a fabric; FabricError if no NIC is on a packet switch.

    Parameters
    ----------
    fabric
        The whole.
    failed
        Ports that have failed, and their links with them.
    """
    dead = fabric.both_ends(failed)
    servers, slots = dict[int, list[Nic]](), defaultdict[int, list[int]](list)
    for nic in filter(partial(on_packet_switch, fabric), fabric.nics):
        works = fabric.nic_port(nic) not in dead
        slots[nic.server].append(len(servers.get(nic.server, ())) if works else -1)
        if works:
            servers.setdefault(nic.server, []).append(nic)
    part_of = {
        nic: Nic(server, number)
        for server, own in enumerate(servers.values())
        for number, nic in enumerate(own)
    }
    ports = {fabric.nic_port(nic): Port(fabric.nic_port(nic).node, new.nic) for nic, new in part_of.items()}
    switches = {switch.name: switch for switch in fabric.switches if switch.kind == "packet"}
    part = Fabric(
        fabric.name,
        tuple(
            replace(
                fabric.servers[server],
                nics=len(own),
                slots=tuple(slots[server]) if -1 in slots[server] else (),
            )
            for server, own in servers.items()
        ),
        tuple(switches.values()),
        tuple(
            replace(link, a=ports.get(link.a, link.a), b=ports.get(link.b, link.b))
            for link in fabric.links
            if {port for port in (link.a, link.b) if port.node not in switches} <= ports.keys()
            and link.a not in dead
        ),
        fabric.buffer_bytes,
    )
    left = iter(range(part.gpus))
    gpus = tuple(next(left) if server in servers else -1 for server in fabric.gpu_servers)
    return PacketPart(part, {new: nic for nic, new in part_of.items()}, gpus)


def packets_join(fabric: Fabric, source: int, destination: int) -> bool:
    """Return whether packet switches alone join two servers."""
    islands = _islands(fabric)
    return bool(islands[source] & islands[destination])


@lru_cache(maxsize=4)
def _islands(fabric: Fabric) -> tuple[frozenset[int], ...]:
    """Return which of the groups of packet switches that reach each other each server is on."""
    switches = [switch.name for switch in fabric.switches if switch.kind == "packet"]
    groups = enumerate(nx.connected_components(fabric.graph().subgraph(switches)))
    group_of = {switch: number for number, group in groups for switch in group}
    homes = [[fabric.peer(port).node for port in fabric.used_ports(server.name)] for server in fabric.servers]
    return tuple(frozenset(group_of[node] for node in nodes if node in group_of) for nodes in homes)
