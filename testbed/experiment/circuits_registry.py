"""Rules for circuits by name, and as JSON: lightrail's own by a word, a user's own by its class."""

from collections.abc import Mapping
from typing import Protocol, cast

from controller.circuits.rule import Rule
from testbed.experiment.dilation import Dilation
from topologies.errors import ScenarioError
from topologies.fabric import Fabric
from topologies.own_value import Kind, check_hash, class_name, words_of_own
from traffic.faults import Moves
from traffic.job import Job

RULES = {
    "scheduled": "testbed.experiment.ocs_plan:Scheduled",
    "foreseen": "controller.circuits.foreseen:Foreseen",
    "regional": "scenarios._mfabric.region_plan:RegionalSetup",
}
"""Every rule that comes with lightrail; imported when it is asked for, so that none is needed for another."""
CIRCUITS: "Kind[OwnCircuits]" = Kind(
    "rule for circuits",
    "docs/howto/own_circuits.md",
    methods=("bind",),
    values=(),
    parts="bind",
    error=ScenarioError,
    word="rule",
    built_in=RULES,
)


class HasWords(Protocol):
    """A rule of lightrail's."""

    @property
    def words(self) -> list[str]:
        """How tables name it."""
        ...

    @property
    def undrawn(self) -> object:
        """What of it is the same for all seeds."""
        ...


class CircuitsRule(HasWords, Protocol):
    """Which circuits are lit when, as an experiment has it: a frozen value."""

    def bind(
        self, fabric: Fabric, job: Job, scale: Dilation, seed: int, moves: Mapping[str, Moves], /
    ) -> Rule:
        """Return what the runner asks; ``moves`` are the GPUs that change places by each fault."""
        ...


class OwnCircuits(Protocol):
    """A user's own rule: a frozen dataclass (docs/howto/own_circuits.md)."""

    def bind(self, *, fabric: Fabric, job: Job, scale: Dilation, seed: int) -> Rule:
        """Return what the runner asks."""
        ...


def check_value(circuits: object) -> None:
    """Raise ScenarioError for a rule without `bind`, or without a hash."""
    name = class_name(type(circuits))
    if not callable(getattr(circuits, "bind", None)):
        raise ScenarioError(f"{name!r} is not a rule for circuits: it has no bind", f"see {CIRCUITS.page}")
    check_hash(CIRCUITS.name, circuits)


def words_of(circuits: object) -> list[str]:
    """Return how tables name a rule; a user's own by its class, and the fields that are not as by default."""
    if not CIRCUITS.is_own(circuits):
        return cast(HasWords, circuits).words
    return words_of_own(circuits)


def undrawn(circuits: object) -> object:
    """Return what of a rule is the same for all seeds; of a user's own that is all of it."""
    return circuits if circuits is None or CIRCUITS.is_own(circuits) else cast(HasWords, circuits).undrawn


def own_names(circuits: object) -> list[str]:
    """Return the names of what of a rule is a user's own code: itself, or a scheduler that it names."""
    scheduler = getattr(circuits, "scheduler", "")
    named = [scheduler] if isinstance(scheduler, str) and ":" in scheduler else []
    return [*([class_name(type(circuits))] if CIRCUITS.is_own(circuits) else []), *named]
