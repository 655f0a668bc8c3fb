"""An experiment as JSON: what is written is checked when it is read, field by field."""

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    PlainValidator,
    StrictBool,
    StrictInt,
    StrictStr,
    TypeAdapter,
    ValidationError,
)
from pydantic_core import to_json

from controller.packet.flow_table import Hashing
from testbed.experiment.circuits_registry import CIRCUITS
from testbed.experiment.dilation import Dilation
from topologies.errors import FabricError, LightrailError, ScenarioError, TraceError
from topologies.fabric import Fabric
from topologies.own_routing import ROUTING
from topologies.own_value import Kind
from topologies.strict_json import first_of
from traffic.effect_json import effect_document, effect_of_document
from traffic.faults import AS_IT_WAS, Fault, KnownRevision, Moves, Revisions, When
from traffic.job import Job
from traffic.job_file import job_document, job_of_document
from traffic.packets import DEFAULT_MTU
from traffic.scheme_setup import SCHEME
from traffic.transports.host_settings import TransportSetup

FORMAT: Literal[6] = 6
Read = TypeVar("Read")
KINDS: Mapping[str, Kind[Any]] = {"scheme": SCHEME, "circuits": CIRCUITS, "routing": ROUTING}
"""The parts that JSON has as an object, by their class and its fields, if they are neither text nor None."""


def _fabric(data: object) -> Fabric:
    try:
        return data if isinstance(data, Fabric) else Fabric.from_json(json.dumps(data))
    except FabricError as error:
        raise ValueError(str(error)) from error


def _job(data: object) -> Job:
    try:
        return data if isinstance(data, Job) else job_of_document(data, "job")
    except TraceError as error:
        raise ValueError(str(error)) from error


def _exact(kind: type[Read], data: object) -> Read:
    """Return the value of a type that JSON holds, whose numbers are no texts."""
    try:
        return TypeAdapter(kind).validate_json(json.dumps(data), strict=True)
    except ValidationError as error:
        raise ValueError(first_of(error)) from error


def _of_fields(kind: type[Any]) -> PlainValidator:
    """Return the validator of a value of a class, or of its fields as JSON has them."""
    return PlainValidator(lambda data: data if isinstance(data, kind) else _exact(kind, data))


class _RevisionRecord(BaseModel):
    """The fields of `traffic.faults.KnownRevision`; what it adds is a job, or nothing."""

    model_config = ConfigDict(extra="forbid")
    fault: str
    cancel: tuple[str, ...]
    add: object
    moves: Moves = ()


def _revisions(data: object) -> Revisions:
    if isinstance(data, Revisions):
        return data
    records = _exact(list[_RevisionRecord], data)
    return Revisions(
        tuple(
            KnownRevision(r.fault, r.cancel, None if r.add is None else _job(r.add), r.moves) for r in records
        )
    )


class _FaultRecord(BaseModel):
    """The fields of `traffic.faults.Fault`."""

    model_config = ConfigDict(extra="forbid")
    name: str
    effects: list[object]
    when: When
    detect_s: float


def _faults(data: object) -> tuple[Fault, ...]:
    if isinstance(data, tuple):
        return data
    records = _exact(list[_FaultRecord], data)
    return tuple(
        Fault(r.name, tuple(map(effect_of_document, r.effects)), r.when, r.detect_s) for r in records
    )


def _part(kind: Kind[Any]) -> PlainValidator:
    """Return what reads a part of an experiment that JSON has as an object."""

    def read(data: object) -> object:
        if not isinstance(data, dict):
            return data
        try:
            return kind.of_document(data)
        except LightrailError as error:
            raise ValueError(error.sentence) from error

    return PlainValidator(read)


class _ExperimentRecord(BaseModel):
    """The fields of an experiment (`testbed.experiment.experiment`)."""

    model_config = ConfigDict(extra="forbid")
    format: Literal[6] = FORMAT
    fabric: Annotated[object, PlainValidator(_fabric)]
    job: Annotated[object, PlainValidator(_job)]
    scheme: Annotated[object, _part(SCHEME)]
    dilation: Annotated[Dilation, _of_fields(Dilation)]
    seed: StrictInt
    chunk_bytes: StrictInt
    label: StrictStr
    transport: Annotated[TransportSetup, _of_fields(TransportSetup)]
    mtu: StrictInt = DEFAULT_MTU
    faults: Annotated[object, PlainValidator(_faults)] = ()
    circuits: Annotated[object, _part(CIRCUITS)] = None
    revisions: Annotated[object, PlainValidator(_revisions)] = AS_IT_WAS
    routing: Annotated[object, _part(ROUTING)] = None
    shared_queue_pairs: StrictBool = False
    hashing: Hashing = "openvswitch"


def fields_of(value: Any) -> dict[str, Any]:  # noqa: ANN401 (of any dataclass)
    """Return the fields of a dataclass by name, as they are."""
    return {field.name: getattr(value, field.name) for field in fields(value)}


def text_of(parts: Mapping[str, Any]) -> str:
    """Return the fields of an experiment as JSON; LightrailError where one of them has no words."""
    own = {
        name: kind.document(parts[name])
        for name, kind in KINDS.items()
        if not isinstance(parts[name], str | None)
    }
    written = {
        "fabric": json.loads(parts["fabric"].to_json()),
        "job": job_document(parts["job"]),
        "faults": [
            fields_of(fault) | {"effects": list(map(effect_document, fault.effects))}
            for fault in parts["faults"]
        ],
        "revisions": [
            fields_of(each) | {"add": each.add and job_document(each.add)}
            for each in parts["revisions"].known
        ],
    }
    return to_json({"format": FORMAT, **parts, **own, **written}, inf_nan_mode="null").decode()


def parts_of(written: str | Mapping[str, object]) -> dict[str, Any]:
    """Return the fields of an experiment that a text says, or a document, whose parts may be values.

    Raises
    ------
    ScenarioError
        If it is no experiment of this format.
    """
    try:
        if isinstance(written, str):
            record = _ExperimentRecord.model_validate_json(written)
        else:
            record = _ExperimentRecord.model_validate(written)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ScenarioError(
            f"the text is not a valid experiment: {where + ': ' if where else ''}"
            f"{first['msg'].removeprefix('Value error, ')}",
            "take it from a run.json",
        ) from error
    return {name: part for name, part in record if name != "format"}
