"""The file of a point: a zip archive of JSON and Parquet, which other programs open too.

================ ==========================================================================================
member           what it holds
================ ==========================================================================================
point.json       format, key of the experiment, and what an `Outcome` has beside experiment and tables
names.json       of each run what the numbers in its tables stand for: nodes, paths, lanes, ports, OCSes
TABLE.parquet    a table of `traffic.tables`: of all runs, whose names are a column; absent without rows
carried.parquet  what circuits carried (`testbed.trust.carried`), where that was seen
================ ==========================================================================================

The checksum of `testbed.report.checksums` is the archive's comment. What is read is checked against what this
version writes: each member's keys, columns and types, and that every number stands for something.
"""

from collections.abc import Callable, Mapping, Set
from dataclasses import fields
from functools import cache
from io import BytesIO
from types import MappingProxyType
from typing import Any, Literal, TypeVar, get_args, get_type_hints
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

import pandas as pd
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, create_model

from testbed.audit.finding import Audit
from testbed.core.run import Run
from testbed.experiment.experiment import Experiment
from testbed.live.light_log import LightLog
from testbed.report.checksums import content_of, with_checksum
from testbed.report.point_tables import TABLES, Names, names_of, rows_of, table_bytes, tables_of
from testbed.trust.carried import COLUMNS
from testbed.trust.outcome import Outcome
from topologies.errors import ScenarioError
from topologies.fabric import Port
from topologies.strict_json import first_of
from traffic.tables import Tables, empty

Read = TypeVar("Read")
FORMAT = 2
HEAD, NAMES, CARRIED = "point.json", "names.json", "carried.parquet"
RunName = Literal["emulated", "predicted", "free"]
KNOWN = ("cct_s", "predicted_s", "free_s", "bound_s")
"""Properties of an outcome that are kept beside it, since they need its tables."""
MOST_BYTES = 1 << 28
"""Of JSON that is packed; what is not packed is no larger than its file."""
EXACT = ConfigDict(extra="forbid", ser_json_inf_nan="strings")


@cache
def _names() -> TypeAdapter[dict[str, Names]]:
    return TypeAdapter(dict[str, Names])


@cache
def _light() -> type[BaseModel]:
    return _model(LightLog, {"experiment"}, {})


@cache
def _head() -> type[BaseModel]:
    """Return the model of ``point.json``: the fields of an outcome, but for those that are kept otherwise."""
    more = {
        "format": Literal[FORMAT],
        "experiment": str,
        "audits": dict[RunName, Audit | None],
        "light": _light() | None,
        "lent_bytes": tuple[tuple[Port, float], ...],
        **dict.fromkeys(KNOWN, float),
    }
    return _model(Outcome, {*get_args(RunName), "experiment", "light", "lent_bytes", "wire"}, more)


def _model(kind: type[Outcome | LightLog], without: Set[str], more: Mapping[str, object]) -> type[BaseModel]:
    types = get_type_hints(kind)
    own = {each.name: types[each.name] for each in fields(kind) if each.name not in without}
    columns: Any = {name: (of, ...) for name, of in {**own, **more}.items()}
    return create_model(kind.__name__, __config__=EXACT, **columns)


def point_bytes(outcome: Outcome) -> bytes:
    """Return the file of an outcome."""
    runs = {name: run.tables for name, run in outcome.all_runs.items()}
    members = {NAMES: _names().dump_json({name: names_of(tables) for name, tables in runs.items()})}
    for table, columns in TABLES.items():
        found = {name: rows for name, tables in runs.items() if len(rows := getattr(tables, table))}
        if found:
            members[f"{table}.parquet"] = table_bytes(found, columns)
    if outcome.wire is not None:
        members[CARRIED] = table_bytes({"emulated": outcome.wire}, COLUMNS)
    return _archive({HEAD: _head_bytes(outcome), **members}, outcome.experiment.key)


