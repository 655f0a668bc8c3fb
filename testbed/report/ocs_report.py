"""The report of schedules that were executed on parallel OCSes, and their table for the terminal."""

from collections.abc import Sequence
from functools import partial
from itertools import groupby

import pandas as pd
from rich.table import Table
from rich.text import Text

from controller.circuits.devices import DEVICES, ReconfigurationDelay
from testbed.experiment.ocs_plan import plan_of
from testbed.report.claims import Claim
from testbed.report.collective_report import VERDICTS
from testbed.report.figures import TIMELINE_CAPTION
from testbed.report.means import BIG_SWITCH, Point, circuit_points, scheme_labels, transports_of
from testbed.report.ocs_plots import plan_against_measurement
from testbed.report.page import TRACES, Block, Line, Page, Plot, Sheet, counted
from testbed.report.run_json import RunRecord
from testbed.report.table import (
    FREE,
    STYLES,
    agreement_cell,
    block_table,
    duration_text,
    few_packets,
    indented,
    is_informed,
    left_out_texts,
    likeness_text,
    number,
    significant,
    spread_text,
    time_unit,
)
from testbed.report.timeline import timeline_of
from testbed.report.transports import transports_text
from testbed.trust.agreement import LIMITED, MARK, MARKED
from testbed.trust.outcome import Outcome

WORDS = ("scheme", "circuits", "verdict")
NUMBERS = (
    "predicted CCT", "CCT", "CCT / predicted", "CCT / free", "CCT / bound", f"busbw / {BIG_SWITCH}", "slots",
    "late / resent [kB]", "makespan", "used", "guard",
)  # fmt: skip
SHORT = (
    "pred.\n[{}]",
    "CCT\n[{}]",
    "CCT /\npred.",
    "CCT /\nfree",
    "CCT /\nbound",
    "busbw\n/ big",
    "\nslots",
    "late /\nresent",
)
"""The headers of the first numbers, as many as a terminal has room for."""


def circuit_page(
    run: RunRecord, outcomes: Sequence[Outcome], table: pd.DataFrame, claims: Sequence[Claim]
) -> Page:
    """Return the report of schedules that were executed.

    Parameters
    ----------
    run
        What was run.
    outcomes
        All that was run; at least one over OCSes.
    table
        The summary, the big switches' rows in it.
    claims
        What it was held against.
    """
    unit, scale = time_unit(table)
    results = [outcome for outcome in outcomes if outcome.light]
    return Page(
        run=run,
        sentence=f"{_sentence(results)} {transports_text(transports_of(table))}",
        table=table,
        results=Sheet(WORDS, NUMBERS, _blocks(table, scale), f"{_caption(table)} Times in {unit}."),
        claims=claims,
        plots=[
            *_timelines(outcomes),
            Plot("plan_against_measurement", partial(plan_against_measurement, table), BARS),
        ],
        definitions=DEFINITIONS,
        files=FILES,
    )


def executions_table(table: pd.DataFrame) -> Table:
    """Return the results as a table for the terminal: a block per number of OCSes, closed by its bound."""
    unit, scale = time_unit(table)
    shown = block_table(_caption(table))
    shown.add_column(overflow="fold")
    shown.add_column("\ncircuits", overflow="fold")
    shown.add_column("\nverdict", min_width=8)
    for header in SHORT:
        shown.add_column(Text(header.format(unit)), justify="right", no_wrap=True)
    rows = circuit_points(table)
    for block in _blocks(table, scale):
        mine = [point for point in rows if point.workload == block.title]
        shown.add_row(Text(block.title, "bold"), "", likeness_text(mine))
        for line in block.lines:
            scheme, circuits, verdict, *numbers = line.cells[: 3 + len(SHORT)]
            look = {"void": "dim", "bound": "italic", "": ""}[line.look]
            like = f", {likeness_text(mine)}"
            word = Text(verdict.removesuffix(like), STYLES.get(line.word, ""))
            shown.add_row(
                indented(scheme), circuits, word, *numbers, style=look, end_section=line.look == "bound"
            )
    return shown


