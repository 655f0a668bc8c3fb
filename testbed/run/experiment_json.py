"""An experiment as JSON: what is written is checked when it is read, field by field."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    PlainSerializer,
    PlainValidator,
    StrictBool,
    TypeAdapter,
    ValidationError,
)
from pydantic_core import PydanticSerializationError

from testbed.run.circuits_registry import CIRCUITS
from testbed.run.dilation import Dilation
from topologies.errors import FabricError, LightrailError, ScenarioError, TraceError
from topologies.fabric import Fabric
from topologies.own_routing import ROUTING
from traffic.effect_json import effect_document, effect_of_document
from traffic.faults import AS_IT_WAS, Fault, KnownRevision, Moves, Revisions, When
from traffic.job import Job
from traffic.job_file import job_document, job_of_document
from traffic.packets import DEFAULT_MTU
from traffic.scheme_setup import SCHEME, SchemeSetup
from traffic.transports.host_settings import TransportSetup


def _fabric(data: object) -> Fabric:
    try:
        return data if isinstance(data, Fabric) else Fabric.from_json(json.dumps(data))
    except FabricError as error:
        raise ValueError(str(error)) from error


def _fabric_data(fabric: Fabric) -> object:
    data: object = json.loads(fabric.to_json())
    return data


def _job(data: object) -> Job:
    try:
        return data if isinstance(data, Job) else job_of_document(data, "job")
    except TraceError as error:
        raise ValueError(str(error)) from error


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
    records = TypeAdapter(list[_RevisionRecord]).validate_python(data)
    return Revisions(
        tuple(
            KnownRevision(r.fault, r.cancel, None if r.add is None else _job(r.add), r.moves) for r in records
        )
    )


def _revisions_data(revisions: Revisions) -> object:
    return [
        {
            "fault": each.fault,
            "cancel": each.cancel,
            "add": each.add and job_document(each.add),
            "moves": each.moves,
        }
        for each in revisions.known
    ]


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
    records = TypeAdapter(list[_FaultRecord]).validate_python(data)
    return tuple(
        Fault(r.name, tuple(map(effect_of_document, r.effects)), r.when, r.detect_s) for r in records
    )


def _faults_data(faults: Sequence[Fault]) -> object:
    return [
        {
            "name": fault.name,
            "effects": list(map(effect_document, fault.effects)),
            "when": asdict(fault.when),
            "detect_s": fault.detect_s,
        }
        for fault in faults
    ]


def _part(of_document: Callable[[object], object]) -> PlainValidator:
    """Return what reads a part of an experiment that JSON has as an object."""

    def read(data: object) -> object:
        if not isinstance(data, dict):
            return data
        try:
            return of_document(data)
        except LightrailError as error:
            raise ValueError(error.sentence) from error

    return PlainValidator(read)


def _circuits_data(circuits: object) -> object:
    return circuits and CIRCUITS.document(circuits)


def _scheme_data(scheme: object) -> object:
    return SCHEME.document(scheme) if isinstance(scheme, SchemeSetup) else scheme


def _routing_data(routing: object) -> object:
    return routing and ROUTING.document(routing)


class ExperimentRecord(BaseModel):
    """The fields of an experiment (`testbed.run.experiment`)."""

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)
    format: Literal[6] = 6
    fabric: Annotated[Fabric, PlainValidator(_fabric), PlainSerializer(_fabric_data)]
    job: Annotated[Job, PlainValidator(_job), PlainSerializer(job_document)]
    scheme: Annotated[object, _part(SCHEME.of_document), PlainSerializer(_scheme_data)]
    dilation: Dilation
    seed: int
    chunk_bytes: int
    label: str
    transport: TransportSetup
    mtu: int = DEFAULT_MTU
    faults: Annotated[tuple[Fault, ...], PlainValidator(_faults), PlainSerializer(_faults_data)] = ()
    circuits: Annotated[object, _part(CIRCUITS.of_document), PlainSerializer(_circuits_data)] = None
    revisions: Annotated[Revisions, PlainValidator(_revisions), PlainSerializer(_revisions_data)] = AS_IT_WAS
    routing: Annotated[object, _part(ROUTING.of_document), PlainSerializer(_routing_data)] = None
    shared_queue_pairs: StrictBool = False


def record_json(record: ExperimentRecord) -> str:
    """Return a record as JSON; LightrailError where a job or an effect of it has no words."""
    try:
        return record.model_dump_json()
    except PydanticSerializationError as error:
        # It has the text of the error and not the error, which is raised here as what it is.
        if KeyboardInterrupt.__name__ in str(error):
            raise KeyboardInterrupt from error
        job_document(record.job)
        _revisions_data(record.revisions)
        _faults_data(record.faults)
        _circuits_data(record.circuits)
        _routing_data(record.routing)
        raise


def experiment_record(text: str) -> ExperimentRecord:
    """Return what a text says; ScenarioError if it is no experiment of this format."""
    with _refusal():
        return ExperimentRecord.model_validate_json(text)


def experiment_of_document(document: Mapping[str, object]) -> ExperimentRecord:
    """Return what a document says, whose parts may be values; errors as of `experiment_record`."""
    with _refusal():
        return ExperimentRecord.model_validate(document)


@contextmanager
def _refusal() -> Iterator[None]:
    try:
        yield
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ScenarioError(
            f"the text is not a valid experiment: {where + ': ' if where else ''}{first['msg']}",
            "take it from a run.json",
        ) from error
