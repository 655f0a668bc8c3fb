"""The report of a job of many nodes: when each began and ended, as a table and a timeline."""

import math
from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from typing import Any

import pandas as pd

from testbed.experiment.experiment import LIMIT
from testbed.report.claims import Claim
from testbed.report.collective_report import VERDICTS, fabric_text, scale_text
from testbed.report.figures import TIMELINE_CAPTION
from testbed.report.nodes import nodes_of
from testbed.report.page import TRACES, Block, Line, Page, Plot, Sheet, counted
from testbed.report.run_json import RunRecord
from testbed.report.table import number, significant
from testbed.report.timeline import timeline_of
from testbed.trust.agreement import ALL_LIMITED, MARK, MARKED, agreement_text
from testbed.trust.outcome import Outcome
from testbed.trust.similitude import few_packets_text, likeness, message_packets
from traffic.job_bounds import job_bound_s

MOST_SHOWN = 60
"""Most nodes that the table shows of a point; nodes.csv has all."""
HEADERS = ("start", "end", "took", "bound", "/ bound")


def node_page(
    run: RunRecord, outcomes: Sequence[Outcome], table: pd.DataFrame, claims: Sequence[Claim]
) -> Page:
    """Return the report of jobs, the nodes of each point in a block of their own.

    Parameters
    ----------
    run
        What was run.
    outcomes, table
        What came of it, at least one, and its summary.
    claims
        What it was held against.
    """
    return Page(
        run=run,
        sentence=_sentence(outcomes),
        table=table,
        results=node_sheet(outcomes),
        claims=claims,
        plots=list(map(_timeline, range(len(outcomes)), outcomes)),
        definitions=DEFINITIONS,
        files="The jobs themselves are in run.json beside this file; all nodes are in nodes.csv, all "
        f"messages in records.csv, all points in summary.csv. {TRACES}",
    )


def node_sheet(outcomes: Sequence[Outcome]) -> Sheet:
    """Return the first nodes of each outcome in the order in which they started, and its whole job."""
    emulated = any(outcome.emulated for outcome in outcomes)
    blocks, left = [], 0
    transports = list(dict.fromkeys(outcome.experiment.transport_name for outcome in outcomes))
    for outcome in outcomes:
        nodes = nodes_of(outcome)
        left += max(len(nodes) - MOST_SHOWN, 0)
        rows = nodes.head(MOST_SHOWN).to_dict("records")
        lines = [Line([str(row["node"]), str(row["kind"]), *_times(row, emulated)]) for row in rows]
        title = titled(outcome, outcomes)
        blocks += [
            Block(lines, title),
            Block([Line(["all", "job", *whole(outcome, emulated)], look="bound")]),
        ]
    marked = any(MARK in cell for block in blocks for line in block.lines for cell in line.cells[2:])
    more = f" {counted(left, 'more node')} in nodes.csv." if left else ""
    how = "; ".join(dict.fromkeys(how_text(outcome) for outcome in outcomes))
    over = f" Transport: {transports[0]}." if len(transports) == 1 else ""
    return Sheet(
        ("node", "kind"),
        (*HEADERS, *(("model", "/ model") if emulated else ())),
        blocks,
        f"Milliseconds since the start, at real scale, {how}.{over}{more}"
        + (f" {MARKED}" if marked else "")
        + (f" {ALL_LIMITED}" if any(each.experiment.predicted_as == LIMIT for each in outcomes) else ""),
    )


def whole(outcome: Outcome, emulated: bool) -> list[str]:
    """Return the cells of the whole job, as `HEADERS` has them, and of its prediction.

    A job that is revised on the way has no bound.
    """
    bound_s = max(job_bound_s(outcome.experiment.job, outcome.node_bounds_s), outcome.bound_s)
    took_s = outcome.run.iteration_s if outcome.is_sound else math.nan
    whole: Mapping[Hashable, float] = {
        "start_s": 0.0,
        "end_s": took_s,
        "took_s": took_s,
        "bound_s": math.nan if outcome.experiment.revisions.known else bound_s,
        "predicted_s": outcome.predicted.iteration_s if outcome.is_sound else math.nan,
    }
    return _times(whole, emulated)


def _times(row: Mapping[Hashable, Any], emulated: bool) -> list[str]:
    """Return the cells of `HEADERS` and of the prediction; a dash where a node may take no time."""
    took_s, bound_s, predicted_s = row["took_s"], row["bound_s"], row["predicted_s"]
    cells = [significant(1e3 * row[name]) for name in ("start_s", "end_s", "took_s")]
    cells += [significant(1e3 * bound_s), number(took_s / bound_s, "{:.2f}")] if bound_s else ["-", "-"]
    if emulated:
        cells += [
            significant(1e3 * predicted_s),
            agreement_text(took_s / predicted_s if predicted_s else math.nan),
        ]
    return cells


def how_text(outcome: Outcome) -> str:
    """Return how the numbers came about, whether to believe them, and how like real ones they are."""
    verdict = outcome.verdict
    if verdict.word == "model":
        return "predicted by the fluid model"
    words = ", ".join(filter(None, [verdict.word, likeness(outcome.numbers)]))
    few = few_packets_text({outcome.experiment.job.name: message_packets(outcome.numbers)}).rstrip(".")
    return "; ".join((f"emulated ({words})", *verdict.reasons, *filter(None, [verdict.advice, few])))


def titled(outcome: Outcome, outcomes: Sequence[Outcome]) -> str:
    """Return what tells an outcome's block from those of others; nothing where it is alone."""
    over = f"over {outcome.experiment.transport_name}"
    if len(set(map(_run_text, outcomes))) > 1:
        return f"{_run_text(outcome)} {over}"
    return over if len(outcomes) > 1 else ""


def _run_text(outcome: Outcome) -> str:
    return f"{outcome.experiment.job.name}, {outcome.experiment.name}"


def _sentence(outcomes: Sequence[Outcome]) -> str:
    """Return what was run, each job once, and then over which transports."""
    jobs = dict.fromkeys(map(_job_text, outcomes))
    return f"{' '.join(jobs)} {scale_text(outcomes)}"


def _job_text(outcome: Outcome) -> str:
    experiment, job = outcome.experiment, outcome.experiment.job
    note = f" ({job.note})" if job.note else ""
    return (
        f"Job {job.name}{note}, {counted(len(job.nodes), 'node')} on {counted(job.gpus, 'GPU')}, under "
        f"{experiment.name} over {fabric_text(experiment.fabric)}."
    )


def _timeline(index: int, outcome: Outcome) -> Plot:
    caption = f"{_run_text(outcome)} over {outcome.experiment.transport_name}. {TIMELINE_CAPTION}"
    return Plot(f"timeline_{index}" if index else "timeline", partial(timeline_of, [outcome]), caption)


DEFINITIONS = (
    ("took", "From when a node started, on its first GPU, to its end on its last."),
    (
        "bound",
        "What a node takes at least: a compute its slowest GPU; a collective what its busiest server owes or "
        "is owed from end to end, whatever is passed on, over the rate of its NICs (of all servers of a node "
        "that are in one), of a ring what any sum of its bytes takes; a dash where it stays inside servers. "
        "The job's bound is its longest path of bounds, all computes of its busiest GPU, or all that its "
        "servers send or receive.",
    ),
    ("model", "What max-min fair fluids take over the same paths; alone where nothing was emulated."),
    *VERDICTS,
)
