"""An experiment as JSON: what is written is checked when it is read, field by field."""

import json
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, PlainSerializer, PlainValidator, ValidationError

from testbed.run.dilation import Dilation
from testbed.run.ocs_plan import OcsSetup
from topologies.errors import FabricError, ScenarioError
from topologies.fabric import Fabric
from traffic.collective import Collective, Step
from traffic.demand import Demand


class _Step(BaseModel):
    """One all-to-all, and the compute that follows it."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)
    name: str
    note: str
    matrix: list[list[int]]
    compute_s: float


class _Collective(BaseModel):
    """Steps one after the other."""

    model_config = ConfigDict(extra="forbid")
    name: str
    note: str
    idle: int
    steps: list[_Step]


def _fabric(data: object) -> Fabric:
    try:
        return data if isinstance(data, Fabric) else Fabric.from_json(json.dumps(data))
    except FabricError as error:
        raise ValueError(str(error)) from error


def _fabric_data(fabric: Fabric) -> object:
    data: object = json.loads(fabric.to_json())
    return data


def _collective(data: object) -> Collective:
    if isinstance(data, Collective):
        return data
    read = _Collective.model_validate(data)
    steps = [Step(Demand(step.name, np.array(step.matrix), step.note), step.compute_s) for step in read.steps]
    return Collective(read.name, tuple(steps), read.note, read.idle)


def _collective_data(collective: Collective) -> dict[str, object]:
    steps = [
        {
            "name": step.demand.name,
            "note": step.demand.note,
            "matrix": step.demand.matrix.tolist(),
            "compute_s": step.compute_s,
        }
        for step in collective.steps
    ]
    return {"name": collective.name, "note": collective.note, "idle": collective.idle, "steps": steps}


class ExperimentRecord(BaseModel):
    """The fields of an experiment (`testbed.run.experiment`)."""

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)
    format: Literal[2] = 2
    fabric: Annotated[Fabric, PlainValidator(_fabric), PlainSerializer(_fabric_data)]
    collective: Annotated[Collective, PlainValidator(_collective), PlainSerializer(_collective_data)]
    policy: str
    dilation: Dilation
    seed: int
    chunk_bytes: int
    ocs: OcsSetup | None


def experiment_record(text: str) -> ExperimentRecord:
    """Return what a text says; ScenarioError if it is no experiment of this format."""
    try:
        return ExperimentRecord.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ScenarioError(
            f"the text is no experiment: {where + ': ' if where else ''}{first['msg']}",
            "take it from a run.json",
        ) from error
