"""Random runs whose circuits change: equal seeds, equal runs.

Changes of one OCS and of two, with deadlines, what is set beside and flipped to, collectives that are held,
links that fail meanwhile; servers that forward; programs and what they leave over; shards.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from random import Random

import numpy as np

from controller.schedulers.coin_change import KShortest
from controller.schedulers.schedule import Schedule, Slot
from tests.audit.carried_out import Case, case_of
from tests.testbed.forwarding_cases import ring_fabric, stride_circuits
from tests.testbed.light_cases import FABRIC, RATE, A, B
from tests.testbed.ocs_cases import experiment_of as schedule_of
from tests.testbed.ocs_cases import partially
from tests.testbed.panel_cases import MEGABYTE, panel_step
from tests.testbed.rest_cases import DELAY_S, OCSES, SECOND, Rest, mixed_fabric
from tests.testbed.run_cases import When
from tests.testbed.shard_cases import ring, sharded
from tests.testbed.test_light import C, chord_fabric
from topologies.events import (
    AtDeadline,
    Event,
    Flip,
    Hold,
    Lit,
    NodeStarted,
    Order,
    Provision,
    Provisioned,
    Reconfigure,
    Refused,
    SetTimer,
    TimerFired,
)
from topologies.fabric import Nic, Port
from topologies.light import Circuit, Configuration, duplex
from topologies.own_routing import CheckedRouting
from traffic.collectives.point_to_point import PointToPoint
from traffic.collectives.ring import Ring
from traffic.delegated import DelegatedSetup
from traffic.faults import Fault, cut
from traffic.job import Collective, Compute, Job
from traffic.scheme import OnceLit, OverCircuits, Routed, Scheme, Sprayed, WholeMessages
from traffic.spraying.policy import QueuePair
from traffic.spraying.registry import policy_named
from traffic.spread import Spread

Timed = list[tuple[float, Order]]
"""Orders, each with its time [s]."""
CONFIGURATIONS: tuple[tuple[Circuit, ...], ...] = (A, B, C, A[:2], ())
CHORDS = (duplex([(1, 3)]), duplex([(0, 2)]), duplex([(0, 2), (1, 4)]), ())
"""Circuits of the second OCS of `chord_fabric`."""


def drawn_light() -> Iterator[tuple[str, Case]]:
    """Yield the runs, each with a name of its own."""
    for seed in range(8):
        yield f"changes {seed}", changing(seed)
    for seed in range(8):
        yield f"forwarding {seed}", forwarding(seed)
    for seed, policy in enumerate(("ecmp", "reps", "rails", None, "minrtt", None)):
        yield f"programs {seed}", programs(seed, policy)
    for seed in range(3):
        yield f"schedule without a port {seed}", without_a_port(seed)
    for seed in range(3):
        yield f"shards {seed}", shards(seed)
    for seed in range(8):
        yield f"panel {seed}", panel(seed)


# Changes of light


def light_changes(random: Random, *, hurried: bool = False) -> Timed:
    """Draw orders at some times; in the end three configurations have their turns on both OCSes.

    ``hurried`` says that some have to drain in time.
    """
    drawn = Timed()
    beside = set[str]()
    for at_s in sorted(random.uniform(0.0, 2.0) for _ in range(random.randint(0, 8))):
        ocses = random.choice([("ocs0",), ("ocs1",), ("ocs0", "ocs1")])
        kind, in_time = random.choice(["reconfigure", "provision", "flip"]), _deadline(random, hurried)
        if kind == "provision" and ocses[0] not in beside:
            drawn.append((at_s, Provision(ocses[0], random.choice(CONFIGURATIONS))))
            beside.add(ocses[0])
        elif kind == "flip" and beside.issuperset(ocses):
            drawn.append((at_s, Flip(ocses, *in_time)))
        else:
            drawn.append((at_s, Reconfigure({ocs: random.choice(CONFIGURATIONS) for ocs in ocses}, *in_time)))
    for turn, shown in enumerate((A, B, C), start=1):
        drawn.append((20.0 * turn, Reconfigure({"ocs0": shown, "ocs1": shown})))
    return drawn


def _deadline(random: Random, hurried: bool) -> tuple[float | None, AtDeadline]:
    if not hurried:
        return None, "cut"
    at_deadline: AtDeadline = random.choice(["cut", "refuse"])
    return random.choice([None, 0.0, 0.02, 0.2]), at_deadline


def in_time(orders: Timed, node: str) -> dict[Event, tuple[Order, ...]]:
    """Return orders as what timers bring that are set when a node starts."""
    timers = tuple(SetTimer(str(number), at_s) for number, (at_s, _) in enumerate(orders))
    brought: dict[Event, tuple[Order, ...]] = {
        TimerFired(str(number)): (order,) for number, (_, order) in enumerate(orders)
    }
    return brought | {NodeStarted(node): timers}


def by_sum(_view: object, a: int, b: int) -> QueuePair:
    """Return the lane between two servers over the OCS that the sum of their numbers says."""
    return QueuePair(Nic(a, (a + b) % 2), Nic(b, (a + b) % 2))


SCHEMES: tuple[Callable[[], Scheme], ...] = (partial(WholeMessages, by_sum), OnceLit)


def changing(seed: int) -> Case:
    """Return messages between four servers while circuits change; a later collective waits for light.

    From the fifth on links fail for a while, and some orders have to drain in time.
    """
    random = Random(seed)
    pairs = tuple((a, b, random.randint(1, RATE // 4)) for a in range(4) for b in range(4) if a != b)
    held = tuple((a, 3 - a, RATE // 20) for a in range(4))
    nodes = (
        Collective("send", PointToPoint(pairs)),
        Compute("waits", (0, 1), random.uniform(0.1, 1.5)),
        Collective("held", PointToPoint(held), ("waits",)),
    )
    events = in_time(light_changes(random, hurried=seed > 3), "send")
    waits_s = random.choice([None, 0.01])
    both = Reconfigure({"ocs0": random.choice([A, B]), "ocs1": C})
    events[NodeStarted("held")] = (both, Hold("held", ("ocs0", "ocs1"), waits_s))
    again = Reconfigure({"ocs0": A})
    events |= {Refused(("ocs0",)): (again,), Lit(("ocs1",)): (SetTimer("none", 0.05),)}
    events |= {Provisioned("ocs1"): (Reconfigure({"ocs0": B}),)}
    faults = tuple(_cuts(random, 2 * (seed > 3), "send", 1.5))
    delay_s = {ocs: random.uniform(0.001, 0.5) for ocs in ("ocs0", "ocs1")}
    flip_s = {ocs: random.uniform(0.0, 0.1) for ocs in ("ocs0", "ocs1")}
    scheme = SCHEMES[seed % 2]
    return Case(FABRIC, Job("drawn", 4, nodes), scheme, When(events), faults, delay_s=delay_s, flip_s=flip_s)


def _cuts(random: Random, most: int, node: str, within_s: float) -> Iterator[Fault]:
    """Yield links of NICs that are down for a while, some of them known to be meanwhile."""
    for number in range(most):
        port = Port(f"h{random.randrange(4)}", random.randrange(2))
        after_s, lasts_s = random.uniform(0.0, within_s), random.uniform(0.05, 0.6)
        yield cut(f"cut {number}", (port,), node, after_s, random.choice([0.0, 0.02, 5.0]), lasts_s)


# Servers that forward


@dataclass(frozen=True)
class Turns:
    """Shows configurations one after the other, from the start of a node on, and again and again."""

    shown: tuple[Reconfigure, ...]
    every_s: float
    node: str = "send"

    def decide(self, state: object, _view: object, event: Event) -> tuple[object, tuple[Order, ...]]:
        """Return the next configuration and a timer."""
        turn = state if isinstance(state, int) else 0
        if event == NodeStarted("warm up"):
            return turn, (Reconfigure({"ocs0": stride_circuits(5, 1)}),)
        if event not in (NodeStarted(self.node), TimerFired("turn")):
            return turn, ()
        order = self.shown[turn % len(self.shown)]
        return turn + 1, (order, SetTimer("turn", self.every_s))


def forwarding(seed: int) -> Case:
    """Return messages between five servers in a ring of light, some of it changed all the time.

    By turns over the shortest routes, over one NIC, spread anew, and beside a second OCS with chords.
    """
    random = Random(seed)
    kind = seed % 4
    fabric = ring_fabric(5, 8 * RATE) if kind < 3 else chord_fabric()
    pairs = tuple(
        (a, b, random.randint(1, RATE // 4))
        for a in range(5)
        for b in range(5)
        if a != b and random.random() < 0.5
    )
    nodes = (
        Compute("warm up", (0,), 0.1),
        Collective("send", PointToPoint(pairs), ("warm up",)),
        Compute("waits", (1,), 0.3, ("warm up",)),
        Collective("late", PointToPoint(((0, 4, RATE // 10), (3, 1, RATE // 5))), ("waits",)),
    )
    shown = [*(_forwarded(random, kind == 3) for _ in range(4)), {"ocs0": stride_circuits(5, 1)}]
    turns = tuple(Reconfigure(each, random.choice([None, None, 0.005])) for each in shown)
    schemes: list[Callable[[], Scheme]] = [
        Routed,
        partial(WholeMessages, _by_ends),
        partial(Spread, anew=True),
    ]
    faults = tuple(
        cut(
            f"cut {number}",
            (Port(f"h{random.randrange(5)}", number % 2),),
            "send",
            0.05 + 0.1 * number,
            0.01,
            0.2,
        )
        for number in range(2 * (seed > 3))
    )
    return Case(
        fabric,
        Job("drawn", 5, nodes),
        schemes[kind % 3],
        Turns(turns, random.uniform(0.03, 0.1)),
        faults,
        routing=CheckedRouting(KShortest(2)) if kind == 2 else None,
        delay_s={"ocs0": 0.01, "ocs1": 0.02},
    )


def _by_ends(_view: object, a: int, b: int) -> QueuePair:
    return QueuePair(Nic(a, 0), Nic(b, 1))


def _forwarded(random: Random, with_chords: bool) -> Configuration:
    """Draw circuits over which all servers are joined."""
    if with_chords and random.random() < 0.6:
        return {"ocs1": random.choice(CHORDS)}
    ring = {"ocs0": stride_circuits(5, random.choice([1, 2]))}
    return {**ring, "ocs1": random.choice(CHORDS)} if with_chords and random.random() < 0.5 else ring


# Programs


def drawn_rest(random: Random, policy: str | None, gpus: int = 1) -> Rest:
    """Draw a demand, and a schedule of up to three slots on each OCS that need not cover it."""
    servers = random.randint(2, 4)
    cells = [random.choice([0, random.randint(1, SECOND // 20)]) for _ in range((servers * gpus) ** 2)]
    matrix = np.array(cells).reshape(servers * gpus, -1)
    np.fill_diagonal(matrix, 0)
    slots = tuple(
        tuple(
            Slot(np.array(random.sample(range(servers), servers)), random.uniform(0.001, 0.03))
            for _ in range(random.randint(0, 3))
        )
        for _ in OCSES
    )
    return Rest(mixed_fabric(servers, gpus=gpus), matrix, Schedule(slots, DELAY_S), policy)


def programs(seed: int, policy: str | None) -> Case:
    """Return a demand over a schedule that leaves some of it over: to packets, or to clean-up rounds."""
    rest = drawn_rest(Random(seed), policy, gpus=1 + seed % 2)

    def scheme() -> Scheme:
        return OverCircuits(Sprayed(partial(policy_named, policy)) if policy else None)

    later = Collective("later", PointToPoint(((0, len(rest.matrix) - 1, SECOND // 100),)), ("tokens",))
    job = replace(rest.job, nodes=(*rest.job.nodes, *[later] * bool(policy)))
    return Case(rest.fabric, job, scheme, rest.circuits, delay_s=rest.delay_s)


def without_a_port(seed: int) -> Case:
    """Return a schedule one of whose OCSes loses a port, for a while or for good."""
    random = Random(seed)
    healthy = schedule_of(("spectra", "rotor", "less")[seed], seed=seed)
    port = Port(f"ocs{random.randrange(2)}", random.randrange(6))
    lost = cut("port", (port,), "", random.uniform(0.0, 0.3), 0.01, (None, 0.2, None)[seed])
    return case_of(replace(partially(healthy, seed == 1), faults=(lost,)))


# Shards and panels


def shards(seed: int) -> Case:
    """Return jobs on some of five servers, each after those that had its servers before it."""
    random = Random(seed)
    nodes, last = list[Collective](), dict[int, str]()
    for number in range(random.randint(3, 6)):
        members = tuple(random.sample(range(5), random.randint(2, 4)))
        after = tuple(dict.fromkeys(last[server] for server in members if server in last))
        nodes.append(ring(f"j{number}", members, random.choice([0.1, 0.4, 0.9]), after))
        last |= dict.fromkeys(members, nodes[-1].name)
    return case_of(sharded(*nodes, servers=5))


def panel(seed: int) -> Case:
    """Return an all-to-all and a ring over a panel from which NICs are lost, for a while or for good.

    From the fifth on a second NIC of a server fails while bytes go over NVLink to it.
    """
    random, plain = Random(seed), DelegatedSetup()
    setups = plain, replace(plain, two_hops=True), replace(plain, pipelined=True), replace(plain, spill=True)
    healthy = replace(panel_step(seed % 4, sends=seed % 4 != 1), scheme=setups[seed % 4])
    server, after_s, lasts_s = (
        random.randrange(6),
        random.uniform(0.0, 0.05),
        (None, 0.01, 0.03, None)[seed % 4],
    )
    faults = tuple(
        cut(f"nic {nic}", (healthy.fabric.nic_port(Nic(server, nic)),), "all-to-all", at_s, 0.001, lasts_s)
        for nic, at_s in enumerate([after_s, after_s + random.uniform(0, 1e-4)][: 1 + seed // 4])
    )
    extra = Collective("beside", Ring((tuple(range(0, 12, 2)),), 4 * MEGABYTE))
    job = replace(healthy.job, nodes=(*healthy.job.nodes, extra))
    return case_of(replace(healthy, job=job, faults=faults))
