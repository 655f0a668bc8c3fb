"""Random runs in which parts fail: equal seeds, equal runs.

Links that are down, slow or lossy, and daemons that are killed, one or several at once, under each scheme;
GPUs that are lost, with collectives given up and others in their place; NICs, GPUs and servers lost in
training steps whose all-to-alls are delegated.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

import numpy as np

from controller.circuits.devices import ReconfigurationDelay
from controller.circuits.foreseen import Foreseen
from testbed.experiment.experiment import Experiment
from tests.audit.carried_out import Case, case_of
from tests.testbed import moved_cases
from tests.testbed.light_cases import A, B, over_a_dead_link
from tests.testbed.region_cases import lost
from tests.testbed.run_cases import Case as Written
from tests.testbed.run_cases import When as Orders
from tests.testbed.run_cases import moe, ring
from tests.testbed.test_delegated_faults import COLLECTIVES, TOOK_S, step
from tests.testbed.test_light import C
from topologies.events import Event, NodeStarted, Order, Provision, Reconfigure, SetTimer, TimerFired
from topologies.fabric import Fabric, Port
from topologies.fat_tree import fat_tree_fabric
from topologies.leaf_spine import leaf_spine_fabric
from topologies.light import duplex
from topologies.parallel_ocs import parallel_ocs_fabric
from topologies.rail import rail_fabric
from traffic.collectives.all_to_all import AllToAll
from traffic.collectives.point_to_point import PointToPoint
from traffic.collectives.ring import Ring
from traffic.delegated import DelegatedSetup
from traffic.demand import Demand
from traffic.effects import Down, Effect, Gone, Killed, Lossy, Slow
from traffic.faults import Fault, KnownRevision, Revisions, When, cut
from traffic.job import Collective, Compute, Job, Node, chain
from traffic.scheme_setup import ONCE_LIT
from traffic.transports.host_settings import TransportSetup

RAIL = rail_fabric(4, 3, 2)
PAIR = rail_fabric(2, 4, 1)
FABRICS = RAIL, leaf_spine_fabric(4, 2, 2, gpus=2, nics=2), fat_tree_fabric(4, gpus=1, servers=6)
SCHEMES = ("ecmp", "rails", "reps", "minrtt", "plb", "pxn")
SETUPS = (
    DelegatedSetup(),
    DelegatedSetup(pipelined=True),
    DelegatedSetup(spill=True),
    DelegatedSetup(rest="rails"),
)
LASTS_S, MOVED_S = 4e-4, 2.3
"""About how long a run over packets takes, and a training step from which GPUs are lost [s]."""
MOVES = moved_cases.GPU_MOVES, moved_cases.SERVER_MOVES


def drawn_faults() -> Iterator[tuple[str, Case]]:
    """Yield the runs, each with a name of its own."""
    for seed in range(18):
        yield f"packets {seed}", packets(seed)
    for seed in range(6):
        yield f"crowded {seed}", crowded(seed)
    for seed in range(5):
        yield f"revised {seed}", revised(seed)
    for seed in range(6):
        yield f"region of NICs {seed}", region(seed)
    for seed in range(4):
        yield f"region of moves {seed}", moving(seed)
    for number, nics in enumerate((((0, 1),), ((0, 0), (0, 2)), ((1, 0), (2, 1)))):
        healthy = step()
        standing = replace(healthy, faults=lost(healthy.fabric, *nics))
        yield f"region, standing {number}, in step", case_of(standing, couples=True)
    yield from _written()


# Over packets


def packets(seed: int) -> Case:
    """Return an all-to-all, compute and a ring while links and the switches' daemon fail for a while."""
    random = Random(seed)
    fabric = FABRICS[seed // 6]
    scheme = SCHEMES[seed % 6] if fabric is RAIL or seed % 6 not in (1, 5) else "ecmp"
    matrix = np.random.default_rng(seed).integers(0, 400_000, (fabric.gpus,) * 2)
    every = tuple(range(fabric.gpus))
    nodes: tuple[Node, ...] = (
        Collective("tokens", AllToAll(Demand("drawn", matrix))),
        Compute("experts", every, 1e-5, ("tokens",)),
        Collective("sums", Ring((every, every[::-1]), 1_000_000), ("experts",)),
        Collective("beside", PointToPoint(((0, fabric.gpus - 1, 2_000_000),))),
    )
    transport = TransportSetup("tcp") if seed % 3 == 0 else TransportSetup("credit")
    job = Job("drawn", fabric.gpus, nodes)
    healthy = Experiment(fabric, job, scheme, seed=seed, transport=transport)
    faults = tuple(_faults(random, fabric))
    return case_of(replace(healthy, faults=faults))


def _faults(random: Random, fabric: Fabric) -> Iterator[Fault]:
    several = [nic for nic in fabric.nics if fabric.servers[nic.server].nics > 1]
    trunks = [link.a for link in fabric.links if {link.a.node, link.b.node} <= fabric.switch_index.keys()]
    ports = [*map(fabric.nic_port, several), *trunks]
    for number in range(random.randint(1, 4)):
        effects = _effects(random, random.sample(ports, 2))
        stays = number == 0 and not isinstance(effects[0], Killed)
        lasts_s = None if stays else LASTS_S * random.uniform(0.02, 0.5)
        when = When(random.choice(["", "tokens", "sums"]), LASTS_S * random.uniform(0, 0.6), lasts_s)
        yield Fault(f"fault {number}", effects, when, LASTS_S * random.choice([0.0, 0.02, 0.2]))


def _effects(random: Random, ports: Sequence[Port]) -> tuple[Effect, ...]:
    one, both = tuple(ports[:1]), tuple(ports)
    slow, lossy = Slow(both, random.choice([0.1, 0.5])), Lossy(one, random.choice([0.01, 0.5]))
    drawn: list[tuple[Effect, ...]] = [(Down(one),), (slow,), (lossy,), (Slow(one, 0.5), lossy)]
    return random.choice([*drawn, (Killed("switches"),)])


def crowded(seed: int) -> Case:
    """Return many small messages behind each other, and links whose failures are known at once."""
    random = Random(seed)
    messages = [(near, 7 - near, random.randint(1, 40_000)) for near in random.choices(range(8), k=200)]
    nics = random.sample([nic for nic in PAIR.nics if nic.nic], 4)
    faults = tuple(
        cut(
            f"cut {number}",
            (PAIR.nic_port(nic),),
            "",
            random.uniform(0, 1e-4),
            0.0,
            random.choice([None, 2e-5]),
        )
        for number, nic in enumerate(nics)
    )
    job = Job("crowded", 8, (Collective("send", PointToPoint(tuple(messages))),))
    return case_of(Experiment(PAIR, job, SCHEMES[seed], transport=TransportSetup("tcp"), faults=faults))


def revised(seed: int) -> Case:
    """Return a job that loses GPUs: rings begin again without them, all-to-alls go on, tasks take turns.

    By turns over TCP and as datagrams; some faults are known at once, some too late.
    """
    random, every = Random(seed), tuple(range(12))
    dead = (random.randrange(3, 12),)
    left = tuple(gpu for gpu in every if gpu not in dead)
    again = chain("again", 12, (Collective("again", Ring((left,), 6_000_000)), Compute("sums", left, 1e-5)))
    nodes: tuple[Node, ...] = (
        Compute("first", every, 2e-5),
        Compute("second", every[::2], 1e-5),
        Collective("ring", Ring((every,), 6_000_000), ("first",)),
        Compute("apart", every, 0.0, ("first",), tuple(1e-5 * (1 + gpu) for gpu in every)),
        Collective("tokens", PointToPoint(tuple((gpu, (gpu + 5) % 12, 500_000) for gpu in every))),
        Compute("step", left, 1e-5, ("ring",)),
        Collective("last", Ring((left,), 3_000_000), ("step",)),
    )
    when = When(random.choice(["first", "ring"]), random.uniform(2.5e-5, 1e-4))
    gone = Fault("gone", (Gone(dead),), replace(when, node="ring"), random.choice([0.0, 1e-5]))
    known = KnownRevision(
        "gone", ("ring",), again if seed % 4 else chain("none", 12, (Compute("none", left, 1e-5),))
    )
    slow = Fault(
        "slow", (Slow((Port("h0", 0), Port("leaf1", 4)), 0.3),), When("", 1e-5, random.choice([None, 1e-4]))
    )
    experiment = Experiment(
        RAIL,
        Job("revised", 12, nodes),
        SCHEMES[seed],
        transport=TransportSetup("credit" if seed % 2 else "tcp"),
        faults=(gone, slow),
        revisions=Revisions((known,)),
    )
    return case_of(experiment)


# Delegated all-to-alls


def region(seed: int) -> Case:
    """Return a training step in whose all-to-alls some NICs fail, for a while or for good."""
    random = Random(seed)
    healthy = step(random.choice(["block", "reuse"]))
    some = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (2, 1)]
    faults = tuple(
        replace(fault, when=_of_a_collective(random), detect_s=random.choice([0.0, 0.2]) * TOOK_S)
        for nic in random.sample(some, random.randint(1, 6))
        for fault in lost(healthy.fabric, nic)
    )
    return case_of(replace(healthy, scheme=SETUPS[seed % 4], faults=faults))


