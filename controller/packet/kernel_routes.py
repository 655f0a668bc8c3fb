"""A switch's rules as routes of the Linux kernel, for switches that are network namespaces which route.

`controller.packet.routing` says who forwards, and this file says the same in the kernel's words. The kernel
takes the longest prefix, where a switch takes the rule of highest priority: a rule whose prefix is inside one
of higher priority is never taken and has no route. Rules that match a source, as a user's own routing has
them for flows, are routes in a table of that source, which is looked up before the main table (ip-rule(8)).
The table-miss rule has no route either: the kernel drops what has none.

A group is a route with several next hops, whose weights are its numbers of buckets. The MAC address that a
packet gets depends on the port by which it leaves: that of the NIC there, or `GATEWAY_MAC`, which each port
of a switch that routes has.

The kernel skips a route all of whose links are down and looks further, where a switch drops. Only a user's
own routing has routes behind which there is something further (`RoutePlace.is_inside`): such a route is put
as one that leads nowhere then.
"""

from collections.abc import Iterable, Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network
from typing import NamedTuple

from controller.packet.kernel_hash import next_hops
from controller.packet.routing import TABLE_MISS
from controller.packet.rules import Bucket, FlowRule, Output, RuleSet, ToGroup
from topologies.addresses import GATEWAY_MAC, nic_mac
from topologies.errors import NetworkError
from topologies.fabric import Fabric, Port

MOST_WEIGHT = 256
"""Of a next hop (struct rtnexthop has it less 1, in a byte)."""
EVERYWHERE = IPv4Network("0.0.0.0/0")
_HINT = "leave --datapath out"


class RoutePlace(NamedTuple):
    """Place of a route: its destination, and its table."""

    destination: IPv4Network
    source: IPv4Address | None = None
    """Whose packets' table it is in; None for the main table."""

    def inside(self, length: int) -> "RoutePlace | None":
        """Return the place of the prefix of a length that it is inside of, or is; None if that is longer."""
        if length > self.destination.prefixlen:
            return None
        return self._replace(destination=self.destination.supernet(new_prefix=length))

    def is_inside(self, others: Iterable["RoutePlace"]) -> bool:
        """Return whether the kernel, if it skips this route, finds one of some others."""
        return any(
            other != self
            and other.source in {None, self.source}
            and self.destination.subnet_of(other.destination)
            for other in others
        )


class RouteHop(NamedTuple):
    """One of a route's next hops."""

    port: int
    mac: str
    """The destination MAC address that a packet gets."""
    weight: int = 1
    """Its share of packets over the sum of all, 1 to `MOST_WEIGHT`."""


PacketRoutes = dict[RoutePlace, tuple[RouteHop, ...]]
"""The routes of a switch, each with its next hops in the kernel's order, on which their choice depends."""


def packet_routes(fabric: Fabric, switch: str, ruleset: RuleSet) -> PacketRoutes:
    """Return the routes that forward as a switch's rules do.

    Parameters
    ----------
    fabric
        What is wired.
    switch
        Whose rules they are.
    ruleset
        The rules, by `controller.packet.routing.forwarding_rules`.

    Raises
    ------
    NetworkError
        If no route does what a rule does.
    """
    groups = {group.number: next_hops(group.buckets) for group in ruleset.groups}
    routes: PacketRoutes = {}
    lengths: set[int] = set()
    for rule in _in_order(switch, ruleset):
        place = _place(switch, rule)
        if not any(place.inside(length) in routes for length in lengths):
            routes[place] = _hops(fabric, switch, rule, groups)
            lengths.add(place.destination.prefixlen)
    return routes


def _in_order(switch: str, ruleset: RuleSet) -> list[FlowRule]:
    """Return the rules but for the table-miss one: first those for a source, as the kernel has it."""
    rules = [rule for rule in ruleset.rules if rule != TABLE_MISS]
    rules.sort(key=lambda rule: (rule.match.ipv4_src is None, -rule.priority))
    if rules != sorted(rules, key=lambda rule: -rule.priority):
        raise NetworkError(
            f"a rule of {switch} for one source has a lower priority than a rule for any source", _HINT
        )
    return rules


def _place(switch: str, rule: FlowRule) -> RoutePlace:
    """Return destination and table of a rule's route."""
    match, source = rule.match, rule.match.ipv4_src
    if match.in_port is not None or (source and source.num_addresses > 1):
        raise NetworkError(f"a rule of {switch} matches {match}, which no route does", _HINT)
    return RoutePlace(match.ipv4_dst or EVERYWHERE, source.network_address if source else None)


def _hops(
    fabric: Fabric, switch: str, rule: FlowRule, groups: Mapping[int, Sequence[Bucket]]
) -> tuple[RouteHop, ...]:
    """Return a rule's next hops; none of one that drops."""
    hops: list[RouteHop] = []
    for action in rule.actions:
        if isinstance(action, Output):
            hops.append(RouteHop(action.port, _mac(fabric, Port(switch, action.port))))
        elif isinstance(action, ToGroup):
            hops += (
                RouteHop(bucket.port, _mac(fabric, Port(switch, bucket.port)), bucket.weight)
                for bucket in groups[action.group]
            )
    if any(hop.weight > MOST_WEIGHT for hop in hops):
        raise NetworkError(
            f"{switch} is to send {max(hop.weight for hop in hops)} times as much by one link as by another, "
            f"and by a route it is at most {MOST_WEIGHT} times",
            "give links that lead the same way rates that are closer to each other, or leave --datapath out",
        )
    return tuple(hops)


def _mac(fabric: Fabric, port: Port) -> str:
    """Return the MAC address of what is at the other end of a switch's port."""
    far = fabric.peer(port)
    return nic_mac(fabric.nic_at(far)) if far.node in fabric.server_index else GATEWAY_MAC
