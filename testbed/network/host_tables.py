"""By which NICs hosts send, as routing tables: a pure function of the fabric, of what failed and what is lit.

To another host's address a host sends by those of its NICs from which that host is reached: directly by
light, else through servers that forward, else over packet switches. Its main table has one route for all
hosts, and one for each host that not all of its working NICs reach. What leaves from a NIC's own address
goes by the NIC's own table, which leads to what that NIC reaches and refuses all else, so that no
application finds a path between rails that are apart.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from ipaddress import IPv4Network, collapse_addresses
from typing import NamedTuple

import networkx as nx

from testbed.machine.netlink import RT_TABLE_MAIN
from testbed.network.wiring import FIRST_TABLE
from topologies.addresses import FABRIC_NETWORK, HOSTS_NETWORK, host_ip, nic_ip, subnet
from topologies.fabric import Fabric, Link, Nic
from topologies.packet_part import on_packet_switch
from topologies.routes import Routes

ALL = IPv4Network("0.0.0.0/0")


class TablePrefix(NamedTuple):
    """A routing table of a host, and the addresses for which a route in it is."""

    table: int
    network: IPv4Network


class HostHop(NamedTuple):
    """Where a route leads, or one of its shares."""

    out: Nic
    """The NIC by which the host sends."""
    to: Nic | None = None
    """The NIC that its light reaches; None for a NIC on a packet switch, which sends to its gateway."""


Hops = tuple[HostHop, ...]
"""Over what a route spreads connections; of none it refuses them."""
HostTable = dict[TablePrefix, Hops]


def packet_tables(fabric: Fabric, failed: Set[Link]) -> list[HostTable]:
    """Return the routes of each host over packet switches, around links that have failed."""
    packets = _Packets(fabric, failed)
    return [packets.routes(server) for server in range(len(fabric.servers))]


def light_tables(fabric: Fabric, routes: Routes) -> list[HostTable]:
    """Return the routes of each host over circuits, which go before those over packet switches.

    Parameters
    ----------
    fabric
        What is wired; it says whether servers forward.
    routes
        Over what is lit.
    """
    lit = _light_hops(fabric, routes)
    return [_lit_routes(fabric, routes, server, lit) for server in range(len(fabric.servers))]


class _Packets:
    """NICs on packet switches and what they reach, by the part of the network that is left to them."""

    def __init__(self, fabric: Fabric, failed: Set[Link]) -> None:
        self._fabric, self._failed = fabric, failed
        self._nics: list[list[Nic]] = [[] for _ in fabric.servers]
        self._part_of = _parts(fabric, failed)
        parts: list[set[int]] = [set() for _ in fabric.servers]
        self._homes: dict[str, None] = {}
        """The packet switches with NICs."""
        self._has_light = False
        """Whether other NICs are on OCSes."""
        for nic in fabric.nics:
            if on_packet_switch(fabric, nic):
                self._nics[nic.server].append(nic)
                self._homes[self._switch(nic)] = None
                if self._works(nic):
                    parts[nic.server].add(self._part(nic))
            else:
                self._has_light = True
        self._alike: dict[frozenset[int], list[int]] = defaultdict(list)
        """The hosts that are in the same parts: they are reached alike."""
        for server, its in enumerate(parts):
            self._alike[frozenset(its)].append(server)

    def routes(self, server: int) -> HostTable:
        """Return the routes of a host over packet switches."""
        table = dict(self._to_hosts(server))
        table |= {TablePrefix(RT_TABLE_MAIN, network): hops for network, hops in self._to_nics(server)}
        for nic in self._nics[server]:
            own, hops = FIRST_TABLE + nic.nic, (HostHop(nic),)
            table |= {TablePrefix(own, network): hops for network in self._reached(nic)}
            table[TablePrefix(own, ALL)] = ()
        return table

    def _to_hosts(self, server: int) -> Iterator[tuple[TablePrefix, Hops]]:
        """Yield the main table's route to all hosts, and those to hosts that only some NICs reach."""
        every = tuple(HostHop(nic) for nic in self._nics[server] if self._works(nic))
        if not every:
            return
        yield TablePrefix(RT_TABLE_MAIN, HOSTS_NETWORK), every
        for parts, others in self._alike.items():
            hops = tuple(hop for hop in every if self._part(hop.out) in parts)
            if hops != every:
                yield from ((_main(other), hops) for other in others if other != server)

    def _to_nics(self, server: int) -> Iterator[tuple[IPv4Network, Hops]]:
        """Yield the main table's routes to NICs, each over the NICs that are nearest."""
        networks: dict[Hops, list[IPv4Network]] = defaultdict(list)
        works = [nic for nic in self._nics[server] if self._works(nic)]
        for switch in self._homes:
            beside = tuple(HostHop(nic) for nic in works if self._switch(nic) == switch)
            joined = tuple(HostHop(nic) for nic in works if self._part(nic) == self._part_of[switch])
            if hops := beside or joined:
                networks[hops].append(subnet(self._fabric, switch))
        for hops, its in networks.items():
            yield from ((network, hops) for network in self._collapsed(its))

    def _reached(self, nic: Nic) -> Iterator[IPv4Network]:
        """Yield the networks that a NIC reaches while its own link works."""
        part = self._part(nic)
        yield from self._collapsed(
            [subnet(self._fabric, switch) for switch in self._homes if self._part_of[switch] == part]
        )
        hosts = [server for parts, servers in self._alike.items() if part in parts for server in servers]
        if len(hosts) == len(self._fabric.servers):
            yield HOSTS_NETWORK
        else:
            yield from collapse_addresses(IPv4Network(host_ip(server)) for server in hosts)

    def _collapsed(self, networks: list[IPv4Network]) -> Iterable[IPv4Network]:
        """Return the fewest networks that these are: one if they are all that there are."""
        is_all = len(networks) == len(self._homes) and not self._has_light
        return [FABRIC_NETWORK] if is_all else collapse_addresses(networks)

    def _switch(self, nic: Nic) -> str:
        return self._fabric.peer(self._fabric.nic_port(nic)).node

    def _part(self, nic: Nic) -> int:
        return self._part_of[self._switch(nic)]

    def _works(self, nic: Nic) -> bool:
        return self._fabric.link_at[self._fabric.nic_port(nic)] not in self._failed


