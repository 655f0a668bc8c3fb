"""What `job` leaves behind: its table of nodes for terminal and report, and its results directory."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

import pandas as pd
from matplotlib.figure import Figure

from testbed.machine.files import write_whole
from testbed.report.figures import Plot
from testbed.report.page import Block, Line, Page, Sheet, counted
from testbed.report.results import RunDirectory
from testbed.report.table import significant
from testbed.report.timeline import timeline
from testbed.run.job_trial import JobTrial
from testbed.run.outcome import Verdict
from testbed.run.runner import Run as JobRun
from topologies.errors import ScenarioError
from topologies.fabric import Fabric
from traffic.job import Compute, Job
from traffic.job_bounds import job_bound_s, node_bounds_s
from traffic.job_file import job_text

MOST_SHOWN = 60
"""Most nodes that the table and the timeline show; summary.csv has all."""
TIMES = ("start_s", "end_s", "took_s", "bound_s")
HEADERS = ("start", "end", "took", "bound", "/ bound")


@dataclass(frozen=True, eq=False)
class JobOutcome:
    """A job that was emulated or predicted."""

    job: Job
    trial: JobTrial
    nodes: pd.DataFrame
    """A row per node, in the order in which they started: node, kind, gpus, `TIMES` and predicted_s."""
    bound_s: float
    """How long the job takes at least [s]."""

    @property
    def emulated(self) -> bool:
        """Whether packets carried it."""
        return self.trial.verdict.word != "model"


def job_outcome(job: Job, fabric: Fabric, trial: JobTrial) -> JobOutcome:
    """Return a job beside its bounds.

    Raises
    ------
    ScenarioError
        If no node took any part: none has a GPU.
    """
    if trial.run.tasks.empty:
        raise ScenarioError(f"no node of job {job.name!r} has a GPU", "give one of them some")
    bounds_s = node_bounds_s(job, fabric)
    nodes = _node_table(job, bounds_s, trial.run)
    expected = _node_table(job, bounds_s, trial.predicted).set_index("node")["took_s"]
    nodes["predicted_s"] = expected.loc[nodes["node"]].to_numpy()
    return JobOutcome(job, trial, nodes, job_bound_s(job, bounds_s))


class JobResults(RunDirectory):
    """The directory of a job's run; ``job.json`` holds the job as it ran, a row of summary.csv each node."""

    outcome: JobOutcome | None = None
    """What was added."""

    def add(self, outcome: JobOutcome, seed: int) -> None:
        """Write what came of the job."""
        self.outcome = outcome
        write_whole(self.path / "job.json", job_text(outcome.job))
        trial = outcome.trial
        table = outcome.nodes.assign(seed=seed, verdict=trial.verdict.word)
        rows = [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]
        records = trial.run.messages.assign(backend="emulated" if outcome.emulated else "predicted")
        if outcome.emulated:
            records = pd.concat([records, trial.predicted.messages.assign(backend="predicted")])
        self.write(rows, records=records)

    def _point(self, outcome: JobOutcome) -> pd.DataFrame:
        """Return the whole job as the one point of the run."""
        trial, settings = outcome.trial, self.run.settings
        judged = {"verdict": trial.verdict.word, "reasons": "; ".join(trial.verdict.reasons)}
        named = {"workload": outcome.job.name, "scheme": settings["scheme"], "seed": settings["seed"]}
        return pd.DataFrame([{**named, **judged, "advice": trial.verdict.advice, **asdict(trial.measures)}])

    def page(self) -> Page:
        """Return the report of the job."""
        if self.outcome is None:
            raise ScenarioError("a report without an outcome", "add one")
        job, how = self.outcome.job, "emulated with real packets" if self.outcome.emulated else "predicted"
        return Page(
            run=self.run,
            sentence=f"Job {job.name}, {counted(len(job.nodes), 'node')} on {counted(job.gpus, 'GPU')}, "
            f"{how}{'' if self.outcome.emulated else ' by the fluid model'}. {job.note}",
            table=self._point(self.outcome),
            results=node_sheet(self.outcome),
            claims=(),
            plots=[Plot("timeline", partial(_drawn, self.outcome), TIMELINE_CAPTION)],
            definitions=DEFINITIONS,
            files="Every node is a row of summary.csv, every message one of records.csv, and job.json is the "
            "job as it ran, beside this file.",
        )


def node_sheet(outcome: JobOutcome) -> Sheet:
    """Return the first nodes in the order in which they started, and the whole job."""
    trial, emulated = outcome.trial, outcome.emulated
    rows = outcome.nodes.head(MOST_SHOWN).to_dict("records")
    names = (*TIMES, "predicted_s")
    lines = [
        Line([str(row["node"]), str(row["kind"]), *_times([float(str(row[n])) for n in names], emulated)])
        for row in rows
    ]
    took_s, predicted_s = trial.run.iteration_s, trial.predicted.iteration_s
    times = _times([0.0, took_s, took_s, outcome.bound_s, predicted_s], emulated)
    whole = Line(["all", "job", *times], look="bound")
    left = len(outcome.nodes) - len(lines)
    more = f" {counted(left, 'more node')} in summary.csv." if left else ""
    return Sheet(
        ("node", "kind"),
        (*HEADERS, *(("model", "/ model") if emulated else ())),
        [Block(lines), Block([whole])],
        f"Milliseconds since the start, at real scale, {_how(trial.verdict)}.{more}",
    )


def _how(verdict: Verdict) -> str:
    """Return how the numbers came about, and whether to believe them."""
    if verdict.word == "model":
        return "predicted by the fluid model"
    return "; ".join((f"emulated ({verdict.word})", *verdict.reasons, *filter(None, [verdict.advice])))


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


def _times(times_s: Sequence[float], emulated: bool) -> list[str]:
    """Return the cells of `TIMES` and the prediction; a dash where a node may take no time."""
    start_s, end_s, took_s, bound_s, predicted_s = times_s
    cells = [significant(1e3 * each) for each in (start_s, end_s, took_s)]
    cells += [significant(1e3 * bound_s), f"{took_s / bound_s:.2f}"] if bound_s else ["-", "-"]
    if emulated:
        over = f"{took_s / predicted_s:.2f}" if predicted_s else "-"
        cells += [significant(1e3 * predicted_s), over]
    return cells


def _drawn(outcome: JobOutcome) -> Figure:
    """Return the timeline of the first nodes that started, the emulated one above the predicted one."""
    trial, nodes = outcome.trial, outcome.nodes["node"]
    runs = {"emulated": trial.run} if outcome.emulated else {}
    runs["predicted"] = trial.predicted
    if len(nodes) <= MOST_SHOWN:
        return timeline(runs)
    first = nodes.head(MOST_SHOWN)
    return timeline(
        {
            f"{name}, the first {MOST_SHOWN} of {len(nodes)} nodes": replace(
                run, tasks=run.tasks[run.tasks["node"].isin(first)]
            )
            for name, run in runs.items()
        }
    )


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
    ("model", "What max-min fair fluids take over the same paths; alone where nothing was emulated."),
)
