"""Who forwards: the rules of every packet switch, a pure function of the fabric and of what failed.

A packet switch is a router (`topologies.addresses`). To a NIC of its own it has one rule: write
that NIC's MAC address, out of its port, whatever the entropy of the packet's destination address. To
every other switch that has NICs it has one rule for that switch's prefix, towards the neighbours that are
one hop nearer: straight out of a port, or through a group when there are several. Packets with no path are
dropped and counted by the table-miss rule. Nothing is learned, nothing is flooded, no server forwards.

In a group the links have numbers of buckets that are the smallest with the ratios of their rates: 5 and 7 for
1 : 1.4. The ratio of any two is right within 1 %, and so are the shares of all, also while some of them have
failed. A fabric whose links take more buckets than a group can have is refused.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from ipaddress import IPv4Network
from itertools import count

import networkx as nx

from controller.packet.ecmp_hash import MOST_BUCKETS, forwarding_buckets
from controller.packet.rules import (
    IPV4,
    Action,
    FlowRule,
    Match,
    Output,
    RuleSet,
    SelectGroup,
    SetEthDst,
    ToGroup,
)
from topologies.addresses import nic_ip, nic_mac, nic_network, subnet, switch_mac
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


def forwarding_rules(
    fabric: Fabric, failed_links: Set[Link] = frozenset(), routing: Routing | None = None
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
    return {
        switch: _rule_set(fabric, switch, nic_rules[switch], _next_hops(trunks, switch, hops))
        for switch in trunks
    }


def check_shares(fabric: Fabric) -> None:
    """Raise FabricError if `forwarding_rules` does; that takes a minute for thousands of switches.

    Where one group can have all links of a switch, so can each of its groups have some: only elsewhere the
    rules are needed.
    """
    for trunks in _trunks(fabric, frozenset()).values():
        if trunks and _buckets([rate_bps for _, rate_bps in trunks.values()]) is None:
            forwarding_rules(fabric)
            return


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


def _next_hops(trunks: _Trunks, switch: str, hops: dict[str, dict[str, int]]) -> dict[str, tuple[int, ...]]:
    """Return the ports towards each destination that is reached, each as often as it has buckets."""
    ports = {}
    for destination, distance in hops.items():
        if switch in distance and switch != destination:
            nearer = {
                port.number: rate
                for port, (neighbour, rate) in sorted(trunks[switch].items())
                if distance[neighbour] < distance[switch]
            }
            buckets = _buckets([*nearer.values()])
            if buckets is None:
                raise _not_shared(switch, destination, [*nearer.values()])
            ports[destination] = tuple(port for port, rate in nearer.items() for _ in range(buckets[rate]))
    return ports


def _buckets(rates_bps: Sequence[float]) -> Mapping[float, int] | None:
    """Return how many buckets a link of each rate has in a group of such links; None if they do not fit."""
    least_bps = min(rates_bps)
    ratios = {rate_bps: min(rate_bps / least_bps, MOST_BUCKETS) for rate_bps in rates_bps}
    for least in count(1):
        buckets = {rate_bps: round(ratio * least) for rate_bps, ratio in ratios.items()}
        if sum(buckets[rate_bps] for rate_bps in rates_bps) >= MOST_BUCKETS:  # `forwarding_buckets` adds one
            break
        scales = [buckets[rate_bps] / ratio for rate_bps, ratio in ratios.items()]
        if max(scales) <= min(scales) * (1 + TOLERANCE):
            return buckets
    return None


def _not_shared(switch: str, destination: str, rates_bps: Sequence[float]) -> FabricError:
    return FabricError(
        f"{switch} cannot spread connections to {destination} over {len(rates_bps)} links of "
        f"{min(rates_bps):g} to {max(rates_bps):g} bit/s by their rates within {TOLERANCE:.0%}: "
        f"that takes more than {MOST_BUCKETS} buckets",
        "give links that lead the same way rates that are closer to each other",
    )


def _rule_set(
    fabric: Fabric, switch: str, nic_rules: list[FlowRule], next_hops: dict[str, tuple[int, ...]]
) -> RuleSet:
    groups: dict[tuple[int, ...], SelectGroup] = {}
    rules = [*nic_rules]
    for destination, ports in next_hops.items():
        action: Action
        if len(set(ports)) == 1:
            action = Output(ports[0])
        else:
            group = groups.setdefault(ports, SelectGroup(len(groups) + 1, forwarding_buckets(ports)))
            action = ToGroup(group.number)
        match = Match(eth_type=IPV4, ipv4_dst=subnet(fabric, destination))
        # The MAC address before the output: the group's hash covers it.
        rules.append(FlowRule(PREFIX_PRIORITY, match, (SetEthDst(switch_mac(fabric, switch)), action)))
    return RuleSet((*rules, TABLE_MISS), tuple(groups.values()))
