"""The findings of a run of congestion controls: a table, claims, and a plot of each point."""

import math
from collections.abc import Sequence
from functools import partial
from itertools import groupby

import pandas as pd

from scenarios._congestion.measures import table_of
from scenarios._congestion.plots import has_samples, samples_of, windows_over_time
from testbed.report.claims import LIGHTRAIL, MORE, Claim, Range, Sentence, judged, mean, ratio_sentence
from testbed.report.means import Point, points
from testbed.report.page import Block, Findings, Line, Plot, Sheet, slug
from testbed.report.table import left_out_texts, number, significant
from testbed.trust.outcome import Outcome

US = 1e6
HTSIM = f"{LIGHTRAIL}, as uet-htsim at 40ccb05"
FIRST_NSCC: Range = (0.86, 0.98)
"""The first of 8 flows over the bound: 0.92 there."""
FIRST_CREDIT: Range = (0.97, 1.02)
"""The same, 1.00 there, under receiver credits."""
QUEUE_NSCC_US: Range = (0.0, 25.4)
"""How long half of their packets queue [us]: up to 2 R. It is 1.6 R there, and 2.7 R if T is 4 R, not R."""
INCAST, MICE = "incast 8", "elephant mice"
"""The workloads that claims are about."""
HEADERS = (
    "CCT / bound",
    "/ model",
    "first",
    "p99",
    "late [us]",
    "Jain",
    "queue p50",
    "p99 [us]",
    "most [us]",
    "resent",
    "marked",
)
CAPTION = (
    "Each flow is a message of its own; means over seeds, times at real scale. CCT / bound: the last flow's "
    "end. / model: over the prediction, which is max-min fair and knows no congestion control. First: when "
    "the first flow ends, over the bound; p99: the 99th percentile of the flows' own times over the bound. "
    "Late: the mean time of flows that start later than the first. Jain: Jain's index over the bytes of each "
    "flow that had arrived when the first ended. Queue: how long packets queued behind their NIC. Resent: "
    "packets that counted as lost. Marked: the share of packets."
)
PLOT_CAPTION = (
    "Rate, queue and window of each flow over time, of the first seed. The rate is that at which its bytes "
    "arrived. Without a window the bytes on the way are drawn."
)


def congestion_findings(outcomes: Sequence[Outcome]) -> Findings:
    """Return the table, the claims and the plots of a run's outcomes."""
    table = table_of(outcomes)
    return Findings([_sheet(table)], _plots(outcomes), congestion_claims(table), leads=True)


def _sheet(table: pd.DataFrame) -> Sheet:
    rows = points(table)
    blocks = [
        Block([_line(point) for point in mine], workload)
        for workload, mine in groupby(rows, lambda point: point.workload)
    ]
    said = [CAPTION, *left_out_texts({word for point in rows for word in point.words})]
    return Sheet(("scheme", "by", "verdict"), HEADERS, blocks, " ".join(said))


def _line(point: Point) -> Line:
    over_model = math.nan if point.word == "model" else point["over_predicted"].value
    queues = ("queue_p50_s", "queue_p99_s", "queue_max_s")
    cells = [
        number(point["over_bound"].value, "{:.3f}"),
        number(over_model, "{:.3f}"),
        *(number(point[name].value, "{:.3f}") for name in ("first_over_bound", "p99_over_bound")),
        significant(US * point["late_mean_s"].value),
        number(point["jain"].value, "{:.3f}"),
        *(significant(US * point[name].value) for name in queues),
        number(point["resent"].value, "{:.0f}"),
        number(100 * point["marked_share"].value, "{:.1f} %"),
    ]
    words = [point.name, point.transport, point.verdict]
    return Line([*words, *cells], point.word, "void" if point.void else "")


def congestion_claims(table: pd.DataFrame) -> list[Claim]:
    """Return the claims that a table rules: a row per point, with the measures of its flows.

    Transports are compared with each other, so that each is a part of the point's name here.
    """
    schemes, workloads = dict.fromkeys(table["name"]), set(table["workload"])
    table = table.assign(name=table["name"] + ", " + table["transport"])
    sentences = [
        sentence
        for scheme in schemes
        for workload, made in ((INCAST, _first), (INCAST, _queue), (MICE, _mice))
        if workload in workloads
        for sentence in made(scheme)
    ]
    return [judged(sentence, table) for sentence in sentences]


def _first(scheme: str) -> list[Sentence]:
    """Return sentences about the first of 8 flows to one NIC."""
    said = f"{scheme}: the first of 8 flows to one NIC ends at {{}} of the bound under {{}}"
    wanted = (("nscc", "0.92", FIRST_NSCC), ("credit", "1.00", FIRST_CREDIT))
    return [
        Sentence(
            said.format(value, transport),
            HTSIM,
            expected,
            [(INCAST, f"{scheme}, {transport}")],
            partial(mean, workload=INCAST, scheme=f"{scheme}, {transport}", column="first_over_bound"),
        )
        for transport, value, expected in wanted
    ]


def _queue(scheme: str) -> list[Sentence]:
    """Return the sentence about what nscc aims at, which the completions hardly tell from another target."""
    name = f"{scheme}, nscc"
    return [
        Sentence(
            f"{scheme}: half of the packets of 8 flows to one NIC queue for 25 us (2 R) or less under nscc",
            HTSIM,
            QUEUE_NSCC_US,
            [(INCAST, name)],
            lambda table: US * mean(table, INCAST, name, "queue_p50_s"),
            pattern="{:.1f} us",
        )
    ]


def _mice(scheme: str) -> list[Sentence]:
    """Return sentences about the order in which congestion controls let mice pass."""
    return [
        ratio_sentence(
            f"{scheme}: mice beside an elephant take longer under {slower} than under {faster}",
            HTSIM,
            MORE,
            MICE,
            (f"{scheme}, {slower}", f"{scheme}, {faster}"),
            "late_mean_s",
        )
        for slower, faster in (("nscc", "dctcp"), ("credit", "nscc"))
    ]


def _plots(outcomes: Sequence[Outcome]) -> list[Plot]:
    """Return a plot of the first seed of each workload, scheme and transport, where there are samples."""
    shown: dict[tuple[str, ...], Outcome] = {}
    for outcome in outcomes:
        experiment = outcome.experiment
        if has_samples(outcome):
            shown.setdefault((experiment.job.name, experiment.name, experiment.transport_name), outcome)
    return [
        Plot(
            f"flows_{slug(*names)}",
            partial(windows_over_time, samples_of(outcome), f"{workload}: {scheme} over {transport}"),
            f"{workload}, {scheme}, {transport}. {PLOT_CAPTION}",
        )
        for names, outcome in shown.items()
        for workload, scheme, transport in [names]
    ]
