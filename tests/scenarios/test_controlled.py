"""What controls say of points, and of a calibration; their verdicts are in tests/testbed."""

from collections.abc import Callable, Iterator, Sequence, Sized
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import pandas as pd
import pytest

from testbed.experiment.dilation import Dilation
from testbed.experiment.experiment import Experiment
from testbed.network.network import Network
from testbed.report.finished import finished
from testbed.report.kept_points import KeptPoints
from testbed.report.results import ResultsDirectory
from testbed.report.run_json import RunRecord
from testbed.study.emulating import Asked, ControlledPoints, Described, Emulated, Event
from testbed.study.emulation import EmulatedStudy
from testbed.study.output import progress_bar
from testbed.study.study import Options
from testbed.study.worker import EmulationWorker
from testbed.trust.calibrate import CALIBRATIONS, Calibration, ContradictedError
from testbed.trust.control import Control
from testbed.trust.kept import CACHE, machine_name
from testbed.trust.outcome import Verdict
from tests.testbed.cases import experiment_of, outcome_of, small_outcomes
from tests.testbed.ocs_cases import experiment_of as experiment_of_ocs
from topologies.rail import rail_fabric
from traffic.transports.host_settings import TransportSetup
from traffic.workloads.synthetic import uniform

POINT = experiment_of(rail_fabric(2, 2, 0), uniform(4), "rails")
PACKETS_S = 5e4


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ResultsDirectory]:
    """Have a calibrated machine, and results that have begun."""

    def measure(datapath: str) -> Calibration:
        now = datetime.now(UTC).isoformat()
        return Calibration(machine_name("netdev"), now, True, PACKETS_S, 1.0, 0.4)

    monkeypatch.setenv(CACHE, str(tmp_path))
    replace(CALIBRATIONS, measure=measure).of("netdev")
    with ResultsDirectory(
        RunRecord("s", "S", ["s.py"], datetime(2026, 1, 2)), out=tmp_path / "out"
    ) as results:
        yield results


