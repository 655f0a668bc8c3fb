"""A switch's flow table on paper: which path a connection takes, without any switch.

Stricter than a switch: rules of one priority that overlap, a port without a link, a group that
does not exist or that the datapath would hash, and a packet sent back where it came from are
errors, not behaviour.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import replace
from itertools import combinations, product

from controller.packet.ecmp_hash import Headers, chosen_bucket, datapath_chooses
from controller.packet.rules import IPV4, Group, Match, Output, Rule, RuleSet, SetEthDst, ToGroup
from topologies.addresses import GATEWAY_MAC, nic_ip, nic_mac
from topologies.errors import NetworkError
from topologies.fabric import Fabric, Link, Nic, Path, Port


class FlowTables:
    """The flow tables of all switches of a fabric.

    Parameters
    ----------
    fabric
        What is wired.
    rulesets
        Each switch's rules, by its name.
    failed_links
        Links that carry nothing; a bucket whose port is on one is not chosen.

    Raises
    ------
    NetworkError
        If a switch's rules or groups are wrong.
    """

    def __init__(
        self, fabric: Fabric, rulesets: Mapping[str, RuleSet], failed_links: Set[Link] = frozenset()
    ) -> None:
        self._fabric = fabric
        self._failed_links = failed_links
        self._tables = {switch: _Table(fabric, switch, ruleset) for switch, ruleset in rulesets.items()}

    def path(self, source: Nic, destination: Nic, source_port: int, destination_port: int) -> Path | None:
        """Return the path of a TCP connection's packets to the destination, None if they are dropped.

        Raises
        ------
        NetworkError
            If a packet goes in circles, is sent back, or reaches another NIC than it was sent to.
        """
        fabric = self._fabric
        headers = Headers(
            nic_mac(source),
            GATEWAY_MAC,
            nic_ip(fabric, source),
            nic_ip(fabric, destination),
            source_port,
            destination_port,
        )
        path = [fabric.nic_port(source)]
        while fabric.link_at[path[-1]] not in self._failed_links:
            at = fabric.peer(path[-1])
            if at.node in fabric.server_index:
                if at != fabric.nic_port(destination) or headers.eth_dst != nic_mac(destination):
                    raise NetworkError(f"a packet from NIC {source} to NIC {destination} came to {at}")
                return tuple(path)
            step = self._step(at, headers)
            if step is None:
                return None
            out, headers = step
            if out == at or out in path:
                raise NetworkError(
                    f"a packet from NIC {source} to NIC {destination} goes in circles at {out}"
                )
            path.append(out)
        return None

    def _step(self, at: Port, headers: Headers) -> tuple[Port, Headers] | None:
        """Return by which port, and how changed, a packet leaves the switch at whose port it came in."""
        table = self._tables.get(at.node)
        rule = table.rule(at.number, headers) if table else None
        for action in rule.actions if rule else ():
            if isinstance(action, SetEthDst):
                headers = replace(headers, eth_dst=action.mac)
            elif isinstance(action, Output):
                return Port(at.node, action.port), headers
            elif table:
                return self._choice(at.node, table.groups[action.group], headers)
        return None

    def _choice(self, switch: str, group: Group, headers: Headers) -> tuple[Port, Headers] | None:
        links = [self._fabric.link_at[Port(switch, bucket.port)] for bucket in group.buckets]
        bucket = chosen_bucket(headers, group.buckets, [link not in self._failed_links for link in links])
        return (Port(switch, bucket.port), headers) if bucket else None


class _Table:
    """One switch's rules, found by hashing: a dict for each set of fields that some rule matches."""

    def __init__(self, fabric: Fabric, switch: str, ruleset: RuleSet) -> None:
        _check(fabric, switch, ruleset)
        self.groups = {group.number: group for group in ruleset.groups}
        self._rules: dict[_Fields, dict[_Values, Rule]] = defaultdict(dict)
        for rule in sorted(ruleset.rules, key=lambda rule: rule.priority):
            self._rules[_fields(rule.match)][_values(rule.match)] = rule

    def rule(self, in_port: int, headers: Headers) -> Rule | None:
        """Return the rule of highest priority that a packet matches."""
        to, by = int(headers.ip_dst), int(headers.ip_src)
        found = []
        for (has_port, has_type, prefix, from_prefix), rules in self._rules.items():
            values = (
                in_port if has_port else None,
                IPV4 if has_type else None,
                None if prefix is None else to >> (32 - prefix),
                None if from_prefix is None else by >> (32 - from_prefix),
            )
            if values in rules:
                found.append(rules[values])
        return max(found, key=lambda rule: rule.priority, default=None)


_Fields = tuple[bool, bool, int | None, int | None]
"""Whether a match has an in_port and an eth_type, and the lengths of its prefixes."""
_Values = tuple[int | None, int | None, int | None, int | None]


def _fields(match: Match) -> _Fields:
    to, by = (each.prefixlen if each else None for each in (match.ipv4_dst, match.ipv4_src))
    return match.in_port is not None, match.eth_type is not None, to, by


def _values(match: Match) -> _Values:
    to, by = (
        int(each.network_address) >> (32 - each.prefixlen) if each else None
        for each in (match.ipv4_dst, match.ipv4_src)
    )
    return match.in_port, match.eth_type, to, by


def _check(fabric: Fabric, switch: str, ruleset: RuleSet) -> None:
    """Refuse what a switch would put up with."""
    for one, other in _overlaps(ruleset.rules):
        raise NetworkError(f"two rules of {switch} overlap: {one.match} and {other.match}")
    groups = [group.number for group in ruleset.groups]
    if len(set(groups)) < len(groups):
        raise NetworkError(f"two groups of {switch} have one number: {groups}")
    for group in ruleset.groups:
        if not group.buckets or datapath_chooses(group.buckets):
            raise NetworkError(f"the choice of group {group.number} of {switch} cannot be known")
    actions = [action for rule in ruleset.rules for action in rule.actions]
    ports = {action.port for action in actions if isinstance(action, Output)}
    ports |= {bucket.port for group in ruleset.groups for bucket in group.buckets}
    for port in ports - {port.number for port in fabric.used_ports(switch)}:
        raise NetworkError(f"{switch} sends to its port {port}, which has no link")
    for missing in {action.group for action in actions if isinstance(action, ToGroup)} - set(groups):
        raise NetworkError(f"{switch} has no group {missing}, but sends to it")


def _overlaps(rules: Iterable[Rule]) -> Iterator[tuple[Rule, Rule]]:
    """Yield pairs of rules of one priority that some packet matches both of."""
    tables: dict[int, dict[_Fields, dict[_Values, Rule]]] = defaultdict(lambda: defaultdict(dict))
    for rule in rules:
        same = tables[rule.priority][_fields(rule.match)]
        if (values := _values(rule.match)) in same:
            yield same[values], rule
        same[values] = rule
    for by_fields in tables.values():
        for some, others in combinations(by_fields.values(), 2):
            yield from (
                pair
                for pair in product(some.values(), others.values())
                if pair[0].match.overlaps(pair[1].match)
            )
