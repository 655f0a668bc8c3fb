"""Iteration times on 1,024 GPUs, ours beside those that the project publishes: Figure 12.

Ours are predictions of the fluid model (`scenarios._mfabric.steps`), with assumed compute rates. So ratios
between fabrics are compared, and times over the shortest of their model. Why ours differ from the public ones
is said with the numbers that show it.
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial

import pandas as pd
from matplotlib.figure import Figure

from scenarios._mfabric.fabrics import (
    ALL_RATES,
    COLOURS,
    FAT_TREE,
    MFABRIC,
    OVERSUBSCRIBED,
    RAIL,
    RINGS,
    TOPOOPT,
    bill_of,
    gbit,
)
from scenarios._mfabric.public_times import NORMALISED, public_times
from scenarios._mfabric.section import Section, judged
from scenarios._mfabric.steps import DELAY_S, SERVERS, STUDIED, Iterations, Setting, StepPoint
from testbed.report.claims import AT_LEAST_AS_GOOD, MORE, TOLERANCE, Claim, around
from testbed.report.page import Block, Findings, Line, Plot, Sheet
from testbed.report.palette import BOUND, canvas, horizontal_grid, styled
from testbed.run.region_plan import First
from topologies.cost import performance_per_dollar

REUSE = f"{MFABRIC}, reuse"
"""mFabric whose dispatches take the circuits that are lit; else they wait for their own (block)."""
FABRICS: dict[str, tuple[str, First]] = {
    FAT_TREE: (FAT_TREE, "block"),
    RAIL: (FAT_TREE, "block"),
    OVERSUBSCRIBED: (OVERSUBSCRIBED, "block"),
    MFABRIC: (MFABRIC, "block"),
    REUSE: (MFABRIC, "reuse"),
    TOPOOPT: (TOPOOPT, "block"),
    RINGS: (RINGS, "block"),
}
"""What each row of a table is predicted over; a rail-optimised fabric takes as long as a fat-tree."""
BAR_COLOURS = COLOURS | {REUSE: "#7fb2d9", RINGS: "#7fcfb8"}
OVER_TOPOOPT = {"mixtral-8x22b": 1.5, "mixtral-8x7b": 1.4, "qwen-moe": 1.5, "deepseek-r1": 1.3}
"""What the paper prints of mFabric's gain, the mean over the rates."""
BLOCKED_MODEL, BLOCKED = "mixtral-8x22b", 1.6
"""The most that it gains over 3:1, and with which model."""
ORDERED_GBPS = (100.0, 200.0, 400.0)
"""Rates at which the public times have fat-tree, mFabric, TopoOpt in this order."""
TIMES = ("iteration_s", "public")
"""The columns of times."""
MANY_EXPERTS = ("qwen-moe", "deepseek-r1")


def iteration_points(model: str, setting: Setting) -> list[StepPoint]:
    """Return the training steps of a part of Figure 12."""
    return [
        _point(model, name, rate_bps) for rate_bps in setting.rates_bps for name in FABRICS if name != RAIL
    ]


def iteration_times(model: str, setting: Setting, found: Iterations) -> Section:
    """Return the iteration times of a model beside the public ones, and what mFabric is worth by them.

    Parameters
    ----------
    model
        A key of `STUDIED`.
    setting, found
        The iterations of all `iteration_points` in this setting.
    """
    table = worth(time_table(model, setting.rates_bps, found))
    return Section(
        name=f"iteration_times_{model}",
        about=f"iteration times of {model} on 1,024 GPUs",
        basis="computed by the fluid model on synthetic gates, beside public times",
        findings=Findings(
            [_sheet(table, setting)],
            [Plot(f"iteration_times_{model}", partial(_plot, table), CAPTION)],
            _claims(model, table),
        ),
        tables={f"iteration_times_{model}": table},
        seeds=[setting.seed],
        definitions=DEFINITIONS,
        settings={"gpu_flops": setting.gpu_flops, "delay_s": DELAY_S, "servers": SERVERS},
    )


