"""A collective: all-to-alls one after the other, with compute between them."""

from dataclasses import dataclass

from topologies.errors import DemandError
from traffic.collectives.all_to_all import AllToAll
from traffic.demand import Demand
from traffic.job import Collective as AllToAllNode
from traffic.job import Compute, Job, Node, chain


@dataclass(frozen=True)
class Step:
    """One all-to-all, and the compute that follows it."""

    demand: Demand
    compute_s: float = 0.0
    """How long the GPUs compute after the last byte arrived, before the next step [s]."""


@dataclass(frozen=True)
class Collective:
    """Steps, each started when the one before it and its compute have ended.

    Raises
    ------
    DemandError
        If there is no step, two steps are between different numbers of GPUs, or all GPUs idle.
    """

    name: str
    """What the collective is: the workload's name as tables show it."""
    steps: tuple[Step, ...]
    note: str = ""
    """Where it comes from; a synthetic one says so here."""
    idle: int = 0
    """How many of the GPUs, the last, take no part: where a trace is smaller than its fabric."""

    def __post_init__(self) -> None:
        """Check that the steps belong together."""
        sizes = {step.demand.gpus for step in self.steps}
        if len(sizes) != 1:
            raise DemandError(
                f"collective {self.name!r} has steps between {sorted(sizes) or 'no'} GPUs",
                "give it one or more steps between the same GPUs",
            )
        if not 0 <= self.idle < self.gpus:
            raise DemandError(
                f"collective {self.name!r} has {self.idle} idle GPUs of {self.gpus}", "leave one at work"
            )

    @property
    def gpus(self) -> int:
        """How many GPUs it is between, those that idle among them."""
        return self.steps[0].demand.gpus

    @property
    def ranks(self) -> int:
        """How many GPUs take part."""
        return self.gpus - self.idle


def single(demand: Demand) -> Collective:
    """Return the collective that is one all-to-all."""
    return Collective(demand.name, (Step(demand),), demand.note)


def job_of(collective: Collective) -> Job:
    """Return a collective as a job: a node per step, and one for the compute after it where there is some."""
    nodes: list[Node] = []
    for number, step in enumerate(collective.steps):
        nodes.append(AllToAllNode(f"step {number}", AllToAll(step.demand)))
        if step.compute_s:
            nodes.append(Compute(f"compute {number}", tuple(range(collective.gpus)), step.compute_s))
    return chain(collective.name, collective.gpus, tuple(nodes), collective.note)
