"""A run.json is read as it was written; whatever else it says is refused in one sentence."""

import json
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from controller.circuits.devices import ReconfigurationDelay
from scenarios import repeat
from testbed.experiment.dilation import Dilation
from testbed.experiment.experiment import Experiment
from testbed.experiment.ocs_plan import Scheduled
from testbed.machine.versions import sources
from testbed.report.run_json import (
    RunRecord,
    changed_modules,
    datapath_of,
    experiments_of,
    kind_of,
    planned_lines,
    real_link_delay_of,
    run_json,
    settings_of,
    with_readings,
)
from testbed.study import directories
from testbed.study.directories import new_run, planned_before, with_all_readings
from testbed.study.study import Options, Study
from testbed.trust.similitude import Number
from tests.testbed.run_files import unsealed
from topologies.errors import LightrailError, ScenarioError
from topologies.parallel_ocs import parallel_ocs_fabric
from topologies.rail import rail_fabric
from traffic.delegated import DelegatedSetup
from traffic.demand import Demand
from traffic.scheme_setup import WHILE_LIT
from traffic.steps import single

FABRIC = rail_fabric(2, 2)
DEMAND = single(Demand("d", np.full((4, 4), 8)))
POINTS = [
    Experiment(FABRIC, DEMAND, "rails", Dilation(1e-3, 1e-2), seed=3),
    Experiment(FABRIC, DEMAND, DelegatedSetup(rest="ecmp"), seed=4),
    Experiment(
        parallel_ocs_fabric(2, 1),
        single(Demand("e", np.array([[0, 8], [8, 0]]))),
        WHILE_LIT,
        circuits=Scheduled("spectra", ReconfigurationDelay("delay", 1e-3)),
    ),
]
RUN = RunRecord(
    "scenario",
    "Title",
    ["python", "a.py"],
    datetime(2026, 1, 31, 12),
    calibration={"packets_s": 55_000.0, "unknown": float("nan")},
    settings={"points": "3 (abc)", "hosts": {"mtu": [1500, 9000]}},
    similitude={"d": [Number("BDP", 1.0, float("inf"), True, "kept")]},
    inert={"reps, credit": ["window"]},
    own_modules={"own": "0" * 64},
    alike={"credit": ["tcp"]},
)
TEXT = run_json(RUN, planned_lines(POINTS))
DOCUMENT = {key: value for key, value in json.loads(TEXT).items() if key != "sha256"}
GONE = object()
INVALID = "experiments[1]: the text is not a valid experiment: "
WRONG = [GONE, None, -1, 0, 10**30, 1e999, True, "", "x", "os:system", [], [[]], {}, {"x": 1}]


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:  # noqa: ANN401
    """Yield all places in a document, each as its keys."""
    if at:
        yield at
    for key, each in value.items() if isinstance(value, dict) else enumerate([]):
        yield from places(each, (*at, key))
    for index, each in enumerate(value if isinstance(value, list) else []):
        yield from places(each, (*at, index))


PLACES = list(places(DOCUMENT))


def written(place: tuple[Any, ...], wrong: object) -> str:
    """Return the document with something else in a place, or nothing."""
    document = deepcopy(DOCUMENT)
    *to, last = place
    inside: Any = document
    for key in to:
        inside = inside[key]
    if wrong is GONE:
        del inside[last]
    else:
        inside[last] = wrong
    return json.dumps(document)


