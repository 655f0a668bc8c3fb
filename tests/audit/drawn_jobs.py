"""Random runs of jobs: equal seeds, equal runs.

Nodes that take no time, rules that look at what is owed or at nothing, GPUs whose loss is known late.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from random import Random

import numpy as np

from tests.audit.carried_out import Case
from tests.testbed.rest_cases import CIRCUIT_BPS, DELAY_S, OCSES, SECOND, mixed_fabric
from tests.testbed.test_job_order import NOTHING, PATTERNS
from topologies.events import (
    Event,
    NodeStarted,
    Order,
    ProgramsEnded,
    SendRest,
    SetTimer,
    Show,
    TimedCircuits,
    TimerFired,
    View,
)
from topologies.fabric import Port
from topologies.parallel_ocs import parallel_ocs_fabric
from topologies.rail import rail_fabric
from traffic.collectives.all_to_all import AllToAll
from traffic.collectives.pattern import Pattern
from traffic.collectives.point_to_point import PointToPoint
from traffic.collectives.ring import Ring
from traffic.demand import Demand
from traffic.effects import Gone
from traffic.faults import Fault, KnownRevision, Revisions, When, cut
from traffic.job import Collective, Compute, Job, Node
from traffic.scheme import OnceLit, OverCircuits, Scheme, Sprayed
from traffic.spraying.registry import policy_named

RATE = 1000
"""Rate of a link of the fabric below [bytes/s]."""
FABRIC = rail_fabric(2, 2, 1, rate_bps=8.0 * RATE, nvlink_bps=80.0 * RATE)
LONELY = 3
"""The GPU that computes, and sends nothing."""


def drawn_jobs() -> Iterator[tuple[str, Case]]:
    """Yield the runs, each with a name of its own."""
    for seed in range(6):
        yield f"job {seed}", job(seed)
    for seed, policy in enumerate(("ecmp", "minrtt")):
        yield f"owing {seed}", owing(seed, policy)
    for policy in ("ecmp", "minrtt"):
        yield f"impatient, {policy}", impatient(policy)
    yield "in vain", in_vain()
    for couples in (False, True):
        yield f"looked at{', in step' * couples}", looked_at(couples=couples)
    yield "gone late", gone(5.0)
    yield "gone late, awaited", gone(5.0, awaited=True)
    yield "gone soon", gone(0.1)
    yield "gone soon, awaited", gone(0.1, awaited=True)


def sprayed(policy: str) -> Callable[[], Scheme]:
    """Return the maker of a scheme that sprays by a policy."""
    return lambda: Sprayed(partial(policy_named, policy))


def job(seed: int) -> Case:
    """Return nodes many of which take no time, listed in any order; a GPU that only computes is lost."""
    random = Random(seed)
    nodes = list[Node]()
    for number in range(10):
        names = [node.name for node in nodes]
        after = tuple(random.sample(names, min(len(names), random.randint(0, 2))))
        patterns: list[Pattern] = [*PATTERNS, PointToPoint(((0, 2, RATE), (2, 1, 300)))]
        pattern = random.choice(patterns)
        gpus = tuple(random.sample(range(4), random.randint(0, 3)))
        together = Compute(str(number), gpus, random.choice([0.0, 1.0, 0.3]), after)
        sends = Collective(str(number), pattern if LONELY not in pattern.gpus else NOTHING, after)
        nodes.append(together if random.random() < 0.5 else sends)
    random.shuffle(nodes)
    gone = Fault("gone", (Gone((LONELY,)),), When("", random.choice([0.0, 0.5])), random.choice([0.0, 0.25]))
    again = Job("again", 4, (Compute("extra", (0,), 0.2), Compute("none", (), 0.0, ("extra",))))
    known = KnownRevision("gone", (), again, ((LONELY, 2),) * (seed % 2))
    revise = Revisions((known,)) if seed % 3 else Revisions()
    return Case(FABRIC, Job("drawn", 4, tuple(nodes)), sprayed("ecmp"), Looks(), (gone,) * (seed > 1), revise)


@dataclass(frozen=True)
class Looks:
    """Lights nothing, and looks at all that can be seen."""

    def decide(self, state: object, view: View, event: Event) -> tuple[object, tuple[Order, ...]]:
        """Return no order; the state is what was seen."""
        return (view.owed().tolist(), view.held, view.backlog_bytes(view.fabric.nics[0])), ()


@dataclass(frozen=True)
class Owing:
    """Shows what is owed most, a slot on each OCS, five times; the rest goes over packets."""

    def decide(self, state: object, view: View, event: Event) -> tuple[object, tuple[Order, ...]]:
        """Return a slot for the pairs that owe each other most."""
        shown = state if isinstance(state, int) else 0
        if not isinstance(event, NodeStarted | ProgramsEnded) or (isinstance(event, NodeStarted) and shown):
            return state, ()
        if shown == 5:
            return shown, (SendRest(),)
        owed = view.owed()
        shift = max(range(1, len(owed)), key=lambda by: int(np.trace(np.roll(owed, -by, 1))))
        circuits = tuple((a, (a + shift) % len(owed)) for a in range(len(owed)))
        slot = (TimedCircuits(circuits, 0.004),)
        return shown + 1, (Show(tuple((ocs, slot) for ocs in OCSES), exact=True),)


def _drawn(seed: int, servers: int = 4) -> AllToAll:
    matrix = np.random.default_rng(seed).integers(1, SECOND // 20, (servers, servers))
    np.fill_diagonal(matrix, 0)
    return AllToAll(Demand("drawn", matrix))


def owing(seed: int, policy: str) -> Case:
    """Return a demand whose circuits follow what is owed; a packet NIC fails meanwhile."""
    nodes = (Collective("first", _drawn(seed)), Collective("second", _drawn(seed + 9), ("first",)))
    faults = (cut("nic", (Port("h0", 1),), "first", 0.01, 0.002, 0.02),)
    return Case(
        mixed_fabric(),
        Job("owing", 4, nodes),
        lambda: OverCircuits(sprayed(policy)()),
        Owing(),
        faults * seed,
        delay_s=dict.fromkeys(OCSES, DELAY_S / 10),
    )


@dataclass(frozen=True)
class Impatient:
    """Sets a timer again and again."""

    every_s: float

    def decide(self, state: object, view: View, event: Event) -> tuple[object, tuple[Order, ...]]:
        """Return a timer."""
        return state, (SetTimer("again", self.every_s),) if isinstance(
            event, NodeStarted | TimerFired
        ) else ()


def impatient(policy: str) -> Case:
    """Return a demand over packets while a rule decides 25,000 times."""
    fabric = mixed_fabric()
    took_s = 8 * SECOND / 20 * 3 / CIRCUIT_BPS
    nodes = (Collective("send", _drawn(0)),)
    return Case(
        fabric,
        Job("impatient", 4, nodes),
        sprayed(policy),
        Impatient(took_s / 25_000),
        delay_s=dict.fromkeys(OCSES, DELAY_S),
    )


def in_vain() -> Case:
    """Return a message over circuits that its rule never lights, and decides again and again."""
    nodes = (Collective("send", PointToPoint(((0, 1, RATE),))),)
    fabric = parallel_ocs_fabric(2, 1)
    return Case(fabric, Job("vain", 2, nodes), OnceLit, Impatient(1e-6), delay_s={"ocs0": DELAY_S})


def looked_at(*, couples: bool) -> Case:
    """Return a ring and an all-to-all beside it whose rule looks at all that can be seen."""
    every = tuple(range(4))
    nodes = (
        Collective("ring", Ring((every,), 40 * RATE)),
        Collective("tokens", PointToPoint(((0, 2, RATE), (2, 1, 9 * RATE)))),
        Compute("then", (0,), 1.0, ("tokens",)),
    )
    return Case(FABRIC, Job("seen", 4, nodes), sprayed("ecmp"), Looks(), couples=couples)


def gone(detect_s: float, *, awaited: bool = False) -> Case:
    """Return messages a GPU of which is lost; that is known so much later, or once all else has arrived."""
    messages = (0, 2, RATE), (1, 3, RATE), (2, 0, 2 * RATE)
    nodes: tuple[Node, ...] = (Collective("send", PointToPoint(messages)), Compute("long", (0,), 9.0))
    nodes += (Compute("then", (0,), 1.0, ("send",)),) * awaited
    lost = Fault("gone", (Gone((LONELY,)),), When("", 0.5), detect_s)
    return Case(FABRIC, Job("late", 4, nodes), sprayed("rails"), faults=(lost,))
