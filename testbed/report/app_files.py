"""The files of a run of an application, written and read back; reading runs no code.

=============== ========================================================================================
file            what it holds
=============== ========================================================================================
app.json        format, and what an `AppRecord` has beside its fabric and tables
fabric.json     the fabric, as `--fabric` takes it
TABLE.parquet   links, traffic, flows, paths, light: the tables of `testbed.apps.app_record`
hosts.csv       payload from server to server, sent for the first time; a row per server that sends [bytes]
hosts_wire.csv  the same as IP lengths of all packets
matrix.csv      ``hosts.csv`` from GPU to GPU, as `--trace` takes it: `testbed.apps.phases.between_gpus`
phases/N.csv    the same of the phase of that number alone; of many phases those with the most bytes
job.json        the phases as a job, as `--job` takes it: `testbed.apps.phases.job_of_phases`
=============== ========================================================================================

Payload alone can be replayed: who replays adds headers of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_type_hints

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from testbed.apps.app_record import FLOWS, LIGHT, LINKS, PATHS, TRAFFIC, AppRecord, AppTables
from testbed.apps.phases import TrafficPhase, between_gpus, demand_of, job_of_phases, kept_phases
from testbed.machine.files import make_directory, read_whole, write_whole
from testbed.report.point_tables import rows_of, table_bytes
from topologies.errors import ScenarioError
from topologies.fabric import Fabric
from topologies.strict_json import first_of
from traffic.job_file import job_text
from traffic.tables import empty

FORMAT = 1
APP, FABRIC, JOB, MATRIX, PHASES = "app.json", "fabric.json", "job.json", "matrix.csv", "phases"
TABLES = {"links": LINKS, "traffic": TRAFFIC, "flows": FLOWS, "paths": PATHS, "light": LIGHT}
"""The tables of a record, and their columns."""
RUN = "application"
"""The name in the column that tells the runs of a table apart."""
EXACT = ConfigDict(extra="forbid", ser_json_inf_nan="strings")
APART = {"fabric", "tables", "demand"}
"""Fields of a record that are not in ``app.json`` as they are."""


@cache
def _head() -> type[BaseModel]:
    types = get_type_hints(AppRecord)
    own = {each.name: types[each.name] for each in fields(AppRecord) if each.name not in APART}
    more = {"format": Literal[FORMAT], "demand": list[list[int]] | None}
    columns: Any = {name: (kind, ...) for name, kind in {**own, **more}.items()}
    return create_model("AppRecord", __config__=EXACT, **columns)


def write_app(record: AppRecord, phases: Sequence[TrafficPhase], directory: Path) -> None:
    """Write the files of a run into its directory, which is there; MachineError if it cannot be."""
    found = {name: getattr(record, name) for name in _head().model_fields if hasattr(record, name)}
    found |= {"format": FORMAT, "demand": None if record.demand is None else record.demand.tolist()}
    write_whole(directory / APP, _head()(**found).model_dump_json(indent=1))
    write_whole(directory / FABRIC, record.fabric.to_json())
    for name, columns in TABLES.items():
        table = getattr(record.tables, name)
        write_whole(directory / f"{name}.parquet", table_bytes({RUN: table}, columns))
    payload, wire = demand_of(record.tables.traffic, len(record.fabric.servers))
    write_whole(directory / "hosts.csv", matrix_text(payload, "payload from server to server [bytes]"))
    write_whole(directory / "hosts_wire.csv", matrix_text(wire, "IP packets from server to server [bytes]"))
    _write_demands(record, phases, payload, directory)


def _write_demands(
    record: AppRecord, phases: Sequence[TrafficPhase], payload: NDArray[np.int64], directory: Path
) -> None:
    """Write what can be replayed; nothing where no payload was sent."""
    fabric, said = record.fabric, "payload from GPU to GPU, spread evenly over the GPUs of a server [bytes]"
    if not payload.any():
        return
    write_whole(directory / MATRIX, matrix_text(between_gpus(payload, fabric), said))
    job = job_of_phases(phases, fabric, Path(record.command[0]).name, int(payload.sum()))
    if job:
        write_whole(directory / JOB, job_text(job))
    make_directory(directory / PHASES)
    for place in kept_phases(phases, fabric):
        matrix = between_gpus(phases[place].payload_bytes, fabric)
        write_whole(directory / PHASES / f"{place + 1}.csv", matrix_text(matrix, said))


def matrix_text(matrix: NDArray[np.int64], said: str) -> str:
    """Return a matrix as CSV: what it is as a comment, then a row per line."""
    rows = "\n".join(",".join(map(str, row)) for row in matrix.tolist())
    return f"# {said}\n{rows}\n"


def read_app(directory: Path) -> AppRecord:
    """Return the record of a run in a directory.

    Raises
    ------
    ScenarioError
        If it holds none, or not as this version writes it.
    """
    try:
        files = {
            name: read_whole(directory / name) for name in (APP, FABRIC, *(f"{t}.parquet" for t in TABLES))
        }
    except OSError as error:
        said = f"{directory} holds no run of an application: {error.strerror}"
        raise ScenarioError(said, "give the results directory of one") from error
    try:
        head = dict(_head().model_validate_json(files[APP]))
    except ValidationError as error:
        raise ScenarioError(f"{directory / APP}, {first_of(error)}", "run it again") from error
    tables = {name: _table(files[f"{name}.parquet"], columns) for name, columns in TABLES.items()}
    demand = head.pop("demand")
    del head["format"]
    return AppRecord(
        fabric=Fabric.from_json(files[FABRIC].decode()),
        tables=AppTables(**tables),
        demand=None if demand is None else np.array(demand, dtype=np.int64),
        **head,
    )


def _table(data: bytes, columns: Mapping[str, str]) -> pd.DataFrame:
    return rows_of(data, columns, {RUN}).get(RUN, empty(columns))