@pytest.fixture
def controlled(results: ResultsDirectory, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Carry out a control whose traffic takes so much longer than is known, before a point."""

    def before(error: float, *, begun: bool = False) -> None:
        machine = CALIBRATIONS.of("netdev")
        found = Control(1e9, 4, error, 0.2)
        monkeypatch.setattr("testbed.study.emulating.control", lambda *_, datagrams: found)
        list(ControlledPoints(Network(POINT.fabric, 1e-4), machine, begun=begun).before(POINT))

    return before


def test_a_run_that_has_only_begun_begins_again(controlled: Callable[..., None]) -> None:
    controlled(0.05)
    assert CALIBRATIONS.has("netdev"), "a verdict says that it is strained; the calibration may be right"
    with pytest.raises(ContradictedError, match="traffic took 20% longer"):
        controlled(0.2)
    assert not CALIBRATIONS.has("netdev")


def test_a_point_needs_another_control_if_it_forwards_half_as_much_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, engines = list[float](), list[bool]()

    def control(_network: Network, hop_bps: float, *, datagrams: bool) -> Control:
        asked.append(hop_bps)
        engines.append(datagrams)
        return Control(hop_bps, 4, 0.0, 0.1)

    monkeypatch.setattr("testbed.study.emulating.control", control)
    points = ControlledPoints(Network(POINT.fabric, 1e-4))
    for number, rate in enumerate((1e-4, 1.4e-4, 1.6e-4, 1e-4, 2.3e-4)):
        job = replace(POINT.job, name=f"job {number}")
        list(points.before(replace(POINT, job=job, dilation=Dilation(rate, 1e-3))))
    list(points.before(replace(POINT, dilation=Dilation(1e-4, 1e-3), transport=TransportSetup("tcp"))))
    said, _ = points.end()
    assert [bps / asked[0] for bps in asked] == pytest.approx([1.0, 1.6, 1.0, 1.0])
    assert engines == [True, True, False, False], "what moves a point's bytes is what is controlled"
    assert isinstance(said, Described)
    assert len(cast(Sized, said.settings["controls"])) == 4


def test_schedules_have_controls_before_between_and_after_them(
    results: ResultsDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = iter((0.0, 0.05, 0.0, 0.2))
    monkeypatch.setattr(
        "testbed.study.emulating.light_control", lambda *_: Control(1e6, 4, next(errors), 0.1)
    )
    first, seed, other = (
        replace(experiment_of_ocs(scheduler), seed=seed)
        for scheduler, seed in (("spectra", 0), ("spectra", 1), ("rotor", 0))
    )
    controlled = ControlledPoints(Network(first.fabric, first.dilation.rate))
    taken = EmulatedStudy(results, Options(), progress_bar(), 3)
    seen = []

    class Worker:
        """Carries points out between controls, without a network."""

        def call(self, _function: object, asked: Sequence[Asked], *_settings: object) -> Iterator[Event]:
            for each in asked:
                yield from controlled.before(each.experiment)
                outcome = replace(outcome_of(each.experiment), verdict=Verdict("faithful"))
                yield Emulated(finished(controlled.judged(outcome), traced=False), {})
            seen.extend([each.verdict.word for each in results.outcomes])
            yield from controlled.end()

    taken.carry_out(cast(EmulationWorker, Worker()), [first, seed, other], None)
    assert seen == ["strained", "strained", "strained"]
    assert [each.measures.control_error for each in results.outcomes] == [0.05, 0.05, 0.05]
    assert next(errors) == 0.2, "one before each schedule, whatever its seed, and one after all"
    table = pd.read_csv(results.path / "summary.csv")
    assert table["control_error"].tolist() == [0.05, 0.05, 0.05]


def test_a_run_goes_on_that_has_finished_points(controlled: Callable[..., None]) -> None:
    controlled(0.2, begun=True)


def test_rows_of_a_run_that_goes_on_stand_as_in_one_go(tmp_path: Path) -> None:
    outcomes = {each.experiment.key: each for each in small_outcomes(seeds=2)}
    points = [each.experiment for each in outcomes.values()]

    class Worker:
        """Has each point, and at the end a control by which nothing is right."""

        def call(self, _function: object, asked: Sequence[Asked], *_settings: object) -> Iterator[Event]:
            for each in asked:
                yield Emulated(finished(outcomes[each.experiment.key], traced=each.traced), {})
            yield Control(1e6, 4, error=0.5, cpu_pressure=0.1)

    def carried_out(some: Sequence[Experiment], name: str, *, resume: bool = False) -> Path:
        run = RunRecord("s", "S", ["s.py"], datetime(2026, 1, 2))
        with ResultsDirectory(run, planned=points, out=tmp_path / name, resume=resume) as results:
            taken = EmulatedStudy(results, Options(), progress_bar(), len(some))
            taken.carry_out(cast(EmulationWorker, Worker()), some, None)
        return results.path

    whole = carried_out(points, "whole")
    carried_out(points[1::3], "parts")
    for outcome in KeptPoints(tmp_path / "parts").outcome(points[1]), KeptPoints(whole).outcome(points[0]):
        assert outcome.verdict.word == "void"
    KeptPoints(tmp_path / "parts").judge(outcomes[points[1].key])
    parts = carried_out(points, "parts", resume=True)
    one, other = (pd.read_csv(path / "summary.csv") for path in (whole, parts))
    assert one["key"].tolist() == other["key"].tolist() == [each.key for each in points]
    verdicts = ["void", "faithful", *["void"] * (len(points) - 2)]
    assert other["verdict"].tolist() == verdicts, "a later control says nothing of what was there"
    for name in ("records.csv", "nodes.csv"):
        assert (whole / name).read_bytes() == (parts / name).read_bytes()
    assert {each.name for each in whole.glob("traces/*")} == {each.name for each in parts.glob("traces/*")}
