"""The small runs: each is the same again, and the same a minute and a day later, to the picosecond."""

from dataclasses import replace

import pandas as pd
import pytest

from controller.circuits.ocs_reconfig import OcsReconfig
from testbed.experiment.experiment import Experiment
from testbed.model.predict import predict
from tests.audit.cases import small_runs
from tests.testbed.test_clock import shifted_back
from traffic.clock import SECOND
from traffic.job import Compute, Job

RUNS = dict(small_runs())
SHIFTS_S = (60, 3600, 86400)
NAMES = ("messages", "legs", "spans", "light", "links", "faults", "events")


def later(job: Job, shift_s: int) -> Job:
    """Return a job before which its GPUs compute; others stay idle, to take the place of some."""
    gpus = tuple(sorted({gpu for node in job.nodes for gpu in node.gpus}))
    first = Compute("before", gpus, float(shift_s))
    return replace(job, nodes=(first, *(replace(n, after=n.after or ("before",)) for n in job.nodes)))


def tables(experiment: Experiment, shift_s: int = 0) -> list[pd.DataFrame]:
    """Return the tables of a run, later than what comes before it; what was lit until then is left out."""
    found = predict(experiment).tables
    whole = [getattr(found, name) for name in NAMES]
    if not shift_s:
        return whole
    return [shifted_back(_since(table, shift_s), shift_s) for table in whole]


def _since(table: pd.DataFrame, shift_s: int) -> pd.DataFrame:
    return table[table["at_ps"] >= shift_s * SECOND] if "at_ps" in table else table


def check_same(found: list[pd.DataFrame], expected: list[pd.DataFrame]) -> None:
    for table, other in zip(found, expected, strict=True):
        pd.testing.assert_frame_equal(table, other)


@pytest.mark.parametrize("name", RUNS)
def test_a_small_run_is_the_same_again(name: str) -> None:
    experiment = RUNS[name]
    found = tables(experiment)
    assert len(found[0])
    check_same(tables(Experiment.from_json(experiment.to_json())), found)


def keeps_time(experiment: Experiment) -> bool:
    """Return whether nothing counts from the start of the job.

    A schedule begins with it, whatever its collective waits for. OCS-reconfig looks every so many seconds
    from it: a day later they are rounded to 15 ps.
    """
    return not (experiment.has_slots or isinstance(experiment.circuits, OcsReconfig))


@pytest.mark.parametrize("name", [name for name, experiment in RUNS.items() if keeps_time(experiment)])
def test_a_small_run_is_the_same_whenever_it_begins(name: str) -> None:
    experiment = RUNS[name]
    soon, *late = (
        tables(replace(experiment, job=later(experiment.job, shift_s)), shift_s) for shift_s in SHIFTS_S
    )
    assert len(soon[0])
    for each in late:
        check_same(each, soon)


def test_the_small_runs_differ() -> None:
    assert len({experiment.key for experiment in RUNS.values()}) == len(RUNS)