def _sentence(results: Sequence[Outcome]) -> str:
    first, plan = results[0].experiment, plan_of(results[0].experiment.rule)
    job = first.job
    counts = sorted({len(result.experiment.ocs_delays) for result in results})
    schemes = list(dict.fromkeys(result.experiment.circuits_name for result in results))
    seeds = len({result.experiment.seed for result in results})
    return (
        f"Demand {job.name.partition(',')[0]} between {job.gpus} servers over "
        f"{' and over '.join(map(str, counts))} parallel OCS{'es' if counts[-1] > 1 else ''} of "
        f"{plan.rate_bps / 1e9:g} Gbit/s a port, {_delay(plan.setup.delay)} whenever they are "
        f"reconfigured ({_which(plan.setup.partial)}), under {counted(len(schemes), 'scheduler')} "
        f"({', '.join(schemes)}), {counted(seeds, 'seed')}. {_scale(results)}"
    )


def _delay(delay: ReconfigurationDelay) -> str:
    """Return how long OCSes are dark, and by whose word: their device's, if they stand for one."""
    known = DEVICES.get(delay.device)
    who = f"each standing for {known.name} ({known.what}; {known.source}), " if known else ""
    nic = f" and {_time(delay.nic_s, delay.nic_p99_s)} more for the NICs" if delay.nic_s else ""
    return f"{who}dark for {_time(delay.delay_s, delay.delay_p99_s)}{nic}"


def _which(partial: bool) -> str:
    """Return which circuits a reconfiguration darkens."""
    return "circuits that do not change stay lit" if partial else "all circuits go dark"


def _time(mean_s: float, p99_s: float | None) -> str:
    varies = f" on average (log-normal, p99 {duration_text(p99_s)})" if p99_s else ""
    return f"{duration_text(mean_s)}{varies}"


def _scale(results: Sequence[Outcome]) -> str:
    scales = [result.experiment.dilation for result in results]
    times = dict.fromkeys(
        f"{time:.3g}" for time in (min(s.time for s in scales), max(s.time for s in scales))
    )
    return (
        f"Emulated with real packets, rates × {scales[0].rate:.3g}, times × {' to '.join(times)}; "
        "all numbers below are at real scale."
    )


def _caption(table: pd.DataFrame) -> str:
    seeds, rows = table["seed"].nunique(), circuit_points(table)
    said = [f"Means over {seeds} seeds ± standard deviation." if seeds > 1 else "One seed."]
    first = table.iloc[0]
    if first["device"] in DEVICES:
        drawn = " on average, drawn anew each time" if first["delay_varies"] else ""
        said.append(f"OCSes as {first['device']}, dark for {duration_text(first['delay_s'])}{drawn}.")
    if first["partial"]:
        said.append("Circuits that two slots share stay lit between them.")
    if any(MARK in agreement_cell(point) for point in rows):
        said.append(MARKED)
    if any(point.is_limit for point in rows):
        said.append(LIMITED)
    if any(map(is_informed, rows)):
        said.append(FREE)
    over = dict.fromkeys(point.transport for point in rows if point.name != BIG_SWITCH)
    said.append(f"Transport: {' and '.join(over)}{_big_switch_text(rows)}.")
    if few := few_packets(rows):
        said.append(few)
    said += left_out_texts(set(table["verdict"]))
    return " ".join(said)


def _big_switch_text(rows: Sequence[Point]) -> str:
    over = dict.fromkeys(point.transport for point in rows if point.name == BIG_SWITCH)
    return f", under the {BIG_SWITCH} {' and '.join(over)}" if over else ""