def _parts(fabric: Fabric, failed: Set[Link]) -> dict[str, int]:
    """Return in which part of the network each packet switch is: those of one part reach each other."""
    switches = {switch.name for switch in fabric.switches if switch.kind == "packet"}
    graph: nx.Graph[str] = nx.Graph()
    graph.add_nodes_from(switches)
    ends = ((link.a.node, link.b.node) for link in fabric.links if link not in failed)
    graph.add_edges_from(both for both in ends if switches.issuperset(both))
    return {switch: part for part, those in enumerate(nx.connected_components(graph)) for switch in those}


def _light_hops(fabric: Fabric, routes: Routes) -> Mapping[int, Mapping[int, Hops]]:
    """Return for each host over what others send to it by light: directly, or nearer if servers forward."""
    lit = [
        HostHop(nic, to) for nic in fabric.nics if (to := routes.next_nic(nic)) and to.server != nic.server
    ]
    joined = nx.DiGraph((to.server, out.server) for out, to in lit if to)  # against the light
    hops: dict[int, dict[int, Hops]] = defaultdict(dict)
    for destination in joined:
        farthest = None if fabric.servers_forward else 1
        away = nx.single_source_shortest_path_length(joined, destination, cutoff=farthest)
        for hop in lit:
            source, onward = hop.out.server, hop.to.server if hop.to else -1
            if source in away and away.get(onward) == away[source] - 1:
                hops[destination][source] = (*hops[destination].get(source, ()), hop)
    return hops


def _lit_routes(
    fabric: Fabric, routes: Routes, server: int, lit: Mapping[int, Mapping[int, Hops]]
) -> HostTable:
    """Return the routes of a host over circuits."""
    table = {_main(other): hops[server] for other, hops in lit.items() if server in hops}
    for nic in (Nic(server, number) for number in range(fabric.servers[server].nics)):
        if on_packet_switch(fabric, nic):
            continue
        own = FIRST_TABLE + nic.nic
        if (to := routes.next_nic(nic)) and to.server != server:
            hops = (HostHop(nic, to),)
            if fabric.servers_forward:
                table[TablePrefix(own, HOSTS_NETWORK)] = hops
            else:  # else `testbed.network.forwarding` has the routes to NICs
                table[TablePrefix(own, IPv4Network(host_ip(to.server)))] = hops
                table.setdefault(TablePrefix(RT_TABLE_MAIN, IPv4Network(nic_ip(fabric, to))), hops)
        table[TablePrefix(own, ALL)] = ()
    return table


def _main(server: int) -> TablePrefix:
    return TablePrefix(RT_TABLE_MAIN, IPv4Network(host_ip(server)))
