"""Servers on a patch panel, joined by circuits, and next hops walked from circuit to circuit."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import permutations

import networkx as nx

from topologies.fabric import Fabric, Nic, Port
from topologies.light import Circuit, duplex
from topologies.own_routing import CheckedRouting
from topologies.patch_panel import patch_panel_fabric
from topologies.routes import Routes
from topologies.routing import Flow, Routing, Table


@dataclass(frozen=True)
class Panel:
    """Servers on a patch panel, what it shows, and ports that have failed."""

    fabric: Fabric
    lit: Mapping[str, tuple[Circuit, ...]]
    failed: frozenset[Port] = frozenset()

    @staticmethod
    def of_pairs(servers: int, nics: int, pairs: Iterable[tuple[int, int]]) -> "Panel":
        """Return duplex circuits between servers, each on the lowest NICs that are free."""
        free, ports = [iter(range(server * nics, (server + 1) * nics)) for server in range(servers)], []
        for a, b in pairs:
            ports.append((next(free[a]), next(free[b])))
        return Panel(patch_panel_fabric(servers, nics=nics, gpus=1), {"panel0": duplex(ports)})

    @staticmethod
    def of_coins(servers: int, coins: Sequence[int]) -> "Panel":
        """Return duplex rings: NIC 2 k of each server is joined to NIC 2 k + 1 of the one at coin k."""
        nics = 2 * len(coins)
        ports = [
            (server * nics + 2 * k, (server + coin) % servers * nics + 2 * k + 1)
            for k, coin in enumerate(coins)
            for server in range(servers)
        ]
        return Panel(patch_panel_fabric(servers, nics=nics, gpus=1), {"panel0": duplex(ports)})

    def without(self, dark: Iterable[int] = (), failed: Iterable[Port] = ()) -> "Panel":
        """Return it with some duplex circuits dark, by their number, and links of ports that failed."""
        circuits, gone = self.lit["panel0"], {number for each in dark for number in (2 * each, 2 * each + 1)}
        lit = tuple(circuit for number, circuit in enumerate(circuits) if number not in gone)
        return Panel(self.fabric, {"panel0": lit}, self.fabric.both_ends(failed))

    def reached(self, nic: Nic) -> Nic | None:
        """Return where a NIC's light ends, over ports that work."""
        nics = self.fabric.servers[0].nics
        to = dict(self.lit["panel0"]).get(nic.server * nics + nic.nic)
        if to is None or self.failed & {Port(f"h{nic.server}", nic.nic), Port("panel0", to)}:
            return None
        return Nic(*divmod(to, nics))

    @property
    def graph(self) -> "nx.MultiDiGraph[int]":
        """Which servers' light reaches which."""
        graph: nx.MultiDiGraph[int] = nx.MultiDiGraph()
        graph.add_nodes_from(range(len(self.fabric.servers)))
        graph.add_edges_from((nic.server, to.server) for nic in self.fabric.nics if (to := self.reached(nic)))
        return graph

    def walked(self, routing: Routing) -> dict[tuple[int, int], dict[Flow, list[int]]]:
        """Follow the next hops of each pair of servers from circuit to circuit, there and back.

        Returned are the servers that each of its paths comes by, by its two NICs.
        """
        table = CheckedRouting(routing).table(fabric=self.fabric, lit=self.lit, failed=self.failed)
        routes = Routes(self.fabric, self.lit, self.failed, routing)
        towards: dict[tuple[int, int], list[Flow]] = defaultdict(list)
        of_flows: dict[tuple[int, int], list[Flow]] = defaultdict(list)
        for (server, what), out in table.items():
            assert isinstance(out, Nic)
            assert out.server == server
            if isinstance(what, Nic):
                towards[out.server, what.server].append((out, what))
            elif what[0] == out:
                of_flows[out.server, what[1].server].append(what)

        def path(flow: Flow) -> list[int]:
            return [*(nic.server for nic in self.led(table, flow)), flow[1].server]

        found: dict[tuple[int, int], dict[Flow, list[int]]] = {}
        for ends in permutations(range(len(self.fabric.servers)), 2):
            found[ends] = {flow: path(flow) for flow in towards.get(ends) or of_flows[ends]}
            for flow, servers in found[ends].items():
                route = routes.sending(*flow)
                assert route, "acknowledgements come back"
                assert [port.node for port in route.ports if port.node != "panel0"] == [
                    f"h{server}" for server in servers[:-1]
                ]
                path(flow[::-1])
        return found

    def led(self, table: Table, flow: Flow) -> list[Nic]:
        """Return the NICs by which next hops have a flow leave its servers."""
        nics = [flow[0]]
        while (to := self.reached(nics[-1])) and to != flow[1]:
            then = table.get((to.server, flow)) or table[to.server, flow[1]]
            assert isinstance(then, Nic)
            nics.append(then)
        assert to == flow[1], "the path ends at a NIC without light"
        servers = [*(nic.server for nic in nics), to.server]
        assert len({*servers}) == len(servers), "it comes by a server twice"
        return nics

    def loads(self, routing: Routing) -> dict[Nic, Fraction]:
        """Return the load of each circuit, by the NIC at its input.

        Every server sends each other 1, in equal parts over its paths.
        """
        table = CheckedRouting(routing).table(fabric=self.fabric, lit=self.lit, failed=self.failed)
        loads: dict[Nic, Fraction] = defaultdict(Fraction)
        for paths in self.walked(routing).values():
            for flow in paths:
                for nic in self.led(table, flow):
                    loads[nic] += Fraction(1, len(paths))
        return loads


def twice(servers: int) -> Panel:
    """Return a ring of as many servers as have one coin alone, on two circuits in parallel."""
    return Panel.of_pairs(servers, 4, 2 * [(server, (server + 1) % servers) for server in range(servers)])


def regular(servers: int, degree: int, seed: int) -> Panel:
    """Return a random regular graph; simple and connected."""
    graph = next(
        graph
        for number in range(seed, seed + 1000, 100)
        if nx.is_connected(graph := nx.random_regular_graph(degree, servers, seed=number))
    )
    return Panel.of_pairs(servers, degree, graph.edges)
