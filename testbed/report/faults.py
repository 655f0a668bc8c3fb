"""What faults did to runs: when each was known and gone around, and the time that they added."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import nan

import pandas as pd

from testbed.report.page import Block, Line, Sheet
from testbed.report.table import number, significant
from testbed.run.experiment import Experiment
from testbed.run.outcome import Outcome
from traffic.faults import AS_IT_WAS

POINT = ["workload", "transport", "scheme"]
STAGES = ("failed", "detected", "gone around", "back", "in use again")
"""What happens by a fault, in that order, as the run's events have it; the last two if it ends."""
TIMES = tuple(f"{stage.replace(' ', '_')}_s" for stage in STAGES)
DIGITS = 12
"""Of times in seconds: what computing with floats leaves beyond them is no time that was added."""
CAPTION = (
    "What failed: means over seeds, milliseconds at real scale, {}. Known: schemes, circuits and routing are "
    "told. Around: packet switches have rules around it, and what it held up is placed anew. Used: traffic "
    "is placed there again. Added: to the CCT of the same point without faults, by all its faults together. "
    "Lost: messages that are given up, from and to GPUs that are gone, or that begin again with others."
)


def fault_table(outcomes: Sequence[Outcome]) -> pd.DataFrame:
    """Return a row per outcome and fault, in the outcomes' order; none if nothing failed.

    Returns
    -------
    DataFrame
        workload, transport, scheme, fault, seed; when each of `STAGES` was, in the emulation where there
        was one, NaN if it was not [real s]; added_s and predicted_added_s, what all faults of the outcome
        added to its CCT, NaN where the point was not run without them [real s]; given_up, messages; and
        given_up_bytes, real.
    """
    healthy = {_point(o.experiment): o for o in outcomes if not o.experiment.faults}
    rows: list[Mapping[str, object]] = []
    for outcome in outcomes:
        point, events, messages = _point(outcome.experiment), outcome.run.events, outcome.run.messages
        twin = healthy.get(point)
        lost = messages.loc[messages["end_s"].isna(), "bytes"]
        added = {
            "added_s": round(outcome.cct_s - twin.cct_s, DIGITS) if twin else nan,
            "predicted_added_s": round(outcome.predicted_s - twin.predicted_s, DIGITS) if twin else nan,
            "given_up": len(lost),
            "given_up_bytes": int(lost.sum()),
        }
        for fault in outcome.experiment.faults:
            at_s = events[events["which"] == fault.name].groupby("what")["at_s"].first()
            times = {name: at_s.get(stage, nan) for name, stage in zip(TIMES, STAGES, strict=True)}
            words = dict(zip([*POINT, "seed"], point, strict=True))
            rows.append({**words, "fault": fault.name, **times, **added})
    return pd.DataFrame(rows)


def fault_sheets(outcomes: Sequence[Outcome]) -> list[Sheet]:
    """Return the table of faults for report and terminal; none if nothing failed."""
    rows = fault_table(outcomes)
    if rows.empty:
        return []
    emulated = any(outcome.emulated for outcome in outcomes)
    several = rows["transport"].nunique() > 1
    blocks = []
    for (fault, workload), mine in rows.groupby(["fault", "workload"], sort=False):
        lines = [
            Line([*map(str, words[: 1 + several]), *_cells(alike, emulated)])
            for words, alike in mine.groupby(["scheme", "transport"], sort=False)
        ]
        blocks.append(Block(lines, f"{fault}, {workload}"))
    return [
        Sheet(
            ["scheme", *(["transport"] if several else [])],
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
            CAPTION.format("emulated" if emulated else "predicted"),
        )
    ]


def _cells(alike: pd.DataFrame, emulated: bool) -> list[str]:
    mean = alike[[*TIMES, "added_s", "predicted_added_s", "given_up"]].mean()
    cells = [significant(1e3 * mean[name]) for name in (*TIMES, "added_s")]
    if emulated:
        predicted_s = mean["predicted_added_s"]
        ratio = mean["added_s"] / predicted_s if predicted_s else nan
        cells += [significant(1e3 * predicted_s), number(ratio, "{:.2f}")]
    return [*cells, number(mean["given_up"], "{:.0f}")]


def _point(experiment: Experiment) -> tuple[str, str, str, int]:
    """Return what names an experiment but for its faults."""
    scheme = replace(experiment, faults=(), revisions=AS_IT_WAS).scheme_name
    return experiment.job.name, experiment.transport_name, scheme, experiment.seed
