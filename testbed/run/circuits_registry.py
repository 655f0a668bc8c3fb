"""Rules for circuits by name, and as JSON: lightrail's own by a word, a user's own by its class."""

from collections.abc import Mapping
from typing import Protocol, cast

from pydantic import Field, ValidationError

from controller.circuits.rule import Rule
from testbed.run.dilation import Dilation
from topologies.errors import ScenarioError
from topologies.fabric import Fabric
from topologies.own import own_object
from topologies.own_value import Kind, check_hash, class_name, value_named, words_of_own, words_of_value
from topologies.strict_json import Strict, fields_document, first_of, shown, value_of_fields
from traffic.faults import Moves
from traffic.job import Job

RULES = {
    "scheduled": "testbed.run.ocs_plan:Scheduled",
    "foreseen": "controller.circuits.foreseen:Foreseen",
    "regional": "testbed.run.region_plan:RegionalSetup",
}
"""Every rule that comes with lightrail; imported when it is asked for, so that none is needed for another."""
CIRCUITS = Kind(
    "rule for circuits",
    "docs/own_circuits.md",
    methods=("bind",),
    values=(),
    parts="bind",
    error=ScenarioError,
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
    """A user's own rule: a frozen dataclass (docs/own_circuits.md)."""

    def bind(self, *, fabric: Fabric, job: Job, scale: Dilation, seed: int) -> Rule:
        """Return what the runner asks."""
        ...


class _Written(Strict):
    """A rule: its word or class, and its fields."""

    rule: str
    fields: dict[str, object] = Field(default_factory=dict)


def is_own(circuits: object) -> bool:
    """Return whether a rule is of a user's own class."""
    return class_name(type(circuits)) not in RULES.values()


def circuits_named(name: str, made_of: Mapping[str, object] | None = None) -> OwnCircuits:
    """Return a user's own rule; ScenarioError as of `value_named`."""
    return cast(OwnCircuits, value_named(CIRCUITS, name, made_of))


def check_value(circuits: object) -> None:
    """Raise ScenarioError for a rule without `bind`, or without a hash."""
    name = class_name(type(circuits))
    if not callable(getattr(circuits, "bind", None)):
        raise ScenarioError(f"{name!r} is not a rule for circuits: it has no bind", f"see {CIRCUITS.page}")
    check_hash(CIRCUITS.name, circuits)


def words_of(circuits: object) -> list[str]:
    """Return how tables name a rule; a user's own by its class, and the fields that are not as by default."""
    if not is_own(circuits):
        return cast(HasWords, circuits).words
    return words_of_own(circuits)


def undrawn(circuits: object) -> object:
    """Return what of a rule is the same for all seeds; of a user's own that is all of it."""
    return circuits if circuits is None or is_own(circuits) else cast(HasWords, circuits).undrawn


def own_names(circuits: object) -> list[str]:
    """Return the names of what of a rule is a user's own code: itself, or a scheduler that it names."""
    scheduler = getattr(circuits, "scheduler", "")
    named = [scheduler] if isinstance(scheduler, str) and ":" in scheduler else []
    return [*([class_name(type(circuits))] if is_own(circuits) else []), *named]


def circuits_document(circuits: object) -> dict[str, object]:
    """Return a rule as JSON has it; LightrailError if it cannot be written down, and read back."""
    if is_own(circuits):
        name, made_of = words_of_value(CIRCUITS, circuits)
        return {"rule": name, "fields": made_of}
    own = class_name(type(circuits))
    (word,) = (word for word, name in RULES.items() if name == own)
    return {"rule": word, "fields": fields_document(circuits)}


def circuits_of_document(data: object) -> object:
    """Return the rule that `circuits_document` wrote.

    Raises
    ------
    LightrailError
        If the data is something else, or what a user's own class makes of it is.
    """
    try:
        written = _Written.model_validate(data)
        if ":" in written.rule:
            return circuits_named(written.rule, written.fields)
        if written.rule not in RULES:
            raise ScenarioError(
                f"unknown rule for circuits {shown(written.rule)}", f"name {', '.join(RULES)} or module:Class"
            )
        own = own_object(CIRCUITS.name, RULES[written.rule])
        return value_of_fields(CIRCUITS.name, own, written.fields)
    except ValidationError as error:
        raise ScenarioError(f"the rule for circuits, {first_of(error)}", f"see {CIRCUITS.page}") from error