def _blocks(table: pd.DataFrame, scale: float) -> list[Block]:
    blocks = []
    for workload, group in groupby(circuit_points(table), lambda point: point.workload):
        mine = list(group)
        lines = [
            Line([label, p.circuits, *_cells(p, scale)], p.word, "void" if p.void else "")
            for p, label in zip(mine, scheme_labels(mine), strict=True)
        ]
        bound = ["bound", "", "", "", significant(mine[0]["bound_s"].value / scale), "", "", "1.00"]
        blocks.append(Block([*lines, Line([*bound, *[""] * 6], look="bound")], workload, mine[0].note))
    return blocks


def _cells(point: Point, scale: float) -> list[str]:
    def mean(column: str, unit: float = 1.0) -> float:
        return point[column].value / unit

    return [
        point.verdict_and_likeness,
        significant(mean("predicted_s", scale)),
        significant(mean("cct_s", scale)) + spread_text(point["cct_s"]),
        agreement_cell(point),
        agreement_cell(point, "over_free"),
        number(mean("over_bound"), "{:.2f}"),
        number(mean("busbw_relative"), "{:.2f}"),
        number(mean("slots"), "{:.0f}"),
        " / ".join(number(mean(name, 1e3), "{:.0f}") for name in ("late_bytes", "resent_bytes")),
        significant(mean("makespan_s", scale)),
        number(mean("used"), "{:.1%}"),
        number(mean("guard"), "{:.1%}"),
    ]


def _timelines(outcomes: Sequence[Outcome]) -> list[Plot]:
    """Return a timeline per number of OCSes, of the first seed; the big switch stands in it too."""
    of_job: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        mine = of_job.setdefault(outcome.experiment.job.name, [])
        if outcome.experiment.seed == outcomes[0].experiment.seed:
            mine.append(outcome)
    plots = []
    for job, mine in of_job.items():
        ocses = max((len(outcome.experiment.ocs_delays) for outcome in mine if outcome.light), default=0)
        caption = f"{job}, seed {outcomes[0].experiment.seed}. {TIMELINE_CAPTION} {LIGHT}"
        plots.append(Plot(f"timeline_{ocses}", partial(timeline_of, mine), caption))
    return plots


LIGHT = (
    "Below them what each OCS had lit, from when the engine heard of it: equal colours are equal "
    "permutations, black is dark."
)
BARS = (
    "Pale: when the plan would have brought the last byte. Full: when it came, with the ratio of the two on "
    "top: less than 1 where an OCS' last slot, which is lit until nothing is left, carried what another was "
    "planned for. Red is a bar's own lower bound: no schedule gets under it but by luck where delays "
    "vary. That of the big switch, which is never dark, is lower."
)
FILES = (
    "The experiments themselves, demand matrices included, are in run.json beside this file; all messages "
    f"are in records.csv, all points in summary.csv. {TRACES}"
)
DEFINITIONS = (
    ("CCT", "Collective completion time: from the first night, when all OCSes go dark, to the last byte."),
    ("makespan", "How long the plan keeps the busiest OCS: its slots, and a delay, the mean, before each."),
    (
        "predicted",
        "When the plan, gone exactly so with the delays that the OCSes drew, brings the last byte; for the "
        "big switch, by max-min fair fluids.",
    ),
    (
        "bound",
        "Spectra's lower bound for this demand, this many OCSes and this delay: no schedule beats it, unless "
        "the delay varies and was drawn shorter than its mean.",
    ),
    (
        "big switch",
        "The same demand over one packet switch with as many NICs per server, sprayed by RailS; never dark.",
    ),
    ("busbw", "nccl-tests' bus bandwidth for alltoallv."),
    ("slots", "How many permutations the plan shows, over all OCSes."),
    (
        "late, resent",
        "What the planned slots did not deliver, and what was sent into the dark, at emulated scale.",
    ),
    ("used", "Bytes delivered over what the circuits that were lit could have carried."),
    (
        "guard",
        "Share of the lit time in which nobody sends because the dark is near; it costs short slots most.",
    ),
    *VERDICTS,
)
