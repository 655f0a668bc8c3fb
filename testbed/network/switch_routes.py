"""The routes of packet switches that are namespaces: they follow rules, and are set only where they differ.

`controller.packet.kernel_routes` says what they are. A switch sends to a NIC of its own through that NIC's
address, and to another switch through `NEXT_SWITCH`; both are neighbours for good by the port that leads
there, so that nobody asks who has them. The kernel forgets routes and neighbours by an interface that goes
down, and both are set again when it is up.
"""

import errno
from collections.abc import Callable, Iterable, Mapping, Set
from functools import lru_cache
from ipaddress import IPv4Address
from pathlib import Path
from socket import AF_INET

from pyroute2 import IPRoute
from pyroute2.netlink.rtnl import RTM_NEWRULE

from controller.packet.kernel_routes import PacketRoutes, RouteHop, RoutePlace, packet_routes
from controller.packet.rules import RuleSet
from testbed.machine.netlink import (
    RT_TABLE_MAIN,
    RTPROT_STATIC,
    Batch,
    NextHop,
    no_route_request,
    spread_request,
)
from testbed.network.wiring import FIRST_TABLE, FR_ACT_TO_TBL, Wiring, add_neighbour, interface_indices
from topologies.addresses import GATEWAY_MAC, interface, nic_ip, nic_mac
from topologies.fabric import Fabric, Link, Port

NEXT_SWITCH = IPv4Address("169.254.0.1")
"""The address of whatever switch is at the other end of a link."""
MOST_FORESEEN = 16
"""Sets of links that have failed, whose routes are kept."""
LOST = {
    "snmp": {"InHdrErrors", "InAddrErrors", "InDiscards", "OutDiscards", "OutNoRoutes", "FragFails"},
    "netstat": {"InNoRoutes", "InTruncatedPkts"},
}
"""Files of /proc/net, and the counters in them of IP packets that were not forwarded (RFC 4293)."""
IP = ("Ip:", "IpExt:")


