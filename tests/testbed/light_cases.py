"""A message whose link dies before its circuits are to change: what a drain meets, on either backend."""

from tests.testbed.run_cases import Case, When
from topologies.events import (
    Event,
    Flip,
    Lit,
    NodeDone,
    NodeStarted,
    Order,
    Provision,
    Reconfigure,
    Refused,
    SetTimer,
    TimerFired,
)
from topologies.fabric import Port
from topologies.light import duplex
from topologies.parallel_ocs import parallel_ocs_fabric
from traffic.collectives.point_to_point import PointToPoint
from traffic.effects import Daemon, Killed
from traffic.faults import AS_IT_WAS, Fault, cut
from traffic.faults import When as FaultWhen
from traffic.job import Collective, Compute, chain
from traffic.scheme import OnceLit

RATE = 100_000_000
"""A link carries so many bytes a second."""
FABRIC = parallel_ocs_fabric(4, 2, rate_bps=8 * RATE)
WARM = Compute("warm up", (0,), 1.0)
A, B = duplex([(0, 1), (2, 3)]), duplex([(0, 2), (1, 3)])
"""Two configurations of an OCS of four servers."""


def over_a_dead_link(lasts_s: float | None, *order: Reconfigure) -> Case:
    """Return a message of a second from 0 to 1, its circuits changed by orders 0.3 s after it started.

    Its link dies 0.2 s after it started, for so long, and that is known 5 s later.
    """
    orders: dict[Event, tuple[Order, ...]] = {
        NodeStarted("warm up"): (Reconfigure({"ocs0": A}),),
        NodeStarted("send"): (SetTimer("change", 0.3),),
        TimerFired("change"): order,
        Refused(("ocs0", "ocs1")): (SetTimer("too late", 0.1),),
        TimerFired("too late"): (Reconfigure({"ocs1": B}),),
    }
    fault = cut("cut", (Port("h0", 0),), node="send", after_s=0.2, detect_s=5.0, lasts_s=lasts_s)
    job = chain("drawn", FABRIC.gpus, (WARM, Collective("send", PointToPoint(((0, 1, RATE),)))))
    return Case(FABRIC, job, OnceLit(), When(orders), (fault,), AS_IT_WAS)


def without_a_daemon(daemon: Daemon) -> Case:
    """Return messages of a second from 0 to 1, then from 0 to 2; between them one OCS flips.

    A daemon is killed 0.2 s after the first message started, while its circuits are lit, and is back 0.2 s
    later.
    """
    orders: dict[Event, tuple[Order, ...]] = {
        NodeStarted("warm up"): (Reconfigure({"ocs0": A}), Provision("ocs1", B)),
        NodeDone("send"): (Flip(("ocs1",)),),
        Lit(("ocs1",)): (Reconfigure({"ocs0": B}),),
    }
    sends = (
        Collective("send", PointToPoint(((0, 1, RATE),))),
        Collective("then", PointToPoint(((0, 2, RATE),))),
    )
    fault = Fault("killed", (Killed(daemon),), FaultWhen("send", 0.2, 0.2), detect_s=0.05)
    job = chain("drawn", FABRIC.gpus, (WARM, *sends))
    return Case(FABRIC, job, OnceLit(), When(orders), (fault,), AS_IT_WAS)
