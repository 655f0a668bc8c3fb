"""The clock: what a run does is the same whenever it begins."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from testbed.core.run import Run
from testbed.experiment.experiment import Experiment
from testbed.model.backend import FluidBackend
from testbed.model.predict import predict
from tests.testbed.run_cases import Case, moe, ring
from topologies.errors import ScenarioError
from topologies.fat_tree import fat_tree_fabric
from topologies.rail import rail_fabric
from traffic.clock import NEVER, SECOND, in_seconds, ps
from traffic.collectives.all_to_all import AllToAll
from traffic.collectives.ring import Ring
from traffic.demand import Demand
from traffic.job import Collective, Compute, Job
from traffic.workloads.synthetic import uniform

SHIFTS_S = (60, 3600, 86400)


def later(job: Job, shift_s: float) -> Job:
    """Return a job before which all GPUs compute."""
    first = Compute("before", tuple(range(job.gpus)), float(shift_s))
    return replace(job, nodes=(first, *(replace(n, after=n.after or ("before",)) for n in job.nodes)))


def shifted_back(table: pd.DataFrame, shift_s: int) -> pd.DataFrame:
    """Return a table without what comes before, as if that had taken no time."""
    mine = table[table["node"] > 0] if "node" in table else table  # the first node is what comes before
    times = {
        name: mine[name].where(mine[name] == NEVER, mine[name] - shift_s * SECOND)
        for name in map(str, mine)
        if name.endswith("_ps")
    }
    return mine.assign(**times).reset_index(drop=True)


def check_shifted(run: Run, reference: Run, shift_s: int) -> None:
    """Check that tables are those of a run that began earlier, to the picosecond."""
    for name in ("messages", "legs", "spans", "light", "links", "faults", "events"):
        table, expected = getattr(run.tables, name), getattr(reference.tables, name)
        pd.testing.assert_frame_equal(shifted_back(table, shift_s), shifted_back(expected, 0))


def drawn(gpus: int) -> Demand:
    """Return a demand with no two equal messages."""
    owed = np.random.default_rng(3).integers(1, 3_000_000, (gpus, gpus))
    return Demand("drawn", owed)


RAIL = rail_fabric(4, 2)
JOBS = {
    "ring": Job("ring", 8, (Collective("ring", Ring((tuple(range(8)),), 1_000_000)),)),
    "drawn": Job(
        "drawn", 8, (Collective("a", AllToAll(drawn(8))), Collective("b", AllToAll(drawn(8)), ("a",)))
    ),
    "uniform": Job("uniform", 8, (Collective("a", AllToAll(uniform(8))),)),
}


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("scheme", ["rails", "ecmp", "reps"])
@pytest.mark.parametrize("couples", [False, True], ids=["step by step", "coupled"])
def test_a_run_that_begins_later_is_the_same(job: str, scheme: str, couples: bool) -> None:
    experiment = Experiment(RAIL, JOBS[job], scheme)
    reference = predict(replace(experiment, job=later(JOBS[job], 0)), couples=couples)
    for shift_s in SHIFTS_S:
        again = predict(replace(experiment, job=later(JOBS[job], shift_s)), couples=couples)
        check_shifted(again, reference, shift_s)


@pytest.mark.parametrize("case", [moe(), ring()], ids=["moe", "ring"])
def test_circuits_and_faults_come_later_too(case: Case) -> None:
    def run(shift_s: int) -> Run:
        shifted = replace(case, job=later(case.job, shift_s))
        return shifted.run(FluidBackend(case.fabric, case.delay_s))

    reference = run(0)
    for shift_s in SHIFTS_S:
        check_shifted(run(shift_s), reference, shift_s)


def test_a_short_ring_takes_its_time_after_an_hour_of_compute() -> None:
    """The same instant was a part of the time since the start: 38.6 us instead of 68.9."""
    fabric = fat_tree_fabric(4)
    job = Job("ring", fabric.gpus, (Collective("ring", Ring((tuple(range(fabric.gpus)),), 1_000_000)),))
    runs = [predict(Experiment(fabric, later(job, shift_s), "rails")) for shift_s in (0, 3600)]
    spans = [run.tables.spans.iloc[-1] for run in runs]
    took_ps = [span["end_ps"] - span["released_ps"] for span in spans]
    assert took_ps[1] == took_ps[0]


def test_durations_become_picoseconds_and_too_long_ones_are_refused() -> None:
    assert (ps(1.0), ps(0.0), ps(1e-15), ps(np.inf)) == (SECOND, 0, 1, NEVER)
    assert in_seconds(ps(3.5)) == 3.5
    assert in_seconds(NEVER) == np.inf
    for too_long_s in (9.3e6, 1e300):
        with pytest.raises(ScenarioError, match="106 days"):
            ps(too_long_s)


def test_a_run_of_more_than_106_days_is_refused() -> None:
    compute = Job("slow", 8, tuple(Compute(f"{day}", (0,), 8.6e4) for day in range(110)))
    with pytest.raises(ScenarioError, match="106 days"):
        predict(Experiment(RAIL, compute, "rails"))
    slow = rail_fabric(2, 1, rate_bps=1e3)
    with pytest.raises(ScenarioError, match="106 days"):
        predict(
            Experiment(
                slow,
                Job("slow", 2, (Collective("a", AllToAll(Demand("much", np.full((2, 2), 2 * 10**9)))),)),
                "rails",
            )
        )
