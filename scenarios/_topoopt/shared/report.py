"""The times of jobs that share a cluster: the report of a study, its tables, claims and plot (Figure 16)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial

import pandas as pd
from matplotlib.figure import Figure

from scenarios._topoopt.costs import fat_tree_cost, interconnect_bill
from scenarios._topoopt.fabrics import COLOURS, FAT_TREE, IDEAL, OVERSUBSCRIBED, TOPOOPT
from scenarios._topoopt.shared.points import (
    MIXES,
    MODELS,
    OF_EXCHANGE,
    PRIVATE,
    SHARD,
    SHARED,
    AloneTimes,
    JobFound,
    SharedCluster,
    SharedPoint,
    jobs_of,
)
from testbed.report.claims import Claim, around, predicted
from testbed.report.page import Block, Findings, Line, Plot, Sheet, counted
from testbed.report.palette import canvas, horizontal_grid, legend_below, styled
from testbed.study.computed import ComputedReport, Found

MS = 1e3
SOURCE = "TopoOpt, 5.6 (Figure 16)"
LOADS = (5, 10, 15, 20, 27)
"""Jobs, of the paper."""
MEAN_OVER = {FAT_TREE: 1.7, OVERSUBSCRIBED: 1.15}
"""Mean iteration time over TopoOpt's. The paper does not say at which load."""
TAIL_OVER_AT_FULL_LOAD = {FAT_TREE: 3.4}
TAIL_OVER = {FAT_TREE: 3.0, OVERSUBSCRIBED: 1.4}
"""99th percentile over TopoOpt's, the mean of the loads."""
CAPTION = (
    "Paper, figure 16: mean and 99th percentile of iteration times, over the share of servers in use. Those "
    "of TopoOpt and of the ideal switch differ between loads only by the models that were drawn."
)
DEFINITIONS = (
    ("iteration time", "Of a job's first iteration, while the others repeat theirs."),
    (
        "99th percentile",
        "Element floor(0.99 N) of the N sorted iteration times of a load, all seeds together.",
    ),
    ("alone", "The same models on one switch with NICs as fast, where flows meet at NICs only."),
    (
        "/ alone",
        "Iteration time over that of the same model alone on one switch with NICs as fast, mean of jobs.",
    ),
    (
        "ended early",
        "Jobs that had repeated their iteration as often as planned before the last first iteration ended: "
        "the others then shared the network with one less.",
    ),
)


def shared_report(
    cluster: SharedCluster, points: Sequence[SharedPoint], costs: str, found: Found
) -> ComputedReport:
    """Return the report of points: a row each, and one of ``jobs.csv`` per job of it.

    Parameters
    ----------
    cluster, points
        What was studied.
    costs
        What the fabrics cost (`cost_sentence`).
    found
        Results of `scenarios._topoopt.shared.points.calls_of` them.
    """
    alone, jobs_found = jobs_of(cluster, points, found)
    tables = {point: jobs_table(point, jobs, alone) for point, jobs in jobs_found.items()}
    jobs = pd.concat(tables.values())
    loads, seeds = by_load(jobs), len({point.seed for point in points})
    return ComputedReport(
        f"Jobs of {SHARD} servers share a cluster of {cluster.servers}, predicted by the fluid "
        "model. Nothing was sent.",
        Findings(
            [load_sheet(cluster, loads, costs), alone_sheet(alone)],
            [Plot("load", partial(load_plot, cluster, loads), CAPTION)],
            shared_claims(cluster, loads, counted(seeds, "seed")),
        ),
        [_row(cluster, point, table) for point, table in tables.items()],
        "summary.csv has a row per fabric, number of jobs and seed, jobs.csv one per job.",
        {"jobs": jobs},
        DEFINITIONS,
        {"cluster": asdict(cluster), "alone_s": alone},
    )


def _row(cluster: SharedCluster, point: SharedPoint, jobs: pd.DataFrame) -> dict[str, object]:
    times_s = jobs["iteration_s"]
    return {
        "fabric": point.fabric,
        "jobs": point.jobs,
        "load": point.jobs * SHARD / cluster.servers,
        "seed": point.seed,
        "mean_s": times_s.mean(),
        "p99_s": p99(times_s),
        "over_alone": (times_s / jobs["alone_s"]).mean(),
        "ended_early": int(jobs["ended_early"].sum()),
        "verdict": "model",
    }


