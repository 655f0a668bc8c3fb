"""What `job` leaves behind: its table of nodes for terminal and report, and its results directory."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import pandas as pd
from matplotlib.figure import Figure

from testbed.figures import Plot
from testbed.files import write_whole
from testbed.report import Block, Line, Page, Sheet, counted
from testbed.results import RunDirectory
from testbed.runner import Run as JobRun
from testbed.table import significant
from testbed.timeline import timeline
from topologies.errors import ScenarioError
from topologies.fabric import Fabric
from traffic.job import Compute, Job
from traffic.job_bounds import job_bound_s, node_bounds_s
from traffic.job_file import job_text

MOST_SHOWN = 60
"""Most nodes that the table and the timeline show; summary.csv has all."""
TIMES = ("start_s", "end_s", "took_s", "bound_s")


@dataclass(frozen=True, eq=False)
class Prediction:
    """A job that was predicted."""

    job: Job
    run: JobRun
    nodes: pd.DataFrame
    """A row per node, in the order in which they started: node, kind, gpus and `TIMES`."""
    bound_s: float
    """How long the job takes at least [s]."""


def prediction(job: Job, fabric: Fabric, run: JobRun) -> Prediction:
    """Return a job beside its bounds.

    Raises
    ------
    ScenarioError
        If no node took any part: none has a GPU.
    """
    if run.tasks.empty:
        raise ScenarioError(f"no node of job {job.name!r} has a GPU", "give one of them some")
    bounds_s = node_bounds_s(job, fabric)
    return Prediction(job, run, _node_table(job, bounds_s, run), job_bound_s(job, bounds_s))


class JobResults(RunDirectory):
    """The directory of a job's run; ``job.json`` holds the job as it ran, a row of summary.csv each node."""

    prediction: Prediction | None = None
    """What was added."""

    def add(self, prediction: Prediction, seed: int) -> None:
        """Write a prediction."""
        self.prediction = prediction
        write_whole(self.path / "job.json", job_text(prediction.job))
        table = prediction.nodes.assign(seed=seed, verdict="model")
        rows = [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]
        self.write(rows, records=prediction.run.messages)

    def page(self) -> Page:
        """Return the report of the prediction."""
        if self.prediction is None:
            raise ScenarioError("a report without a prediction", "add one")
        job = self.prediction.job
        return Page(
            run=self.run,
            sentence=f"Job {job.name}, {counted(len(job.nodes), 'node')} on {counted(job.gpus, 'GPU')}, "
            f"predicted by the fluid model. {job.note}",
            table=self.table,
            results=node_sheet(self.prediction),
            claims=(),
            plots=[Plot("timeline", partial(_drawn, self.prediction), TIMELINE_CAPTION)],
            definitions=DEFINITIONS,
            files="Every node is a row of summary.csv, every message one of records.csv, and job.json is the "
            "job as it ran, beside this file.",
        )


def node_sheet(prediction: Prediction) -> Sheet:
    """Return the first nodes in the order in which they started, and the whole job."""
    rows = prediction.nodes.head(MOST_SHOWN).to_dict("records")
    lines = [
        Line([str(row["node"]), str(row["kind"]), *_times(*(float(str(row[name])) for name in TIMES))])
        for row in rows
    ]
    took_s = prediction.run.iteration_s
    whole = Line(["all", "job", *_times(0.0, took_s, took_s, prediction.bound_s)], look="bound")
    left = len(prediction.nodes) - len(lines)
    more = f" {counted(left, 'more node')} in summary.csv." if left else ""
    return Sheet(
        ("node", "kind"),
        ("start [ms]", "end [ms]", "took [ms]", "bound [ms]", "took / bound"),
        [Block(lines), Block([whole])],
        f"Since the start, at real scale, predicted by the fluid model.{more}",
    )


def _node_table(job: Job, bounds_s: Mapping[str, float], run: JobRun) -> pd.DataFrame:
    spans = run.tasks.groupby("node").agg(start_s=("start_s", "min"), end_s=("end_s", "max"))
    columns = (spans.index, spans["start_s"].tolist(), spans["end_s"].tolist())
    took = {str(node): (start_s, end_s) for node, start_s, end_s in zip(*columns, strict=True)}
    rows = [
        {
            "node": node.name,
            "kind": "compute" if isinstance(node, Compute) else node.pattern.name,
            "gpus": len(node.gpus),
            "start_s": took[node.name][0],
            "end_s": took[node.name][1],
            "took_s": took[node.name][1] - took[node.name][0],
            "bound_s": bounds_s[node.name],
        }
        for node in job.nodes
        if node.name in took
    ]
    return pd.DataFrame(rows).sort_values(["start_s", "end_s"], kind="stable", ignore_index=True)


def _times(start_s: float, end_s: float, took_s: float, bound_s: float) -> list[str]:
    """Return the cells of a line; a dash where a node may take no time."""
    times = [significant(1e3 * each) for each in (start_s, end_s, took_s)]
    return [*times, significant(1e3 * bound_s), f"{took_s / bound_s:.2f}"] if bound_s else [*times, "-", "-"]


def _drawn(prediction: Prediction) -> Figure:
    """Return the timeline of the first nodes that started."""
    run, nodes = prediction.run, prediction.nodes["node"]
    if len(nodes) <= MOST_SHOWN:
        return timeline({"predicted": run})
    first = replace(run, tasks=run.tasks[run.tasks["node"].isin(nodes.head(MOST_SHOWN))])
    return timeline({f"predicted, the first {MOST_SHOWN} of {len(nodes)} nodes": first})


TIMELINE_CAPTION = (
    "When each node of the job ran: compute grey, bytes blue. A compute's bar reaches from its first GPU's "
    "start to its last GPU's end."
)
DEFINITIONS = (
    ("took", "From when a node started, on its first GPU, to its end on its last."),
    (
        "bound",
        "What a node takes at least: a compute its slowest GPU; a collective its busiest server's bytes over "
        "the rate of its NICs, a dash where it stays inside servers. The job's bound is its longest path of "
        "bounds, or all computes of its busiest GPU.",
    ),
    ("model", "Predicted by max-min fair fluids; nothing was emulated."),
)
