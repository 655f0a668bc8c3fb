"""Routes against networkx: shortest over what is lit, without loops, and only over ports that work."""

from dataclasses import dataclass, replace

import networkx as nx
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from topologies.fabric import Fabric, Link, Nic, Path, Port, Switch, equal_servers
from topologies.light import Circuit
from topologies.parallel_ocs import parallel_ocs_fabric
from topologies.routes import Routes

RING = replace(parallel_ocs_fabric(4, 2), servers_forward=True)
"""Four servers, NIC k on OCS k."""
CLOCKWISE = {"ocs0": tuple((a, (a + 1) % 4) for a in range(4)), "ocs1": ()}


@dataclass(frozen=True)
class Lit:
    """A fabric, what its OCSes show, and ports that failed."""

    fabric: Fabric
    lit: dict[str, tuple[Circuit, ...]]
    failed: frozenset[Port]

    @property
    def routes(self) -> Routes:
        return Routes(self.fabric, self.lit, self.failed)

    def reached(self, nic: Nic) -> Nic | None:
        """Return where a NIC's light ends: at most two OCSes, one after the other."""
        at = self.fabric.nic_port(nic)
        while (far := self.fabric.peer(at)).node in self.lit:
            if {at, far} & self.failed or far.number not in dict(self.lit[far.node]):
                return None
            at = Port(far.node, dict(self.lit[far.node])[far.number])
        return None if {at, far} & self.failed else self.fabric.nic_at(far)

    def graph(self, destination: Nic) -> "nx.DiGraph[int | str]":
        """Return which server's light reaches which, and the destination NIC; not from its own server."""
        graph: nx.DiGraph[int | str] = nx.DiGraph()
        graph.add_nodes_from([*range(len(self.fabric.servers)), "end"])
        for nic in self.fabric.nics:
            reached = self.reached(nic)
            if reached and nic.server != destination.server:
                graph.add_edge(nic.server, "end" if reached == destination else reached.server)
        graph.remove_node(destination.server)
        return graph


@st.composite
def lit_fabrics(draw: st.DrawFn) -> Lit:
    """Draw servers of some NICs on one or two OCSes with a trunk between, circuits, and failed links."""
    servers, nics, trunks = draw(st.integers(2, 6)), draw(st.integers(1, 3)), draw(st.integers(0, 3))
    ports = servers * nics + trunks
    links = [
        Link(Port(f"h{server}", nic), Port(f"ocs{nic % 2}", server * nics + nic), 1e9)
        for server in range(servers)
        for nic in range(nics)
    ]
    links += [Link(Port("ocs0", ports - 1 - k), Port("ocs1", ports - 1 - k), 1e9) for k in range(trunks)]
    switches = (Switch("ocs0", ports, "ocs"), Switch("ocs1", ports, "ocs"))
    fabric = Fabric(
        "random", equal_servers(servers, nics, 1, 1e9), switches, tuple(links), servers_forward=True
    )
    lit = {}
    for name in ("ocs0", "ocs1"):
        used = [port.number for port in fabric.used_ports(name)]
        pairs = zip(used, draw(st.permutations(used)), strict=True)
        lit[name] = tuple(pair for pair in pairs if pair[0] != pair[1] and draw(st.integers(0, 4)))
    failed = draw(st.sets(st.sampled_from(links), max_size=2))
    return Lit(fabric, lit, frozenset(port for link in failed for port in (link.a, link.b)))


def check_path(case: Lit, path: Path, source: Nic, destination: Nic) -> None:
    """Replay a route port by port."""
    assert path[0] == case.fabric.nic_port(source)
    for port, then in zip(path, (*path[1:], None), strict=True):
        far = case.fabric.peer(port)
        assert not {port, far} & case.failed
        if far.node in case.lit:
            assert then is not None
            assert then.node == far.node
            assert (far.number, then.number) in case.lit[far.node]
        elif then is None:
            assert far == case.fabric.nic_port(destination)
        else:
            assert then.node == far.node
    servers = [port.node for port in path if port.node in case.fabric.server_index]
    assert len({*servers, case.fabric.servers[destination.server].name}) == len(servers) + 1


