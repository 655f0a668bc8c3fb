"""Files of points: what is read is what was written, or it is refused in a sentence."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any, get_args, get_type_hints
from zipfile import ZIP_BZIP2, ZIP_LZMA, ZipFile

import numpy as np
import pandas as pd
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from testbed.core.run import Run
from testbed.experiment.experiment import Experiment
from testbed.live.sources import AckTraffic, Queueing
from testbed.model.predict import predict
from testbed.report.checksums import with_checksum
from testbed.report.finished import finished
from testbed.report.kept_points import KeptPoints
from testbed.report.point_file import FORMAT, HEAD, KNOWN, NAMES, PointFile, point_bytes
from testbed.report.point_tables import ARROW, TABLES, UNFOLDS
from testbed.study.emulating import Asked
from testbed.study.prediction import kept_point
from testbed.trust.carried import COLUMNS
from testbed.trust.outcome import Measures, Outcome, Verdict
from testbed.trust.similitude import Number
from tests.testbed.cases import small_outcomes, with_orders
from tests.testbed.moved_cases import GPU_MOVES, HEALTHY, losing
from tests.testbed.region_cases import lost, toy_experiment, toy_step
from tests.testbed.shard_cases import FIRST, OTHER, sharded
from tests.testbed.test_ocs_report import executed_of
from tests.testbed.test_unsound import outcomes_with
from topologies.errors import MachineError, ScenarioError
from traffic.compiled import MODULES
from traffic.tables import FLOWS, Tables
from traffic.transports.reordering import Reordering

LISTS = ("nodes", "paths", "lanes", "ports", "ocses")


def predicted(experiment: Experiment) -> Outcome:
    return Outcome(experiment, predict(experiment))


def delegated() -> Experiment:
    return toy_experiment(toy_step(ranks=4, layers=1), servers=4, alpha=2, packet_nics=2)


def with_all_three_runs() -> Outcome:
    (outcome, *_) = small_outcomes(seeds=1)
    rows = [
        ("ocs0", -1, "3>5", math.nan, 2, 180, 0.5, 0.75),
        ("ocs0", 0, "1>0", 0.25, 0, 0, math.nan, math.nan),
    ]
    wire = pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)
    return replace(outcome, free=outcome.predicted, wire=wire, inert=("a", "b"), machine="there")


KINDS: dict[str, Callable[[], Outcome]] = {
    "a scheme, emulated": lambda: small_outcomes(seeds=1)[3],
    "predicted only": lambda: predicted(small_outcomes(seeds=1)[0].experiment),
    "out of order": lambda: with_orders()[1],
    "unsound": lambda: outcomes_with(0)[0],
    "a program of circuits": lambda: executed_of("spectra"),
    "delegated, with faults": lambda: predicted(
        replace(delegated(), faults=lost(delegated().fabric, (0, 0), after_s=0.01, detect_s=0.01))
    ),
    "GPUs that move": lambda: predicted(losing(HEALTHY, GPU_MOVES, 0.02)),
    "panels of shards": lambda: predicted(sharded(FIRST, OTHER)),
    "all three runs": with_all_three_runs,
}
outcome_of_kind = cache(lambda kind: KINDS[kind]())


def read(data: bytes, experiment: Experiment) -> Outcome:
    file = PointFile(data, experiment)
    tables = file.tables()
    return file.outcome(lambda name, audit: Run(tables[name], audit))


def bare(outcome: Outcome) -> list[str]:
    """Return all that an outcome holds but tables; NaN is written as text, which equals itself."""
    light = outcome.light and {each.name: getattr(outcome.light, each.name) for each in fields(outcome.light)}
    head = {each.name: getattr(outcome, each.name) for each in fields(outcome)}
    head |= {name: getattr(outcome, name) for name in KNOWN}
    head |= {"wire": None, "light": light, "lent_bytes": dict(outcome.lent_bytes)}
    head |= {name: run.audit for name, run in outcome.all_runs.items()}
    return sorted(map(shown, head.items()))


def shown(value: object) -> str:
    """Return a value as text, in which NaN equals itself, and a number of numpy that of Python."""
    with np.printoptions(legacy="1.25"):
        return repr(value)


def check_same(one: Outcome, other: Outcome) -> None:
    """Assert that two outcomes hold the same, in values and in types."""
    assert bare(one) == bare(other)
    assert (one.wire is None) == (other.wire is None)
    if one.wire is not None and other.wire is not None:
        assert_frame_equal(one.wire, other.wire)
    assert one.all_runs.keys() == other.all_runs.keys()
    for mine, its in zip(one.all_runs.values(), other.all_runs.values(), strict=True):
        for name in TABLES:
            assert_frame_equal(getattr(mine.tables, name), getattr(its.tables, name))
        for name in LISTS:
            assert getattr(mine.tables, name) == getattr(its.tables, name)


def test_no_file_holds_a_class_that_is_compiled() -> None:
    kinds = {part for kind in get_type_hints(Outcome).values() for part in get_args(kind) or (kind,)}
    assert {kind.__module__ for kind in kinds if isinstance(kind, type)}.isdisjoint(MODULES)


@pytest.mark.parametrize("kind", KINDS)
def test_an_outcome_of_any_kind_is_read_as_it_was_written(kind: str, tmp_path: Path) -> None:
    outcome = outcome_of_kind(kind)
    point = finished(outcome, traced=True)
    check_same(read(point.file, outcome.experiment), outcome)
    kept = KeptPoints(tmp_path)
    kept.write(outcome.experiment, point)
    again = finished(kept.outcome(outcome.experiment), traced=True, kept=True)
    assert shown(again) == shown(replace(point, file=b"")), "summary, records, nodes and trace"
    assert point_bytes(read(point.file, outcome.experiment)) == point.file


def test_rows_of_a_table_in_several_groups_are_read_alike() -> None:
    outcome = outcome_of_kind("all three runs")
    data, key = point_bytes(outcome), outcome.experiment.key
    grouped = BytesIO()
    table = pq.read_table(pa.BufferReader(members_of(data)["messages.parquet"]))
    pq.write_table(table, grouped, compression="lz4", row_group_size=3, store_schema=False)
    check_same(read(rewritten(data, key, messages_parquet=grouped.getvalue()), outcome.experiment), outcome)


FLOATS = st.floats(allow_nan=True)
LENT = st.floats(0.0, 1e300)
"""The bytes that a bucket lends: bounds are sums of them."""
TEXTS = st.text(max_size=20)
MEASURES = st.builds(
    Measures, **dict.fromkeys(("packets", "retransmits", "packets_late"), st.integers(0, 1 << 40) | FLOATS),
    **dict.fromkeys(("cpu_pressure", "stall_s", "control_error", "worst_link_error"), FLOATS),
)  # fmt: skip
NUMBERS = st.lists(st.builds(Number, TEXTS, FLOATS, FLOATS, st.booleans(), TEXTS), max_size=3).map(tuple)
ORDERS = st.none() | st.builds(Reordering, st.dictionaries(st.integers(0, 99), st.integers(0, 1 << 40)))
ACKS = st.none() | st.builds(AckTraffic, st.integers(0, 1 << 40), FLOATS, st.booleans(), FLOATS, FLOATS)
QUEUES = st.none() | st.builds(
    Queueing, FLOATS, FLOATS, FLOATS, st.integers(0, 1 << 40), *[st.tuples(FLOATS, FLOATS)] * 2, ACKS
)
VERDICTS = st.builds(Verdict, st.just("strained"), st.lists(TEXTS, max_size=2).map(tuple), TEXTS)


@given(MEASURES, NUMBERS, ORDERS, QUEUES, VERDICTS, st.dictionaries(TEXTS, FLOATS, max_size=3), LENT, TEXTS)
def test_any_numbers_and_texts_are_read_as_they_were_written(
    measures: Measures,
    numbers: tuple[Number, ...],
    order: Reordering | None,
    queueing: Queueing | None,
    verdict: Verdict,
    shares: Mapping[str, float],
    lent_bytes: float,
    machine: str,
) -> None:
    outcome = replace(
        outcome_of_kind("a scheme, emulated"),
        measures=measures,
        numbers=numbers,
        order=order,
        queueing=queueing,
        verdict=verdict,
        shares=shares,
        machine=machine,
    )
    ports = outcome.experiment.fabric.link_at
    outcome = replace(outcome, lent_bytes=dict.fromkeys(ports, lent_bytes))
    check_same(read(point_bytes(outcome), outcome.experiment), outcome)


TIMES = st.integers(0, 1 << 62)
CIRCUITS = st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), max_size=3).map(tuple)


def frames(name: str) -> st.SearchStrategy[pd.DataFrame]:
    """Return tables of one or two rows, whose numbers stand for the first of their kind."""
    of = {"str": TEXTS, "object": CIRCUITS, "bool": st.booleans(), "float64": FLOATS, "int64": TIMES}
    row = st.tuples(*(of.get(kind, st.just(0)) for kind in TABLES[name].values()))
    rows = st.lists(row, min_size=1, max_size=2)
    return rows.map(lambda found: pd.DataFrame(found, columns=list(TABLES[name])).astype(TABLES[name]))


@given(
    st.fixed_dictionaries({}, optional={name: frames(name) for name in TABLES if name != "messages"}).filter(
        lambda found: "sources" in found or "flows" not in found
    )
)
def test_any_tables_are_read_as_they_were_written(found: dict[str, Any]) -> None:
    outcome = outcome_of_kind("panels of shards")
    known = outcome.predicted.tables
    lists = {name: getattr(known, name) for name in LISTS} | {
        "ports": tuple(outcome.experiment.fabric.link_at)
    }
    tables = Tables(messages=known.messages, **lists, **found)
    outcome = replace(outcome, emulated=Run(tables))
    check_same(read(point_bytes(outcome), outcome.experiment), outcome)


def rewritten(data: bytes, key: str, **members: bytes | None) -> bytes:
    """Return the file of a point with other members (None: without), and the right checksum."""
    with ZipFile(BytesIO(data)) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    held |= {name.replace("_", "."): content for name, content in members.items() if content is not None}
    left_out = {name.replace("_", ".") for name, content in members.items() if content is None}
    out = BytesIO()
    with ZipFile(out, "w") as archive:
        for name in held.keys() - left_out:
            archive.writestr(name, held[name])
    return with_checksum(out.getvalue(), key)


def members_of(data: bytes) -> dict[str, bytes]:
    with ZipFile(BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def table_with(data: bytes, column: str, value: object) -> bytes:
    """Return a table as Parquet whose last row has another value in a column."""
    table = pq.read_table(pa.BufferReader(data)).to_pandas()
    table.loc[len(table) - 1, column] = value
    return parquet(pa.Table.from_pandas(table, preserve_index=False))


def parquet(table: pa.Table, compression: str = "lz4") -> bytes:
    out = BytesIO()
    pq.write_table(table, out, compression=compression, store_schema=False)
    return out.getvalue()


def changes(rows: int, circuits: list[dict[str, int]]) -> pa.Table:
    """Return as many changes of an OCS, which all light the same circuits."""
    return pa.table(
        {
            "run": pa.array(["predicted"] * rows),
            "ocs": pa.array([0] * rows, pa.int32()),
            "at_ps": pa.array([0] * rows, pa.int64()),
            "what": pa.array([0] * rows, pa.int8()),
            "circuits": pa.array([circuits] * rows, ARROW["object"]),
        }
    )


def events(rows: int, text: str) -> pa.Table:
    """Return as many events, which all have one text."""
    none = np.zeros(rows, np.int64)
    run, what, which = (pa.DictionaryArray.from_arrays(none, [each]) for each in ("predicted", text, "x"))
    return pa.table({"run": run, "at_ps": none, "what": what, "which": which})


def flows_without_sources() -> pa.Table:
    """Return a sample of the first source."""
    row = pd.DataFrame([(0, 0, 0, 0, 0.0, 0.0)], columns=list(FLOWS)).astype(FLOWS)
    return pa.Table.from_pandas(row.assign(run="predicted")[["run", *FLOWS]], preserve_index=False)


def named_with(names: Mapping[str, list[Any]], place: int, found: list[Any]) -> bytes:
    """Return names as JSON, in which the first ones of a list of each run are others."""
    changed = {run: [*of[:place], found + of[place][1:], *of[place + 1 :]] for run, of in names.items()}
    return json.dumps(changed).encode()


def hostile(data: bytes) -> dict[str, dict[str, bytes | None]]:
    """Return members that somebody could put into the file of a point, whose checksum they can compute."""
    held = members_of(data)
    head, names = json.loads(held[HEAD]), json.loads(held[NAMES])
    legs, messages = held["legs.parquet"], held["messages.parquet"]
    return {
        "no head": {"point_json": None},
        "no names": {"names_json": None},
        "a head that is no JSON": {"point_json": b"{"},
        "a key more": {"point_json": json.dumps({**head, "code": 1}).encode()},
        "a key more inside": {
            "point_json": json.dumps({**head, "verdict": {**head["verdict"], "x": 1}}).encode()
        },
        "a key less": {"point_json": json.dumps({**head, "verdict": {}}).encode()},
        "another format": {"point_json": json.dumps({**head, "format": FORMAT - 1}).encode()},
        "another experiment": {"point_json": json.dumps({**head, "experiment": "0"}).encode()},
        "another word": {
            "point_json": json.dumps({**head, "verdict": {**head["verdict"], "word": "good"}}).encode()
        },
        "a text for a number": {"point_json": json.dumps({**head, "cct_s": "1.0"}).encode()},
        "a run without tables": {"names_json": json.dumps({}).encode()},
        "ports that are not there": {"names_json": held[NAMES].replace(b'"h0"', b'"h9"')},
        "lanes that are not there": {"names_json": named_with(names, 2, [[[0, 9], [1, 0], 0, 0]])},
        "a path over a port before the first": {"names_json": named_with(names, 1, [[-1]])},
        "a path over a port beyond the last": {"names_json": named_with(names, 1, [[1 << 20]])},
        "a member more": {"other_pickle": b"cos\nsystem\n"},
        "a table that is none": {"legs_parquet": b"PAR1"},
        "another table": {"legs_parquet": messages},
        "a lane beyond the last": {"legs_parquet": table_with(legs, "lane", 1 << 20)},
        "a path before the first": {"legs_parquet": table_with(legs, "path", -2)},
        "a lane without a path": {"legs_parquet": table_with(legs, "path", -1)},
        "a node that is absent": {"legs_parquet": table_with(legs, "node", -1)},
        "a GPU that is not there": {"messages_parquet": table_with(messages, "destination", 99)},
        "a run that is not there": {"messages_parquet": table_with(messages, "run", "other")},
        "a sample of a source that is not there": {"flows_parquet": parquet(flows_without_sources())},
        "a time that is missing": {"messages_parquet": table_with(messages, "end_ps", None)},
    }


@pytest.fixture(scope="module")
def written() -> tuple[bytes, Experiment]:
    outcome = outcome_of_kind("a scheme, emulated")
    return point_bytes(outcome), outcome.experiment


@pytest.mark.parametrize("what", hostile(point_bytes(outcome_of_kind("a scheme, emulated"))))
def test_a_file_that_somebody_made_up_is_refused_in_a_sentence(
    what: str, written: tuple[bytes, Experiment], tmp_path: Path
) -> None:
    data, experiment = written
    kept = KeptPoints(tmp_path)
    kept.put(experiment, rewritten(data, experiment.key, **hostile(data)[what]))
    with pytest.raises(ScenarioError, match="is not a valid point: "):
        _ = [run.tables for run in kept.outcome(experiment).all_runs.values()]


def test_a_member_that_unfolds_to_more_than_memory_holds_is_refused(
    written: tuple[bytes, Experiment], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, experiment = written
    kept = KeptPoints(tmp_path)
    kept.put(experiment, data)
    assert len(kept.outcome(experiment).run.tables.messages) > 1
    monkeypatch.setattr("testbed.report.point_file.MOST_BYTES", 100)
    with pytest.raises(ScenarioError, match=r"is not a valid point: .* bytes"):
        _ = [run.tables for run in KeptPoints(tmp_path).outcome(experiment).all_runs.values()]


BOMBS = {
    "one long text in many rows": {"events_parquet": parquet(events(5_000, "x" * (1 << 16)))},
    "many circuits in each row": {
        "light_parquet": parquet(changes(200, [{"input": 0, "output": 0}] * 5_000))
    },
    "what other codecs pack": {"events_parquet": parquet(events(2, "x" * (1 << 22)), "zstd")},
    "other columns": {"events_parquet": parquet(pa.table({"x": pa.array([0] * (1 << 21))}))},
}


@pytest.mark.parametrize("what", BOMBS)
def test_a_table_that_unfolds_to_far_more_than_its_file_is_refused(
    what: str, written: tuple[bytes, Experiment], tmp_path: Path
) -> None:
    data, experiment = written
    kept, content = KeptPoints(tmp_path), next(iter(BOMBS[what].values()))
    kept.put(experiment, rewritten(data, experiment.key, **BOMBS[what]))
    before = pa.total_allocated_bytes()
    with pytest.raises(ScenarioError, match=r"is not a valid point: a table (of .* in|that is|of x, which)"):
        kept.outcome(experiment).run.tables  # noqa: B018 (it is read here)
    assert pa.total_allocated_bytes() - before < UNFOLDS * len(content)


@pytest.mark.parametrize("method", [ZIP_BZIP2, ZIP_LZMA])
def test_a_member_that_is_packed_in_another_way_is_refused(
    method: int, written: tuple[bytes, Experiment], tmp_path: Path
) -> None:
    data, experiment = written
    kept, out = KeptPoints(tmp_path), BytesIO()
    with ZipFile(out, "w") as archive:
        for name, content in members_of(data).items():
            archive.writestr(name, content, method)
    kept.put(experiment, with_checksum(out.getvalue(), experiment.key))
    with pytest.raises(ScenarioError, match=r"is not a valid point: point\.json has .*, packed by method"):
        kept.outcome(experiment)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_member_that_is_there_twice_is_refused(written: tuple[bytes, Experiment], tmp_path: Path) -> None:
    data, experiment = written
    kept, out, held = KeptPoints(tmp_path), BytesIO(), members_of(data)
    with ZipFile(out, "w") as archive:
        for name, content in [*held.items(), (NAMES, held[NAMES])]:
            archive.writestr(name, content)
    kept.put(experiment, with_checksum(out.getvalue(), experiment.key))
    with pytest.raises(ScenarioError, match=r"is not a valid point: it holds .*names\.json.*names\.json"):
        kept.outcome(experiment)


def test_what_is_wrong_with_a_head_is_said_in_our_words(
    written: tuple[bytes, Experiment], tmp_path: Path
) -> None:
    data, experiment = written
    kept = KeptPoints(tmp_path)
    kept.put(experiment, rewritten(data, experiment.key, point_json=b'{"format":9}'))
    with pytest.raises(ScenarioError, match=r"is not a valid point: point\.json, [\w.]+: is missing; delete"):
        kept.outcome(experiment)


def test_other_programs_read_its_members(written: tuple[bytes, Experiment]) -> None:
    data, experiment = written
    held = members_of(data)
    messages = pd.read_parquet(BytesIO(held["messages.parquet"]))
    names = json.loads(held[NAMES])
    assert [names[run][0][node] for run, node in zip(messages["run"], messages["node"], strict=True)]
    assert messages.groupby("run")["bytes"].sum().nunique() == 1
    assert json.loads(held[HEAD])["experiment"] == experiment.key
    assert pa.types.is_string(pq.read_schema(BytesIO(held["legs.parquet"])).field("run").type)


def test_a_head_of_which_no_row_can_be_made_is_refused_too(tmp_path: Path) -> None:
    outcome = outcome_of_kind("a program of circuits")
    kept, experiment, data = KeptPoints(tmp_path), outcome.experiment, point_bytes(outcome)
    head = json.loads(members_of(data)[HEAD])
    head["light"]["undelivered_bytes"] = []
    text = json.dumps(head, separators=(",", ":"), ensure_ascii=False)
    kept.put(experiment, rewritten(data, experiment.key, point_json=text.encode()))
    assert kept.outcome(experiment).light
    with pytest.raises(ScenarioError, match="is not a valid point: "):
        kept_point(tmp_path, Asked(experiment, traced=False))


def test_what_takes_the_place_of_a_point_is_refused(tmp_path: Path) -> None:
    outcome = outcome_of_kind("a scheme, emulated")
    kept = KeptPoints(tmp_path)
    kept.file(outcome.experiment).mkdir(parents=True)

    def carried_out() -> None:
        if outcome.experiment not in kept:
            kept.write(outcome.experiment, finished(outcome, traced=False))

    with pytest.raises(MachineError):
        carried_out()