def _of_a_collective(random: Random) -> When:
    lasts = random.choice([None, 0.3, 10.0])
    after_s = random.uniform(0.0, 1.2) * TOOK_S
    return When(random.choice(COLLECTIVES), after_s, None if lasts is None else lasts * TOOK_S)


def moving(seed: int) -> Case:
    """Return a training step that loses a GPU or a server, whose place another takes."""
    random = Random(seed)
    after_s = random.uniform(0.0, 0.95) * MOVED_S
    return case_of(
        moved_cases.losing(moved_cases.HEALTHY, MOVES[seed % 2], after_s, random.uniform(0.0, 0.3))
    )


# Runs of the tests of the runner


def _written() -> Iterator[tuple[str, Case]]:
    yield "MoE without a NIC", _of_written(moe())
    yield "ring without a GPU", _of_written(ring())
    kept, away = Reconfigure({"ocs0": A, "ocs1": A}), Reconfigure({"ocs0": (), "ocs1": A}, 0.1)
    for name, lasts_s, orders in (
        ("kept", 0.5, (kept,)),
        ("cut", None, (away,)),
        ("refused", 0.5, (replace(away, at_deadline="refuse"),)),
        ("there and back", 0.5, (Reconfigure({"ocs0": B}, 0.1), Reconfigure({"ocs0": A}))),
        ("dead for good", None, (Reconfigure({"ocs0": B}),)),
    ):
        yield f"drained, {name}", _of_written(over_a_dead_link(lasts_s, *orders))
    for name, lasts_s in (("for good", None), ("for a while", 1e-3)):
        yield f"controller, {name}", _without_controller(lasts_s)
    for name, order in (
        ("while it switches", Reconfigure({"ocs0": B})),
        ("while it provisions", Provision("ocs0", B)),
        ("before it is asked", SetTimer("none", 1.0)),
    ):
        yield f"controller, {name}", _asked_in_vain(order)


