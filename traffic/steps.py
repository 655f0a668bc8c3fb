"""Jobs of one all-to-all, or of several one after the other: what workloads and readers of traces give."""

from collections.abc import Sequence
from dataclasses import dataclass

from topologies.errors import DemandError
from traffic.collectives.all_to_all import AllToAll
from traffic.demand import Demand
from traffic.job import Collective, Compute, Job, Node, chain


@dataclass(frozen=True)
class Step:
    """One all-to-all, and the compute that follows it."""

    demand: Demand
    compute_s: float = 0.0
    """How long all GPUs compute after the last byte arrived, before the next step [s]."""


def job_of_steps(name: str, steps: Sequence[Step], note: str = "") -> Job:
    """Return steps as a job: a node per all-to-all, and one for the compute after it where there is some.

    Parameters
    ----------
    name, note
        Of the job: the workload's name as tables show it, and where it comes from.
    steps
        Each starts when the one before it and its compute have ended.

    Raises
    ------
    DemandError
        If there is no step, or two steps are between different numbers of GPUs.
    """
    sizes = {step.demand.gpus for step in steps}
    if len(sizes) != 1:
        raise DemandError(
            f"job {name!r} has steps between {sorted(sizes) or 'no'} GPUs",
            "give it one or more steps between the same GPUs",
        )
    (gpus,) = sizes
    nodes: list[Node] = []
    for number, step in enumerate(steps):
        nodes.append(Collective(f"step {number}", AllToAll(step.demand)))
        if step.compute_s:
            nodes.append(Compute(f"compute {number}", tuple(range(gpus)), step.compute_s))
    return chain(name, gpus, tuple(nodes), note)


def single(demand: Demand) -> Job:
    """Return the job that is one all-to-all, named as its demand."""
    return job_of_steps(demand.name, (Step(demand),), demand.note)


def demands_of(job: Job) -> list[Demand]:
    """Return the demands of a job's all-to-alls, in job order."""
    patterns = [node.pattern for node in job.collectives]
    return [pattern.demand for pattern in patterns if isinstance(pattern, AllToAll)]
