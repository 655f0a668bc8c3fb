"""The tables that a run prints, and a reader can quote."""

import math
from collections.abc import Sequence
from itertools import groupby

import pandas as pd
from rich.table import Table
from rich.text import Text

from testbed.report.claims import Claim, Range
from testbed.report.means import BASELINE, Mean, Point, points
from testbed.run.agreement import MARK, MARKED, agreement_text

UNITS = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6))
DURATIONS = ((60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
STYLES = {"faithful": "green", "strained": "yellow", "void": "bold red", "model": "blue"}
SHOWN = 10
"""How many cells of a point a terminal has room for."""
RULING_STYLES = {"holds": "green", "does not hold": "yellow", "not comparable": "dim"}


def summary_table(table: pd.DataFrame, baseline: str = BASELINE, note: str = "") -> Table:
    """Return the results as a table for the terminal: a block per workload, closed by its lower bound.

    Parameters
    ----------
    table
        From `testbed.run.outcome.summary`.
    baseline
        The scheme that busbw is relative to; the caption says so where a workload lacks it.
    note
        A sentence about the run that the caption begins with.
    """
    rows = points(table, baseline)
    unit, scale = time_unit(table)
    shown = block_table(" ".join(filter(None, [note, caption(rows, baseline)])))
    # A long workload takes two lines, so that no column is lost.
    shown.add_column(min_width=2 + max((len(point.scheme) for point in rows), default=0))
    shown.add_column("\nverdict", min_width=8)  # where a narrow terminal crops, it is not this one
    for header in ("CCT\nmean", f"[{unit}]\np99", "\nlast", f"busbw\n/ {baseline}"):
        shown.add_column(Text(header), justify="right", no_wrap=True)
    for header in ("load\nsent", "MSE\nrecv", "CCT /\nmodel", "CCT /\nbound"):
        shown.add_column(Text(header), justify="right", no_wrap=True)
    for workload, block in groupby(rows, key=lambda point: point.workload):
        mine = list(block)
        shown.add_row(Text(workload, "bold"))
        for point in mine:
            scheme, verdict, *numbers = point_cells(point, scale)[:SHOWN]
            look = "dim" if point.void else ""
            shown.add_row(f"  {scheme}", Text(verdict, STYLES[point.word]), *numbers, style=look)
        name, *rest = bound_cells(mine, scale)[:SHOWN]
        shown.add_row(f"  {name}", *rest, style="italic", end_section=True)
    return shown


def block_table(caption: str) -> Table:
    """Return an empty table for blocks of results: no lines, its caption on the left."""
    return Table(
        box=None,
        padding=(0, 1),
        collapse_padding=True,
        pad_edge=False,
        caption=caption,
        caption_justify="left",
    )


def claims_table(claims: Sequence[Claim]) -> Table:
    """Return claims as a table for the terminal: what the paper says, what was measured, and the ruling."""
    shown = Table(box=None, padding=(0, 1))
    shown.add_column("the claim, and why it holds or not")
    shown.add_column("expected", justify="right", no_wrap=True)
    shown.add_column("measured", justify="right", no_wrap=True)
    shown.add_column("ruling", no_wrap=True)
    for source, group in groupby(claims, key=lambda claim: claim.source):
        shown.add_row(Text(source, "bold"))
        for claim in group:
            sentence = Text.assemble(claim.text, "\n", (f"  {claim.reason}", "dim"))
            ruling = Text(claim.verdict, RULING_STYLES[claim.verdict])
            shown.add_row(sentence, range_text(claim.expected), number(claim.measured, claim.pattern), ruling)
    return shown


def time_unit(table: pd.DataFrame) -> tuple[str, float]:
    """Return the unit in which the CCTs of a summary read best, and its seconds."""
    typical = float(table["cct_s"].median()) if len(table) else 1.0
    return next(((name, scale) for name, scale in UNITS if typical >= scale), UNITS[-1])


def duration_text(time_s: float) -> str:
    """Return a duration in the unit that suits it: ``12.5 ms``."""
    unit_s, unit = next((u for u in DURATIONS if time_s >= u[0] * 0.9999), DURATIONS[-1])
    return f"{time_s / unit_s:g} {unit}"


def number(value: float, pattern: str) -> str:
    """Return a number as text, a dash where there is none."""
    return "-" if math.isnan(value) else pattern.format(value)


def range_text(expected: Range) -> str:
    """Return a range as text.

    Examples
    --------
    >>> range_text((1.2, 1.78)), range_text((0.98, math.inf)), range_text((0.0, 0.67))
    ('1.20 .. 1.78', '>= 0.98', '<= 0.67')
    """
    low, high = expected
    if math.isinf(high):
        return f">= {low:.2f}"
    return f"<= {high:.2f}" if low <= 0 else f"{low:.2f} .. {high:.2f}"


def significant(value: float) -> str:
    """Return a number with three significant digits and no exponent, a dash where there is none.

    Examples
    --------
    >>> significant(1234.5), significant(0.01234), significant(math.nan)
    ('1234', '0.0123', '-')
    """
    return number(value, "{:.0f}" if abs(value) >= 1000 else "{:.3g}")


def spread_text(mean: Mean) -> str:
    """Return the spread of a mean over the seeds in per cent, nothing where there is none."""
    return f" ±{100 * mean.spread / abs(mean.value):.0f}%" if mean.spread and mean.value else ""


def relative_text(point: Point) -> str:
    """Return a busbw relative to the baseline; ``void`` where the baseline alone is void."""
    mean = point["busbw_relative"]
    return "void" if mean.void and not point.void else number(mean.value, "{:.2f}") + spread_text(mean)


def caption(rows: Sequence[Point], baseline: str) -> str:
    """Return what a reader of the table must know: the seeds, the baseline, what void means."""
    seeds = max((sum(point.words.values()) for point in rows), default=0)
    said = [f"Means over {seeds} seeds ± standard deviation." if seeds > 1 else "One seed."]
    said.append("CCT at real scale; the bound is what no scheme can beat.")
    synthetic = dict.fromkeys(point.workload for point in rows if point.note.startswith("synthetic"))
    if synthetic:
        said.append(f"Synthetic workloads: {', '.join(synthetic)}.")
    lacking = [point.workload for point in rows if math.isnan(point["busbw_relative"].value)]
    if lacking:
        which = ", ".join(dict.fromkeys(lacking))
        said.append(f"The baseline {baseline} was not run for {which}: no relative busbw there.")
    if any(MARK in agreement_cell(point) for point in rows):
        said.append(MARKED)
    if any("void" in point.words for point in rows):
        said.append("void: the machine could not keep up; left out of means where other seeds are not.")
    if any("model" in point.words for point in rows):
        said.append("model: predicted, no byte crossed an emulated network.")
    return " ".join(said)


def point_cells(point: Point, scale: float) -> list[str]:
    """Return the cells of a point's row; ``scale`` is the unit of time [s]."""
    return [
        point.scheme,
        point.verdict,
        significant(point["cct_mean_s"].value / scale),
        significant(point["cct_p99_s"].value / scale),
        significant(point["cct_s"].value / scale) + spread_text(point["cct_s"]),
        relative_text(point),
        number(point["mse_sent"].value, "{:.3f}"),
        number(point["mse_received"].value, "{:.3f}"),
        agreement_cell(point),
        number(point["over_bound"].value, "{:.2f}"),
        significant(point["predicted_s"].value / scale),
    ]


def agreement_cell(point: Point) -> str:
    """Return emulated over predicted of a point, a dash where nothing was emulated."""
    return agreement_text(math.nan if point.word == "model" else point["over_predicted"].value)


def bound_cells(block: Sequence[Point], scale: float) -> list[str]:
    """Return the cells of the row that closes a workload's points: what the lower bound would give."""
    limit = block[-1]["busbw_limit"]
    busbw = "void" if limit.void else number(limit.value, "{:.2f}")
    return [
        "bound",
        "",
        "",
        "",
        significant(block[-1]["bound_s"].value / scale),
        busbw,
        "",
        "",
        "",
        "1.00",
        "",
    ]