def time_table(model: str, rates_bps: Sequence[float], found: Iterations) -> pd.DataFrame:
    """Return a row per rate and fabric: iteration time, over the model's shortest, and the public one."""
    rows = []
    for rate_bps in rates_bps:
        public = public_times(model, rate_bps) if model in NORMALISED else {}
        for fabric in FABRICS:
            iteration = found[_point(model, fabric, rate_bps)]
            rows.append(
                {
                    "model": model, "rate_gbps": rate_bps / 1e9, "fabric": fabric,
                    "iteration_s": iteration.seconds, "waiting_s": iteration.waiting_s,
                    "reconfigurations": iteration.reconfigurations, "public": public.get(fabric, math.nan),
                }
            )  # fmt: skip
    table = pd.DataFrame(rows)
    table["normalised"] = table["iteration_s"] / table["iteration_s"].min()
    table["ours_over_public"] = table["normalised"] / table["public"]
    return table


def _point(model: str, name: str, rate_bps: float) -> StepPoint:
    fabric, first = FABRICS[name]
    return StepPoint(model, fabric, rate_bps, first=first)


def _built(name: str) -> str:
    """Return the fabric that is built, and paid, for a row of a table."""
    return {REUSE: MFABRIC, RINGS: TOPOOPT}.get(name, name)


