"""Where the points of a comparison are emulated that other points were emulated of before."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import cast

import pytest

from testbed.experiment.experiment import Experiment
from testbed.report.finished import finished
from testbed.report.results import ResultsDirectory
from testbed.report.run_json import RunRecord
from testbed.study.emulating import Asked, Emulated, Event
from testbed.study.emulation import EmulatedStudy
from testbed.study.machine import Machine, weakest
from testbed.study.output import progress_bar
from testbed.study.ray_cluster import RayCluster
from testbed.study.study import Options
from testbed.study.worker import EmulationWorker
from testbed.trust.calibrate import Calibration
from testbed.trust.dark_excess import DarkExcess, Excess
from testbed.trust.outcome import Outcome, Verdict
from tests.testbed.cases import experiment_of, outcome_of
from topologies.errors import ScenarioError
from topologies.rail import rail_fabric
from traffic.workloads.synthetic import sparse, uniform

NOW = "2026-01-02T03:04:05+00:00"
FABRIC = rail_fabric(2, 2)
UNIFORM, SPARSE = uniform(4), sparse(4, sparsity=0.5, top_k=1, seed=0)
POINTS = [experiment_of(FABRIC, job, scheme) for job in (UNIFORM, SPARSE) for scheme in ("rails", "ecmp")]


def emulated(experiment: Experiment, machine: str) -> Outcome:
    """Return what came of a point on a machine."""
    return replace(outcome_of(experiment, Verdict("faithful")), machine=machine)


class Cluster:
    """Machines a and b; it keeps which was asked for which points."""

    def __init__(self) -> None:
        self.asked = defaultdict[str | None, list[Experiment]](list)

    def emulating(self, machine: str | None = None) -> "Slot":
        """Return what carries points out on a machine, or on any, which is then b."""
        return Slot(self.asked[machine], machine or "b")


class Slot:
    """Carries points out without a network."""

    def __init__(self, asked: list[Experiment], machine: str) -> None:
        self._asked, self._machine = asked, machine

    def map(self, _function: object, groups: Sequence[Sequence[Asked]]) -> Iterator[list[Event]]:
        """Yield the events of each group."""
        for group in groups:
            self._asked += [each.experiment for each in group]
            outcomes = [emulated(each.experiment, self._machine) for each in group]
            yield [Emulated(finished(outcome, traced=False), {}) for outcome in outcomes]


@pytest.fixture
def results(tmp_path: Path) -> Iterator[ResultsDirectory]:
    """Return a run that was cut off: its first point was emulated on machine a."""
    run = RunRecord("s", "S", ["s.py"], datetime(2026, 1, 2))
    with ResultsDirectory(run, out=tmp_path / "out", planned=POINTS) as results:
        results.add_finished(POINTS[0], finished(emulated(POINTS[0], "a"), traced=False))
    with ResultsDirectory(run, out=tmp_path / "out", planned=POINTS, resume=True) as results:
        yield results


def test_a_comparison_goes_on_where_it_was_begun_and_others_anywhere(results: ResultsDirectory) -> None:
    cluster = Cluster()
    emulation = EmulatedStudy(results, Options(), progress_bar(), len(POINTS))
    emulation.carry_out_on(cast(RayCluster, cluster), POINTS)
    assert cluster.asked == {"a": [POINTS[1]], None: POINTS[2:]}
    found = {each.experiment.key: each.machine for each in results.outcomes}
    assert found == dict(zip([each.key for each in POINTS], "aabb", strict=True))


def test_alone_it_is_refused_unless_all_of_it_is_there(results: ResultsDirectory) -> None:
    emulation = EmulatedStudy(results, Options(), progress_bar(), len(POINTS))
    worker = cast(EmulationWorker, None)
    with pytest.raises(
        ScenarioError, match=r"points of uniform were emulated on a, and this is .*go on .* a"
    ):
        emulation.carry_out(worker, POINTS, None)
    results.add_finished(POINTS[1], finished(emulated(POINTS[1], "a"), traced=False))
    emulation.carry_out(worker, POINTS[:2], None)
    assert {each.machine for each in results.outcomes} == {"a"}


def test_machines_that_work_together_take_the_scale_of_the_weakest() -> None:
    def machine(packets_s: float, dark_s: float | None = None) -> Machine:
        late = None if dark_s is None else DarkExcess("m", NOW, True, (Excess(1, dark_s / 2, dark_s),))
        return Machine(Calibration("m", NOW, True, packets_s, 1.0, 0.42), late)

    assert weakest([machine(3e4), machine(1e4), machine(2e4)]) == machine(1e4)
    assert weakest([machine(5e4, 0.01), machine(1e4, 0.002)]) == machine(1e4, 0.01)
