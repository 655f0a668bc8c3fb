"""Rings of servers that forward, over one OCS: NIC 0 of each is lit to NIC 1 of another, and back."""

from dataclasses import dataclass, field

from testbed.core.backend import Backend
from testbed.core.run import Run
from testbed.core.simulation import Simulation
from tests.testbed.run_cases import DELAY_S, When
from topologies.events import Event, NodeStarted, Order, Reconfigure, SetTimer, TimerFired
from topologies.fabric import Fabric, Link, Nic, Port, Switch, equal_servers
from topologies.light import Circuit, duplex
from topologies.routing import Flow, Routing, Table
from traffic.collectives.point_to_point import PointToPoint
from traffic.faults import Fault, cut
from traffic.job import Collective, Compute, chain
from traffic.scheme import Routed, Scheme, WholeMessages
from traffic.spraying.policy import QueuePair

WARM_UP_S = 0.02
"""How long GPUs compute while circuits are lit."""


def ring_fabric(servers: int, rate_bps: float = 100e9) -> Fabric:
    """Return servers of two NICs on one OCS: NIC k of server i is on its port 2 i + k."""
    links = (
        Link(Port(f"h{server}", nic), Port("ocs0", 2 * server + nic), rate_bps)
        for server in range(servers)
        for nic in (0, 1)
    )
    switches = (Switch("ocs0", 2 * servers, "ocs"),)
    return Fabric("ring", equal_servers(servers, 2, 1, 1e12), switches, tuple(links), servers_forward=True)


def stride_circuits(servers: int, stride: int) -> tuple[Circuit, ...]:
    """Return the duplex circuits from NIC 0 of each server to NIC 1 of the one that is a stride further."""
    return duplex([*((2 * server, 2 * ((server + stride) % servers) + 1) for server in range(servers))])


@dataclass(frozen=True)
class Forwarding:
    """Messages over circuits that are lit while GPUs warm up, and may change while messages are sent."""

    fabric: Fabric
    messages: tuple[tuple[int, int, int], ...]
    first: tuple[Circuit, ...]
    then: tuple[Circuit, ...] = ()
    """What ``ocs0`` shows later; by default nothing else."""
    then_s: float = 0.0
    """How long after messages start."""
    scheme: Scheme = field(default_factory=Routed)
    faults: tuple[Fault, ...] = ()
    routing: Routing | None = None

    def run(self, backend: Backend) -> Run:
        """Return what comes of it; times count from the start of the warm-up."""
        orders: dict[Event, tuple[Order, ...]] = {
            NodeStarted("warm up"): (Reconfigure({"ocs0": self.first}),)
        }
        if self.then:
            orders[NodeStarted("send")] = (SetTimer("change", self.then_s),)
            orders[TimerFired("change")] = (Reconfigure({"ocs0": self.then}),)
        gpus = self.fabric.gpus
        nodes = (Compute("warm up", (0,), WARM_UP_S), Collective("send", PointToPoint(self.messages)))
        job = chain("forwarding", gpus, nodes)
        circuits = When(orders)
        return Simulation(
            self.fabric,
            job,
            backend,
            self.scheme,
            circuits=circuits,
            faults=self.faults,
            routing=self.routing,
        ).run()

    @property
    def delay_s(self) -> dict[str, float]:
        """How long the OCS is dark."""
        return {"ocs0": DELAY_S}


def pinned(source: int, destination: int) -> WholeMessages:
    """Return a scheme that sends from a NIC of each server to a NIC of each other."""
    return WholeMessages(lambda _view, a, b: QueuePair(Nic(a, source), Nic(b, destination)))


def becomes_direct(size: int) -> Forwarding:
    """Return a message from server 0 to server 2 through server 1, until a circuit joins them."""
    direct = duplex([(0, 5), (2, 7), (4, 3), (6, 1)])
    return Forwarding(ring_fabric(4), ((0, 2, size),), stride_circuits(4, 1), direct, 0.02)


@dataclass(frozen=True)
class LongWay:
    """Leads what server 0 of a ring sends to server 1 around by all others, and nothing else."""

    servers: int

    @property
    def flow(self) -> Flow:
        """From the NIC of server 0 on the last one to that of server 1 on server 2."""
        return Nic(0, 1), Nic(1, 0)

    def table(self, **_: object) -> Table:
        """Return the next hops."""
        there, back = [0, *range(self.servers - 1, 1, -1)], range(1, self.servers)
        return {
            **{(server, self.flow): Nic(server, 1) for server in there},
            **{(server, self.flow[::-1]): Nic(server, 0) for server in back},
        }


def long_way(size: int) -> Forwarding:
    """Return messages from server 0 to server 1, the long way, and between neighbours on that way."""
    messages = ((0, 1, size), (3, 2, size))
    return Forwarding(ring_fabric(5), messages, stride_circuits(5, 1), routing=LongWay(5))


def around(size: int) -> Forwarding:
    """Return a message from server 0 to server 2, and server 1 on its route, which dies."""
    fault = cut("h1", (Port("h1", 0), Port("h1", 1)), "send", 0.015, 0.002)
    return Forwarding(ring_fabric(4), ((0, 2, size),), stride_circuits(4, 1), faults=(fault,))