def worth(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table of times with performance per dollar over the fat-tree's, by ours and by the public."""
    found: dict[str, list[float]] = {column: [] for column in TIMES}
    for rate_gbps in dict.fromkeys(table["rate_gbps"].to_list()):
        here = table[table["rate_gbps"] == rate_gbps].set_index("fabric")
        usd = {name: bill_of(_built(name), SERVERS, rate_gbps * 1e9).usd for name in here.index}
        for column, worth_of in found.items():
            times = here[column].to_dict()
            worth_of += [_worth(usd, times, name) for name in here.index]
    return table.assign(worth=found["iteration_s"], worth_public=found["public"])


def _worth(usd: Mapping[str, float], times: Mapping[str, float], name: str) -> float:
    """Return a fabric's performance per dollar over the fat-tree's; NaN where its time is not known."""
    if math.isnan(times[name]):
        return math.nan
    return performance_per_dollar(usd[name], times[name], base_usd=usd[FAT_TREE], base_s=times[FAT_TREE])


def over(rows: pd.DataFrame, above: str, below: str, column: str = "iteration_s") -> pd.Series:
    """Return one fabric's times over another's, by rate [Gbit/s]."""
    times = rows.pivot_table(index="rate_gbps", columns="fabric", values=column, dropna=False)
    ratios: pd.Series = times[above] / times[below]
    return ratios


def shrinking_share(rates_gbps: Sequence[float], times: Sequence[float]) -> list[float]:
    """Return which part of each time falls in proportion to the rate, by the first and the last of them.

    Examples
    --------
    >>> shrinking_share([100, 200], [1.5, 1.0])
    [0.6666666666666666, 0.5]
    """
    if len(times) < 2:
        return [math.nan] * len(times)
    gain = (times[0] - times[-1]) / (1 / rates_gbps[0] - 1 / rates_gbps[-1])
    return [gain / rate / time for rate, time in zip(rates_gbps, times, strict=True)]


def patient(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the times with mFabric's less what it waits for circuits."""
    return rows.assign(iteration_s=rows["iteration_s"] - rows["waiting_s"])


def _claims(model: str, rows: pd.DataFrame) -> list[Claim]:
    source = f"mFabric, 7.3 (Figure 12), {model}"
    gain = OVER_TOPOOPT[model]
    claims = []
    for name, mode in ((MFABRIC, ""), (REUSE, "reuse: ")):
        fat_tree, topoopt = over(rows, name, FAT_TREE), over(rows, TOPOOPT, name)
        each = _by_rate(fat_tree), _by_rate(topoopt)
        close, on_average = f"{mode}within 10 % of the fat-tree", f"{mode}{gain}x over TopoOpt on average"
        if model not in MANY_EXPERTS:  # of these the paper says that the gap is larger
            claims.append(judged(close, source, (0, 1 + TOLERANCE), fat_tree.max(), each[0]))
        claims.append(judged(on_average, source, around(gain), of_all_rates(topoopt), each[1]))
        ordered = [rate for rate in ORDERED_GBPS if rate in fat_tree.index]
        if model in NORMALISED and ordered:
            at = f"{ordered[0]:g} to {ordered[-1]:g}G"
            no_faster, faster = f"{mode}no faster than the fat-tree, {at}", f"{mode}faster than TopoOpt, {at}"
            claims += [
                judged(no_faster, source, AT_LEAST_AS_GOOD, fat_tree[ordered].min()),
                judged(faster, source, MORE, topoopt[ordered].min(), each[1]),
            ]
    rings = over(rows, RINGS, MFABRIC)
    text = f"{gain}x over {RINGS} on average"
    claims.append(judged(text, source, around(gain), of_all_rates(rings), _by_rate(rings)))
    if model == BLOCKED_MODEL:
        blocked = over(rows, OVERSUBSCRIBED, MFABRIC)
        most = f"up to {BLOCKED}x over 3:1"
        claims.append(judged(most, source, around(BLOCKED), blocked.max(), _by_rate(blocked)))
    if model in MANY_EXPERTS:
        fat_tree = over(rows, MFABRIC, FAT_TREE)
        closing = fat_tree.iloc[0] / fat_tree.iloc[-1] if len(fat_tree) > 1 else math.nan
        text = "the gap to the fat-tree closes as rates grow"
        claims.append(judged(text, source, MORE, closing, _by_rate(fat_tree)))
    return claims


def of_all_rates(ratios: pd.Series) -> float:
    """Return the mean of ratios; NaN if they are not of all rates, of which the paper's are."""
    return float(ratios.mean()) if len(ratios) == len(ALL_RATES) else math.nan


def _by_rate(ratios: pd.Series) -> str:
    """Return ratios by rate in words."""
    return ", ".join(f"{rate:g}G {ratio:.2f}" for rate, ratio in ratios.dropna().items())


def _sheet(rows: pd.DataFrame, setting: Setting) -> Sheet:
    model = str(rows["model"].iloc[0])
    by_fabric = {str(name): here.set_index("rate_gbps") for name, here in rows.groupby("fabric", sort=False)}

    def block(title: str, pattern: str, ours: str, public: str = "") -> Block:
        lines = [_line(name, pattern, here[ours], here.get(public)) for name, here in by_fabric.items()]
        return Block(lines, title)

    blocks = [
        block("iteration [s]", "{:.2f}", "iteration_s"),
        block("over the shortest (public)", "{:.3f}", "normalised", "public"),
        Block(_ratio_lines(rows, by_fabric), "at one rate (public)"),
        block("performance per dollar over the fat-tree's (public)", "{:.2f}", "worth", "worth_public"),
    ]
    if model in NORMALISED:
        blocks.insert(2, block("ours / public", "{:.3f}", "ours_over_public"))
    rates = [gbit(rate_bps) for rate_bps in setting.rates_bps]
    return Sheet((model,), rates, blocks, _caption(model, setting))


def _ratio_lines(rows: pd.DataFrame, by_fabric: Mapping[str, pd.DataFrame]) -> list[Line]:
    """Return how fabrics compare at one rate, and what that depends on."""
    fat_tree = by_fabric[FAT_TREE]
    rates = fat_tree.index.to_list()
    shares = [pd.Series(shrinking_share(rates, fat_tree[column].to_list()), index=rates) for column in TIMES]
    ours = ((MFABRIC, FAT_TREE), (REUSE, FAT_TREE))
    pairs = (*ours, (OVERSUBSCRIBED, MFABRIC), (TOPOOPT, MFABRIC), (TOPOOPT, REUSE), (RINGS, MFABRIC))
    beside = [
        _line(
            " / ".join(name.removeprefix(f"{MFABRIC}, ") for name in pair),
            "{:.3f}",
            *(over(rows, *pair, column) for column in TIMES),
        )
        for pair in pairs
    ]
    waitless = _line(f"{MFABRIC}* / {FAT_TREE}", "{:.3f}", over(patient(rows), MFABRIC, FAT_TREE))
    return [*beside, waitless, _line("network's share", "{:.1%}", *shares)]


def _line(name: str, pattern: str, ours: pd.Series, public: pd.Series | None = None) -> Line:
    """Return a line of numbers, each with the public one behind it where there is one."""
    behind = [math.nan] * len(ours) if public is None else public.to_list()
    return Line([name, *(_beside(pattern, *pair) for pair in zip(ours, behind, strict=True))])


def _beside(pattern: str, ours: float, public: float) -> str:
    own = "-" if math.isnan(ours) else pattern.format(ours)
    return own if math.isnan(public) else f"{own} ({pattern.format(public)})"


def _caption(model: str, setting: Setting) -> str:
    sized = STUDIED[model]
    public = (
        "In brackets the PUBLIC times of the paper's own simulations."
        if model in NORMALISED
        else "The project publishes no times of this model."
    )
    return (
        f"Figure 12: {sized.layers} layers, EP {sized.ep}, TP {sized.tp}, PP {sized.pp}, micro-batches of "
        f"{sized.micro_batch} sequences, 1,024 GPUs of {setting.gpu_flops / 1e12:g} TFLOP/s, which is "
        f"assumed. {public} A fat-tree and a rail-optimised fabric are alike in the model: neither blocks. "
        f"Dispatches wait {1e3 * DELAY_S:g} ms for circuits, or under reuse take those that are lit; * is "
        "less about what mFabric waits. The network's share is the part of the fat-tree's time that falls as "
        "rates grow. Why ours differ from the public times stands among the report's definitions."
    )


@styled
def _plot(table: pd.DataFrame) -> Figure:
    """Draw ours as bars, and the public times as lines across them."""
    about = f"{table['model'].iloc[0]}, 1,024 GPUs (SYNTHETIC gates)"
    figure = canvas(8.5, 3.6, f"Iteration time over the shortest, {about}")
    axes = figure.subplots()
    rates, names = list(dict.fromkeys(table["rate_gbps"])), list(dict.fromkeys(table["fabric"]))
    for place, name in enumerate(names):
        here = table[table["fabric"] == name].reset_index(drop=True)
        at = here.index + 0.8 / len(names) * (place - (len(names) - 1) / 2)
        axes.bar(at, here["normalised"], width=0.76 / len(names), color=BAR_COLOURS[name], label=name)
        axes.scatter(at, here["public"], marker="_", s=260, linewidth=1.8, color=BOUND, zorder=3)
    if table["public"].notna().any():
        axes.scatter([], [], marker="_", s=120, linewidth=1.8, color=BOUND, label="public")
    axes.set_xticks(range(len(rates)), [f"{rate:g} Gbit/s" for rate in rates])
    axes.set(ylabel="iteration time over the shortest")
    horizontal_grid(axes)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower left", ncols=len(labels))
    return figure


CAPTION = (
    "Paper, figure 12. Bars are our predictions, red lines the times that the project publishes, each over "
    "the shortest of its model. 3:1 has no public times."
)
DEFINITIONS = (
    ("over the shortest", "Iteration time over the least of the model, whatever the fabric and the rate."),
    (
        "network's share",
        "Of the fat-tree's iteration: what falls in proportion to the rate, by the first and the last rate; "
        "the rest is compute, NVLink and what waits for them.",
    ),
    (
        "ours and public times",
        "Ours have a decision of the gates for each layer, micro-batch and replica, a wait for circuits "
        "after each, fluids that share links fairly, and sums of gradients at the end. The public ones have "
        "one matrix for all, DCTCP's packets on paths that ECMP draws, sums per operator, and compute times "
        "of a profile; where they have mFabric as fast as the fat-tree, its waits are hidden. How TopoOpt's "
        "circuits were chosen is not published.",
    ),
    (
        "TopoOpt",
        "Circuits by TopologyFinder, for rings, pipelines and the mean of all-to-alls in the ten iterations "
        "before, with mFabric's degrees and placement. By its paper's Algorithm 1 they are a ring and, for "
        "what rings do not send, matchings: 6 of a server's 8. Rings: by its published program all are rings "
        "of data parallelism, and all-to-alls take what paths these make.",
    ),
)
