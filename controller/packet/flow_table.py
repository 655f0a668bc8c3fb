"""A switch's flow table on paper: which path a connection or a datagram takes, without any switch.

Groups choose by Open vSwitch's hash, or by that of a kernel that routes by the same rules.
Stricter than a switch: rules of one priority that overlap, a port without a link, a group that
does not exist or that the datapath would hash, and a packet sent back where it came from are
errors, not behaviour.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from ipaddress import IPv4Address
from itertools import combinations, product
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.packet.ecmp_hash import UDP, Headers, chosen_bucket, chosen_buckets, datapath_chooses
from controller.packet.kernel_hash import hash_seed, kernels_bucket, kernels_buckets, next_hops
from controller.packet.rules import (
    IPV4,
    Bucket,
    FlowRule,
    Match,
    Output,
    RuleSet,
    SetEthDst,
    ToGroup,
)
from topologies.addresses import (
    DATAGRAM_PORT,
    DATAGRAM_SOURCE_PORT,
    ENTROPIES,
    FABRIC_NETWORK,
    GATEWAY_MAC,
    entropy_ip,
    host_ip,
    nic_ip,
    nic_mac,
    nic_network,
)
from topologies.errors import NetworkError
from topologies.fabric import Fabric, Link, Nic, Path, Port

Hashing = Literal["openvswitch", "kernel"]
"""Whose hash chooses among the links that lead the same way."""
_Addresses = NDArray[np.uint32]


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
    hashing
        Whose hash chooses a bucket.

    Raises
    ------
    NetworkError
        If a switch's rules or groups are wrong.
    """

    def __init__(
        self,
        fabric: Fabric,
        rulesets: Mapping[str, RuleSet],
        failed_links: Set[Link] = frozenset(),
        hashing: Hashing = "openvswitch",
    ) -> None:
        self._fabric = fabric
        self._failed = {port for link in failed_links for port in (link.a, link.b)}
        self._tables = {
            switch: _Table(fabric, switch, ruleset, hashing) for switch, ruleset in rulesets.items()
        }
        matched = (rule.match.ipv4_dst for ruleset in rulesets.values() for rule in ruleset.rules)
        longest = max((to.prefixlen for to in matched if to and to.overlaps(FABRIC_NETWORK)), default=0)
        self._alike = 1 << (32 - longest)
        """How many addresses of a NIC side by side no rule tells apart."""

    def path(self, source: Nic, destination: Nic, source_port: int, destination_port: int) -> Path | None:
        """Return the path of a TCP connection's packets to the destination, None if they are dropped.

        Raises
        ------
        NetworkError
            If a packet goes in circles, is sent back, or reaches another NIC than it was sent to.
        """
        ends = nic_ip(self._fabric, source), nic_ip(self._fabric, destination)
        headers = Headers(nic_mac(source), GATEWAY_MAC, *ends, source_port, destination_port)
        return self._one_path(source, [destination], headers)

    def host_path(
        self, source: Nic, destination: int, source_port: int, destination_port: int
    ) -> Path | None:
        """Return the path of a TCP connection's packets from one host's address to another's.

        Parameters
        ----------
        source
            The NIC by which they leave the host that sends them.
        destination
            The server; they may reach it by any of its NICs.
        source_port, destination_port
            Of the connection.

        Raises
        ------
        NetworkError
            As `path`.
        """
        ends = host_ip(source.server), host_ip(destination)
        headers = Headers(nic_mac(source), GATEWAY_MAC, *ends, source_port, destination_port)
        nics = [Nic(destination, nic) for nic in range(self._fabric.servers[destination].nics)]
        return self._one_path(source, nics, headers)

    def datagram_path(self, source: Nic, destination: Nic, entropy: int) -> Path | None:
        """Return the path of datagrams of an entropy, None if they are dropped; errors as of `path`."""
        address = entropy_ip(self._fabric, destination, entropy)
        return self._one_path(source, [destination], self._datagram(source, address))

    def datagram_paths(self, source: Nic, destination: Nic) -> list[Path | None]:
        """Return the path of datagrams of each of the `ENTROPIES`: `datagram_path`, all at once.

        Raises
        ------
        NetworkError
            As `path`.
        """
        network = nic_network(self._fabric, destination)
        addresses = int(network.network_address) + np.arange(network.num_addresses, dtype=np.uint32)
        found: dict[int, Path | None] = {}
        for alike in addresses.reshape(-1, min(self._alike, network.num_addresses)):
            headers = self._datagram(source, IPv4Address(int(alike[0])))
            for path, those in self._paths(source, [destination], headers, alike):
                found |= dict.fromkeys(those.tolist(), path)
        return [found[address] for address in addresses.tolist()] * (ENTROPIES // network.num_addresses)

    def _datagram(self, source: Nic, address: IPv4Address) -> Headers:
        """Return the headers of a datagram as it leaves a NIC."""
        ends = nic_ip(self._fabric, source), address
        return Headers(nic_mac(source), GATEWAY_MAC, *ends, DATAGRAM_SOURCE_PORT, DATAGRAM_PORT, UDP)

    def _one_path(self, source: Nic, destinations: Sequence[Nic], headers: Headers) -> Path | None:
        address = np.array([int(headers.ip_dst)], dtype=np.uint32)
        ((path, _),) = self._paths(source, destinations, headers, address)
        return path

    def _paths(
        self, source: Nic, destinations: Sequence[Nic], headers: Headers, addresses: _Addresses
    ) -> Iterator[tuple[Path | None, _Addresses]]:
        """Yield each path that packets take, and their addresses; None as the path of those that are dropped.

        The headers are those of the first packet. Others have another destination address, which no rule
        tells apart from the first one's: they go together until a group parts them.
        """
        fabric, ends = self._fabric, f"from NIC {source} to NIC {' or '.join(map(str, destinations))}"
        waiting = [_Packets((fabric.nic_port(source),), headers.eth_dst, addresses)]
        while waiting:
            packets = waiting.pop()
            path, eth_dst, addresses = packets
            at = fabric.peer(path[-1])
            if path[-1] in self._failed:
                yield None, addresses
            elif at.node in fabric.server_index:
                if (nic := fabric.nic_at(at)) not in destinations or eth_dst != nic_mac(nic):
                    raise NetworkError(f"a packet {ends} came to {at}")
                yield path, addresses
            elif onward := self._onward(at, headers, packets):
                for (*_, out), _, _ in onward:
                    if out == at or out in path:
                        raise NetworkError(f"a packet {ends} goes in circles at {out}")
                waiting += onward
            else:
                yield None, addresses

    def _onward(self, at: Port, headers: Headers, packets: "_Packets") -> list["_Packets"]:
        """Return packets as they leave the switch at whose port they came in; none if it drops them."""
        path, eth_dst, addresses = packets
        table = self._tables.get(at.node)
        rule = table.rule(at.number, headers) if table else None
        for action in rule.actions if rule else ():
            if isinstance(action, SetEthDst):
                eth_dst = action.mac
            elif isinstance(action, Output):
                return [_Packets((*path, Port(at.node, action.port)), eth_dst, addresses)]
            elif table:
                buckets, seen = table.groups[action.group], replace(headers, eth_dst=eth_dst)
                live = [Port(at.node, bucket.port) not in self._failed for bucket in buckets]
                return [
                    _Packets((*path, Port(at.node, bucket.port)), bucket.eth_dst or eth_dst, those)
                    for bucket, those in table.parted(buckets, live, seen, addresses)
                ]
        return []


class _Packets(NamedTuple):
    """Packets that have come by the same ports."""

    path: Path
    """The ports that sent them."""
    eth_dst: str
    """What the last switch wrote."""
    addresses: _Addresses
    """The destination address of each."""


class _Table:
    """One switch's rules, found by hashing: a dict for each set of fields that some rule matches."""

    def __init__(self, fabric: Fabric, switch: str, ruleset: RuleSet, hashing: Hashing) -> None:
        _check(fabric, switch, ruleset)
        self.groups = {group.number: group.buckets for group in ruleset.groups}
        self._choose, self._choose_all = chosen_bucket, chosen_buckets
        if hashing == "kernel":
            self.groups = {number: next_hops(buckets) for number, buckets in self.groups.items()}
            seed = hash_seed(fabric, switch)
            self._choose, self._choose_all = (
                partial(kernels_bucket, seed=seed),
                partial(kernels_buckets, seed=seed),
            )
        self._rules: dict[_Fields, dict[_Values, FlowRule]] = defaultdict(dict)
        for rule in sorted(ruleset.rules, key=lambda rule: rule.priority):
            self._rules[_fields(rule.match)][_values(rule.match)] = rule

    def rule(self, in_port: int, headers: Headers) -> FlowRule | None:
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

    def parted(
        self, buckets: Sequence[Bucket], live: Sequence[bool], headers: Headers, addresses: _Addresses
    ) -> Iterator[tuple[Bucket, _Addresses]]:
        """Yield a bucket for each port by which a group sends packets, and the addresses of these packets."""
        if len(addresses) == 1:  # 8 us in plain Python, and 80 us with numpy
            one = replace(headers, ip_dst=IPv4Address(int(addresses[0])))
            if bucket := self._choose(one, buckets, live):
                yield bucket, addresses
        elif any(live):
            chosen = self._choose_all(headers, addresses, buckets, live)
            numbers = np.array([bucket.port for bucket in buckets])[chosen]
            of_port = {bucket.port: bucket for bucket in buckets}  # all of a port write one address
            for number in set(numbers.tolist()):
                yield of_port[number], addresses[numbers == number]


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


def _overlaps(rules: Iterable[FlowRule]) -> Iterator[tuple[FlowRule, FlowRule]]:
    """Yield pairs of rules of one priority that some packet matches both of."""
    tables: dict[int, dict[_Fields, dict[_Values, FlowRule]]] = defaultdict(lambda: defaultdict(dict))
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
