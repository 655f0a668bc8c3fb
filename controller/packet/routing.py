"""Who forwards: the rules of every packet switch, a pure function of the fabric and of what failed.

A packet switch is a router (`topologies.addresses`). To a NIC of its own it has one rule: write
that NIC's MAC address, out of its port, whatever the entropy of the packet's destination address. To
every other switch that has NICs it has one rule for that switch's prefix, towards the neighbours that are
one hop nearer: straight out of a port, or through a group when there are several. Packets with no path are
dropped and counted by the table-miss rule. Nothing is learned, nothing is flooded, no server forwards.

The address of a host is reached by any NIC of it. A switch with NICs of a host spreads connections over
these, and each gets the MAC address of the NIC that it goes to; another switch sends towards the nearest
switches that have some. Hosts to which a switch sends by the same ports share a prefix.

In a group the links have numbers of buckets that are the smallest with the ratios of their rates: 5 and 7 for
1 : 1.4. The ratio of any two is right within 1 %, and so are the shares of all, also while some of them have
failed. A fabric whose links take more buckets than a group can have is refused.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache, partial
from ipaddress import IPv4Network, collapse_addresses
from itertools import count

import networkx as nx

from controller.packet.ecmp_hash import MOST_BUCKETS, MOST_WRITING, NO_MACS, forwarding_buckets
from controller.packet.rules import (
    IPV4,
    Action,
    Bucket,
    FlowRule,
    Match,
    Output,
    RuleSet,
    SelectGroup,
    SetEthDst,
    ToGroup,
)
from topologies.addresses import host_ip, nic_ip, nic_mac, nic_network, subnet, switch_mac
from topologies.errors import FabricError
from topologies.fabric import Fabric, Link, Nic, Port
from topologies.routing import Routing

TOLERANCE = 0.01
"""How far the ratio of two links' buckets may be from that of their rates: a thousand connections that a hash
spreads are off by more."""
FLOW_PRIORITY, ROUTED_PRIORITY = 400, 300
"""Of what a routing says of flows, and of destinations."""
NIC_PRIORITY = 200
PREFIX_PRIORITY = 100
TABLE_MISS = FlowRule(0, Match())

_Trunks = dict[str, dict[Port, tuple[str, float]]]
"""Of each packet switch: its ports to other packet switches, each with that switch and the rate."""
_Hops = Mapping[str, Mapping[str, int]]
"""Of each switch that has NICs: how many hops it is from each switch that reaches it."""
_Groups = dict[tuple[Bucket, ...], SelectGroup]
"""The groups of a switch, by their buckets."""
_Homes = Sequence[Mapping[str, Sequence[Nic]]]
"""Of each server: its NICs that work, by the packet switch that they are on."""


def forwarding_rules(
    fabric: Fabric,
    failed_links: Set[Link] = frozenset(),
    routing: Routing | None = None,
    *,
    hosts: bool = False,
) -> dict[str, RuleSet]:
    """Return the rules of each packet switch.

    Parameters
    ----------
    fabric
        What is wired.
    failed_links
        Links that carry nothing now; paths around them are taken where there are any.
    routing
        By which ports switches send on, before what is the shortest path; by default nothing else.
    hosts
        Whether the addresses of hosts are reached too.

    Returns
    -------
    dict
        The rules and groups of each packet switch by its name.

    Raises
    ------
    FabricError
        If the links of a group have rates that it cannot share.

    Notes
    -----
    Shortest means the fewest switches. Connections spread over all shortest paths by the hash of
    `controller.packet.ecmp_hash`; parallel links count each, by their rates.
    Each switch's groups count from 1 here; `controller.packet.changes.renumbered` fits them to those that
    it holds.
    """
    trunks = _trunks(fabric, failed_links)
    nic_rules = _nic_rules(fabric, trunks, failed_links)
    joined = nx.Graph((near, far) for near, ports in trunks.items() for far, _ in ports.values())
    joined.add_nodes_from(trunks)
    hops = {
        switch: nx.single_source_shortest_path_length(joined, switch)
        for switch, rules in nic_rules.items()
        if rules
    }
    for switch, rules in _routed_rules(fabric, failed_links, routing).items():
        nic_rules[switch] += rules
    homes = _homes(fabric, trunks, failed_links) if hosts else []
    return {
        switch: _rule_set(fabric, switch, nic_rules[switch], _Towards(switch, trunks[switch], hops), homes)
        for switch in trunks
    }


def check_shares(fabric: Fabric, *, hosts: bool = False) -> None:
    """Raise FabricError if `forwarding_rules` does; that takes a minute for thousands of switches.

    Where one group can have all links of a switch, so can each of its groups have some: only elsewhere the
    rules are needed.
    """
    every = _trunks(fabric, frozenset())
    for trunks in every.values():
        if trunks and _buckets([rate_bps for _, rate_bps in trunks.values()]) is None:
            forwarding_rules(fabric, hosts=hosts)
            return
    for home in _homes(fabric, every, frozenset()) if hosts else ():
        for switch, nics in home.items():
            _host_ports(fabric, switch, nics)


def _trunks(fabric: Fabric, failed_links: Set[Link]) -> _Trunks:
    trunks: _Trunks = {switch.name: {} for switch in fabric.switches if switch.kind == "packet"}
    for link in fabric.links:
        if link.a.node in trunks and link.b.node in trunks and link not in failed_links:
            trunks[link.a.node][link.a] = (link.b.node, link.rate_bps)
            trunks[link.b.node][link.b] = (link.a.node, link.rate_bps)
    return trunks


def _nic_rules(fabric: Fabric, switches: Iterable[str], failed_links: Set[Link]) -> dict[str, list[FlowRule]]:
    """Return each switch's rules to its own NICs."""
    rules: dict[str, list[FlowRule]] = {switch: [] for switch in switches}
    for nic in fabric.nics:
        port = fabric.peer(fabric.nic_port(nic))
        if port.node in rules and fabric.link_at[port] not in failed_links:
            match = Match(eth_type=IPV4, ipv4_dst=nic_network(fabric, nic))
            rules[port.node].append(
                FlowRule(NIC_PRIORITY, match, (SetEthDst(nic_mac(nic)), Output(port.number)))
            )
    return rules