class SwitchRoutes:
    """The routes of all packet switches that are namespaces; made once for a network, and set at once.

    Parameters
    ----------
    wiring
        Where the switches are; without any, this does nothing.
    rules_around
        Returns the rules of each switch around links that have failed.
    """

    def __init__(self, wiring: Wiring, rules_around: Callable[[Set[Link]], Mapping[str, RuleSet]]) -> None:
        self._wiring, self._fabric, self._rules_around = wiring, wiring.fabric, rules_around
        self._gateways = {nic_mac(nic): nic_ip(self._fabric, nic) for nic in self._fabric.nics}
        self._gateways[GATEWAY_MAC] = NEXT_SWITCH
        self._tables = {
            nic_ip(self._fabric, nic): FIRST_TABLE + at for at, nic in enumerate(self._fabric.nics)
        }
        self.down: frozenset[Port] = frozenset()
        """The ports that are down."""
        self._is_stopped = False
        self._failed: frozenset[Link] = frozenset()
        self._set: dict[str, PacketRoutes] = {switch: {} for switch in wiring.routers}
        self._ruled = {switch: set[IPv4Address]() for switch in wiring.routers}
        """The sources whose tables a switch looks up."""
        self._indices: dict[str, dict[str, int]] = {}
        for switch in wiring.routers:
            with wiring.inside(switch):
                self._indices[switch] = interface_indices()
        self._add_neighbours(port for port in self._fabric.link_at if port.node in wiring.routers)
        self._routes_around = lru_cache(MOST_FORESEEN)(self._routes)
        self._wanted = self._routes_around(self._failed)
        self._put()

    def follow(self, failed: Set[Link]) -> None:
        """Have switches go around links that have failed."""
        if failed != self._failed:
            self._failed = frozenset(failed)
            self._wanted = self._routes_around(self._failed)
            self._put()

    def turned(self, ports: Iterable[Port], *, works: bool) -> None:
        """Have switches leave out ports that are down now, or take those that are up again."""
        mine = frozenset(port for port in ports if port.node in self._wiring.routers)
        self.down = self.down - mine if works else self.down | mine
        if works:
            self._add_neighbours(mine)
        self._put()

    def found_down(self, ports: Set[Port]) -> None:
        """Put all routes anew, and leave out ports that are down.

        A shell on a switch may have taken some down, or down and up, and the kernel forgets routes then.
        """
        mine = {port for port in self._fabric.link_at if port.node in self._wiring.routers}
        self.down = frozenset(mine & ports)
        self._add_neighbours(mine - ports)
        self._set = {switch: {} for switch in self._set}
        self._put()

    def stop(self) -> None:
        """Have switches forward nothing."""
        self._is_stopped = True
        self._put()

    def go_on(self) -> None:
        """Have switches forward again."""
        self._is_stopped = False
        self._put()

    @property
    def counts(self) -> dict[str, int]:
        """How many routes each switch has, by the kernel."""
        found = {}
        for switch in self._wiring.routers:
            with self._wiring.inside(switch), IPRoute() as kernel:
                found[switch] = len(kernel.get_routes(family=AF_INET, proto=RTPROT_STATIC))
        return found

    def dropped(self, switch: str) -> int:
        """Return how many packets a switch did not forward so far, beside those that its queues dropped."""
        with self._wiring.inside(switch):
            # /proc/net is that of the process' first thread, which is not in the namespace.
            files = {file: Path(f"/proc/thread-self/net/{file}").read_text() for file in LOST}
        return sum(_counted(text, LOST[file]) for file, text in files.items())

    def foresee(self, failed: Set[Link]) -> None:
        """Compute the routes around links that will fail: `follow` keeps the engine waiting."""
        self._routes_around(frozenset(failed))

    def _routes(self, failed: frozenset[Link]) -> dict[str, PacketRoutes]:
        if not self._wiring.routers:
            return {}
        rules = self._rules_around(failed)
        return {switch: packet_routes(self._fabric, switch, rules[switch]) for switch in self._wiring.routers}

    def _put(self) -> None:
        """Change the routes of switches to those that are wanted, where these are not set yet."""
        for switch, wanted in self._wanted.items():
            live = {} if self._is_stopped else {p: self._live(switch, hops) for p, hops in wanted.items()}
            # The kernel would look further for what a switch drops.
            after = {place: hops for place, hops in live.items() if hops or place.is_inside(live)}
            if after != self._set[switch]:
                batch = Batch()
                self._change(batch, switch, self._set[switch], after)
                with self._wiring.inside(switch):
                    batch.commit(ignored=errno.ESRCH)  # the kernel deletes routes of interfaces that are down
                self._set[switch] = after

    def _live(self, switch: str, hops: tuple[RouteHop, ...]) -> tuple[RouteHop, ...]:
        return tuple(hop for hop in hops if self._carries(Port(switch, hop.port)))

    def _carries(self, port: Port) -> bool:
        return self.down.isdisjoint((port, self._fabric.peer(port)))

    def _change(self, batch: Batch, switch: str, before: PacketRoutes, after: PacketRoutes) -> None:
        for place, hops in after.items():
            if before.get(place) != hops:
                self._look_up(batch, switch, place)
                request = spread_request(
                    place.destination,
                    [self._next_hop(switch, hop) for hop in hops],
                    self._table(place),
                    source=None,
                    metrics={},
                )
                batch.add_route(f"route of {switch} to {place.destination}", request)
        for place in before.keys() - after.keys():
            request = no_route_request(place.destination, self._table(place))
            batch.add_route(f"delete the route of {switch} to {place.destination}", request)

    def _table(self, place: RoutePlace) -> int:
        return self._tables[place.source] if place.source else RT_TABLE_MAIN

    def _look_up(self, batch: Batch, switch: str, place: RoutePlace) -> None:
        """Have a switch look up a source's table before the main one, by a rule (ip-rule(8)) that stays."""
        if place.source and place.source not in self._ruled[switch]:
            self._ruled[switch].add(place.source)
            fields = {"family": AF_INET, "src_len": 32, "action": FR_ACT_TO_TBL}
            source = [("FRA_SRC", str(place.source)), ("FRA_TABLE", self._table(place))]
            batch.add(f"rule of {switch} for {place.source}", RTM_NEWRULE, fields, source)

    def _next_hop(self, switch: str, hop: RouteHop) -> NextHop:
        return NextHop(self._index(Port(switch, hop.port)), self._gateways[hop.mac], hop.weight)

    def _index(self, port: Port) -> int:
        return self._indices[port.node][interface(self._fabric, port)]

    def _add_neighbours(self, ports: Iterable[Port]) -> None:
        """Have switches know who is at the other end of links; an OCS is nobody."""
        for mine in self._wiring.together(ports):
            batch = Batch()
            for port in mine:
                if mac := _mac_behind(self._fabric, port):
                    add_neighbour(batch, port, self._index(port), str(self._gateways[mac]), mac)
            with self._wiring.inside(mine[0].node):
                batch.commit()


def _mac_behind(fabric: Fabric, port: Port) -> str:
    """Return the MAC address of the port at the other end of a link, "" if it is an OCS'."""
    peer = fabric.peer(port)
    if peer.node in fabric.server_index:
        return nic_mac(fabric.nic_at(peer))
    return "" if peer.node in fabric.ocs_parts else GATEWAY_MAC


def _counted(text: str, names: Set[str]) -> int:
    """Return the sum of counters of IP in a file of /proc/net: lines of names, and lines of values below."""
    lines = [line.split() for line in text.splitlines() if line.startswith(IP)]
    rows = zip(lines[::2], lines[1::2], strict=True)
    return sum(
        int(value) for keys, values in rows for key, value in zip(keys, values, strict=True) if key in names
    )
