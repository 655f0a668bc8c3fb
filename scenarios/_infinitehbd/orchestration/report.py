"""Report of `infinitehbd_orchestration`: a table, a plot and claims for each of figures 17a to 17c.

ToRs, domains and what is counted were chosen because the paper's numbers then come out: they are *fitted to
the paper*, so no claim is confirmed here, nor refuted.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scenarios._infinitehbd.orchestration.placements import (
    BEST_TEXT,
    LEAST,
    LEAST_TEXT,
    NOT_BEST_TEXT,
    OPTIMISED,
    PLACEMENTS,
    RANKED_TEXT,
    SHUFFLED,
    UNCONSTRAINED,
    OrchestratedCluster,
)
from scenarios._infinitehbd.orchestration.study import (
    FAULTY,
    FIGURES,
    JOB,
    MAIN_JOB,
    MEASURES,
    OrchestrationStudy,
)
from scenarios._infinitehbd.percentages import PERCENT, POINTS, around_percent
from testbed.report.claims import SHARE, Claim, Range
from testbed.report.page import Block, Findings, Line, Plot, Sheet, counted
from testbed.report.palette import INK, canvas, horizontal_grid, legend_below, styled
from testbed.study.computed import ComputedReport

FITTED = "fitted to the paper"
SOURCE = "InfiniteHBD, 6.4 (figures 17a to 17c)"
TITLES = {
    "17a": f"by GPUs of the cluster, job of {JOB} %, {FAULTY} % faulty",
    "17b": f"by job size, {FAULTY} % faulty",
    "17c": f"by faulty nodes, job of {MAIN_JOB} %",
}
AXES = {"17a": "GPUs of the cluster", "17b": "job [% of all GPUs]", "17c": "faulty nodes [%]"}
COLOURS = {OPTIMISED: "#0072b2", UNCONSTRAINED: "#d55e00", SHUFFLED: "#9a9a9a"}
PRINTED = 1.72
"""Printed share of the optimised placement in figure 17b, at the largest job [%]."""
NEAR_ZERO = 0.1
"""How much is near zero [%]."""
ALIKE = 1.0
"""How far apart sizes are that make no difference [points]."""
BELOW = 7
"""Faulty nodes under which the optimised placement is near zero [%]."""
LINEAR: Range = (0.95, math.inf)
"""r^2 of what counts as a line."""
BANDS = "Means over the seeds; bands are a standard deviation to either side."

Measure = Callable[["pd.Series[float]"], float]


def orchestration_report(study: OrchestrationStudy) -> ComputedReport:
    """Return the report of a study."""
    cluster = study.cluster
    reading = FITTED if cluster.is_fitted else "asked for"
    return ComputedReport(
        f"Jobs on {cluster.gpus:,} GPUs around faulty nodes, placed by InfiniteHBD's "
        f"orchestration and without it, {counted(study.seeds, 'seed')}. Nothing was sent.",
        Findings(sheets(study), plots(study), orchestration_claims(study)),
        study.table.to_dict("records"),
        "Every point, placement and seed is a row of summary.csv beside this file.",
        definitions=DEFINITIONS,
        settings={"cluster": {**asdict(cluster), "reading": reading}, "seeds": study.seeds},
    )


def sheets(study: OrchestrationStudy) -> list[Sheet]:
    """Return a table per figure, a block per placement; the first explains the shares."""
    first, *more = (_sheet(study, figure) for figure in FIGURES)
    return [replace(first, caption=f"{first.caption} {_shares_text(study.cluster)}"), *more]


def orchestration_claims(study: OrchestrationStudy) -> list[Claim]:
    """Return the claims of figures 17a to 17c, measured by each of the shares."""

    def counted_as(text: str, expected: Range, pattern: str, shares: pd.DataFrame, of: Measure) -> Claim:
        return _claim(study, text, expected, pattern, {name: of(shares[name]) for name in MEASURES})

    baseline = {figure: shares_of(study, figure, UNCONSTRAINED) for figure in FIGURES}
    ours = {figure: shares_of(study, figure, OPTIMISED) for figure in FIGURES}
    return [
        counted_as(
            "optimised: not sensitive to the cluster's size", (-math.inf, ALIKE), POINTS, ours["17a"],
            lambda shares: float(shares.max() - shares.min()),
        ),
        counted_as(
            "baseline: about 10 % at any job size", around_percent(10), PERCENT, baseline["17b"],
            lambda shares: max(shares, key=lambda share: abs(share - 10)),
        ),
        counted_as(
            f"optimised: {PRINTED} % of a job of {JOB} % at {FAULTY} % of faulty nodes",
            around_percent(PRINTED), PERCENT, ours["17b"],
            lambda shares: float(shares[JOB]),
        ),
        counted_as(
            f"baseline: linear in the faulty nodes, job of {MAIN_JOB} % (r^2)", LINEAR, SHARE,
            baseline["17c"], _squared_correlation,
        ),
        counted_as(
            f"optimised: near zero under {BELOW} % of faulty nodes, job of {MAIN_JOB} %",
            (-math.inf, NEAR_ZERO), PERCENT, ours["17c"],
            lambda shares: float(shares[shares.index < BELOW].max()),
        ),
    ]  # fmt: skip


def shares_of(
    study: OrchestrationStudy, figure: str, placement: str, statistic: str = "mean"
) -> pd.DataFrame:
    """Return a statistic over the seeds of a placement's shares, by a figure's points.

    Returns
    -------
    DataFrame
        A row per point (GPUs, or percent), a column per share [%]; one seed has a deviation of 0.
    """
    table = study.table
    rows = table[(table["figure"] == figure) & (table["placement"] == placement)]
    found = 100 * rows.groupby(FIGURES[figure])[list(MEASURES)].agg(statistic)
    return found.fillna(0.0) if statistic == "std" else found


def plots(study: OrchestrationStudy) -> list[Plot]:
    """Return a plot per figure, a panel per share."""
    return [
        Plot(
            f"figure_{figure}",
            partial(drawn_figure, study, figure),
            f"Paper, figure {figure}. {_cluster_text(study.cluster)} {_shares_text(study.cluster)} {BANDS}",
        )
        for figure in FIGURES
    ]


@styled
def drawn_figure(study: OrchestrationStudy, figure: str) -> Figure:
    """Return a figure of the paper: each share of each placement, with the spread over the seeds."""
    mark = f" ({FITTED})" if study.cluster.is_fitted else ""
    known = [name for name in MEASURES if study.table[name].notna().any()]
    canvas_ = canvas(8.5, 3.3, f"CP bytes that leave their ToR, {TITLES[figure]}{mark}")
    for axes, measure in zip(canvas_.subplots(1, len(known)), known, strict=True):
        _draw(axes, study, figure, measure)
        axes.set(title=measure if measure != LEAST else f"{LEAST}, not attainable", xlabel=AXES[figure])
        axes.set_ylim(bottom=0)
        horizontal_grid(axes)
    canvas_.axes[0].set_ylabel("share [%]")
    legend_below(canvas_, 4)
    return canvas_


def _draw(axes: Axes, study: OrchestrationStudy, figure: str, measure: str) -> None:
    """Draw a share of each placement over a figure's points."""
    for placement, colour in COLOURS.items():
        mean, spread = (shares_of(study, figure, placement, each)[measure] for each in ("mean", "std"))
        axes.plot(mean.index, mean, "o-", color=colour, markersize=3, label=placement)
        band = (mean - spread).clip(lower=0), mean + spread
        axes.fill_between(mean.index, *band, color=colour, alpha=0.15, linewidth=0)
    if figure == "17a":
        axes.set_xscale("log", base=2)
        axes.set_xticks(mean.index, [f"{gpus:,}" for gpus in mean.index], fontsize=7)
    if figure == "17b" and measure == LEAST:
        axes.plot([JOB], [PRINTED], "x", color=INK, label="paper, optimised")