@given(case=lit_fabrics(), data=st.data())
def test_routes_are_shortest_and_without_loops(case: Lit, data: st.DataObject) -> None:
    source, destination = (data.draw(st.sampled_from(case.fabric.nics)) for _ in range(2))
    assume(source.server != destination.server)
    graph, first = case.graph(destination), case.reached(source)
    route = case.routes.route(source, destination)
    if first == destination:
        assert route is not None
        assert len(route.light) == 1
    elif first is None or first.server not in graph or not nx.has_path(graph, first.server, "end"):
        assert route is None
    elif route is not None:
        assert len(route.light) == 1 + nx.shortest_path_length(graph, first.server, "end")
    else:  # the kernels' next hops are the same for all, so they may lead back to the source
        shortest = nx.all_shortest_paths(graph, first.server, "end")
        assert any(source.server in path for path in shortest)
    if route is not None:
        check_path(case, route.ports, source, destination)


@given(case=lit_fabrics(), data=st.data())
def test_every_server_takes_the_lowest_nic_that_comes_closest(case: Lit, data: st.DataObject) -> None:
    destination = data.draw(st.sampled_from(case.fabric.nics))
    graph = case.graph(destination)
    left = nx.single_source_shortest_path_length(graph.reverse(), "end")
    expected = {}
    for nic in reversed(case.fabric.nics):
        to = case.reached(nic)
        node = "end" if to == destination else to.server if to else None
        if nic.server in left and node in left and left[node] == left[nic.server] - 1:
            expected[nic.server] = nic
    assert case.routes.forwarding(destination) == expected


@given(case=lit_fabrics(), data=st.data())
def test_a_queue_pair_sends_if_acknowledgements_come_back(case: Lit, data: st.DataObject) -> None:
    source, destination = (data.draw(st.sampled_from(case.fabric.nics)) for _ in range(2))
    assume(source.server != destination.server)
    routes = case.routes
    there, back = routes.route(source, destination), routes.route(destination, source)
    sends = there is not None and (len(there.light) == 1 or back is not None)
    assert routes.sending(source, destination) == (there if sends else None)
    crossed = {circuit for route in (there, back) if route for circuit in route.circuits}
    assert routes.circuits(source, destination) == crossed


@given(case=lit_fabrics(), data=st.data())
def test_routes_over_other_circuits_are_those_found_anew(case: Lit, data: st.DataObject) -> None:
    before, lit = case.routes, dict(case.lit)
    for _ in range(3):
        ocs = data.draw(st.sampled_from(sorted(lit)))
        joined = {a: b for a, b in lit[ocs] if data.draw(st.booleans())}
        outputs = data.draw(st.permutations(sorted(joined.values())))
        lit[ocs] = tuple((a, b) for a, b in zip(joined, outputs, strict=True) if a != b)
        after, anew = before.over({ocs: lit[ocs]}), Routes(case.fabric, lit, case.failed)
        for nic in case.fabric.nics:
            assert after.light(nic) == anew.light(nic)
            assert after.forwarding(nic) == anew.forwarding(nic)
        before = after


def test_routes_over_other_circuits_leave_those_before_as_they_were() -> None:
    before = Routes(RING, CLOCKWISE)
    assert before.next_nic(Nic(0, 0)) == Routes(RING, CLOCKWISE).next_nic(Nic(0, 0))
    after = before.over({"ocs0": ((0, 2),)})
    assert after.next_nic(Nic(0, 0)) == Nic(2, 0)
    assert after.over(CLOCKWISE).next_nic(Nic(0, 0)) == before.next_nic(Nic(0, 0)) != Nic(2, 0)


def test_without_forwarding_a_route_is_one_light_path() -> None:
    routes = Routes(replace(RING, servers_forward=False), CLOCKWISE)
    assert routes.route(Nic(0, 0), Nic(2, 0)) is None
    assert routes.route(Nic(0, 0), Nic(1, 0)) is not None
    assert routes.forwarding(Nic(2, 0)) == {}


@pytest.mark.parametrize("stride", [1, 2, 3])
def test_a_ring_is_crossed_server_by_server(stride: int) -> None:
    route = Routes(RING, CLOCKWISE).route(Nic(0, 0), Nic(stride, 0))
    assert route is not None
    assert route.ports == tuple(
        port for hop in range(stride) for port in (Port(f"h{hop}", 0), Port("ocs0", hop + 1))
    )


def test_no_route_leads_back_through_the_server_of_its_source() -> None:
    # Server 1 reaches server 2 through server 0 only, which its NIC 0 has light from.
    lit = {"ocs0": ((0, 1), (1, 0)), "ocs1": ((0, 2), (2, 0))}
    routes = Routes(RING, lit)
    assert routes.forwarding(Nic(2, 1)) == {0: Nic(0, 1), 1: Nic(1, 0)}
    assert routes.route(Nic(0, 0), Nic(2, 1)) is None
    assert routes.route(Nic(1, 0), Nic(2, 1)) is not None