def _routed_rules(
    fabric: Fabric, failed_links: Set[Link], routing: Routing | None
) -> dict[str, list[FlowRule]]:
    """Return each switch's rules by a routing; those that lead to links that have failed are left out."""
    rules: dict[str, list[FlowRule]] = defaultdict(list)
    if routing is None:
        return rules
    failed = {port for link in failed_links for port in (link.a, link.b)}
    for (switch, what), out in routing.table(fabric=fabric, lit={}, failed=frozenset(failed)).items():
        if not (isinstance(switch, str) and isinstance(out, Port)) or out in failed:
            continue
        source, destination = (None, what) if isinstance(what, Nic) else what
        match = Match(
            eth_type=IPV4,
            ipv4_dst=nic_network(fabric, destination),
            ipv4_src=source and IPv4Network(nic_ip(fabric, source)),
        )
        to = fabric.peer(out)
        is_last = to == fabric.nic_port(destination)
        mac = nic_mac(destination) if is_last else switch_mac(fabric, switch)
        priority = FLOW_PRIORITY if source else ROUTED_PRIORITY
        rules[switch].append(FlowRule(priority, match, (SetEthDst(mac), Output(out.number))))
    return rules


@dataclass(frozen=True)
class _Towards:
    """By which ports a switch sends towards others."""

    switch: str
    trunks: Mapping[Port, tuple[str, float]]
    """Its ports to other packet switches, each with that switch and the rate."""
    hops: _Hops

    def others(self) -> Iterator[str]:
        """Yield the other switches that have NICs and are reached."""
        return (
            other for other, distance in self.hops.items() if self.switch in distance and other != self.switch
        )

    def nearest(self, switches: Iterable[str]) -> frozenset[str]:
        """Return those of some switches with NICs that are the fewest hops away; none if none is reached."""
        away = {each: self.hops[each][self.switch] for each in switches if self.switch in self.hops[each]}
        return frozenset(each for each, hops in away.items() if hops == min(away.values()))

    def ports(self, switches: Collection[str], what: str) -> tuple[int, ...]:
        """Return the ports that lead nearer to one of some switches, each as often as it has buckets."""
        nearer = {
            port: rate
            for port, (neighbour, rate) in sorted(self.trunks.items())
            if any(self.hops[each][neighbour] < self.hops[each][self.switch] for each in switches)
        }
        return _shared(self.switch, what, {port.number: rate for port, rate in nearer.items()}, MOST_BUCKETS)


def _homes(fabric: Fabric, switches: Collection[str], failed_links: Set[Link]) -> _Homes:
    homes: list[dict[str, list[Nic]]] = [{} for _ in fabric.servers]
    for nic in fabric.nics:
        port = fabric.peer(fabric.nic_port(nic))
        if port.node in switches and fabric.link_at[port] not in failed_links:
            homes[nic.server].setdefault(port.node, []).append(nic)
    return homes


