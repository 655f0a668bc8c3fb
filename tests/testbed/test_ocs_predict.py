"""The prediction of schedules: every byte, within bound and makespan, and dark where an OCS is dark."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from controller.circuits.devices import ReconfigurationDelay
from controller.schedulers.registry import SCHEDULERS
from controller.schedulers.schedule import Schedule, Slot
from testbed.experiment.dilation import Dilation
from testbed.experiment.experiment import Experiment
from testbed.experiment.ocs_plan import over_ocses, plan_of
from testbed.model.predict import predict
from tests.testbed.ocs_cases import DELAY, DELAY_S, OCSES, SERVERS, experiment_of, partially, planned
from tests.testbed.slot_by_slot import ends_s
from topologies.parallel_ocs import parallel_ocs_fabric
from traffic.demand import Demand
from traffic.metrics import link_bytes, nic_received_bytes, nic_sent_bytes
from traffic.records import Records
from traffic.steps import demands_of
from traffic.workloads.ocs_workloads import SCALED


def predicted(experiment: Experiment, delays_s: Sequence[Sequence[float]] = ()) -> Records:
    """Return the prediction with the delays of each OCS."""
    return predict(experiment, delays_s=dict(zip(experiment.ocs_delays, delays_s, strict=False))).records


@pytest.mark.parametrize("workload", SCALED)
@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_the_prediction_carries_every_byte_within_bound_and_makespan(scheduler: str, workload: str) -> None:
    experiment = experiment_of(scheduler, workload)
    run = predict(experiment)
    records = run.records
    owed = demands_of(experiment.job)[0].matrix
    assert records["bytes"].sum() == owed.sum()
    sent = nic_sent_bytes(link_bytes(run.tables), experiment.fabric).reshape(SERVERS, OCSES).sum(axis=1)
    received = (
        nic_received_bytes(link_bytes(run.tables), experiment.fabric).reshape(SERVERS, OCSES).sum(axis=1)
    )
    assert sent.tolist() == owed.sum(axis=1).tolist()
    assert received.tolist() == owed.sum(axis=0).tolist()
    assert (records["start_s"] == 0.0).all()
    assert (
        records["end_s"] >= DELAY_S + records["bytes"] * 8 / plan_of(experiment.rule).rate_bps / OCSES - 1e-12
    ).all()
    assert (
        plan_of(experiment.rule).lower_bound_s * (1 - 1e-9)
        <= records["end_s"].max()
        <= plan_of(experiment.rule).schedule.makespan + 1e-12
    )


@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("workload", SCALED)
@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_the_prediction_is_what_the_slots_carry_one_by_one(
    scheduler: str, workload: str, partial: bool
) -> None:
    experiment = partially(experiment_of(scheduler, workload), partial)
    drawn_s = np.random.default_rng(1).uniform(0.5 * DELAY_S, 2 * DELAY_S, (OCSES, 100)).tolist()
    nothing: list[list[float]] = []
    for delays_s in (nothing, drawn_s):
        records = predicted(experiment, delays_s)
        assert np.allclose(records["end_s"], ends_s(experiment, delays_s), rtol=1e-9)


def test_the_prediction_of_one_message_over_two_circuits() -> None:
    fabric = parallel_ocs_fabric(2, 2)
    demand = Demand("one", np.array([[0, 1_250_000_000], [0, 0]]))  # 0.1 s alone, half over each OCS
    experiment = planned(fabric, demand, "spectra", DELAY, Dilation(1e-3, 1e-2))
    (record,) = predicted(experiment).to_dict("records")
    assert record["end_s"] == pytest.approx(plan_of(experiment.rule).schedule.makespan)
    assert record["path"] == "625000000@h0:0,ocs0:1 625000000@h0:1,ocs1:1"


@pytest.mark.parametrize("workload", SCALED)
@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_circuits_that_are_kept_carry_earlier_and_never_under_the_bound(
    scheduler: str, workload: str
) -> None:
    experiment = experiment_of(scheduler, workload)
    kept = predicted(partially(experiment))
    assert kept["bytes"].sum() == demands_of(experiment.job)[0].total_bytes
    assert (kept["end_s"] <= predicted(experiment)["end_s"] + 1e-12).all()
    assert kept["end_s"].max() >= plan_of(experiment.rule).lower_bound_s * (1 - 1e-9)


def test_an_unchanged_circuit_is_predicted_dark_between_two_slots_unless_reconfigurations_are_partial(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slots = tuple(Slot(np.array(outputs), 1.0) for outputs in ([1, 2, 0], [1, 0, -1], [1, -1, -1]))
    monkeypatch.setitem(SCHEDULERS, "rotor", lambda _line_s, _ocses, delay_s: Schedule((slots,), delay_s))
    line_s = np.array([[0, 2.5, 0], [0.5, 0, 0], [0, 0, 0]])
    demand = Demand("kept", np.rint(line_s * 100e9 / 8).astype(np.int64))
    fabric, delay = parallel_ocs_fabric(3, 1), ReconfigurationDelay("delay", 0.25)
    experiment = planned(fabric, demand, "rotor", delay, Dilation(1e-3, 1e-3))
    for partial, each_s in ((False, [3 * 0.25 + 2.5, 2 * 0.25 + 1.5]), (True, [0.25 + 2.5, 2 * 0.25 + 1.5])):
        records = predicted(partially(experiment, partial))
        assert records["end_s"].tolist() == pytest.approx(each_s)
    # The third slot lights nothing new: with partial reconfigurations the OCS does not move before it.
    owed = Demand("last", np.rint(line_s / 2.5 * 3.25 * 100e9 / 8).astype(np.int64))
    (last_s, _) = predicted(replace(partially(experiment), job=over_ocses(owed, 1)))["end_s"]
    assert last_s == pytest.approx(0.25 + 3.25)


def test_delays_that_were_drawn_move_what_comes_after_them_and_shorten_nothing() -> None:
    experiment = experiment_of("rotor")
    planned = predicted(experiment)
    known = [[DELAY_S] * len(slots) for slots in plan_of(experiment.rule).schedule.switches]
    assert predicted(experiment, known).equals(planned)
    late = predicted(experiment, [[DELAY_S + 0.5] for _ in known])
    assert np.allclose(late["end_s"], planned["end_s"] + 0.5)
    one_late = predicted(experiment, [[DELAY_S, DELAY_S + 0.5], known[1]])
    assert set((one_late["end_s"] - planned["end_s"]).round(9)) == {0.0, 0.5}
    assert (one_late["path"] == planned["path"]).all()


def test_what_slots_leave_over_by_rounding_needs_no_clean_up(monkeypatch: pytest.MonkeyPatch) -> None:
    slot = Slot(np.array([1, 0]), 0.1 * (1 - 5e-9))
    monkeypatch.setitem(SCHEDULERS, "rotor", lambda _line_s, _ocses, delay_s: Schedule(((slot,),), delay_s))
    demand = Demand("even", np.array([[0, 1_250_000_000], [1_250_000_000, 0]]))
    fabric = parallel_ocs_fabric(2, 1)
    records = predicted(planned(fabric, demand, "rotor", DELAY, Dilation(1e-3, 1e-2)))
    assert records["end_s"].tolist() == pytest.approx([DELAY_S + 0.1] * 2, rel=1e-8)
    assert records["path"].tolist() == ["1250000000@h0:0,ocs0:1", "1250000000@h1:0,ocs0:0"]
