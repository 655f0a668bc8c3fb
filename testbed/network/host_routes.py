"""The kernels' routes on hosts: they follow failures and circuits, set only where they differ.

A route over several NICs has a next hop for each (ip-route(8), "nexthop") and no nexthop object (ip-
nexthop(8)): the kernel deletes an object whose interface loses its carrier, and leaves a next hop out until
the carrier is back.
"""

import errno
from collections import defaultdict
from collections.abc import Iterable, Mapping, Set
from contextlib import suppress
from ipaddress import IPv4Address
from math import inf
from pathlib import Path
from threading import Lock
from time import monotonic

from pyroute2 import MPTCP

from controller.app.client import ControllerClient
from testbed.machine.congestion import begin_with
from testbed.machine.kernel import inside_namespace
from testbed.machine.netlink import (
    RT_TABLE_MAIN,
    Batch,
    Metrics,
    NextHop,
    no_route_request,
    spread_request,
)
from testbed.network.host_news import HostNews
from testbed.network.host_tables import Hops, HostHop, HostTable, TablePrefix, light_tables, packet_tables
from testbed.network.wiring import Wiring, interface_indices, route_metrics
from topologies.addresses import HOSTS_NETWORK, gateway_ip, host_ip, interface, nic_ip
from topologies.errors import MachineError, NetworkError
from topologies.fabric import Link, Nic
from topologies.light import Circuit, Configuration
from topologies.routes import Routes
from traffic.transports.host_settings import HostSettings

MOST_SUBFLOWS, SIGNAL = 8, 1
"""Of a connection by Multipath TCP beside its first (MPTCP_PM_ADDR_MAX in net/mptcp/protocol.h); and the flag
of an address that an end announces (MPTCP_PM_ADDR_FLAG_SIGNAL in linux/mptcp_pm.h)."""
MPTCP_SYSCTLS = Path("/proc/sys/net/mptcp")
MOST_WEIGHT = 100
"""Of the fastest of the NICs over which connections spread."""


