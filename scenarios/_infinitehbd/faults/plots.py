"""The plots of InfiniteHBD's fault study: waste over time and against faults, jobs, waiting."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scenarios._infinitehbd.faults.costs import aggregate_costs
from scenarios._infinitehbd.faults.study import FITTED, JOB_SHARES, LARGEST_FAULTY, FaultStudy
from testbed.report.page import Plot
from testbed.report.palette import BOUND, canvas, horizontal_grid, legend_below, styled

COLOURS = {
    "InfiniteHBD K=2": "#56b4e9",
    "InfiniteHBD K=3": "#0072b2",
    "big switch": BOUND,
    "NVL-36": "#e69f00",
    "NVL-72": "#d55e00",
    "NVL-576": "#a6a000",
    "TPUv4 mod": "#009e73",
    "TPUv4 blocks": "#2b2b2b",
    "SiP-Ring": "#c9a0dc",
}
"""Architectures that are drawn; K = 4 and one path a bundle would lie on the big switch or K = 3."""
LABELS = {"TPUv4 blocks": "TPUv4 blocks (fitted)"}
OVER = {"big switch": "--", "SiP-Ring": ":"}
"""The lines of what others may lie on: of the lower bound, and of what is often equal to the blocks."""
Draw = Callable[[Axes, int], None]
Points: TypeAlias = "Sequence[float] | pd.Series[float]"


def fault_plots(study: FaultStudy) -> list[Plot]:
    """Return the plots of a study, each with what to see in it; a synthetic trace is named on each."""
    mark = " (SYNTHETIC trace)" if study.trace.synthetic else ""
    fitted = f"{FITTED} reading, which is fitted to the paper."
    about = f"{study.trace.name}, {fitted if study.cluster.halved else f'{study.reading} as nodes.'}"
    return [
        Plot("waste_cdf", partial(_distribution, study, mark), f"Paper, figures 13 and 21. {about} {CDF}"),
        Plot("waste_over_time", partial(_over_time, study, mark), f"Paper, figure 20. {about} {TIME}"),
        Plot("waste_by_faults", partial(_by_faults, study), f"Paper, figures 14 and 22. {FAULTS}"),
        Plot("largest_job", partial(_largest_job, study, mark), f"Paper, figure 15. {about} {JOB}"),
        Plot("waiting", partial(_waiting, study, mark), f"Paper, figures 16 and 23. {about} {WAITING}"),
        Plot("aggregate_cost", partial(_aggregate_cost, study), f"Paper, figure 17d. {COST}"),
    ]


CDF = "Share of the time in which no more is wasted, all seeds together; linear below 1 %."
TIME = "The waste of seed 0 from day to day at one TP size; linear below 1 %."
FAULTS = (
    "Fault model: exactly so many faulty nodes, uniformly drawn. Means over the seeds; bands leave out a "
    "tenth of them on either side. Linear below 1 %. The teeth are the remainder."
)
JOB = "The largest job that never pauses within the trace's window, means over the seeds."
WAITING = "Share of the time in which a job of that size waits for repairs; every fault lasts the mean time."
COST = (
    "Idle and faulty GPUs and the interconnect, for each GPU, under the fault model. The price of a GPU and "
    "interconnects at equal bandwidth are fitted to the paper."
)


@styled
def _distribution(study: FaultStudy, mark: str) -> Figure:
    curves = study.curves[study.curves["kind"] == "share of time"]

    def draw(axes: Axes, tp_gpus: int) -> None:
        for name, rows in _drawn(curves, tp_gpus):
            _line(axes, name, 100 * rows["waste"], rows["x"])
        axes.set(xlabel="waste [%]", ylabel="share of the time", xlim=(0, 100), ylim=(0, 1.01))
        axes.set_xscale("symlog", linthresh=1)
        axes.xaxis.set_major_formatter("{x:g}")

    return _panels(study, f"Distribution of the waste over time{mark}", draw)


@styled
def _by_faults(study: FaultStudy) -> Figure:
    curves = study.curves[study.curves["kind"] == "faulty nodes"]

    def draw(axes: Axes, tp_gpus: int) -> None:
        for name, rows in _drawn(curves, tp_gpus):
            _line(axes, name, 100 * rows["x"], 100 * rows["waste"])
            band = (100 * rows["low"], 100 * rows["high"])
            axes.fill_between(100 * rows["x"], *band, color=COLOURS[name], alpha=0.12, linewidth=0)
        axes.set(xlabel="faulty nodes [%]", ylabel="waste [%]", xlim=(0, LARGEST_FAULTY), ylim=(0, 100))
        axes.set_yscale("symlog", linthresh=1)
        axes.yaxis.set_major_formatter("{x:g}")

    return _panels(study, "Waste against the share of faulty nodes", draw)


@styled
def _over_time(study: FaultStudy, mark: str) -> Figure:
    main = study.cluster.main_tp
    figure = canvas(8.5, 3.4, f"Waste over time, TP-{main}{mark}")
    axes = figure.subplots()
    for name, rows in _drawn(study.curves[study.curves["kind"] == "time"], main):
        _line(axes, name, rows["x"].repeat(2).iloc[1:], 100 * rows["waste"].repeat(2).iloc[:-1])
    axes.set(xlabel="day", ylabel="waste [%]", xlim=(0, study.trace.window_days), ylim=(0, 100))
    axes.set_yscale("symlog", linthresh=1)
    axes.yaxis.set_major_formatter("{x:g}")
    horizontal_grid(axes)
    legend_below(figure, 4)
    return figure


@styled
def _largest_job(study: FaultStudy, mark: str) -> Figure:
    figure = canvas(7.2, 3.4, f"The largest job that never pauses{mark}")
    axes = figure.subplots()
    read = study.summary[study.summary["reading"] == study.reading]
    place = {tp: at for at, tp in enumerate(study.cluster.tp_gpus)}
    for name in COLOURS:
        jobs = read[read["architecture"] == name].groupby("tp_gpus")["job_never_pauses_gpus"].mean()
        if len(jobs):
            _line(axes, name, [place[int(tp)] for tp in jobs.index], jobs, "o")
    axes.set_xticks(list(place.values()), [f"TP-{tp}" for tp in place])
    axes.set(ylabel="GPUs", ylim=(0, None))
    horizontal_grid(axes)
    legend_below(figure, 4)
    return figure


@styled
def _waiting(study: FaultStudy, mark: str) -> Figure:
    read = study.summary[study.summary["reading"] == study.reading]
    columns = [f"waiting_{share}" for share in JOB_SHARES]

    def draw(axes: Axes, tp_gpus: int) -> None:
        for name, rows in _drawn(read, tp_gpus):
            _line(axes, name, JOB_SHARES, 100 * rows[columns].mean(), "o")
        axes.set(xlabel="size of the job [% of all GPUs]", ylabel="waits [% of the time]", ylim=(-2, 102))
        axes.set_xticks(JOB_SHARES)

    return _panels(study, f"Waiting for repairs{mark}", draw)


@styled
def _aggregate_cost(study: FaultStudy) -> Figure:
    costs = aggregate_costs(study.curves, study.cluster) / 1000
    figure = canvas(7.2, 3.8, f"Aggregate cost, TP-{study.cluster.main_tp} (fitted to the paper)")
    axes = figure.subplots()
    for name in map(str, costs):
        _line(axes, name, [100 * share for share in costs.index], costs[name])
    axes.set(xlabel="faulty nodes [%]", ylabel="1,000 $ per GPU", xlim=(0, LARGEST_FAULTY), ylim=(0, None))
    horizontal_grid(axes)
    legend_below(figure, 4)
    return figure


def _panels(study: FaultStudy, title: str, draw: Draw) -> Figure:
    """Return a panel for each TP size, two side by side."""
    sizes = study.cluster.tp_gpus
    rows, columns = (len(sizes) + 1) // 2, min(2, len(sizes))
    figure = canvas(8.5, 0.8 + 2.7 * rows, title)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for spare in panels[len(sizes) :]:
        spare.remove()
    for axes, tp_gpus in zip(panels, sizes, strict=False):
        draw(axes, tp_gpus)
        axes.set_title(f"TP-{tp_gpus}")
        horizontal_grid(axes)
    legend_below(figure, 4)
    return figure


def _drawn(curves: pd.DataFrame, tp_gpus: int) -> list[tuple[str, pd.DataFrame]]:
    """Return the architectures that are drawn at a TP size and can be made of the cluster."""
    here = curves[curves["tp_gpus"] == tp_gpus]
    made = set(here["architecture"])
    return [(name, here[here["architecture"] == name]) for name in COLOURS if name in made]


def _line(axes: Axes, name: str, x: Points, y: Points, marker: str = "") -> None:
    axes.plot(
        x, y, color=COLOURS[name], label=LABELS.get(name, name), marker=marker, markersize=3,
        linestyle=OVER.get(name, "-"), zorder=3 if name in OVER else 2,
    )  # fmt: skip
