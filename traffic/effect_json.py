"""Effects as JSON: lightrail's own by a word and their fields, a user's own by its class and its fields."""

from collections.abc import Iterable, Mapping
from typing import cast

from pydantic import BaseModel, ConfigDict, ValidationError

from topologies.errors import ScenarioError
from topologies.fabric import Port
from topologies.own_value import Kind, class_name
from topologies.strict_json import first_of, shown
from traffic.effects import (
    BUILT_IN,
    PAGE,
    Down,
    Effect,
    Gone,
    Killed,
    Lossy,
    Slow,
    check_effect,
    is_own,
)


def _with_ports(fields: Mapping[str, object]) -> Mapping[str, object]:
    """Return fields with ports where they have pairs of a node and a number."""
    pairs = fields.get("ports")
    if not isinstance(pairs, tuple):
        return fields
    return {**fields, "ports": tuple(Port(*pair) if isinstance(pair, tuple) else pair for pair in pairs)}


EFFECT: Kind[Effect] = Kind(
    "effect",
    PAGE,
    methods=("on",),
    values=(),
    parts="one of ports, gpus and daemon, and on",
    error=ScenarioError,
    word="effect",
    arguments=_with_ports,
)


class _BuiltIn(BaseModel):
    """One of lightrail's own effects, which take these settings too."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)
    down: Down | None = None
    slow: Slow | None = None
    lossy: Lossy | None = None
    gone: Gone | None = None
    killed: Killed | None = None


def effect_document(effect: Effect) -> dict[str, object]:
    """Return an effect as JSON has it; LightrailError if it cannot be written down, and read back."""
    if is_own(effect):
        written = EFFECT.document(effect)
        check_effect(effect_of_document(written))
        return written
    (name,) = (name for name, kind in BUILT_IN.items() if type(effect) is kind)
    return {"effect": name, **vars(effect)}


def effect_of_document(data: object) -> Effect:
    """Return the effect that `effect_document` wrote.

    Raises
    ------
    LightrailError
        If the data is something else, or what a user's own class makes of it is.
    """
    if not isinstance(data, dict) or not isinstance(name := data.get("effect"), str):
        raise ScenarioError(f"{shown(data)} is not an effect", f"see {PAGE}")
    try:
        if name in BUILT_IN:
            fields = {key: value for key, value in data.items() if key != "effect"}
            return cast(Effect, getattr(_BuiltIn.model_validate({name: fields}), name))
    except ValidationError as error:
        raise ScenarioError(f"the effect {shown(name)}, {first_of(error)}", f"see {PAGE}") from error
    if ":" not in name:
        raise ScenarioError(f"unknown effect {shown(name)}", f"name {', '.join(BUILT_IN)} or module:Class")
    return EFFECT.of_document(data)


def own_effects(effects: Iterable[Effect]) -> list[str]:
    """Return the classes of effects of the user's own, as ``module:Class``, each once."""
    return list(dict.fromkeys(class_name(type(effect)) for effect in effects if is_own(effect)))
