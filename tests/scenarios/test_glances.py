"""What predictions say of points: equal to a prediction of each, and near to it where time is short."""

import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from rich.progress import Progress, TaskID

from testbed.experiment.experiment import Experiment
from testbed.model.predict import predict
from testbed.report.means import BIG_SWITCH
from testbed.study import glances as module
from testbed.study.glances import Glance, PlannedFailures, glances, predicted_by
from testbed.trust.scale import busy_s, load_of, plain
from testbed.trust.similitude import facts_of
from topologies.errors import ScenarioError
from topologies.rail import rail_fabric
from traffic.fault_text import WrittenFault
from traffic.records import NVLINK
from traffic.steps import single
from traffic.transports.host_settings import TransportSetup
from traffic.workloads.synthetic import sparse, uniform

FABRIC = rail_fabric(4, 2)
JOBS = (single(uniform(8)), single(sparse(8, 0.5, seed=1)))
SCHEMES = ("rails", "ecmp", "reps")
POINTS = [
    Experiment(FABRIC, job, scheme, seed=seed, transport=TransportSetup(transport))
    for job, seed, scheme, transport in product(JOBS, (0, 1), SCHEMES, ("ideal", "tcp"))
]
FAILS = PlannedFailures((WrittenFault("nic:1:0@40%"),), 1e-5)


def looked(
    points: Sequence[Experiment], failures: PlannedFailures | None = None, within_s: float = float("inf")
) -> list[tuple[Experiment, Glance]]:
    with Progress(disable=True) as progress:
        return glances(points, failures, progress, within_s)


def test_a_glance_is_what_the_prediction_says() -> None:
    delayed = [replace(each, fabric=FABRIC.with_links(delay_s=1e-5, loss=0.0)) for each in POINTS[::5]]
    for (point, glance), asked in zip(looked(delayed), delayed, strict=True):
        predicted, level = predict(asked), predict(replace(asked, fabric=plain(FABRIC)))
        assert point == asked
        assert glance.iteration_s == predicted.iteration_s
        assert glance.busy_s == busy_s(asked.job, predicted)
        assert glance.level_s == busy_s(asked.job, level) < glance.busy_s
        assert glance.load == load_of(asked, level)
        crossing = predicted.records["path"] != NVLINK
        assert glance.sent_bytes == predicted.records["bytes"][crossing].sum()
        np.testing.assert_array_equal(glance.facts.sizes, facts_of(asked, predicted).sizes)
        assert glance.predicted
        assert glance.took_s > 0


def test_points_that_are_predicted_alike_share_a_glance() -> None:
    alike = [replace(POINTS[0], transport=TransportSetup(name)) for name in ("tcp", "tcp:cubic")]
    (_, first), (_, second) = looked(alike)
    assert first is second
    assert len({predicted_by(each) for each in POINTS}) == len(POINTS)
    assert predicted_by(POINTS[0]) != predicted_by(replace(POINTS[0], shared_queue_pairs=True))
    assert predicted_by(POINTS[0]) != predicted_by(replace(POINTS[0], hashing="kernel"))


@pytest.mark.parametrize("delay_s", [0.0, 1e-5])
def test_transports_are_predicted_alike_only_if_their_predictions_are_equal(delay_s: float) -> None:
    fabric = FABRIC.with_links(delay_s=delay_s, loss=0.0)
    credit, nscc, dctcp = (
        replace(POINTS[1], fabric=fabric, transport=TransportSetup(name))
        for name in ("credit", "nscc", "dctcp")
    )
    assert predicted_by(nscc) == predicted_by(dctcp)
    is_equal = predict(credit).iteration_s == predict(nscc).iteration_s
    assert (predicted_by(credit) == predicted_by(nscc)) is is_equal is (not delay_s)


