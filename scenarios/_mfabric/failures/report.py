"""The report of failures in a training step: when each is known, and its cost then and after."""

import math
from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from scenarios._mfabric.failures.points import STEADY, STEP
from testbed.core.run import Run
from testbed.experiment.experiment import Experiment
from testbed.report.claims import LIGHTRAIL, Range, farthest_from_1, worst_claim
from testbed.report.page import Block, Findings, Line, Plot, Sheet
from testbed.report.palette import BOUND, COLOURS, INK, canvas, colours, horizontal_grid, legend_below, styled
from testbed.report.table import number
from testbed.trust.outcome import LEFT_OUT, Outcome
from traffic.faults import moved

MS = 1e3
AGREES: Range = (0.85, 1.20)
"""Time that a failure adds, as emulated over as predicted."""
KNOWN: Range = (0.99, 1.1)
"""When it is known in the emulation over when it is to be."""


def failure_findings(outcomes: Sequence[Outcome]) -> Findings:
    """Return tables, plots and claims of outcomes of `scenarios._mfabric.failures.points`, in any order."""
    table = failure_table(outcomes)
    if table.empty:
        return Findings()
    ratios = [
        float(row["lost_s"] / row["predicted_lost_s"])
        for row in table.to_dict("records")
        if not {row["verdict"], row["healthy_verdict"]} & {*LEFT_OUT}
        and row["verdict"] != "model"
        and row["predicted_lost_s"]
    ]
    emulated = table[table["verdict"] != "model"]
    timed = emulated[~emulated["verdict"].isin(LEFT_OUT) & (emulated["detect_s"] > 0)]
    known = [float(ratio) for ratio in timed["known_s"] / timed["detect_s"]]
    lacks = [float(lack) for lack in emulated["lacks_bytes"]]
    claims = [
        worst_claim("every byte arrives", LIGHTRAIL, (0, 0), lacks, max, "{:.0f} bytes lack"),
        worst_claim(
            "a failure is known when it is to be", "lightrail's model", KNOWN, known, farthest_from_1
        ),
        worst_claim(
            "a step loses as much as predicted", "lightrail's model", AGREES, ratios, farthest_from_1
        ),
    ]
    plots = [
        Plot("failures", partial(_drawn_bars, table), BARS),
        Plot("what_moved_when", partial(_drawn_bytes, list(outcomes)), BYTES),
    ]
    return Findings([_course_sheet(table), _cost_sheet(table)], plots, claims)


def failure_table(outcomes: Sequence[Outcome]) -> pd.DataFrame:
    """Return a row per failure and transport.

    Returns
    -------
    DataFrame
        failure, transport, verdict (of the step in which it comes); detect_s, when it is to be known, and
        known_s and around_s, when it was and when what it cut was placed anew; last_byte_s, when the
        all-to-all that it cut had arrived, all since the failure [real s]; healthy_s, an iteration without;
        lost_s and predicted_lost_s, by how much that step is longer; added_s and predicted_added_s, by how
        much one is from which it is gone all along, added_s NaN where that was not emulated [real s];
        again_bytes, of what was sent again from its beginning; lacks_bytes, of what was owed.
    """
    found = {(o.experiment.name, o.experiment.transport_name): o for o in outcomes}
    rows = []
    for (name, transport), outcome in found.items():
        if name.startswith(STEADY) or not outcome.experiment.faults:
            continue
        healthy = found.get((STEP, transport))
        (fault,) = outcome.experiment.faults
        after = found.get((f"{STEADY}, {fault.name}", transport))
        at_s = outcome.run.events[outcome.run.events["which"] == fault.name].groupby("what")["at_s"].first()
        messages = outcome.run.messages
        sent = messages[messages["node"] == fault.when.node]
        rows.append(
            {
                "failure": fault.name,
                "transport": transport,
                "verdict": outcome.verdict.word,
                "detect_s": fault.detect_s,
                "known_s": at_s.get("detected", math.nan) - at_s["failed"],
                "around_s": at_s.get("gone around", math.nan) - at_s["failed"],
                "last_byte_s": sent["end_s"].max() - at_s["failed"],
                "healthy_verdict": healthy.verdict.word if healthy else "-",
                "healthy_s": healthy.run.iteration_s if healthy else math.nan,
                "lost_s": _longer_s(outcome, healthy, outcome.emulated is None),
                "predicted_lost_s": _longer_s(outcome, healthy, True),
                "added_s": _longer_s(after, healthy, False),
                "predicted_added_s": _longer_s(after, healthy, True),
                "again_bytes": int(messages.loc[messages["end_s"].isna(), "bytes"].sum()),
                "lacks_bytes": lacking_bytes(outcome.experiment, outcome.run),
            }
        )
    return pd.DataFrame(rows)


