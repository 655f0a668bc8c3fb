"""Two jobs that a simulation must carry out: MoE over packets and circuits, a ring over OCSes in series."""

from dataclasses import dataclass

import numpy as np

from controller.circuits.rule import Decides
from testbed.core.backend import Backend
from testbed.core.run import Run
from testbed.core.simulation import Simulation
from topologies.events import Event, FaultDetected, NodeDone, NodeStarted, Order, Reconfigure, View
from topologies.fabric import Fabric, Link, Nic, Port, Switch, equal_servers
from topologies.light import duplex
from topologies.parallel_ocs import parallel_ocs_fabric
from traffic.collectives.all_to_all import AllToAll
from traffic.collectives.ring import Ring
from traffic.demand import Demand
from traffic.faults import AS_IT_WAS, Fault, KnownRevision, Revisions, cut
from traffic.job import Collective, Compute, Job, chain
from traffic.scheme import Scheme, WholeMessages
from traffic.spraying.policy import QueuePair

DELAY_S = 0.01
"""How long the OCSes are dark when they are reconfigured, at real scale."""


@dataclass(frozen=True)
class Case:
    """All that a simulation takes but a backend."""

    fabric: Fabric
    job: Job
    scheme: Scheme
    circuits: Decides
    faults: tuple[Fault, ...]
    revisions: Revisions

    def run(self, backend: Backend, *, couples: bool = False) -> Run:
        """Return what comes of it."""
        simulation = Simulation(
            self.fabric,
            self.job,
            backend,
            self.scheme,
            circuits=self.circuits,
            faults=self.faults,
            revisions=self.revisions,
            couples=couples,
        )
        return simulation.run()

    @property
    def delay_s(self) -> dict[str, float]:
        """How long each OCS is dark."""
        return {switch.name: DELAY_S for switch in self.fabric.switches if switch.kind == "ocs"}


@dataclass(frozen=True)
class When:
    """Circuits by what happens: orders for each event."""

    orders: dict[Event, tuple[Order, ...]]

    def decide(self, state: object, view: View, event: Event) -> tuple[object, tuple[Order, ...]]:
        """Return the orders of an event."""
        return state, self.orders.get(event, ())


def moe() -> Case:
    """Return four servers with two circuit NICs and a packet NIC each, one of which fails.

    The gate's compute, dispatch, the experts' compute while ``ocs0`` is reconfigured, combine; in which
    the link of server 0 to ``ocs0`` fails, and what is left goes over packets.
    """
    owed = np.random.default_rng(1).integers(1, 50_000_000, (8, 8))
    np.fill_diagonal(owed, 0)
    gpus = tuple(range(8))
    nodes = (
        Compute("gate", gpus, 0.02),
        Collective("dispatch", AllToAll(Demand("tokens", owed))),
        Compute("experts", gpus, 0.02),
        Collective("combine", AllToAll(Demand("results", owed.T.copy()))),
    )
    return Case(
        parallel_ocs_fabric(4, 2, packet_switch=True, gpus=2),
        chain("moe", 8, nodes),
        WholeMessages(circuits_first),
        When(
            {
                NodeStarted("gate"): (
                    Reconfigure({"ocs0": duplex([(0, 1), (2, 3)])}),
                    Reconfigure({"ocs1": duplex([(0, 2), (1, 3)])}),
                ),
                NodeDone("dispatch"): (Reconfigure({"ocs0": duplex([(0, 3), (1, 2)])}),),
            }
        ),
        (cut("h0:0", (Port("h0", 0),), "combine", 0.002, 0.001),),
        AS_IT_WAS,
    )


def circuits_first(view: View, a: int, b: int) -> QueuePair:
    """Return the circuit between two servers where one is lit and works, else their packet NICs."""
    for nic, ocs in enumerate(("ocs0", "ocs1")):
        ends = {Port(f"h{a}", nic), Port(f"h{b}", nic)}
        if (a, b) in view.lit[ocs] and not ends & view.failed:
            return QueuePair(Nic(a, nic), Nic(b, nic))
    return QueuePair(Nic(a, 2), Nic(b, 2))


def ring() -> Case:
    """Return a ring of three GPUs through two OCSes in series, one of which dies in the middle.

    NIC 0 of each GPU sends to NIC 1 of the next. The two that are left begin again, once ``b`` leads
    light around the dead one.
    """
    fabric = Fabric(
        "series",
        equal_servers(3, 2, 1, 1e12),
        (Switch("a", 6, "ocs"), Switch("b", 6, "ocs")),
        tuple(
            Link(near, far, 100e9)
            for gpu in range(3)
            for near, far in (
                (Port(f"h{gpu}", 0), Port("a", gpu)),
                (Port(f"h{gpu}", 1), Port("b", gpu)),
                (Port("a", 3 + gpu), Port("b", 3 + gpu)),
            )
        ),
    )
    nodes = (
        Compute("warm up", (0, 1, 2), 0.02),
        Collective("gradients", Ring(((0, 1, 2),), 300_000_000)),
        Compute("step", (0, 2), 0.01),
    )
    again = Collective("gradients of two", Ring(((0, 2),), 300_000_000))
    return Case(
        fabric,
        chain("ring", 3, nodes),
        WholeMessages(lambda _view, a, b: QueuePair(Nic(a, 0), Nic(b, 1))),
        When(
            {
                NodeStarted("warm up"): (
                    Reconfigure({"a": duplex([(0, 3), (1, 4), (2, 5)])}),
                    Reconfigure({"b": duplex([(3, 1), (4, 2), (5, 0)])}),
                ),
                FaultDetected("h1"): (Reconfigure({"b": duplex([(3, 2), (5, 0)])}),),
            }
        ),
        (cut("h1", (Port("h1", 0), Port("h1", 1)), "gradients", 0.013, 0.001),),
        Revisions((KnownRevision("h1", ("gradients",), Job("instead", 3, (again,))),)),
    )