def jobs_table(point: SharedPoint, found: Sequence[JobFound], alone: AloneTimes) -> pd.DataFrame:
    """Return a row per job of a point."""
    rows = pd.DataFrame([asdict(job) for job in found])
    rows.insert(0, "fabric", point.fabric)
    rows.insert(1, "jobs", point.jobs)
    rows.insert(2, "seed", point.seed)
    rows.insert(3, "job", range(len(rows)))
    rows["alone_s"] = rows["model"].map(alone[point.fabric])
    rows["ended_early"] = (rows["repeats_s"] < rows["iteration_s"].max()) & (point.fabric in SHARED)
    return rows


def by_load(jobs: pd.DataFrame) -> pd.DataFrame:
    """Return a row per fabric and number of jobs, of all seeds.

    Returns
    -------
    table
        mean_s and p99_s of iteration times; alone_mean_s and alone_p99_s, of the same models alone;
        over_alone, mean of jobs; ended_early, a share.
    """
    jobs = jobs.assign(over_alone=jobs["iteration_s"] / jobs["alone_s"])
    return jobs.groupby(["fabric", "jobs"], sort=False).agg(
        mean_s=("iteration_s", "mean"),
        p99_s=("iteration_s", p99),
        alone_mean_s=("alone_s", "mean"),
        alone_p99_s=("alone_s", p99),
        over_alone=("over_alone", "mean"),
        ended_early=("ended_early", "mean"),
    )


def p99(values: "pd.Series[float]") -> float:
    """Return element floor(0.99 N) of N sorted values, as the paper's notebook does.

    Examples
    --------
    >>> p99(pd.Series(range(200))), p99(pd.Series([3.0, 1.0]))
    (198.0, 3.0)
    """
    return float(values.sort_values().iloc[math.floor(0.99 * len(values))])


def over_topoopt(table: pd.DataFrame, fabric: str, column: str) -> Mapping[int, float]:
    """Return a column of `by_load` of a fabric over TopoOpt's, by number of jobs; those that both have."""
    fabrics = table.index.get_level_values("fabric")
    if not {fabric, TOPOOPT} <= set(fabrics):
        return {}
    ratios = (table[column][fabric] / table[column][TOPOOPT]).dropna()
    return {int(jobs): float(ratio) for jobs, ratio in ratios.items()}


def shared_claims(cluster: SharedCluster, table: pd.DataFrame, basis: str) -> list[Claim]:
    """Return the claims of Figure 16; those about other clusters, or loads that did not run, have no value.

    Parameters
    ----------
    cluster, table
        What was predicted, as `by_load`.
    basis
        How many seeds, in words.
    """
    full = LOADS[-1]
    claims = []
    for fabric, expected in MEAN_OVER.items():
        ratios = over_topoopt(table, fabric, "mean_s")
        text = f"mean iteration over TopoOpt's {expected}x, {fabric}, at full load"
        claims.append(_claim(cluster, text, expected, ratios.get(full, math.nan), ratios, basis))
    for fabric, expected in TAIL_OVER_AT_FULL_LOAD.items():
        ratios = over_topoopt(table, fabric, "p99_s")
        text = f"99th percentile over TopoOpt's {expected}x, {fabric}, at full load"
        claims.append(_claim(cluster, text, expected, ratios.get(full, math.nan), ratios, basis))
    for fabric, expected in TAIL_OVER.items():
        ratios = over_topoopt(table, fabric, "p99_s")
        whole = set(LOADS) <= ratios.keys()
        measured = math.fsum(ratios[jobs] for jobs in LOADS) / len(LOADS) if whole else math.nan
        text = f"99th percentile over TopoOpt's {expected}x, {fabric}, mean of all loads"
        claims.append(_claim(cluster, text, expected, measured, ratios, basis))
    return claims


def _claim(
    cluster: SharedCluster,
    text: str,
    expected: float,
    measured: float,
    ratios: Mapping[int, float],
    basis: str,
) -> Claim:
    about = text, SOURCE, around(expected)
    if cluster.servers != SharedCluster.servers or math.isnan(measured):
        return Claim(*about, reason="about other loads, or another cluster", ran=False)
    reason = ", ".join(f"{jobs} jobs {ratio:.2f}" for jobs, ratio in ratios.items())
    return replace(predicted(*about, measured, reason), basis=basis)


def cost_sentence(cluster: SharedCluster) -> str:
    """Return the costs of TopoOpt and the fat-tree; ScenarioError if the fat-tree's NICs have no price."""
    topoopt_usd = interconnect_bill(TOPOOPT, cluster.servers, cluster.degree, cluster.rate_bps).usd
    tree_usd = fat_tree_cost(cluster.servers, cluster.fat_tree_bps)
    return (
        f"TopoOpt costs {topoopt_usd / 1e6:.2f} million dollars, the fat-tree, with NICs of "
        f"{cluster.fat_tree_bps / 1e9:g} Gbit/s, {tree_usd / 1e6:.2f}"
    )


