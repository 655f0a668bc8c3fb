"""Promises of memory: a prediction takes what was estimated, within a factor of two."""

import math
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path

from controller.circuits.devices import ReconfigurationDelay
from scenarios._bench.figure import figure
from testbed.experiment.experiment import Experiment
from testbed.experiment.memory import prediction_bytes
from testbed.experiment.ocs_plan import Scheduled, over_ocses
from testbed.machine.commands import output_of
from testbed.model.predict import predict
from testbed.report.finished import finished
from testbed.trust.outcome import Outcome
from topologies.fabric import Fabric, Port
from topologies.fat_tree import fat_tree_fabric
from topologies.leaf_spine import leaf_spine_fabric
from topologies.parallel_ocs import parallel_ocs_fabric
from topologies.rail import rail_fabric
from traffic.collectives.all_to_all import AllToAll
from traffic.collectives.fan import Fan
from traffic.collectives.node_all_to_all import RingAllToAll
from traffic.collectives.pattern import Pattern
from traffic.collectives.point_to_point import PointToPoint
from traffic.collectives.ring import Ring
from traffic.faults import cut
from traffic.job import Collective, Job, chain
from traffic.rings_over import with_rings
from traffic.scheme_setup import WhileLitSetup
from traffic.steps import single
from traffic.training import Layout
from traffic.workloads.gpt import gpt_step
from traffic.workloads.ocs_workloads import ocs_demand
from traffic.workloads.synthetic import sparse, uniform

CHECKOUT = str(Path(__file__).parents[2])
WITHIN = 2.0
"""Estimated over measured, or measured over estimated, at most."""
DELAY = ReconfigurationDelay("drawn", 0.025)


@figure("ratio", f"{1 / WITHIN} .. {WITHIN}", sandbox=False)
def memory_estimate() -> tuple[float, str]:
    """Memory that a prediction was estimated to take over what it took, of 26 jobs the farthest from 1."""
    ratios = {name: estimated_over_measured(name) for name in cases()}
    worst = max(ratios, key=lambda name: abs(math.log(ratios[name])))
    said = ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items())
    return ratios[worst], f"{worst}; {said}"


def estimated_over_measured(name: str) -> float:
    """Return the ratio for one job, in a process of its own."""
    asked = f"from scenarios._bench.memory import ratio_here; ratio_here({name!r})"
    return float(
        output_of([sys.executable, "-P", "-c", f"import sys; sys.path.insert(0, {CHECKOUT!r}); {asked}"])
    )


def ratio_here(name: str) -> None:
    """Print what a job's prediction was estimated to take over what this process grew by."""
    experiment = cases()[name]()
    before_bytes = _status_bytes("VmRSS")
    finished(Outcome(experiment, predict(experiment)), traced=False)
    print(prediction_bytes(experiment) / (_status_bytes("VmHWM") - before_bytes))


def _status_bytes(key: str) -> int:
    """Return a size that the kernel has of this process: `ru_maxrss` is that of its parent where larger."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status[key].split()[0]) << 10


def cases() -> dict[str, Callable[[], Experiment]]:
    """Return the jobs by name, none of which is made yet."""
    ranks = tuple(range(128))
    hops = tuple(zip(ranks, ranks[1:] + ranks[:1], strict=True))
    listed = tuple((n % 128, (7 * n + 1) % 128, 1000 + n) for n in range(20_000) if (6 * n + 1) % 128)
    every: dict[str, Callable[[], Experiment]] = {
        f"all-to-all, {scheme}, {8 * servers} GPUs": partial(_all_to_all, rail_fabric(servers, 8), scheme)
        for scheme, servers in (
            *((each, 16) for each in ("ecmp", "rails", "optimal", "pxn")),
            *((each, 8) for each in ("reps", "plb", "minrtt")),
            ("rails", 32),
        )
    }
    others: dict[str, Callable[[], Experiment]] = {
        "all-to-all, fat tree": partial(_all_to_all, fat_tree_fabric(8), "ecmp"),
        "all-to-all, leaf and spine": partial(_all_to_all, leaf_spine_fabric(64, 8, nics=2), "ecmp"),
        **{
            f"large messages, {scheme}": lambda by=scheme: Experiment(  # type: ignore[misc]
                rail_fabric(8, 8), single(uniform(64, tokens=1 << 18)), by
            )
            for scheme in ("ecmp", "rails")
        },
        "sparse": lambda: Experiment(rail_fabric(16, 8), single(sparse(128, 0.3, top_k=2)), "rails"),
        "repeated": lambda: Experiment(
            rail_fabric(8, 8),
            _in_turn("repeated", *map(str, range(30))),
            "rails",
        ),
        "ring": partial(_one, rail_fabric(32, 8), Ring((tuple(range(256)),), 1 << 30), "ecmp"),
        "ring, reps": partial(_one, rail_fabric(8, 8), Ring((ranks[:64],), 1 << 30), "reps"),
        "rings both ways": partial(_one, rail_fabric(16, 8), Ring((ranks, ranks[::-1]), 1 << 30), "rails"),
        "ring all-to-all": partial(_one, rail_fabric(16, 8), RingAllToAll((hops,), 1 << 20), "ecmp"),
        "point to point": partial(_one, rail_fabric(16, 8), PointToPoint(listed), "ecmp"),
        "fan": partial(_one, rail_fabric(16, 8), Fan(ranks, ranks, 100_000), "ecmp"),
        "training step": _training_step,
        "schedule": _schedule,
        "faults": _failing,
    }
    return every | others | _cases_of_papers()


def _cases_of_papers() -> dict[str, Callable[[], Experiment]]:
    """Return the jobs in files beside papers, any of which can be taken out, by the files' names."""
    found = {}
    for file in sorted(Path(__file__).parents[1].glob("_*/memory_case*.py")):
        paper, rest = file.parent.name[1:], file.stem.removeprefix("memory_case").replace("_", " ")
        found[f"{paper}{rest}"] = import_module(f"scenarios.{file.parent.name}.{file.stem}").case
    return found


def _all_to_all(fabric: Fabric, scheme: str) -> Experiment:
    return Experiment(fabric, single(uniform(fabric.gpus)), scheme)


def _in_turn(name: str, *nodes: str) -> Job:
    return chain(name, 64, tuple(Collective(node, AllToAll(uniform(64))) for node in nodes))


def _one(fabric: Fabric, pattern: Pattern, scheme: str) -> Experiment:
    return Experiment(fabric, Job("one", fabric.gpus, (Collective("one", pattern),)), scheme)


def _training_step() -> Experiment:
    fabric = rail_fabric(16, 8)
    return Experiment(fabric, with_rings(gpt_step(Layout(8, 16), layers=4), fabric, "per-rail"), "ecmp")


def _schedule() -> Experiment:
    fabric, demand = parallel_ocs_fabric(64, 4), ocs_demand("moe", 0, 64, 1e9)
    circuits = Scheduled("spectra", DELAY)
    return Experiment(fabric, over_ocses(demand, 4), WhileLitSetup(), circuits=circuits)


def _failing() -> Experiment:
    fault = cut("uplink", (Port("leaf0", 8),), "first", 2e-4, 1e-4)
    return Experiment(rail_fabric(8, 8), _in_turn("failing", "first", "second"), "ecmp", faults=(fault,))
