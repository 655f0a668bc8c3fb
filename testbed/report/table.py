"""The tables that a run prints, and a reader can quote."""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Literal

import pandas as pd
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from testbed.report.claims import Claim, Range, side_by_side
from testbed.report.means import BASELINE, Mean, Point, points
from testbed.report.page import Line
from testbed.report.terminal import Terminal
from testbed.trust.agreement import LIMIT_MARK, LIMITED, MARK, MARKED, agreement_text
from testbed.trust.similitude import few_packets_text

UNITS = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6))
DURATIONS = ((60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
STYLES = {
    "faithful": "green",
    "strained": "yellow",
    "void": "bold red",
    "unsound": "bold white on red",
    "model": "blue",
}
SHOWN, FREE_AT = 11, 9
"""How many cells of a point a terminal has room for, and which is over the free prediction: without it where
that is as over the other."""
MARKS = {"holds": "", "does not hold": " no", "not comparable": " -", "arithmetic": " ="}
"""What stands behind what was measured of a claim."""
FOLDED = 12
"""A word longer than this is folded where there is no room for it."""
WIDEST = 10_000
"""No table is as wide."""
FREE = "The prediction has the paths taken and the delays drawn, the free one the model's own."
ONE = "The free prediction is the same: paths and delays were the model's own."
"""What a caption says of the two predictions, where they differ and where they are one."""
LEFT_OUT_TEXTS = {
    "void": "void: the machine could not keep up; left out of means where other seeds are not.",
    "unsound": "unsound: its tables say what cannot be, so it has no numbers; the report has the row.",
}
Word = Literal["circuits", "transport"]
"""What a row says beside its scheme, where rows differ in it."""
HEADERS: Mapping[Word, str] = {"circuits": "\ncircuits", "transport": "trans-\nport"}
ARITHMETIC = "arithmetic from the paper's own inputs, or made to meet its number, not counted"
RULING_STYLES = {"holds": "green", "does not hold": "yellow", "not comparable": "dim", "arithmetic": "cyan"}


def summary_table(table: pd.DataFrame, baseline: str = BASELINE, note: str = "") -> Table:
    """Return the results as a table for the terminal: a block per workload, closed by its lower bound.

    Parameters
    ----------
    table
        From `testbed.trust.outcome.summary`.
    baseline
        The scheme that busbw is relative to; the caption says so where a workload lacks it.
    note
        A sentence about the run that the caption begins with.
    """
    rows = points(table, baseline)
    unit, scale = time_unit(table)
    more = more_words(rows)
    shown = block_table(" ".join(filter(None, [note, caption(rows, baseline)])))
    shown.add_column(overflow="fold")  # of workloads and schemes
    for word in more:
        shown.add_column(HEADERS[word], min_width=5, overflow="fold")
    shown.add_column("\nverdict", min_width=8)
    for header in ("CCT\nmean", f"[{unit}]\np99", "\nlast", f"busbw\n/ {baseline}"):
        shown.add_column(Text(header), justify="right", no_wrap=True)
    headers = ["load\nsent", "MSE\nrecv", "CCT /\nmodel", "CCT /\nfree", "CCT /\nbound"]
    if is_one := not any(map(is_informed, rows)):
        headers.remove("CCT /\nfree")
    for header in headers:
        shown.add_column(Text(header), justify="right", no_wrap=True)
    for workload, block in groupby(rows, key=lambda point: point.workload):
        mine = list(block)
        shown.add_row(Text(workload, "bold"), *[""] * len(more), likeness_text(mine))
        for cells, point in block_rows(mine, scale, more):
            name, *words = cells[: 2 + len(more)]
            verdict = Text(point.verdict, STYLES[point.word]) if point else Text("")
            look = "italic" if point is None else "dim" if point.void else ""
            numbers = cells[2 + len(more) : SHOWN + len(more)]
            if is_one:
                del numbers[FREE_AT - 2]
            shown.add_row(indented(name), *map(Text, words[:-1]), verdict, *numbers, style=look)
        shown.add_section()
    return shown


def least_width(table: Table) -> int:
    """Return the least width at which a table has its numbers whole: words are wrapped, long ones folded."""
    console = Terminal(width=WIDEST)
    natural, least = 0, 0
    for column in table.columns:
        cells = [Measurement.get(console, console.options, cell) for cell in (column.header, *column.cells)]
        whole = max([column.min_width or 0, *(cell.maximum for cell in cells)])
        word = max(cell.minimum for cell in cells)
        natural += whole
        least += whole if column.no_wrap else max(min(word, FOLDED), column.min_width or 0)
    between = Measurement.get(console, console.options, table).maximum - natural
    return least + between


def indented(name: str) -> Padding:
    """Return a name below a heading; all its lines are indented where it is wrapped."""
    return Padding(Text(name), (0, 0, 0, 2))


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


def block_rows(
    mine: Sequence[Point], scale: float, more: Sequence[Word]
) -> list[tuple[list[str], Point | None]]:
    """Return the rows of a workload, each with its point, and last what the lower bound would give.

    Where points differ in ``more`` than the scheme each row has that behind it; scheme and circuits are said
    once. The bound has its transport where it differs, since busbw is relative to the baseline under that.
    """
    rows: list[tuple[list[str], Point | None]] = [(point_cells(point, scale), point) for point in mine]
    transports = list(dict.fromkeys(point.transport for point in mine))
    bounds = [bound_cells([p for p in mine if p.transport == transport], scale) for transport in transports]
    if all(cells == bounds[0] for cells in bounds):
        bounds, transports = bounds[:1], [""]
    rows += [(cells, None) for cells in bounds]
    over = [*(point.transport for point in mine), *transports]
    names = [point.name if point else cells[0] for cells, point in rows]
    said: list[tuple[list[str], Point | None]] = []
    for place, ((cells, point), transport) in enumerate(zip(rows, over, strict=True)):
        is_new = not place or names[place] != names[place - 1]
        words = {"circuits": point.circuits if point and is_new else "", "transport": transport}
        scheme = cells[0] if is_new or "transport" not in more else ""
        said.append(([scheme, *(words[word] for word in more), *cells[1:]], point))
    return said


def more_words(rows: Sequence[Point]) -> list[Word]:
    """Return what each row says beside its scheme: circuits if there are any, one of several transports."""
    circuits: list[Word] = ["circuits"] if any(point.circuits for point in rows) else []
    transports: list[Word] = ["transport"] if len({point.transport for point in rows}) > 1 else []
    return [*circuits, *transports]


def claims_table(claims: Sequence[Claim]) -> Table:
    """Return claims as a table for the terminal: what the paper says, and what each transport gives.

    A claim is one line where it holds; else the reason is below.
    """
    rows = side_by_side(claims)
    transports = list(dict.fromkeys(claim.transport for claim in claims))
    shown = block_table(claims_caption(claims))
    shown.add_column("claim", overflow="fold")
    shown.add_column("expected", justify="right", no_wrap=True)
    for transport in transports:
        cells = [claim_cell(row.get(transport)) for row in rows]
        wide = max([8, *map(len, cells)])
        shown.add_column(Text(transport or "measured"), justify="right", min_width=wide, overflow="fold")
    for source, group in groupby(rows, key=lambda row: next(iter(row.values())).source):
        shown.add_row(Text(source, "bold"))
        for row in group:
            first = next(iter(row.values()))
            sentence = Text("\n").join([Text(first.text), *(Text(f"  {r}", "dim") for r in reasons(row))])
            shown.add_row(sentence, range_text(first.expected), *(claim_cell(row.get(t)) for t in transports))
    return shown


def claim_cell(claim: Claim | None) -> Text:
    """Return what was measured of a claim, marked unless it holds; nothing where it was not judged.

    Of what was not measured there is the dash alone, which is the mark.
    """
    if claim is None:
        return Text("")
    mark = "" if math.isnan(claim.measured) else MARKS[claim.verdict]
    return Text(number(claim.measured, claim.pattern) + mark, RULING_STYLES[claim.verdict])


def reasons(row: Mapping[str, Claim]) -> list[str]:
    """Return why a claim is not simply held, with the transports where not under all."""
    under: dict[str, list[str]] = {}
    for transport, claim in row.items():
        if claim.verdict != "holds":
            under.setdefault(claim.reason, []).append(transport)
    alike = len(under) == 1 and len(next(iter(under.values()))) == len(row)
    return [reason if alike else f"{', '.join(names)}: {reason}" for reason, names in under.items() if reason]


def claims_caption(claims: Sequence[Claim]) -> str:
    """Return what the marks mean, what all claims rest on, and how many hold."""
    rulings = {claim.verdict for claim in claims}
    marks = ["no: does not hold."] if "does not hold" in rulings else []
    marks += ["-: not comparable."] if "not comparable" in rulings else []
    marks += [f"=: {ARITHMETIC}."] if "arithmetic" in rulings else []
    return "\n".join(filter(None, [" ".join([*marks, *_basis_text(claims)]), held_text(claims)]))


def held_text(claims: Sequence[Claim]) -> str:
    """Return how many of papers' claims hold under each transport, and under all, of those that were run.

    Arithmetic is not counted among them, and lightrail's own are counted apart.
    """
    papers, own = ([claim for claim in claims if claim.is_own == is_own] for is_own in (False, True))
    ruled = [claim for claim in papers if claim.verdict != "arithmetic"]
    sums = len(side_by_side(papers)) - len(side_by_side(ruled))
    said = [_counts("holds", ruled), f"arithmetic: {sums}" * (sums > 0), _counts("lightrail's own hold", own)]
    return "; ".join(filter(None, said))


def _counts(what: str, claims: Sequence[Claim]) -> str:
    """Return how many claims hold, of those that were run, and how many were not."""
    rows = side_by_side(claims)
    counted = [row for row in rows if any(claim.ran for claim in row.values())]
    not_run = f"not run: {len(rows) - len(counted)}" * (len(counted) < len(rows))
    if not counted:
        return not_run
    held = Counter(claim.transport for claim in claims if claim.verdict == "holds")
    counts = [f"{name} {held[name]}".strip() for name in dict.fromkeys(claim.transport for claim in claims)]
    counts[0] += f" of {len(counted)}"
    said = [f"{what}: {', '.join(counts)}"]
    if len(counts) > 1:
        every = sum(all(claim.verdict == "holds" for claim in row.values()) for row in counted)
        said.append(f"under {'both' if len(counts) == 2 else 'all'}: {every}")
    uncompared = sum(all(claim.verdict == "not comparable" for claim in row.values()) for row in counted)
    said += [f"not comparable: {uncompared}"] if uncompared else []
    return "; ".join(filter(None, [*said, not_run]))


def _basis_text(claims: Sequence[Claim]) -> list[str]:
    """Return what all claims rest on that were compared, where it is the same."""
    bases = {claim.basis for claim in claims if claim.basis}
    return [f"Rests on {basis}." for basis in bases if len(bases) == 1]


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


def lines_of(rows: pd.DataFrame, *cells: str) -> list[Line]:
    """Return a line per row, its cells written of the row's columns; a dash where one begins with no number.

    Examples
    --------
    >>> table = pd.DataFrame({"gpus": [1024], "usd": [2.5], "added": [math.nan]})
    >>> [line.cells for line in lines_of(table, "{gpus:,} GPUs", "{usd:.2f}", "{added:.1f} %")]
    [['1,024 GPUs', '2.50', '-']]
    """
    named = [{str(name): value for name, value in row.items()} for row in rows.to_dict("records")]
    written = [[cell.format_map(row) for cell in cells] for row in named]
    return [Line(["-" if text.startswith("nan") else text for text in texts]) for texts in written]


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
    >>> significant(1234.5), significant(999.9), significant(0.01234), significant(math.nan)
    ('1234', '1000', '0.0123', '-')
    """
    return number(value, "{:.0f}" if abs(value) >= 999.5 else "{:.3g}")


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
    if "transport" not in more_words(rows):
        said += [f"Transport: {point.transport}." for point in rows[:1]]
    said.append("CCT at real scale; the bound is what no scheme can beat.")
    synthetic = dict.fromkeys(point.workload for point in rows if point.note.startswith("synthetic"))
    if synthetic:
        said.append(f"Synthetic workloads: {', '.join(synthetic)}.")
    said += _lacking(rows, baseline)
    if any(MARK in agreement_cell(point) for point in rows):
        said.append(MARKED)
    if any(point.is_limit for point in rows):
        said.append(LIMITED)
    if any(point.word != "model" for point in rows):
        said.append(FREE if any(map(is_informed, rows)) else ONE)
    if few := few_packets(rows):
        said.append(few)
    said += left_out_texts({word for point in rows for word in point.words})
    if any("model" in point.words for point in rows):
        said.append("model: predicted, no byte crossed an emulated network.")
    return " ".join(said)


def _lacking(rows: Sequence[Point], baseline: str) -> Iterator[str]:
    """Yield why points have no relative busbw: none that is one number, or no baseline."""
    lacking = [point for point in rows if math.isnan(point["busbw_relative"].value)]
    several = [point for point in lacking if point.has_no_busbw]
    idle = [point for point in lacking if point["cct_s"].value == 0]
    alone = [point for point in lacking if point not in several and point not in idle]
    if several:
        yield f"No single busbw for {_workloads(several)}: collectives of several kinds, or GPUs were lost."
    if idle:
        yield f"No busbw for {_workloads(idle)}: no GPU has bytes for another."
    if alone:
        yield f"The baseline {baseline} was not run for {_workloads(alone)}: no relative busbw there."


def _workloads(rows: Sequence[Point]) -> str:
    return ", ".join(dict.fromkeys(point.workload for point in rows))


def left_out_texts(words: Collection[str]) -> list[str]:
    """Return what the words mean of what is left out of means, where there are such."""
    return [text for word, text in LEFT_OUT_TEXTS.items() if word in words]


def point_cells(point: Point, scale: float) -> list[str]:
    """Return the cells of a point's row; ``scale`` is the unit of time [s]."""
    return [
        point.scheme,
        point.verdict_and_likeness,
        significant(point["cct_mean_s"].value / scale),
        significant(point["cct_p99_s"].value / scale),
        significant(point["cct_s"].value / scale) + spread_text(point["cct_s"]),
        relative_text(point),
        number(point["mse_sent"].value, "{:.3f}"),
        number(point["mse_received"].value, "{:.3f}"),
        agreement_cell(point),
        agreement_cell(point, "over_free"),
        number(point["over_bound"].value, "{:.2f}"),
        significant(point["predicted_s"].value / scale),
    ]


def agreement_cell(point: Point, column: str = "over_predicted") -> str:
    """Return emulated over predicted, or over free, of a point; a dash where nothing was emulated.

    Fluid limits are marked.
    """
    text = agreement_text(math.nan if point.word == "model" else point[column].value)
    return f"{text} {LIMIT_MARK}" if point.is_limit else text


def is_informed(point: Point) -> bool:
    """Return whether an emulation took other paths, or had other delays, than the model's own."""
    return abs(point["free_s"].value - point["predicted_s"].value) > 0


def likeness_text(block: Sequence[Point]) -> Text:
    """Return how like the real network a workload's emulations are: one word, for it is seldom a scheme's."""
    return Text(", ".join(dict.fromkeys(point.likeness for point in block if point.likeness)), "dim")


def few_packets(rows: Sequence[Point]) -> str:
    """Return the warning that some points' messages are of few packets, by their workloads."""
    fewest: dict[str, float] = {}
    for point in rows:
        if not math.isnan(packets := point["message_packets"].value):
            fewest[point.workload] = min(fewest.get(point.workload, packets), packets)
    return few_packets_text(fewest)


def bound_cells(block: Sequence[Point], scale: float) -> list[str]:
    """Return the cells of the row that closes a workload's points: what the lower bound would give."""
    limit = block[-1]["busbw_limit"]
    busbw = "void" if limit.void else number(limit.value, "{:.2f}")
    return [
        "bound",
        "",
        "",
        "",
        significant(block[0]["bound_s"].value / scale),
        busbw,
        *[""] * 4,
        "1.00",
        "",
    ]
