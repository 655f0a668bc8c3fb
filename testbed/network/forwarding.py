"""The kernels' routes in servers that forward: set in bulk when circuits change, only where they differ.

What leaves from a NIC's own address goes to whatever NIC its light reaches: one route in the NIC's own
table, which its rule selects. What is for others goes by the main table, a route for each destination NIC, or
where a flow has a path of its own by a rule for it, which selects the table of the NIC that it leaves by.
Neighbours are there since the servers were set up: all NICs that light could reach.
"""

from collections.abc import Collection, Iterable, Mapping
from ipaddress import IPv4Network
from socket import AF_INET
from typing import NamedTuple

from pyroute2.netlink.rtnl import RTM_DELRULE, RTM_NEWRULE

from testbed.machine.kernel import inside_namespace
from testbed.machine.netlink import RT_TABLE_MAIN, Batch, route_request
from testbed.network.wiring import (
    FIRST_TABLE,
    FR_ACT_TO_TBL,
    Wiring,
    interface_indices,
    route_metrics,
)
from topologies.addresses import FABRIC_NETWORK, interface, nic_ip
from topologies.fabric import Nic
from topologies.routes import Routes
from topologies.routing import Flow


class _Key(NamedTuple):
    """What a route of a server is for."""

    table: int
    network: IPv4Network


class _Hop(NamedTuple):
    """Where it leads: a NIC of the server, and the one that its light reaches."""

    out: Nic
    to: Nic


class KernelRoutes:
    """The routes over circuits that the servers' kernels have; made once for a network.

    Parameters
    ----------
    wiring
        Of a fabric whose servers forward.
    """

    def __init__(self, wiring: Wiring) -> None:
        self._wiring, self._fabric = wiring, wiring.fabric
        self._set: list[dict[_Key, _Hop]] = [{} for _ in wiring.namespaces]
        self._rules: list[dict[Flow, Nic]] = [{} for _ in wiring.namespaces]
        self._address = {nic: nic_ip(self._fabric, nic) for nic in self._fabric.nics}
        self._indices: list[dict[str, int]] = []
        for namespace in wiring.namespaces:
            with inside_namespace(namespace):
                self._indices.append(interface_indices())

    def follow(self, routes: Routes, flows: Collection[Flow]) -> None:
        """Have kernels send by routes.

        Parameters
        ----------
        routes
            Over what is lit.
        flows
            For which servers forward; for others they have no route.
        """
        wanted = self._wanted(routes, {destination for _, destination in flows})
        rules = self._wanted_rules(routes, flows)
        for server, name in enumerate(each.name for each in self._fabric.servers):
            if (self._set[server], self._rules[server]) == (wanted[server], rules[server]):
                continue
            batch = Batch()
            self._change(batch, server, wanted[server])
            self._change_rules(batch, name, self._rules[server], rules[server])
            with inside_namespace(self._wiring.namespaces[server]):
                batch.commit()
        self._set, self._rules = wanted, rules

    def _wanted(self, routes: Routes, destinations: Iterable[Nic]) -> list[dict[_Key, _Hop]]:
        """Return the routes of each server."""
        wanted: list[dict[_Key, _Hop]] = [{} for _ in self._wiring.namespaces]
        for nic in self._fabric.nics:
            if to := routes.next_nic(nic):
                wanted[nic.server][_Key(FIRST_TABLE + nic.nic, FABRIC_NETWORK)] = _Hop(nic, to)
        for destination in destinations:
            key = _Key(RT_TABLE_MAIN, IPv4Network(self._address[destination]))
            for server, out in routes.forwarding(destination).items():
                if to := routes.next_nic(out):
                    wanted[server][key] = _Hop(out, to)
        return wanted

    def _wanted_rules(self, routes: Routes, flows: Iterable[Flow]) -> list[dict[Flow, Nic]]:
        """Return the NIC by which each server sends on what is of a flow that has a path of its own.

        What servers send themselves goes by the rules of their own NICs.
        """
        wanted: list[dict[Flow, Nic]] = [{} for _ in self._wiring.namespaces]
        for flow in flows:
            for server, out in routes.of_flow(flow).items():
                if server not in (flow[0].server, flow[1].server) and routes.next_nic(out):
                    wanted[server][flow] = out
        return wanted

    def _change_rules(
        self, batch: Batch, name: str, before: Mapping[Flow, Nic], after: Mapping[Flow, Nic]
    ) -> None:
        """Have the kernel of a server look up flows in the tables of NICs, each by a rule (ip-rule(8))."""
        changes = ((RTM_DELRULE, before, after), (RTM_NEWRULE, after, before))
        for kind, these, others in changes:
            for flow, out in these.items():
                if others.get(flow) == out:
                    continue
                source, destination = (str(self._address[nic]) for nic in flow)
                what = f"rule of {name} from {source} to {destination}"
                fields = {"family": AF_INET, "src_len": 32, "dst_len": 32, "action": FR_ACT_TO_TBL}
                ends = [("FRA_SRC", source), ("FRA_DST", destination), ("FRA_TABLE", FIRST_TABLE + out.nic)]
                batch.add(what, kind, fields, ends)

    def _change(self, batch: Batch, server: int, after: dict[_Key, _Hop]) -> None:
        before, name = self._set[server], self._fabric.servers[server].name
        for key in before.keys() - after.keys():
            # A NIC without light keeps its own route: queue pairs that start there are held.
            if key.table == RT_TABLE_MAIN:
                request = self._request(server, key, before[key], delete=True)
                batch.add_route(f"delete the route of {name} to {key.network}", request)
        for key, hop in after.items():
            if before.get(key) != hop:
                batch.add_route(f"route of {name} to {key.network}", self._request(server, key, hop))

    def _request(self, server: int, key: _Key, hop: _Hop, *, delete: bool = False) -> bytes:
        """Return the request for a route; what only forwards needs no address nor metrics."""
        own = key.table != RT_TABLE_MAIN
        return route_request(
            key.network,
            self._address[hop.to],
            self._indices[server][interface(self._fabric, self._fabric.nic_port(hop.out))],
            key.table,
            source=self._address[hop.out] if own else None,
            metrics=route_metrics(self._wiring.host) if own else None,
            delete=delete,
        )