def _host_ports(fabric: Fabric, switch: str, nics: Iterable[Nic]) -> tuple[int, ...]:
    """Return a switch's ports to NICs of one host, each as often as it has buckets."""
    rates_bps = {fabric.peer(fabric.nic_port(nic)).number: fabric.nic_rate_bps(nic) for nic in nics}
    return _shared(switch, "a host", rates_bps, MOST_WRITING)


def _shared(switch: str, what: str, rates_bps: Mapping[int, float], most: int) -> tuple[int, ...]:
    """Return ports, each as often as it has buckets in a group of at most so many."""
    buckets = _buckets([*rates_bps.values()], most)
    if buckets is None:
        raise _not_shared(switch, what, [*rates_bps.values()], most)
    return tuple(port for port, rate_bps in rates_bps.items() for _ in range(buckets[rate_bps]))


def _buckets(rates_bps: Sequence[float], most: int = MOST_BUCKETS) -> Mapping[float, int] | None:
    """Return how many buckets a link of each rate has in a group of such links; None if they do not fit."""
    least_bps = min(rates_bps)
    ratios = {rate_bps: min(rate_bps / least_bps, most) for rate_bps in rates_bps}
    for least in count(1):
        buckets = {rate_bps: round(ratio * least) for rate_bps, ratio in ratios.items()}
        if sum(buckets[rate_bps] for rate_bps in rates_bps) >= most:  # `forwarding_buckets` adds one
            break
        scales = [buckets[rate_bps] / ratio for rate_bps, ratio in ratios.items()]
        if max(scales) <= min(scales) * (1 + TOLERANCE):
            return buckets
    return None


def _not_shared(switch: str, destination: str, rates_bps: Sequence[float], most: int) -> FabricError:
    return FabricError(
        f"{switch} cannot spread connections to {destination} over {len(rates_bps)} links of "
        f"{min(rates_bps):g} to {max(rates_bps):g} bit/s by their rates within {TOLERANCE:.0%}: "
        f"that takes more than {most} buckets",
        "give links that lead the same way rates that are closer to each other",
    )


def _rule_set(
    fabric: Fabric, switch: str, nic_rules: Iterable[FlowRule], towards: _Towards, homes: _Homes
) -> RuleSet:
    groups: _Groups = {}
    prefixes = [(subnet(fabric, other), towards.ports([other], other)) for other in towards.others()]
    rules = [*nic_rules, *_host_rules(fabric, switch, homes, groups)]
    for network, ports in (*prefixes, *_host_prefixes(towards, homes)):
        # The MAC address before the output: the group's hash covers it.
        actions = SetEthDst(switch_mac(fabric, switch)), _onward(groups, ports)
        rules.append(FlowRule(PREFIX_PRIORITY, Match(eth_type=IPV4, ipv4_dst=network), actions))
    return RuleSet((*rules, TABLE_MISS), tuple(groups.values()))


def _host_rules(fabric: Fabric, switch: str, homes: _Homes, groups: _Groups) -> Iterator[FlowRule]:
    """Yield a switch's rules to the hosts of which it has NICs."""
    for server, home in enumerate(homes):
        if nics := home.get(switch):
            macs = {fabric.peer(fabric.nic_port(nic)).number: nic_mac(nic) for nic in nics}
            written = nic_mac(nics[0]) if len(nics) == 1 else switch_mac(fabric, switch)
            actions = SetEthDst(written), _onward(groups, _host_ports(fabric, switch, nics), macs)
            match = Match(eth_type=IPV4, ipv4_dst=IPv4Network(host_ip(server)))
            yield FlowRule(NIC_PRIORITY, match, actions)


def _host_prefixes(towards: _Towards, homes: _Homes) -> Iterator[tuple[IPv4Network, tuple[int, ...]]]:
    """Yield the prefixes of hosts that have no NIC on a switch, each with the ports towards them."""
    ports_to = cache(partial(towards.ports, what="a host"))
    found: dict[tuple[int, ...], list[IPv4Network]] = defaultdict(list)
    for server, home in enumerate(homes):
        if towards.switch not in home and (nearest := towards.nearest(home)):
            found[ports_to(nearest)].append(IPv4Network(host_ip(server)))
    for ports, networks in found.items():
        yield from ((network, ports) for network in collapse_addresses(networks))


def _onward(groups: _Groups, ports: Sequence[int], eth_dsts: Mapping[int, str] = NO_MACS) -> Action:
    """Return the action that sends by ports: an output, or to one of the switch's groups, made at need."""
    if len(set(ports)) == 1:
        return Output(ports[0])
    buckets = forwarding_buckets(ports, eth_dsts)
    return ToGroup(groups.setdefault(buckets, SelectGroup(len(groups) + 1, buckets)).number)
