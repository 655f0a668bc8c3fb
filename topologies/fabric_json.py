"""The JSON of a fabric: which keys it has, and of which types; what can be wired is `topologies.fabric`'s."""

from typing import Annotated, Literal

from pydantic import Field, ValidationError

from topologies.errors import FabricError, TraceError
from topologies.strict_json import Strict, first_of, json_value

FORMAT_VERSION = 1

_Port = Annotated[tuple[str, int], Field(strict=False)]  # a list in JSON


class _Server(Strict):
    name: str
    nics: int
    gpus: int
    nvlink_bps: float
    slots: list[int] = Field(default_factory=list)


class _Switch(Strict):
    name: str
    ports: int
    kind: Literal["packet", "ocs"]
    tier: int
    permitted: list[list[int]] = Field(default_factory=list)


class _Link(Strict):
    a: _Port
    b: _Port
    rate_bps: float
    delay_s: float = 0.0
    loss: float = 0.0


class FabricModel(Strict):
    """A fabric as its JSON says it; what came later than the first files has a default."""

    format: Literal[1]
    name: str
    servers: list[_Server]
    switches: list[_Switch]
    links: list[_Link]
    buffer_bytes: int
    servers_forward: bool = False


def fabric_model(text: str) -> FabricModel:
    """Return what a text says of a fabric; FabricError, with the place, if it is something else."""
    try:
        return FabricModel.model_validate(json_value(text))
    except TraceError as error:
        raise _refused(error.sentence) from error
    except ValidationError as error:
        raise _refused(first_of(error)) from error


def _refused(why: str) -> FabricError:
    hint = "write it with Fabric.to_json of this version"
    return FabricError(f"the text is not a valid fabric: {why}", hint)
