"""What faults did to runs: when each was known and gone around, and the time that they added."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import nan

import pandas as pd

from testbed.core.run import Run
from testbed.experiment.experiment import Experiment
from testbed.experiment.repetitions import differing
from testbed.report.means import Mean, counted_words, over_seeds, verdict_text
from testbed.report.page import Block, Line, Sheet
from testbed.report.table import left_out_texts, number, significant
from testbed.trust.outcome import LEFT_OUT, Outcome
from traffic.faults import AS_IT_WAS
from traffic.job import Compute, Job
from traffic.metrics import communication_s

POINT = ["workload", "transport", "scheme", "circuits"]
STAGES = ("failed", "detected", "gone around", "back", "in use again")
"""What happens by a fault, in that order, as the run's events have it; the last two if it ends."""
TIMES = tuple(f"{stage.replace(' ', '_')}_s" for stage in STAGES)
DIGITS = 12
"""Of times in seconds: what computing with floats leaves beyond them is no time that was added."""
CAPTION = (
    "What failed: means over seeds, milliseconds at real scale, {}.{} Known: schemes, circuits and routing "
    "are told. Around: packet switches have rules around it, and what it held up is placed anew, unless "
    "links are only slower. Used: traffic is placed there again. Added: to the CCT of the same point without "
    "faults, or to the iteration of a job that computes, by all its faults together. Lost: messages that are "
    "given up, from and to GPUs that are gone, or that begin again with others."
)


def fault_table(outcomes: Sequence[Outcome]) -> pd.DataFrame:
    """Return a row per outcome and fault, in the outcomes' order; none if nothing failed.

    Returns
    -------
    DataFrame
        workload, transport, scheme, circuits, seed, fault; when each of `STAGES` was, in the emulation where
        there was one, NaN if it was not [real s]; added_s and predicted_added_s, what all faults of the
        outcome added to its CCT, or to the iteration of a job that computes: compute that waits, or goes on
        elsewhere, is a part of what they cost. NaN where the point was not run without them [real s];
        given_up, messages;
        given_up_bytes, real; verdict, and healthy_verdict, of the point without them, empty where it was not
        run.
    """
    healthy = {_point(o.experiment): o for o in outcomes if not o.experiment.faults}
    rows: list[Mapping[str, object]] = []
    for outcome in (each for each in outcomes if each.experiment.faults):
        events, messages = outcome.run.events, outcome.run.messages
        without = replace(outcome.experiment, faults=(), revisions=AS_IT_WAS)
        point = _point(without)
        twin = healthy.get(point)
        if twin and differing(without, twin.experiment):
            twin = None
        lost = messages.loc[messages["end_s"].isna(), "bytes"]
        job, comparable = outcome.experiment.job, twin and twin.is_sound and outcome.is_sound
        added = {
            "added_s": _added_s(outcome.run, twin.run, job) if twin and comparable else nan,
            "predicted_added_s": (
                _added_s(outcome.predicted, twin.predicted, job) if twin and comparable else nan
            ),
            "given_up": len(lost),
            "given_up_bytes": int(lost.sum()),
            "verdict": outcome.verdict.word,
            "healthy_verdict": twin.verdict.word if twin else "",
        }
        for fault in outcome.experiment.faults:
            at_s = events[events["which"] == fault.name].groupby("what")["at_s"].first()
            stages = STAGES if outcome.is_sound else ()
            times = dict.fromkeys(TIMES, nan) | {
                name: at_s.get(stage, nan) for name, stage in zip(TIMES, stages, strict=False)
            }
            words = dict(zip([*POINT, "seed"], point, strict=True))
            rows.append({**words, "fault": fault.name, **times, **added})
    return pd.DataFrame(rows)


def _added_s(run: Run, healthy: Run, job: Job) -> float:
    """Return how much longer a run takes than one without faults [s]."""
    if job.has_starts or any(isinstance(node, Compute) for node in job.nodes):
        return round(run.iteration_s - healthy.iteration_s, DIGITS)
    return round(communication_s(run.tables) - communication_s(healthy.tables), DIGITS)


def fault_sheets(outcomes: Sequence[Outcome]) -> list[Sheet]:
    """Return the table of faults for report and terminal; none if nothing failed."""
    rows = fault_table(outcomes)
    if rows.empty:
        return []
    emulated = any(outcome.emulated for outcome in outcomes)
    words = ["scheme", *_differing(rows)]
    blocks = []
    for (fault, workload), mine in rows.groupby(["fault", "workload"], sort=False):
        lines = [
            _line([*map(str, cells)], alike, emulated) for cells, alike in mine.groupby(words, sort=False)
        ]
        blocks.append(Block(lines, f"{fault}, {workload}"))
    return [
        Sheet(
            [*words, "verdict"],
            [
                "fails",
                "known",
                "around",
                "back",
                "used",
                "added",
                *(["model", "/ model"] if emulated else []),
                "lost",
            ],
            blocks,
            CAPTION.format("emulated" if emulated else "predicted", _void_text(rows)),
        )
    ]


def _differing(rows: pd.DataFrame) -> list[str]:
    """Return the columns that rows need beside the scheme: circuits if there are any, several transports."""
    circuits = ["circuits"] if rows["circuits"].any() else []
    return [*circuits, *(["transport"] if rows["transport"].nunique() > 1 else [])]


def _line(words: Sequence[str], alike: pd.DataFrame, emulated: bool) -> Line:
    """Return the line of a point: means over its seeds, void ones only where there are no others."""
    seeds = counted_words(alike["verdict"].tolist())
    void = alike["verdict"].isin(LEFT_OUT).to_numpy()
    compared_void = void | alike["healthy_verdict"].isin(LEFT_OUT).to_numpy()
    times_s = [over_seeds(alike[name].to_numpy(dtype=float), void).value for name in TIMES]
    added, predicted = (
        over_seeds(alike[name].to_numpy(dtype=float), compared_void)
        for name in ("added_s", "predicted_added_s")
    )
    given_up = over_seeds(alike["given_up"].to_numpy(dtype=float), void).value
    all_void = set(seeds) <= set(LEFT_OUT)
    cells = [significant(1e3 * time_s) for time_s in times_s]
    cells += _added_cells(added, predicted, emulated, shows_void=not all_void)
    return Line(
        [*words, verdict_text(seeds), *cells, number(given_up, "{:.0f}")],
        list(seeds)[-1],
        "void" if all_void else "",
    )


def _added_cells(added: Mean, predicted: Mean, emulated: bool, *, shows_void: bool) -> list[str]:
    """Return what was added; ``void`` where only the point without faults is."""
    ratio = added.value / predicted.value if predicted.value else nan
    cells = [significant(1e3 * added.value)]
    if emulated:
        cells += [significant(1e3 * predicted.value), number(ratio, "{:.2f}")]
    return ["void"] * len(cells) if added.void and shows_void else cells


def _void_text(rows: pd.DataFrame) -> str:
    """Return what void and unsound mean, where something is."""
    words = {*rows["verdict"], *rows["healthy_verdict"]}
    return "".join(f" {text}" for text in left_out_texts(words))


def _point(experiment: Experiment) -> tuple[str, str, str, str, int]:
    """Return what names an experiment without faults."""
    words = experiment.transport_name, experiment.scheme_name, experiment.circuits_name
    return experiment.job.name, *words, experiment.seed
