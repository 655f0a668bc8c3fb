"""Which experiments repeat each other but for their seeds, so that tables may take means over them.

Tables call an experiment by workload, scheme and transport, and take those of one name for its seeds. So
experiments of one name have to be one experiment. Which job a seed draws is not known here: what is compared
of two seeds' jobs is what a draw leaves alone.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from testbed.experiment.circuits_registry import undrawn
from testbed.experiment.experiment import Experiment
from topologies.errors import ScenarioError
from traffic.faults import When
from traffic.job import Compute, Job

ALIKE = ("fabric", "scheme", "routing", "chunk_bytes", "transport", "mtu")
"""What of an experiment no seed changes."""
DRAWN = ("job", "dilation", "faults", "circuits", "revisions")
"""What may be drawn from the seed, or follow from a job that is: its scale, and shares of its time."""
TWICE = 2.0
"""How many times the bytes or the compute of another draw are too many: workloads here have at most 1.6."""


def check_named_apart(experiments: Iterable[Experiment]) -> None:
    """Check that experiments of one workload, scheme and transport are one experiment with several seeds.

    Raises
    ------
    ScenarioError
        If tables would take the mean over two different experiments.
    """
    named = defaultdict[tuple[str, str, str], dict[int, Experiment]](dict)
    for each in experiments:
        name = each.job.name, each.name, each.transport_name
        seeds = named[name]
        first = next(iter(seeds.values()), each)
        if differ := differing(seeds.setdefault(each.seed, each), each) or differing(first, each):
            raise ScenarioError(
                f"two different experiments are both called {', '.join(name)!r}, and differ in "
                f"{' and '.join(differ)}",
                "give a label (`Experiment(label=...)`), or another name, to one of them",
            )


def differing(one: Experiment, other: Experiment) -> list[str]:
    """Return in what two experiments differ that are more than two seeds of one; nothing if they are not."""
    found = [name for name in ALIKE if getattr(one, name) != getattr(other, name)]
    if one.seed == other.seed:
        found += [name for name in DRAWN if getattr(one, name) != getattr(other, name)]
    else:
        found += [name for name, left in LEFT_ALONE.items() if left(one) != left(other)]
        if "job" not in found and not _is_as_much(one.job, other.job):
            found.append("how much their jobs send or compute")
    return [_shown(name, one, other) for name in found]


def _shape(experiment: Experiment) -> object:
    """Return the graph of a job, and what its nodes are: not who sends what, or how long a GPU computes."""
    job = experiment.job
    kinds = [
        (node.name, node.after, "compute" if isinstance(node, Compute) else node.pattern.name)
        for node in job.nodes
    ]
    return job.gpus, kinds


def _failing(experiment: Experiment) -> object:
    """Return what fails, and not when."""
    return [
        replace(fault, when=When(fault.when.node, lasts_s=None if fault.when.lasts_s is None else 1.0))
        for fault in experiment.faults
    ]


def _revised(experiment: Experiment) -> object:
    """Return by what a job is revised, and not what that adds to it."""
    return [(known.fault, known.cancel, known.moves) for known in experiment.revisions.known]


LEFT_ALONE: Mapping[str, Callable[[Experiment], object]] = {
    "job": _shape,
    "faults": _failing,
    "circuits": lambda experiment: undrawn(experiment.circuits),
    "revisions": _revised,
}
"""What another seed leaves alone of what is drawn; of the scale it leaves nothing."""


def _is_as_much(one: Job, other: Job) -> bool:
    if one == other:
        return True
    pairs = zip(_amounts(one), _amounts(other), strict=True)
    return all(a == b or max(a, b) < TWICE * min(a, b) for a, b in pairs)


def _amounts(job: Job) -> tuple[float, float]:
    """Return what all GPUs of a job send [bytes], and how long they compute without jitter [GPU s]."""
    computes = [node for node in job.nodes if isinstance(node, Compute)]
    return (
        sum(float(node.pattern.lower(coupled=True).moves.bytes.sum()) for node in job.collectives),
        sum(node.duration_s * len(node.gpus) for node in computes),
    )


def _shown(name: str, one: Experiment, other: Experiment) -> str:
    """Return the name of a difference, with the two values where they are short."""
    values = getattr(one, name, None), getattr(other, name, None)
    is_short = all(isinstance(value, str | int) for value in values)
    return f"{name} ({values[0]} and {values[1]})" if is_short else name