def _of_written(written: Written) -> Case:
    """Return a run of the tests of the runner; its scheme keeps nothing."""
    return Case(
        written.fabric,
        written.job,
        lambda: written.scheme,
        written.circuits,
        written.faults,
        written.revisions,
        delay_s=written.delay_s,
    )


def _without_controller(lasts_s: float | None) -> Case:
    """Return a message over circuits that stay while the controller is away."""
    fabric = parallel_ocs_fabric(4, 1)
    circuits = Foreseen((("ocs0", duplex([(0, 1), (2, 3)])),), (), ReconfigurationDelay("stays"), stays=True)
    job = Job("one", 4, (Collective("send", PointToPoint(((0, 1, 50_000_000), (2, 3, 10_000_000)))),))
    away = Fault("away", (Killed("controller"),), When("send", 1e-3, lasts_s))
    return case_of(Experiment(fabric, job, ONCE_LIT, circuits=circuits, faults=(away,)))


def _asked_in_vain(order: Order) -> Case:
    """Return a message whose OCS is ordered something as the controller is killed, and to change later."""
    case = _of_written(over_a_dead_link(None))
    orders: dict[Event, tuple[Order, ...]] = {
        NodeStarted("warm up"): (Reconfigure({"ocs0": A, "ocs1": A}),),
        NodeStarted("send"): (order, SetTimer("later", 0.3)),
        TimerFired("later"): (Reconfigure({"ocs0": C}),),
    }
    away = Fault("away", (Killed("controller"),), When("send", 1e-3))
    return replace(case, circuits=Orders(orders), faults=(away,))
