"""The kernels' routes in servers that forward: set in bulk when circuits change, only where they differ.

What leaves from a NIC's own address goes to whatever NIC its light reaches: one route in the NIC's own
table, which its rule selects. What is for others goes by the main table, a route for each destination NIC.
Neighbours are there since the servers were set up: all NICs that light could reach.
"""

from collections.abc import Iterable
from ipaddress import IPv4Network
from typing import NamedTuple

from testbed.machine.kernel import inside_namespace
from testbed.machine.netlink import Batch, route_request
from testbed.network.wiring import FIRST_TABLE, RT_TABLE_MAIN, Wiring, interface_indices, route_metrics
from topologies.addresses import FABRIC_NETWORK, interface, nic_ip
from topologies.fabric import Nic
from topologies.routes import Routes


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
        self._address = {nic: nic_ip(self._fabric, nic) for nic in self._fabric.nics}
        self._indices: list[dict[str, int]] = []
        for namespace in wiring.namespaces:
            with inside_namespace(namespace):
                self._indices.append(interface_indices())

    def follow(self, routes: Routes, destinations: Iterable[Nic]) -> None:
        """Have kernels send by routes.

        Parameters
        ----------
        routes
            Over what is lit.
        destinations
            The NICs for which servers forward; for others they have no route.
        """
        wanted = self._wanted(routes, destinations)
        for server, (before, after) in enumerate(zip(self._set, wanted, strict=True)):
            if before != after:
                self._change(server, before, after)
        self._set = wanted

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

    def _change(self, server: int, before: dict[_Key, _Hop], after: dict[_Key, _Hop]) -> None:
        batch = Batch()
        name = self._fabric.servers[server].name
        for key in before.keys() - after.keys():
            # A NIC without light keeps its own route: queue pairs that start there are held.
            if key.table == RT_TABLE_MAIN:
                request = self._request(server, key, before[key], delete=True)
                batch.add_route(f"delete the route of {name} to {key.network}", request)
        for key, hop in after.items():
            if before.get(key) != hop:
                batch.add_route(f"route of {name} to {key.network}", self._request(server, key, hop))
        with inside_namespace(self._wiring.namespaces[server]):
            batch.commit()

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
