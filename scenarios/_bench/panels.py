"""What lightrail promises of many OCSes that change while servers forward, in the model."""

import time
from collections.abc import Sequence

from scenarios._bench.figure import figure
from testbed.core.simulation import Simulation
from testbed.model.backend import FluidBackend
from topologies.events import Event, Lit, NodeStarted, Order, Reconfigure, SetTimer, TimerFired, View
from topologies.fabric import Fabric, Link, Port, Switch, equal_servers
from topologies.light import Circuit, duplex
from traffic.collectives.point_to_point import PointToPoint
from traffic.job import Collective, Job
from traffic.scheme import Routed

SERVERS, PANELS = 32, 48
NAMES = tuple(f"panel{number}" for number in range(PANELS))


@figure("s", "< 5", sandbox=False)
def panels_48_s() -> tuple[float, str]:
    """48 panels under 992 lanes between servers that forward, changed one after the other: the model."""
    fabric = _panels()
    sends = tuple((a, b, 1_000_000_000) for a in range(SERVERS) for b in range(SERVERS) if a != b)
    job = Job("sends", SERVERS, (Collective("sends", PointToPoint(sends)),))
    lit = {name: _matching(turn) for turn, name in enumerate(NAMES)}
    backend = FluidBackend(fabric, dict.fromkeys(NAMES, 0.004))
    began, used_s = time.perf_counter(), time.process_time()
    run = Simulation(fabric, job, backend, Routed(), circuits=_OneByOne(), lit=lit).run()
    took_s, used_s = time.perf_counter() - began, time.process_time() - used_s
    changes = len(run.tables.orders) - PANELS
    return took_s, f"{len(run.tables.lanes)} lanes, {changes} changes, {used_s:.1f} s of CPU"


def _panels() -> Fabric:
    """Return servers that forward, NIC k of each on panel k."""
    return Fabric(
        name="panels",
        servers=equal_servers(SERVERS, PANELS, 1, 1e12),
        switches=tuple(Switch(name, SERVERS, "ocs") for name in NAMES),
        links=tuple(
            Link(Port(f"h{server}", nic), Port(name, server), 100e9)
            for server in range(SERVERS)
            for nic, name in enumerate(NAMES)
        ),
        servers_forward=True,
    )


def _matching(turn: int) -> tuple[Circuit, ...]:
    """Return the duplex circuits of a turn of a round-robin tournament: each server has one partner."""
    others = SERVERS - 1
    pairs = [((turn + k) % others, (turn - k) % others) for k in range(1, SERVERS // 2)]
    return duplex([(turn % others, others), *pairs])


class _OneByOne:
    """Each panel shows the next turn, when the one before it does."""

    def decide(self, state: object, _view: View, event: Event) -> tuple[object, Sequence[Order]]:
        """Return how many panels were ordered, and the next order."""
        turn = state if isinstance(state, int) else 0
        if isinstance(event, NodeStarted):
            return turn, [SetTimer("change", 0.01)]
        if isinstance(event, TimerFired | Lit) and turn < PANELS:
            return turn + 1, [Reconfigure({NAMES[turn]: _matching(turn + 1)})]
        return turn, []
