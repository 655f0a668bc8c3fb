"""What becomes of a calibration that a control contradicts; the verdicts are in tests/testbed."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from testbed.network.network import Network
from testbed.report.results import ResultsDirectory
from testbed.report.run_json import Run
from testbed.run import calibrate
from testbed.run.calibrate import (
    SAFE_SHARE,
    Calibration,
    ContradictedError,
    calibration,
    is_calibrated,
)
from testbed.run.control import Control
from testbed.run.kept import CACHE, machine_name
from testbed.run.outcome import Verdict
from testbed.study.controlled import ControlledPoints
from tests.testbed.cases import experiment_of, outcome_of
from tests.testbed.ocs_cases import experiment_of as experiment_of_ocs
from topologies.rail import rail_fabric
from traffic.packets import DEFAULT_MTU
from traffic.workloads.synthetic import uniform

POINT = experiment_of(rail_fabric(2, 2, 0), uniform(4), "rails")
HOP_PACKETS_S = 5e4


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ResultsDirectory:
    """Have a calibrated machine, and results that have begun."""

    def measure(datapath: str) -> Calibration:
        now = datetime.now(UTC).isoformat()
        return Calibration(machine_name("netdev"), now, True, 3.6e9, HOP_PACKETS_S)

    monkeypatch.setenv(CACHE, str(tmp_path))
    monkeypatch.setattr(calibrate, "measure", measure)
    calibration("netdev")
    return ResultsDirectory(Run("s", "S", ["s.py"], datetime(2026, 1, 2)), out=tmp_path / "out").__enter__()


@pytest.fixture
def controlled(results: ResultsDirectory, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Carry out a control whose traffic takes so much longer than is known, before a point."""

    def before(error: float) -> None:
        machine = calibration("netdev")
        found = Control(SAFE_SHARE * machine.most_bps(DEFAULT_MTU), 4, error, 0.2)
        monkeypatch.setattr("testbed.run.control.control", lambda *_: found)
        ControlledPoints(Network(POINT.fabric, 1e-4), results, "there", machine).before(POINT)

    return before


def test_a_run_that_has_only_begun_begins_again(controlled: Callable[[float], None]) -> None:
    controlled(0.05)
    assert is_calibrated("netdev"), "a verdict says that it is strained; the calibration may be right"
    with pytest.raises(ContradictedError, match="traffic took 20% longer"):
        controlled(0.2)
    assert not is_calibrated("netdev")


def test_schedules_have_controls_before_between_and_after_them(
    results: ResultsDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = iter((0.0, 0.05, 0.0, 0.2))
    monkeypatch.setattr(
        "testbed.study.controlled.light_control", lambda *_: Control(1e6, 4, next(errors), 0.1)
    )
    first, seed, other = (
        replace(experiment_of_ocs(scheduler), seed=seed)
        for scheduler, seed in (("spectra", 0), ("spectra", 1), ("rotor", 0))
    )
    points = ControlledPoints(Network(first.fabric, first.dilation.rate), results, "there")
    for experiment in (first, seed, other):
        points.before(experiment)
        points.add(replace(outcome_of(experiment), verdict=Verdict("faithful")))
    assert [each.verdict.word for each in results.outcomes] == ["strained", "strained", "strained"]
    points.end()
    assert [each.measures.control_error for each in results.outcomes] == [0.05, 0.05, 0.05]
    assert next(errors) == 0.2, "one before each schedule, whatever its seed, and one after all"


def test_a_run_goes_on_that_has_finished_points(
    controlled: Callable[[float], None], results: ResultsDirectory
) -> None:
    results.add(outcome_of(POINT))
    controlled(0.2)
    assert not is_calibrated("netdev"), "the next run takes it anew"