def _sheet(study: OrchestrationStudy, figure: str) -> Sheet:
    return Sheet(
        (AXES[figure],),
        (*MEASURES, "paper"),
        [Block(_lines(study, figure, placement), placement) for placement in PLACEMENTS],
        f"Figure {figure}: CP bytes that leave their ToR [%], {TITLES[figure]}; means ± standard deviation "
        f"over {counted(study.seeds, 'seed')}. {_cluster_text(study.cluster)}",
    )


def _lines(study: OrchestrationStudy, figure: str, placement: str) -> list[Line]:
    """Return a line per point of a placement."""
    mean, spread = (shares_of(study, figure, placement, each) for each in ("mean", "std"))
    return [
        Line([f"{at:,}", *map(_cell, mean.loc[at], spread.loc[at]), _printed(figure, placement, at)])
        for at in mean.index
    ]


def _printed(figure: str, placement: str, at: int) -> str:
    """Return the printed number of a point, of a share that the paper does not name; nothing for most."""
    if figure == "17b":
        return {UNCONSTRAINED: "~ 10", OPTIMISED: f"{PRINTED}" if at == JOB else ""}.get(placement, "")
    return "~ 0" if figure == "17c" and placement == OPTIMISED and at < BELOW else ""


def _cell(mean: float, spread: float) -> str:
    """Return a share with its deviation; a dash where it is not known."""
    return "-" if math.isnan(mean) else f"{mean:.2f} ±{spread:.2f}"


