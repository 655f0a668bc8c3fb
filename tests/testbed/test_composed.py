"""Composed jobs over the fluid backend: one after another, side by side, with jitter, and their bounds."""

from dataclasses import replace
from graphlib import TopologicalSorter

import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from testbed.core.run import Run
from testbed.core.simulation import Simulation
from testbed.model.backend import FluidBackend
from tests.examples import examples
from tests.traffic.cases import lent_for
from tests.traffic.job_cases import jobs, starting_jobs
from topologies.fabric import Nic
from topologies.rail import rail_fabric
from traffic.clock import SECOND, ps
from traffic.collectives.ring import Ring
from traffic.compose import Repeat, one_after_another, placed, side_by_side, unfolded
from traffic.jitter import jittered
from traffic.job import Collective, Compute, Job
from traffic.job_bounds import job_bound_s, node_bounds_s, together_bound_s
from traffic.scheme import WholeMessages
from traffic.spraying.policy import QueuePair

FABRIC = rail_fabric(8, 1, 0, rate_bps=8192.0)
"""Eight servers with a GPU each on one leaf, which never blocks; a NIC carries 1024 bytes in a second,
so that sums of times are exact and what ends at once does so whenever a job begins."""


def run(job: Job, lent_s: float = 0.0) -> Run:
    """Run a job over `FABRIC`."""
    scheme = WholeMessages(lambda _view, a, b: QueuePair(Nic(a, 0), Nic(b, 0)))
    return Simulation(
        FABRIC, job, FluidBackend(FABRIC, {}, by_bytes=False, lent_bytes=lent_for(FABRIC, lent_s)), scheme
    ).run()


def took_s(found: Run) -> float:
    """Return when the last node ended [s]; 0 if none took part."""
    return found.iteration_s if len(found.tasks) else 0.0


MEETING = Job(
    "then", 8, (Collective("rings", Ring(((1, 0, 4, 3, 2, 5, 6, 7), (0, 6, 2, 5, 4, 3, 1, 7)), 17)),)
)
"""Rings whose messages meet on a queue pair at one time; which goes first decides."""


@given(jobs(8, "first"), jobs(8, "then"))
@example(Job("first", 8, (Collective("ring", Ring(((2, 6),), 2)),)), MEETING)
@settings(max_examples=examples(15, 50))
def test_nothing_of_the_second_job_starts_before_all_of_the_first_has_ended(first: Job, then: Job) -> None:
    both = run(one_after_another("both", [first, then]))
    is_first = both.tasks["node"].str.startswith("first/")
    latest_s = max(both.tasks.loc[is_first, "end_s"], default=0.0)
    assert latest_s <= min(both.tasks.loc[~is_first, "start_s"], default=latest_s)
    alone_s = took_s(run(first)) + took_s(run(then))
    assert took_s(both) == pytest.approx(alone_s, rel=1e-6, abs=1e-9)


@given(jobs(4, "left"), jobs(4, "right"), st.permutations(range(8)))
@settings(max_examples=examples(15, 50))
def test_jobs_side_by_side_on_gpus_of_their_own_take_as_long_as_the_longer(
    left: Job, right: Job, gpus: list[int]
) -> None:
    parts = [placed(left, gpus[:4], of=8), placed(right, gpus[4:], of=8)]
    alone = [took_s(run(part)) for part in parts]
    assert took_s(run(side_by_side("both", parts))) == pytest.approx(max(alone), rel=1e-6, abs=1e-9)


@given(jobs(8, "part"), st.integers(1, 4))
@settings(max_examples=examples(15, 50))
def test_a_repeated_job_takes_so_many_times_as_long(job: Job, times: int) -> None:
    repeated = unfolded("whole", 8, [Repeat(job, times)])
    assert took_s(run(repeated)) == pytest.approx(times * took_s(run(job)), rel=1e-6, abs=1e-9)


@given(jobs(8), st.integers(0, 99))
@settings(max_examples=examples(15, 50))
def test_tasks_take_what_their_jitter_says(job: Job, seed: int) -> None:
    slow = jittered(job, seed, 0.5)
    tasks = run(slow).tasks
    nodes = {node.name: node for node in slow.nodes}
    for row in tasks[tasks["gpu"] >= 0].itertuples():
        expected_s = nodes[str(row.node)].on_gpu_s(int(row.gpu))  # type: ignore[union-attr, arg-type]
        assert float(row.end_s) - float(row.start_s) == pytest.approx(expected_s, abs=1e-11)  # type: ignore[arg-type]


@given(starting_jobs(8))
@settings(max_examples=examples(15, 50))
def test_a_node_is_ready_when_all_that_it_waits_for_has_ended_and_its_time_has_come(job: Job) -> None:
    found = run(job)
    spans = found.tables.spans.assign(name=found.names(found.tables.spans))
    spans = spans.groupby("name").agg(ready_ps=("ready_ps", "min"), end_ps=("end_ps", "max"))
    nodes, ends_ps = {node.name: node for node in job.nodes}, dict[str, int]()
    for name in TopologicalSorter({node.name: node.after for node in job.nodes}).static_order():
        ready_ps = max([ps(nodes[name].at_s), *(ends_ps[before] for before in nodes[name].after)])
        if name in spans.index:
            assert spans.loc[name, "ready_ps"] == ready_ps
        ends_ps[name] = int(spans["end_ps"].get(name, ready_ps))
    least_s = max(job_bound_s(job, node_bounds_s(job, FABRIC)), together_bound_s(job, FABRIC))
    assert max(ends_ps.values()) / SECOND >= least_s * (1 - 1e-9) - 1e-9


@given(starting_jobs(4))
@settings(max_examples=examples(15, 50))
def test_a_start_is_a_wait_for_a_gpu_that_computes_until_then(job: Job) -> None:
    """The clock of each start is a GPU of its own, which does nothing else."""
    starts_s = sorted({node.at_s for node in job.nodes} - {0.0})
    clocks = [Compute(f"until {at_s}", (4 + gpu,), at_s) for gpu, at_s in enumerate(starts_s)]
    waiting = [
        replace(
            node, at_s=0.0, after=(*node.after, *(f"until {at_s}" for at_s in starts_s if at_s == node.at_s))
        )
        for node in job.nodes
    ]
    timed = run(replace(job, gpus=8))
    waited = run(replace(job, gpus=8, nodes=(*waiting, *clocks)))
    pd.testing.assert_frame_equal(timed.messages, waited.messages)
    mine = ~waited.tasks["node"].str.startswith("until")
    by = ["node", "gpu"]
    pd.testing.assert_frame_equal(
        timed.tasks.sort_values(by, ignore_index=True),
        waited.tasks[mine].sort_values(by, ignore_index=True),
    )


@given(jobs(8), st.floats(0.0, 2.0))
@settings(max_examples=examples(15, 50))
def test_no_job_beats_its_bound(job: Job, lent_s: float) -> None:
    found = run(job, lent_s)
    bounds_s = node_bounds_s(job, FABRIC, lent_for(FABRIC, lent_s))
    assert took_s(found) >= job_bound_s(job, bounds_s) * (1 - 1e-9)
    spans = found.tasks.groupby("node").agg(start_s=("start_s", "min"), end_s=("end_s", "max"))
    for node, start_s, end_s in spans.itertuples():
        assert end_s - start_s >= bounds_s[node] * (1 - 1e-6) - 1e-9
