"""A fixed set of small experiments that together use every part, each predicted within a second.

Schemes, patterns, shares of links, compute between collectives, circuits by schedules, by a job's events, by
what is owed and foreseen ones, delegated all-to-alls, servers that forward, faults and revisions. What is
said of every run is held against them.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from controller.circuits.devices import ReconfigurationDelay
from controller.circuits.ocs_reconfig import OcsReconfig
from controller.schedulers.coin_change import CoinChange
from scenarios._mfabric.region_plan import Prediction, RegionalSetup, regions_of
from scenarios._topoopt.experiments import Trained, data_parallel, over_ocs, over_panel, plan_for
from testbed.experiment.dilation import Dilation
from testbed.experiment.experiment import Experiment
from testbed.experiment.ocs_plan import Scheduled, over_ocses
from tests.testbed import moved_cases, test_foreseen
from tests.testbed.ocs_cases import experiment_of as schedule_of
from tests.testbed.ocs_cases import partially
from tests.testbed.panel_cases import panel_step
from tests.testbed.region_cases import lost, toy_experiment, toy_step
from tests.testbed.shard_cases import FIRST, OTHER, THIRD, sharded
from tests.traffic.strategy_cases import dense, model_of, table
from tests.traffic.test_own_pattern import Sent
from topologies.fabric import Port
from topologies.fat_tree import fat_tree_fabric
from topologies.khop_ring import KHopRing
from topologies.parallel_ocs import parallel_ocs_fabric
from topologies.rail import rail_fabric
from traffic.collectives.all_to_all import AllToAll
from traffic.collectives.fan import Fan
from traffic.collectives.node_all_to_all import ExchangeRound, RingAllToAll
from traffic.collectives.pattern import Pattern
from traffic.collectives.point_to_point import PointToPoint
from traffic.collectives.ring import Ring
from traffic.delegated import DelegatedSetup
from traffic.demand import Demand
from traffic.effects import Gone, Killed
from traffic.faults import Fault, KnownRevision, Moves, Revisions, When, cut
from traffic.job import Collective, Compute, Job, Node, chain
from traffic.scheme_setup import WhileLitSetup
from traffic.steps import single
from traffic.transports.host_settings import TransportSetup
from traffic.workloads.synthetic import receiver_skew, sender_skew, sparse, uniform

MEGABYTE = 1_000_000
GPUS = 8
EVERY = tuple(range(GPUS))
RAIL = rail_fabric(4, 2)
SLOW_SPINE = rail_fabric(4, 2, uplink_bps=40e9)
UNIFORM = uniform(GPUS, tokens=512)
SCHEMES = ("ecmp", "plb", "reps", "minrtt", "rails", "optimal")


def small_runs() -> Iterator[tuple[str, Experiment]]:
    """Yield the experiments, each with a name of its own."""
    yield from _schemes()
    yield from _jobs()
    yield from _schedules()
    yield from _regions()
    yield from _foreseen()
    yield from _topoopt()
    yield from _failing()


def drawn(gpus: int, seed: int = 0) -> Demand:
    """Return a demand with no two equal messages."""
    return Demand("drawn", np.random.default_rng(seed).integers(1, 3 * MEGABYTE, (gpus, gpus)))


def _schemes() -> Iterator[tuple[str, Experiment]]:
    """Yield one all-to-all under each scheme, and under skew, slow uplinks and long links."""
    for scheme in SCHEMES:
        yield f"uniform, {scheme}", Experiment(RAIL, single(UNIFORM), scheme)
    credit = TransportSetup("credit")
    skewed = (
        sparse(GPUS, 0.5, top_k=2, tokens=512),
        sender_skew(RAIL, tokens=512),
        receiver_skew(RAIL, tokens=512),
    )
    for demand, scheme in zip(skewed, ("ecmp", "rails", "rails"), strict=True):
        yield f"{demand.name}, {scheme}", Experiment(RAIL, single(demand), scheme, transport=credit)
    yield "slow uplinks, reps", Experiment(SLOW_SPINE, single(drawn(GPUS)), "reps", seed=1)
    far = RAIL.with_links(delay_s=5e-6, loss=1e-3)
    yield "long links, tcp", Experiment(far, single(drawn(GPUS)), "ecmp", transport=TransportSetup("tcp"))


def _jobs() -> Iterator[tuple[str, Experiment]]:
    """Yield jobs of every pattern: alone, in turn with compute, and beside each other."""
    tree = fat_tree_fabric(4)
    evens, odds = EVERY[::2], EVERY[1::2]
    rings = Ring((EVERY, EVERY[::-1]), 8 * MEGABYTE)
    hops = tuple(zip(EVERY, EVERY[1:] + EVERY[:1], strict=True))
    patterns: dict[str, Pattern] = {
        "ring both ways": rings,
        "reduce-scatter": Ring((EVERY,), 8 * MEGABYTE, "reduce-scatter"),
        "all-gather": Ring((EVERY,), 8 * MEGABYTE, "all-gather"),
        "ring all-to-all": RingAllToAll((hops,), MEGABYTE),
        "binary exchange": ExchangeRound(
            (tuple((gpu, gpu ^ 2) for gpu in EVERY),), tuple((gpu,) for gpu in EVERY), 2, MEGABYTE
        ),
        "point to point": PointToPoint(((0, 5, 3 * MEGABYTE), (1, 0, MEGABYTE), (5, 1, 2 * MEGABYTE))),
        "one to many": Fan((0, 5), EVERY, MEGABYTE),
        "many to one": Fan((6,), EVERY, MEGABYTE, back=True),
        "own pattern": Sent(((0, 3), (3, 6), (6, 0)), MEGABYTE),
    }
    for name, pattern in patterns.items():
        yield name, Experiment(RAIL, Job(name, GPUS, (Collective(name, pattern),)), "ecmp")
    beside: tuple[Node, ...] = (
        Collective("evens", Ring((evens,), 4 * MEGABYTE)),
        Collective("odds", AllToAll(Demand("odds", drawn(4).matrix), odds)),
        Compute("both", EVERY, 1e-4, ("evens", "odds")),
        Collective("all", rings, ("both",)),
    )
    yield "beside each other", Experiment(tree, Job("beside", 16, beside), "rails")
    yield "starts", Experiment(RAIL, _starts(), "rails", transport=TransportSetup("credit"))
    yield "step", Experiment(RAIL, _step(), "rails")
    yield "step, reps", Experiment(RAIL, _step(), "reps", seed=2)


def _starts() -> Job:
    """Return an all-to-all beside which messages start, the last when nothing is on its way any more."""
    sent = PointToPoint(((0, 5, MEGABYTE), (1, 6, MEGABYTE)))
    late: tuple[Node, ...] = (
        Collective("early", sent, at_s=1e-5),
        Compute("work", EVERY, 1e-4, ("early",), at_s=2e-4),
        Collective("last", sent, ("work",), at_s=1e-2),
    )
    return Job("starts", GPUS, (Collective("all", AllToAll(drawn(GPUS))), *late))


def _step() -> Job:
    """Return compute and collectives in turn; two tasks meet on the even GPUs, one differs between GPUs."""
    return Job(
        "step",
        GPUS,
        (
            Compute("gate", EVERY, 2e-4),
            Compute("other", EVERY[::2], 1e-4),
            Collective("dispatch", AllToAll(drawn(GPUS)), ("gate",)),
            Compute("experts", EVERY, 0.0, ("dispatch",), tuple(1e-4 * (1 + gpu) for gpu in EVERY)),
            Collective("combine", AllToAll(drawn(GPUS, 1)), ("experts", "other")),
            Collective("gradients", Ring((EVERY,), 8 * MEGABYTE), ("combine",)),
        ),
    )


def _schedules() -> Iterator[tuple[str, Experiment]]:
    """Yield schedules over parallel OCSes; the last leaves most of a demand to packets."""
    for scheduler in ("spectra", "less", "rotor"):
        yield f"schedule, {scheduler}", schedule_of(scheduler)
    yield "schedule, partial", partially(schedule_of("spectra"))
    fabric = parallel_ocs_fabric(4, 2, packet_switch=True, packet_bps=50e9)
    owed = np.full((4, 4), 1250 * MEGABYTE)
    setup, delay = WhileLitSetup(rest="ecmp"), ReconfigurationDelay("delay", 0.01)
    job = over_ocses(Demand("even", owed), 2)
    partly = "tests.testbed.rest_cases:partly"
    yield (
        "schedule, rest",
        Experiment(fabric, job, setup, Dilation(1e-3, 1e-2), circuits=Scheduled(partly, delay)),
    )


def _regions() -> Iterator[tuple[str, Experiment]]:
    """Yield training steps whose all-to-alls are delegated over the circuits of their region."""
    step = toy_step(ranks=4)
    block = toy_experiment(step, servers=4, alpha=2)
    assert isinstance(block.circuits, RegionalSetup)
    yield "region, block", block
    yield "region, reuse", toy_experiment(step, "reuse", servers=4, alpha=2)
    exact = {turn.node: turn.demand for turn in regions_of(block.rule).turns["ocs0"]}
    known = tuple(
        Prediction(each.node, tuple(map(tuple, exact[each.node].tolist()))) for each in step.dispatches
    )
    copilot = replace(block.circuits, first="copilot", predictions=known)
    yield "region, copilot", replace(block, circuits=copilot)
    yield "region, pipelined and spilt", replace(block, scheme=DelegatedSetup(pipelined=True, spill=True))
    yield "region, sprayed rest", replace(block, scheme=DelegatedSetup(rest="rails"))
    yield "region, servers of GPUs", moved_cases.HEALTHY


def _foreseen() -> Iterator[tuple[str, Experiment]]:
    """Yield circuits that stay where servers forward, and rings whose circuits change when nodes die."""
    yield "panel", panel_step(1)
    yield "panel, two hops", replace(panel_step(2), scheme=DelegatedSetup(two_hops=True))
    yield "dying ring", test_foreseen.experiment(KHopRing(5, 2, 2), 1)
    yield "replaced ring", test_foreseen.experiment(KHopRing(7, 3, 3), 1, mode="replace")


def _topoopt() -> Iterator[tuple[str, Experiment]]:
    """Yield an iteration over circuits that stay, relayed by both routings, and that follow; and shards."""
    trained = _tables_and_layers(gpus=1)
    plan = plan_for(trained, degree=4)
    yield "TopoOpt, coin change", over_panel(trained, plan, 10e9, routing=CoinChange(plan.coins))
    as_one = replace(_tables_and_layers(gpus=2), coupled=True)
    yield "TopoOpt, shortest paths", over_panel(as_one, plan, 10e9)
    for name, forwards in (("forwards", True), ("does not forward", False)):
        rule = OcsReconfig(delay_s=2e-5, forwards=forwards)
        yield f"OCS-reconfig, {name}", over_ocs(trained, 4, 10e9, rule, name)
    yield "shards", sharded(FIRST, OTHER, THIRD)


def _tables_and_layers(gpus: int) -> Trained:
    """Return a model of two tables and two dense layers that 8 servers train, in two buckets."""
    tables = [table(f"table {number}", features=4000) for number in range(2)]
    top = dense("top", [each.name for each in tables], features=1000)
    model = model_of(*tables, top, dense("last", ["top"]), servers=8)
    return data_parallel(model, bucket_bytes=4 * MEGABYTE, gpus=gpus)


def _failing() -> Iterator[tuple[str, Experiment]]:
    """Yield runs in which links, NICs, GPUs and daemons fail, some of them for a while; and jobs revised."""
    nodes = (Collective("first", AllToAll(drawn(GPUS))), Collective("second", AllToAll(drawn(GPUS, 1))))
    job = chain("failing", GPUS, nodes)
    uplink, nic = (Port("leaf0", 4),), (Port("h1", 0),)
    cuts = partial(cut, "uplink", uplink, "first", 2e-4, 1e-4)
    yield "uplink", Experiment(RAIL, job, "ecmp", faults=(cuts(),))
    yield "uplink, back", Experiment(RAIL, job, "reps", faults=(cuts(lasts_s=3e-4),))
    yield "NIC", Experiment(RAIL, job, "rails", faults=(cut("nic", nic, "second", 2e-4, 1e-4),))
    daemon = Fault("switches", (Killed("switches"),), When("first", 1e-4, 2e-4), 1e-4)
    yield "switches", Experiment(RAIL, job, "ecmp", faults=(daemon,))
    yield "GPU, revised", _without_a_gpu()
    block = toy_experiment(toy_step(ranks=4, layers=1), servers=4, alpha=2, packet_nics=2)
    yield "region, standing", replace(block, faults=lost(block.fabric, (0, 1)))
    (dispatch,) = (node.name for node in block.job.collectives if node.name == "F0 0.0 l0 dispatch")
    for name, lasts_s in (("NICs", None), ("NICs, back", 2e-4)):
        failing = tuple(
            replace(fault, when=replace(fault.when, node=dispatch, lasts_s=lasts_s))
            for fault in lost(block.fabric, (0, 0), (1, 1), after_s=1e-4, detect_s=5e-5)
        )
        yield f"region, {name}", replace(block, faults=failing)
    healthy = moved_cases.HEALTHY
    for name, moves in (("GPU", moved_cases.GPU_MOVES), ("server", moved_cases.SERVER_MOVES)):
        yield f"region, {name} moved", _losing_in(healthy, moves)


def _losing_in(experiment: Experiment, moves: Moves) -> Experiment:
    """Return an experiment that loses GPUs while its first all-to-all is under way."""
    losing = moved_cases.losing(experiment, moves, 0.02)
    (fault,) = losing.faults
    when = replace(fault.when, node=experiment.job.collectives[0].name)
    return replace(losing, faults=(replace(fault, when=when),))


def _without_a_gpu() -> Experiment:
    """Return a ring that begins again without a GPU that dies in it."""
    left = tuple(gpu for gpu in EVERY if gpu != 3)
    again = Job("again", GPUS, (Collective("again", Ring((left,), 8 * MEGABYTE)),))
    nodes = (
        Collective("ring", Ring((EVERY,), 8 * MEGABYTE)),
        Compute("step", left, 1e-4),
    )
    fault = Fault("gpu", (Gone((3,)),), When("ring", 1e-4), 1e-4)
    return Experiment(
        RAIL,
        chain("ring", GPUS, nodes),
        "ecmp",
        faults=(fault,),
        revisions=Revisions((KnownRevision("gpu", ("ring",), again),)),
    )