def test_without_time_each_workload_is_predicted_once_and_the_others_are_like_it() -> None:
    found = looked(POINTS, within_s=0)
    assert [point for point, _ in found] == POINTS
    seen = [(point, glance) for point, glance in found if glance.predicted]
    assert {point.job.name for point, _ in seen} == {job.name for job in JOBS}
    assert len(seen) < len(POINTS) / 2
    whole = looked(POINTS)
    for (point, glance), (_, truth) in zip(found, whole, strict=True):
        assert glance.messages == pytest.approx(truth.messages, rel=0.01), point.scheme_name
        assert glance.sent_bytes == pytest.approx(truth.sent_bytes, rel=0.01)
        assert 0.4 < glance.busy_s / truth.busy_s < 2.5
        assert glance.facts.sizes.sum() == truth.facts.sizes.sum()


def test_a_prediction_that_has_begun_is_not_waited_for_when_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, glance = POINTS[: len(SCHEMES)], module._glance
    slow = module._in_turn(asked)[1:]  # all that a process begins beside the first of the workload

    def timed(experiment: Experiment) -> Glance:
        time.sleep(60 if experiment in slow else 0.2)
        return glance(experiment)

    monkeypatch.setattr(module, "_glance", timed)
    began_at = time.monotonic()
    found = looked(asked, within_s=0.1)
    assert time.monotonic() - began_at < 20
    assert sum(glance.predicted for _, glance in found) == 1


def test_what_is_predicted_now_is_named_on_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    shown, update = list[str](), Progress.update

    def noted(self: Progress, task: TaskID, *, description: str) -> None:
        shown.append(description)
        update(self, task, description=description)

    monkeypatch.setattr(Progress, "update", noted)
    looked(POINTS[:2])
    assert sorted(shown) == [f"predict {each.job.name}, {each.name}, seed 0" for each in POINTS[:2]]


def test_first_predictions_are_of_different_schemes() -> None:
    """With one per workload, no workload's time is that of the one scheme that serves it best."""
    seen = [point.scheme for point, glance in looked(POINTS, within_s=0) if glance.predicted]
    assert len(set(seen[:2])) == 2


def test_each_point_is_followed_by_the_same_with_what_fails() -> None:
    found = looked(POINTS[:2], FAILS)
    assert [bool(point.faults) for point, _ in found] == [False, True] * 2
    for (healthy, glance), (failing, added) in zip(found[::2], found[1::2], strict=True):
        [fault] = failing.faults
        assert fault.when.after_s == pytest.approx(0.4 * predict(healthy).iteration_s)
        assert added.iteration_s == predict(failing).iteration_s > glance.iteration_s


def test_what_fails_is_placed_in_points_that_are_not_predicted_too() -> None:
    found = looked(POINTS, FAILS, within_s=0)
    assert [bool(point.faults) for point, _ in found] == [False, True] * len(POINTS)
    for point, glance in found[1::2]:
        assert point.faults == glance.faults
        assert 0 < point.faults[0].when.after_s < glance.iteration_s


def test_the_baseline_of_circuits_does_not_fail_and_a_point_keeps_its_own_faults() -> None:
    baseline = replace(POINTS[0], label=BIG_SWITCH)
    [(point, _)] = looked([baseline], FAILS)
    assert point == baseline
    own = replace(POINTS[0], faults=(FAILS.faults[0].over(FABRIC, 1e-3),))
    assert [point for point, _ in looked([POINTS[0], own])] == [POINTS[0], own]


def test_a_fault_that_the_fabric_does_not_have_is_a_sentence() -> None:
    with pytest.raises(ScenarioError, match="there is none"):
        looked(POINTS[:1], PlannedFailures((WrittenFault("nic:9:9@40%"),), 0.0))


def test_a_scheme_that_chooses_as_it_goes_loads_a_machine_twice() -> None:
    job, fabric = single(uniform(32)), rail_fabric(8, 4)
    reps = Experiment(fabric, job, "reps")
    found = load_of(reps, predict(reps))
    assert found.sent_bps == 2 * load_of(replace(reps, scheme="rails"), predict(reps)).sent_bps