class HostRoutes:
    """The routes that hosts have; made once for a network, and set at once.

    Parameters
    ----------
    wiring
        Of a fabric whose servers are hosts.
    northbound
        The controller, which is asked for what OCSes show.

    Notes
    -----
    Several threads may use it: that of the network's owner, and that which hears news (`heard`).
    """

    def __init__(self, wiring: Wiring, northbound: ControllerClient) -> None:
        self._wiring, self._fabric, self._northbound = wiring, wiring.fabric, northbound
        self._links = {str(link): link for link in self._fabric.links}
        self._failed: frozenset[Link] = frozenset()
        self._lit: Configuration = {}
        self._read_s = -inf
        """When the controller was last asked for what is lit; a notice from before may be older than that."""
        self._one_at_a_time = Lock()
        self._packets = packet_tables(self._fabric, self._failed)
        """The routes over packet switches, which change with failures alone."""
        self._set: list[HostTable] = [{} for _ in wiring.namespaces]
        self._address = {nic: nic_ip(self._fabric, nic) for nic in self._fabric.nics}
        self._gateway = {nic: gateway_ip(self._fabric, nic) for nic in self._fabric.nics}
        self._indices: list[dict[str, int]] = []
        for namespace in wiring.namespaces:
            with inside_namespace(namespace):
                self._indices.append(interface_indices())
        self._metrics = self._metrics_of(wiring.host)
        self._set_routes()

    def follow(self, failed: Set[Link]) -> None:
        """Have hosts avoid links that carry nothing, and no others."""
        with self._one_at_a_time:
            self._avoid(frozenset(failed))

    def follow_light(self) -> None:
        """Have hosts send over the circuits that OCSes show now."""
        with self._one_at_a_time:
            ocses = [switch.name for switch in self._fabric.switches if switch.kind == "ocs"]
            self._send_over({name: self._shown(name) for name in ocses})
            self._read_s = monotonic()

    def heard(self, news: HostNews) -> None:
        """Have hosts send over what OCSes light now, and over links that work."""
        with self._one_at_a_time, suppress(NetworkError):  # the controller has ended, or an OCS is away
            if news.links:
                self._avoid(frozenset(map(self._links.__getitem__, self._northbound.status().failed_links)))
            self._send_over(
                {
                    name: lit.circuits if lit.since_s > self._read_s else self._shown(name)
                    for name, lit in news.lit.items()
                }
            )

    def begin_as(self, host: HostSettings) -> None:
        """Have the hosts' TCP begin otherwise from now on."""
        with self._one_at_a_time:
            self._metrics = self._metrics_of(host)
            self._set_all(self._set, [{} for _ in self._set])

    def offer_mptcp(self) -> None:
        """Have connections by Multipath TCP use all NICs: each end tells the other the addresses of its NICs.

        The end that connected opens a subflow to each address, by the NIC that its main table has for it. So
        there is one on each rail, and none between rails that are apart.

        Raises
        ------
        MachineError
            If the kernel has no Multipath TCP.
        """
        if not MPTCP_SYSCTLS.exists():
            raise MachineError("this kernel has no Multipath TCP", "take Linux 5.6 or newer, or no --mptcp")
        nics: dict[int, list[Nic]] = defaultdict(list)
        for nic in self._fabric.nics:
            nics[nic.server].append(nic)
        for server, its in nics.items():
            with inside_namespace(self._wiring.namespaces[server]), MPTCP() as paths:
                paths.limits("set", subflows=MOST_SUBFLOWS, add_addr_accepted=MOST_SUBFLOWS)
                for nic in its[:MOST_SUBFLOWS]:
                    paths.endpoint("add", addr=str(self._address[nic]), flags=SIGNAL)

    def _shown(self, ocs: str) -> tuple[Circuit, ...]:
        return tuple(self._northbound.ocs(ocs).circuits)

    def _send_over(self, lit: Configuration) -> None:
        """Have hosts send over what some OCSes light, and go on over what others do."""
        then = {**self._lit, **lit}
        if then != self._lit:
            self._lit = then
            self._set_routes()

    def _avoid(self, failed: frozenset[Link]) -> None:
        if failed != self._failed:
            self._failed, self._packets = failed, packet_tables(self._fabric, failed)
            self._set_routes()

    def _set_routes(self) -> None:
        dead = {end for link in self._failed for end in (link.a, link.b)}
        light = light_tables(self._fabric, Routes(self._fabric, self._lit, dead))
        wanted = [
            over_packets | over_light for over_packets, over_light in zip(self._packets, light, strict=True)
        ]
        self._set_all(wanted, self._set)
        self._set = wanted

    def _set_all(self, wanted: Iterable[HostTable], before: Iterable[HostTable]) -> None:
        """Change the routes of hosts to those that are wanted, where these are not set yet."""
        for server, (after, old) in enumerate(zip(wanted, before, strict=True)):
            if after != old:
                batch = Batch()
                self._change(batch, server, old, after)
                with inside_namespace(self._wiring.namespaces[server]):
                    batch.commit(ignored=errno.ESRCH)  # the kernel deletes routes of interfaces that are down

    def _change(
        self, batch: Batch, server: int, before: Mapping[TablePrefix, Hops], after: Mapping[TablePrefix, Hops]
    ) -> None:
        name = self._fabric.servers[server].name
        for place, hops in after.items():
            if before.get(place) != hops:
                batch.add_route(f"route of {name} to {place.network}", self._request(server, place, hops))
        for place in before.keys() - after.keys():
            request = no_route_request(place.network, place.table)
            batch.add_route(f"delete the route of {name} to {place.network}", request)

    def _request(self, server: int, place: TablePrefix, hops: Hops) -> bytes:
        return spread_request(
            place.network,
            [self._next_hop(hop, hops) for hop in hops],
            place.table,
            source=self._source(server, place, hops),
            metrics=self._metrics if hops else {},
        )

    def _metrics_of(self, host: HostSettings) -> Metrics:
        """Return the metrics of routes, and have hosts control congestion as they are set to."""
        begin = True
        for namespace in self._wiring.namespaces:
            with inside_namespace(namespace):
                begin = begin_with(host.congestion_control) and begin
        metrics: Metrics = route_metrics(host)
        return metrics if begin else {**metrics, "RTAX_CC_ALGO": host.congestion_control}

    def _next_hop(self, hop: HostHop, hops: Hops) -> NextHop:
        """Return a hop as the kernel has it; its share of a route is that of its NIC's rate."""
        fastest_bps = max(self._fabric.nic_rate_bps(each.out) for each in hops)
        weight = max(round(MOST_WEIGHT * self._fabric.nic_rate_bps(hop.out) / fastest_bps), 1)
        index = self._indices[hop.out.server][interface(self._fabric, self._fabric.nic_port(hop.out))]
        return NextHop(index, self._address[hop.to] if hop.to else self._gateway[hop.out], weight)

    def _source(self, server: int, place: TablePrefix, hops: Hops) -> IPv4Address | None:
        """Return the address that packets get which have none yet; None for that of the NIC they leave by."""
        to_hosts = place.table == RT_TABLE_MAIN and place.network.subnet_of(HOSTS_NETWORK)
        return host_ip(server) if hops and to_hosts else None
