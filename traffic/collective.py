"""A collective: all-to-alls one after the other, with compute between them."""

from dataclasses import dataclass

from topologies.errors import DemandError
from traffic.demand import Demand


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
        If there is no step, or two steps are between different numbers of GPUs.
    """

    name: str
    """What the collective is: the workload's name as tables show it."""
    steps: tuple[Step, ...]
    note: str = ""
    """Where it comes from; a synthetic one says so here."""

    def __post_init__(self) -> None:
        """Check that the steps belong together."""
        sizes = {step.demand.gpus for step in self.steps}
        if len(sizes) != 1:
            raise DemandError(
                f"collective {self.name!r} has steps between {sorted(sizes) or 'no'} GPUs",
                "give it one or more steps between the same GPUs",
            )

    @property
    def gpus(self) -> int:
        """How many GPUs take part."""
        return self.steps[0].demand.gpus


def single(demand: Demand) -> Collective:
    """Return the collective that is one all-to-all."""
    return Collective(demand.name, (Step(demand),), demand.note)