def load_sheet(cluster: SharedCluster, table: pd.DataFrame, costs: str) -> Sheet:
    """Return the table of a study: columns are loads."""
    numbers = list(dict.fromkeys(table.index.get_level_values("jobs")))
    fabrics = [name for name in (*PRIVATE, *SHARED) if name in table.index.get_level_values("fabric")]

    def cells(values: Mapping[int, float], pattern: str) -> list[str]:
        return [pattern.format(values[jobs]) if jobs in values else "-" for jobs in numbers]

    def block(title: str, column: str, pattern: str, names: Sequence[str], scale: float = 1.0) -> Block:
        lines = [Line([name, *cells((scale * table[column][name]).to_dict(), pattern)]) for name in names]
        return Block(lines, title)

    def ratio_block(title: str, column: str, names: Sequence[str]) -> Block:
        lines = [Line([name, *cells(over_topoopt(table, name, column), "{:.2f}")]) for name in names]
        return Block(lines, title)

    others, together = fabrics[1:], [name for name in SHARED if name in fabrics]
    blocks = [
        block("mean iteration [ms]", "mean_s", "{:.1f}", fabrics, MS),
        ratio_block("mean / TopoOpt's", "mean_s", others),
        block("99th percentile [ms]", "p99_s", "{:.1f}", fabrics, MS),
        ratio_block("99th percentile / TopoOpt's", "p99_s", others),
        ratio_block("alone: mean / TopoOpt's", "alone_mean_s", together),
        ratio_block("alone: 99th percentile / TopoOpt's", "alone_p99_s", together),
        block("/ alone", "over_alone", "{:.2f}", together),
        block("ended early [% of jobs]", "ended_early", "{:.0f}", together, 100),
    ]
    loads = [f"{jobs} jobs, {jobs * SHARD / cluster.servers:.0%}" for jobs in numbers]
    return Sheet(("fabric",), loads, [each for each in blocks if each.lines], _caption(cluster, costs))


def _caption(cluster: SharedCluster, costs: str) -> str:
    shares = zip(MODELS, MIXES[cluster.mix], strict=True)
    mix = ", ".join(f"{share:.0%} {model}" for model, share in shares)
    of = "AllReduce and all-to-all" if cluster.paths == OF_EXCHANGE else "two servers of a job"
    return (
        f"{cluster.servers} servers, jobs of {SHARD}: {mix}. d = {cluster.degree}, B = "
        f"{cluster.rate_bps / 1e9:g} Gbit/s. On TopoOpt and the ideal switch jobs do not interact: one of "
        "each model is predicted alone, and a load has the models that were drawn. On fat-trees all run "
        f"together on servers drawn at random, and flows of each {of} take one hashed path each. Layers are "
        f"data parallel and tables take turns: no strategy is searched. {costs}."
    )


def alone_sheet(alone: AloneTimes) -> Sheet:
    """Return the table of models alone."""
    lines = [Line([model, *(f"{MS * times[model]:.1f}" for times in alone.values())]) for model in MODELS]
    return Sheet(
        ("model, alone",),
        list(alone),
        [Block(lines)],
        f"Milliseconds of an iteration on {SHARD} servers of which nobody else uses the network. A fat-tree "
        "is here one switch with NICs as fast, so that what separates it from TopoOpt is the rate of NICs, "
        "and what separates this table from the other is that flows meet. Compute as measured by TopoOpt's "
        "authors on A100.",
    )


@styled
def load_plot(cluster: SharedCluster, table: pd.DataFrame) -> Figure:
    """Return Figure 16: mean and 99th percentile over load, a line per fabric."""
    figure = canvas(8.0, 3.4, f"Iteration times of jobs that share {cluster.servers} servers")
    for axes, (column, label) in zip(
        figure.subplots(1, 2), {"mean_s": "mean", "p99_s": "99th percentile"}.items(), strict=True
    ):
        for fabric, colour in COLOURS.items():
            if fabric in table.index.get_level_values("fabric"):
                times_s = table[column][fabric]
                loads = [100 * jobs * SHARD / cluster.servers for jobs in times_s.index]
                line = ":" if fabric == IDEAL else "-"
                axes.plot(loads, MS * times_s, line, marker="o", color=colour, label=fabric)
        axes.set(title=label, xlabel="servers in use [%]", ylabel="iteration [ms]", ylim=(0, None))
        horizontal_grid(axes)
    legend_below(figure)
    return figure