def with_head_of(data: bytes, outcome: Outcome) -> bytes:
    """Return the file of a point with what is known now beside its tables."""
    with ZipFile(BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    return _archive({**members, HEAD: _head_bytes(outcome)}, outcome.experiment.key)


def _archive(members: Mapping[str, bytes], key: str) -> bytes:
    out, place = BytesIO(), with_checksum(b"", key)
    with ZipFile(out, "w") as archive:
        for name, content in members.items():  # all of one date, so that equal points are equal files
            packed = ZIP_DEFLATED if name == NAMES else ZIP_STORED
            archive.writestr(ZipInfo(name), content, packed, compresslevel=1)
        archive.comment = place
    return with_checksum(out.getvalue()[: -len(place)], key)


def _head_bytes(outcome: Outcome) -> bytes:
    known: dict[str, object] = {
        "format": FORMAT,
        "experiment": outcome.experiment.key,
        "audits": {name: run.audit for name, run in outcome.all_runs.items()},
        "light": outcome.light and _fields_of(outcome.light, _light()),
        "lent_bytes": tuple(outcome.lent_bytes.items()),
    }
    return _fields_of(outcome, _head(), known).model_dump_json().encode()


def _fields_of(
    value: object, model: type[BaseModel], known: Mapping[str, object] = MappingProxyType({})
) -> BaseModel:
    """Return the fields of a model, of a value but for those that are known already."""
    found = {name: known[name] if name in known else getattr(value, name) for name in model.model_fields}
    return model(**found)


class PointFile:
    """The file of a point as it is read.

    Parameters
    ----------
    data
        Its bytes.
    experiment
        Whose it is.

    Raises
    ------
    ScenarioError
        If it is not what was written for that experiment.
    """

    def __init__(self, data: bytes, experiment: Experiment) -> None:
        content_of(data, experiment.key)
        self._archive, self._experiment = ZipFile(BytesIO(data)), experiment
        self._members = self._archive.namelist()
        known = {HEAD, NAMES, CARRIED, *(f"{name}.parquet" for name in TABLES)}
        if not known.issuperset(self._members) or len(set(self._members)) < len(self._members):
            raise ScenarioError(f"it holds {', '.join(self._members)}")

    def outcome(self, run_of: Callable[[str, Audit | None], Run]) -> Outcome:
        """Return the outcome, whose runs a function returns by their names and audits."""
        data = self._member(HEAD)
        found = _valid(HEAD, _head().model_validate_json, data)
        if found.model_dump_json().encode() != data:  # what it has besides would be lost unseen
            raise ScenarioError(f"{HEAD} is not as this version writes it")
        head = vars(found)
        version, key = head.pop("format"), head.pop("experiment")
        if key != self._experiment.key:
            raise ScenarioError(f"it is the point {key} of format {version}")
        known = {name: head.pop(name) for name in KNOWN}
        light = head.pop("light")
        head |= {name: run_of(name, audit) for name, audit in head.pop("audits").items()}
        head |= {"light": light and LightLog(self._experiment, **vars(light))}
        head |= {"lent_bytes": dict(head["lent_bytes"]), "wire": self._carried()}
        outcome = Outcome(self._experiment, **head)
        vars(outcome).update(known)
        return outcome

    def tables(self) -> dict[str, Tables]:
        """Return the tables of its runs, by their names."""
        names = _valid(NAMES, _names().validate_json, self._member(NAMES))
        fabric = self._experiment.fabric
        found = {
            table: rows_of(self._member(file), columns, names.keys())
            for table, columns in TABLES.items()
            if (file := f"{table}.parquet") in self._members
        }
        return {
            run: tables_of(own, {table: of[run] for table, of in found.items() if run in of}, fabric)
            for run, own in names.items()
        }

    def _carried(self) -> pd.DataFrame | None:
        if CARRIED not in self._members:
            return None
        return rows_of(self._member(CARRIED), COLUMNS, {"emulated"}).get("emulated", empty(COLUMNS))

    def _member(self, name: str) -> bytes:
        found = self._archive.getinfo(name)
        # What zip has besides these packs any size into a few bytes; deflate does 1,032 to 1.
        packed = found.compress_type != ZIP_STORED
        if packed and (found.compress_type != ZIP_DEFLATED or found.file_size > MOST_BYTES):
            raise ScenarioError(f"{name} has {found.file_size} bytes, packed by method {found.compress_type}")
        return self._archive.read(name)


def _valid(name: str, read: Callable[[bytes], Read], data: bytes) -> Read:
    """Return the value that a member holds; ScenarioError, with its place, for what is not valid there."""
    try:
        return read(data)
    except ValidationError as error:
        raise ScenarioError(f"{name}, {first_of(error)}") from error