def _claim(
    study: OrchestrationStudy, text: str, expected: Range, pattern: str, values: Mapping[str, float]
) -> Claim:
    """Return a claim measured by the least share; what is fitted to the paper rules none."""
    why = FITTED if study.cluster.is_fitted else f"another cluster than the one {FITTED}"
    each = ", ".join(
        f"{name} {pattern.format(value)}" for name, value in values.items() if not math.isnan(value)
    )
    return Claim(text, SOURCE, expected, values[LEAST], "not comparable", f"{why}: {each}", pattern)


def _squared_correlation(shares: "pd.Series[float]") -> float:
    """Return r^2 of a line through shares over the points; NaN where they are unknown, or all equal."""
    if shares.nunique() < 2:
        return math.nan
    return float(np.corrcoef(shares.index, shares)[0, 1] ** 2)


def _cluster_text(cluster: OrchestratedCluster) -> str:
    """Return the cluster in words."""
    fitted = f", {FITTED}" if cluster.is_fitted else ""
    return (
        f"ToRs of {counted(cluster.tor_nodes, 'node')} of {cluster.node_gpus} GPUs, domains of "
        f"{cluster.domain_nodes * cluster.node_gpus:,} GPUs{fitted}; TP-{cluster.tp_gpus}, "
        f"K = {cluster.hops}."
    )


def _shares_text(cluster: OrchestratedCluster) -> str:
    """Return the meaning of each share."""
    return f"{LEAST_TEXT} {BEST_TEXT if cluster.tor_nodes == 2 else NOT_BEST_TEXT} {RANKED_TEXT}"


DEFINITIONS = (
    (
        "optimised",
        "Placed by InfiniteHBD's orchestration, with as many constraints as leave room for the job.",
    ),
    (
        "unconstrained",
        "The baseline: groups cut off the line wherever ToRs and domains end. The paper's selects nodes at "
        "random, and it says no more.",
    ),
    ("shuffled", "The unconstrained groups in random order, paired as they come."),
    ("least", f"{LEAST_TEXT} A ToR that a job does not fill sends at least one rank's bytes away."),
    ("best", f"{BEST_TEXT} A matching of the largest weight; {NOT_BEST_TEXT}"),
    ("ranked", RANKED_TEXT),
    ("model", "Counted; nothing was emulated."),
)