def lacking_bytes(experiment: Experiment, run: Run) -> int:
    """Return the bytes that a job's collectives owe and that did not arrive, between any two GPUs.

    What moved to other GPUs is owed between these by collectives that ended after that was known.
    """
    known_s = {
        which: at_s
        for what, which, at_s in zip(*(run.events[name] for name in ("what", "which", "at_s")), strict=True)
        if what == "detected"
    }
    arrived = run.messages[run.messages["end_s"].notna()]
    arrived_bytes = arrived.groupby(["node", "source", "destination"])["bytes"].sum().to_dict()
    ended_s = run.tasks.groupby("node")["end_s"].max()
    jobs, lacks = [(-math.inf, experiment.job)], 0
    for name, moves in experiment.revisions.moves.items():
        jobs.append((known_s.get(name, math.inf), moved(jobs[-1][1], moves)))
    for place, node in enumerate(experiment.job.collectives):
        owing = [job for since_s, job in jobs if since_s <= ended_s.get(node.name, math.inf)][-1]
        owed = owing.collectives[place].pattern.lower().moves
        ends = owed.source * experiment.fabric.gpus + owed.destination
        pairs, of_pair = np.unique(ends, return_inverse=True)
        for pair, size in zip(pairs.tolist(), np.bincount(of_pair, owed.bytes).tolist(), strict=True):
            source, destination = divmod(pair, experiment.fabric.gpus)
            lacks += max(0, int(size) - arrived_bytes.get((node.name, source, destination), 0))
    return lacks


def _longer_s(outcome: Outcome | None, healthy: Outcome | None, predicted: bool) -> float:
    """Return by how much an iteration is longer than without failures [s]; NaN if one was not run so."""
    if outcome is None or healthy is None:
        return math.nan
    runs = [each.predicted if predicted else each.emulated for each in (outcome, healthy)]
    times_s = [run.iteration_s if run else math.nan for run in runs]
    return times_s[0] - times_s[1]


def _course_sheet(table: pd.DataFrame) -> Sheet:
    """Return the events after each failure, with their times."""
    lines = [
        Line(
            [
                *_words(row),
                *(f"{MS * float(row[name]):.1f}" for name in ("known_s", "around_s", "last_byte_s")),
                f"{row['again_bytes'] / 1e9:.2f}",
                "all" if row["lacks_bytes"] == 0 else f"all but {row['lacks_bytes']:.0f}",
            ],
            str(row["verdict"]),
        )
        for row in table.to_dict("records")
    ]
    return Sheet(
        ("failure", "by", "verdict"),
        ("known", "around", "last byte", "again [GB]", "bytes"),
        [Block(lines)],
        "Milliseconds at real scale since the failure: it is known, what it cut is placed anew, and the "
        "last byte of the all-to-all that it hit has arrived. Again: what begins again, as a GPU "
        "that is gone took its part along. Bytes: of all that collectives owe, what arrived.",
    )


def _cost_sheet(table: pd.DataFrame) -> Sheet:
    """Return the cost of each failure, in the step in which it comes and in those after it."""
    lines = [
        Line(
            [
                *_words(row),
                _ms(row["lost_s"]),
                _ms(row["predicted_lost_s"]),
                _over(row["lost_s"], row["predicted_lost_s"]),
                _ms(row["added_s"]),
                _ms(row["predicted_added_s"]),
                number(100 * row["predicted_added_s"] / row["healthy_s"], "{:.1f} %"),
            ],
            str(row["verdict"]),
        )
        for row in table.to_dict("records")
    ]
    healthy = ", ".join(
        f"{MS * own['healthy_s'].iloc[0]:.0f} ms by {transport}"
        for transport, own in table.groupby("transport")
    )
    return Sheet(
        ("failure", "by", "verdict"),
        ("lost", "model", "/ model", "added", "model", "share"),
        [Block(lines)],
        "Milliseconds at real scale. Lost: by how much the step is longer in which it comes; what a GPU that "
        "is gone had computed is taken to be saved. Added: by how much each step is longer from which it is "
        f"gone all along, and which share of one without, as predicted ({healthy}).",
    )