def sentence_of_all(file: Path) -> str:
    """Return the sentences of all that read a file, none if it is a run."""
    study = Study("scenario", "Title", POINTS)
    said = []
    for read in (
        lambda: repeat.repeat(file),
        lambda: planned_before(study, Options(resume=file.parent, model_only=True)),
        lambda: with_all_readings(RUN, file.parent),
    ):
        try:
            read()
        except LightrailError as error:
            said.append(str(error))
    assert all(len(each.splitlines()) == 1 for each in said)
    return "".join(said)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return where a run.json goes that is read, and nothing of it is carried out."""
    monkeypatch.setattr(repeat, "carry_out", lambda *_: None)
    monkeypatch.setattr(directories, "sources_of", lambda _: sources())
    (tmp_path / "summary.csv").write_text("workload,name,transport,seed,cct_s,verdict\n")
    (tmp_path / "run.json").write_text(TEXT)
    return tmp_path / "run.json"


def test_a_run_is_read_as_it_was_written(file: Path) -> None:
    assert experiments_of(file) == POINTS
    one, other, _ = experiments_of(file)
    assert one.fabric is other.fabric
    assert one.job is other.job
    assert (datapath_of(file), kind_of(file)) == (RUN.datapath, RUN.report)
    assert settings_of(file) == RUN.settings
    again = with_readings(replace(RUN, similitude={}, calibration={}, settings={}), file)
    assert repr(again) == repr(RUN), "NaN too"
    assert file.read_text() == TEXT
    file.write_text(unsealed(file))
    assert experiments_of(file) == POINTS


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.sampled_from(PLACES), wrong=st.sampled_from(WRONG))
@example(("experiments", 0, "fabric"), -1)
@example(("experiments", 0, "job"), 3)
@example(("settings",), GONE)
@example(("real_link_delay_s",), "x")
@example(("versions", "sources"), None)
@example(("experiments", 0, "dilation", "rate"), 0)
def test_whatever_a_field_says_is_read_or_refused_in_a_sentence(
    file: Path, place: tuple[Any, ...], wrong: object
) -> None:
    file.write_text(written(place, wrong))
    sentence_of_all(file)


@pytest.mark.parametrize(
    ("place", "wrong", "said"),
    [
        (("datapath",), GONE, "datapath: is missing"),
        (("datapath",), "dpdk", "datapath: found 'dpdk', expected 'netdev', 'kernel' or 'route'"),
        (("report",), 1, "report: found 1, expected 'schemes', 'circuits', 'nodes' or 'rings'"),
        (("settings",), None, "settings: found null, expected "),
        (("started",), "x", "started: found 'x', expected "),
        (("versions", "python"), 3, "versions.python: found 3, expected a text"),
        (("similitude", "d", 0, "real"), "x", "similitude.d[0].real: found 'x', expected a number"),
        (("experiments",), GONE, "experiments: is missing"),
        (("experiments", 1, "fabric"), -1, "experiments[1].fabric: found -1, expected 0 or more"),
        (("experiments", 1, "fabric"), 2, "experiments[1].fabric: 2 of 2"),
        (("experiments", 1, "job"), "0", "experiments[1].job: found '0', expected a whole number"),
        (("experiments", 1, "seed"), GONE, f"{INVALID}seed: "),
        (("experiments", 1, "seed"), -1, "experiments[1]: a seed of -1"),
        (("experiments", 1, "chunk_bytes"), 0, "experiments[1]: chunks of 0 bytes"),
        (
            ("experiments", 1, "chunk_bytes"),
            "32768",
            f"{INVALID}chunk_bytes: ",
        ),
        (("experiments", 1, "mtu"), "9000", f"{INVALID}mtu: "),
        (
            ("experiments", 1, "dilation", "rate"),
            "1",
            f"{INVALID}dilation: rate: found '1', expected a number",
        ),
        (("experiments", 1, "dilation", "volume"), 1e999, "experiments[1]: a volume dilation of inf"),
        (
            ("experiments", 1, "transport", "least_timeout_s"),
            "1",
            f"{INVALID}transport: least_timeout_s: found '1', expected a number",
        ),
        (("experiments", 1, "transport", "least_timeout_s"), 1e999, "experiments[1]: a least timeout of inf"),
        (
            ("experiments", 1, "transport", "initial_window_packets"),
            0,
            "experiments[1]: an initial window of 0",
        ),
        (
            ("experiments", 1, "transport", "name"),
            "tcp:x; touch /tmp/p",
            "experiments[1]: 'x; touch /tmp/p' controls no congestion",
        ),
        (("real_link_delay_s",), 1e999, "real_link_delay_s: found Infinity, expected "),
        (("real_link_delay_s",), -1, "real_link_delay_s: found -1, expected 0 or more"),
        (("baseline",), "\ud800", "the whole: is not JSON: "),
        (("mine",), 1, "mine: unknown key"),
    ],
)
def test_a_wrong_field_is_named(file: Path, place: tuple[Any, ...], wrong: object, said: str) -> None:
    file.write_text(written(place, wrong))
    for read in (experiments_of, datapath_of, real_link_delay_of, lambda each: changed_modules(each, {})):
        if read is experiments_of or not said.startswith("experiments[1]: "):
            with pytest.raises(ScenarioError) as error:
                read(file)
            assert error.value.sentence.startswith(f"{file} is not a valid run: {said}")


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, len(TEXT) - 1), bit=st.integers(0, 7))
def test_no_flipped_bit_is_read(file: Path, at: int, bit: int) -> None:
    content = bytearray(TEXT.encode())
    content[at] ^= 1 << bit
    file.write_bytes(content)
    with pytest.raises(ScenarioError):
        experiments_of(file)
    assert sentence_of_all(file)


def test_a_command_line_that_is_not_text_is_written_as_text(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["a.py", "--out", "\udc80"])
    file.write_text(run_json(new_run("scenario", "Title"), planned_lines(POINTS)))
    assert with_readings(RUN, file).command == ["python", "a.py", "--out", "\\udc80"]


def test_a_run_that_was_changed_is_refused_until_its_checksum_is_deleted(file: Path) -> None:
    changed = TEXT.replace('"seed": 3', '"seed": 5')
    for text in (changed, json.dumps(json.loads(TEXT), indent=1), TEXT + " "):
        file.write_text(text)
        with pytest.raises(ScenarioError, match=r"run.json is not as it was written: .* delete its sha256"):
            experiments_of(file)
    file.write_text(changed)
    file.write_text(unsealed(file))
    assert [each.seed for each in experiments_of(file)] == [5, 4, 0]


@pytest.mark.parametrize(
    "text", ["", "[]", "1", "null", '{"format": 6, "format": 6}', "[" * 10**5, '{"format": 6', "\x00", "NaN"]
)
def test_what_is_no_run_is_refused(file: Path, text: str) -> None:
    file.write_text(text)
    with pytest.raises(ScenarioError, match=r"is not a valid run|has the format"):
        experiments_of(file)