def _words(row: Mapping[Hashable, Any]) -> list[str]:
    return [str(row[name]) for name in ("failure", "transport", "verdict")]


def _over(measured_s: float, predicted_s: float) -> str:
    return number(measured_s / predicted_s if predicted_s else math.nan, "{:.2f}")


def _ms(time_s: float) -> str:
    return number(MS * time_s, "{:.1f}")


BARS = "What a failure costs the step in which it comes, and each one after it; a tick is the prediction."
BYTES = "What has arrived of the all-to-alls between servers; red is the failure, dotted when it is known."


@styled
def _drawn_bars(table: pd.DataFrame) -> Figure:
    """Return two bars per failure, a panel per transport."""
    groups = list(table.groupby("transport", sort=False))
    figure = canvas(7.5, 0.6 + 2.8 * len(groups), "Time that a failure costs")
    for axes, (transport, own) in zip(np.ravel(figure.subplots(len(groups), 1)), groups, strict=True):
        for shift, name, label, colour in (
            (-0.2, "lost_s", "lost in the step in which it comes", COLOURS["rails"]),
            (0.2, "added_s", "added to each step after it", COLOURS["reps"]),
        ):
            predicted = MS * own[f"predicted_{name}"].to_numpy()
            heights = np.where(own[name].isna(), predicted, MS * own[name].to_numpy())
            at = np.arange(len(own)) + shift
            axes.bar(at, heights, 0.36, color=colour, label=label)
            axes.hlines(predicted, at - 0.2, at + 0.2, color=INK, linewidth=1.2)
        axes.axhline(0, color="black", linewidth=0.6)
        axes.set_xticks(range(len(own)), list(own["failure"]))
        axes.set(ylabel="ms at real scale", title=str(transport))
        horizontal_grid(axes)
    legend_below(figure, 2)
    return figure


@styled
def _drawn_bytes(outcomes: Sequence[Outcome]) -> Figure:
    """Return the bytes that have arrived over time, of steps without and with each failure."""
    first = outcomes[0].experiment.transport_name
    shown = [
        outcome
        for outcome in outcomes
        if outcome.experiment.transport_name == first and not outcome.experiment.name.startswith(STEADY)
    ]
    figure = canvas(7.5, 3.6, f"Bytes that have arrived, {first}")
    axes = figure.subplots()
    shades = colours(outcome.experiment.name for outcome in outcomes)
    for outcome in shown:
        servers = np.asarray(outcome.experiment.fabric.gpu_servers)
        rows = outcome.run.messages
        rows = rows[rows["end_s"].notna()]
        crosses = servers[rows["source"].to_numpy(int)] != servers[rows["destination"].to_numpy(int)]
        rows = rows[crosses & (rows["node"].map(_is_all_to_all)).to_numpy()].sort_values("end_s")
        faults = [fault.name for fault in outcome.experiment.faults]
        label = faults[0] if faults else "nothing fails"
        axes.step(
            MS * rows["end_s"],
            rows["bytes"].cumsum() / 1e9,
            where="post",
            color=shades[outcome.experiment.name],
            label=label,
        )
        events = outcome.run.events[outcome.run.events["which"].isin(faults)]
        for what, style in (("failed", "-"), ("detected", ":")):
            for at_s in events.loc[events["what"] == what, "at_s"]:
                axes.axvline(MS * at_s, color=BOUND, linestyle=style, linewidth=0.8)
    axes.set(xlabel="ms at real scale", ylabel="GB of all-to-alls")
    horizontal_grid(axes)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def _is_all_to_all(node: str) -> bool:
    return node.endswith((" dispatch", " combine"))
