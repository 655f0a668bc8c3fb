"""Iteration times on 1,024 GPUs, ours beside those that the project publishes: Figure 12.

Ours are predictions of the fluid model (`scenarios._mfabric.step`), with assumed compute rates. So ratios
between fabrics are compared, and times over the shortest of their model. Why ours differ from the public ones
is said with the numbers that show it: what waits cost, a fit of compute and network, and where time goes.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from scenarios._mfabric.fabrics import (
    ALL_RATES,
    COLOURS,
    DELEGATED,
    FAT_TREE,
    MFABRIC,
    OVERSUBSCRIBED,
    PACKET_NICS,
    RAIL,
    RINGS,
    TOPOOPT,
    bill_of,
    gbit,
)
from scenarios._mfabric.figures.public_times import FABRICS as PUBLISHED
from scenarios._mfabric.figures.public_times import NORMALISED, public_times
from scenarios._mfabric.section import Section
from scenarios._mfabric.step.parts import PARTS
from scenarios._mfabric.step.points import DELAY_S, SERVERS, STUDIED, StepPoint, StepSetup
from scenarios._mfabric.step.study import Iterations, as_simulated_s, at_once, with_waits
from testbed.report.claims import AT_LEAST_AS_GOOD, MORE, TOLERANCE, Claim, around, predicted
from testbed.report.page import Block, Findings, Line, Plot, Sheet
from testbed.report.palette import BOUND, canvas, horizontal_grid, styled
from testbed.report.table import lines_of
from traffic.models.moe import MoeModel

NO_WAITS, ALL_WAITS = f"{MFABRIC}, no waits", f"{MFABRIC}, all waits"
"""mFabric whose circuits change in no time, and as predicted; else backwards wait for nothing (7.1)."""
BUILT = {DELEGATED: FAT_TREE, NO_WAITS: MFABRIC, ALL_WAITS: MFABRIC, RINGS: TOPOOPT}
"""The fabric that is built, and paid, for rows that are no fabric of their own."""
PREDICTED_OVER = {RAIL: FAT_TREE, NO_WAITS: MFABRIC, ALL_WAITS: MFABRIC}
"""The fabric over which other rows are predicted: no tier of the first two blocks."""
FABRICS = (FAT_TREE, DELEGATED, RAIL, OVERSUBSCRIBED, MFABRIC, NO_WAITS, ALL_WAITS, TOPOOPT, RINGS)
"""The rows of a table."""
TAKES: dict[str, Callable[[StepPoint, Iterations], float]] = {
    MFABRIC: as_simulated_s,
    NO_WAITS: lambda point, found: found[at_once(point)].seconds,
}
"""How long an iteration of a row takes, where that is not as predicted [s]."""
BAR_COLOURS = COLOURS | {DELEGATED: "#c9c9c9", NO_WAITS: "#7fb2d9", ALL_WAITS: "#00456f", RINGS: "#7fcfb8"}
OVER_TOPOOPT = {"mixtral-8x22b": 1.5, "mixtral-8x7b": 1.4, "qwen-moe": 1.5, "deepseek-r1": 1.3}
"""Gains of mFabric that the paper prints, means over the rates."""
CLOSE = {
    "mixtral-8x22b": "very close to the fat-tree",
    "mixtral-8x7b": "a similar trend: close to the fat-tree",
    "qwen-moe": "comparable to the fat-tree",
    "deepseek-r1": "comparable to the fat-tree",
}
"""How the paper says that mFabric is as fast as the fat-tree; it is taken for `TOLERANCE`."""
BLOCKED_MODEL, BLOCKED = "mixtral-8x22b", 1.6
"""The most that it gains over 3:1, and with which model."""
ORDERED_GBPS = (100.0, 200.0, 400.0)
"""Rates at which the public times have fat-tree, mFabric, TopoOpt in this order."""
TIMES = ("iteration_s", "public")
"""The columns of times."""
MANY_EXPERTS = ("qwen-moe", "deepseek-r1")
FITTED = (FAT_TREE, MFABRIC, NO_WAITS)
"""Whose times are divided into what does not depend on the rate and what falls with it."""
TRACED = (MFABRIC, FAT_TREE)
"""Whose critical paths are compared, the first as predicted, with all waits."""


def iteration_points(model: str, setup: StepSetup) -> list[StepPoint]:
    """Return the training steps of a part of Figure 12."""
    own = [name for name in FABRICS if name not in PREDICTED_OVER]
    return with_waits(_point(model, name, rate_bps) for rate_bps in setup.rates_bps for name in own)


def iteration_times(model: str, setup: StepSetup, found: Iterations) -> Section:
    """Return the iteration times of a model beside the public ones, and what mFabric is worth by them.

    Parameters
    ----------
    model
        A key of `STUDIED`.
    setup, found
        The iterations of all `iteration_points` with this setup.
    """
    table = worth(time_table(model, setup.rates_bps, found))
    fits = fit_table(table, STUDIED[model])
    parts = part_table(model, setup.rates_bps, found)
    return Section(
        name=f"iteration_times_{model}",
        about=f"iteration times of {model} on 1,024 GPUs",
        basis="computed by the fluid model on synthetic gates, beside public times",
        findings=Findings(
            [_sheet(table, setup), _fit_sheet(fits, model), _part_sheet(parts, model)],
            [Plot(f"iteration_times_{model}", partial(_plot, table), CAPTION)],
            _claims(model, table),
        ),
        tables={
            f"iteration_times_{model}": table,
            f"iteration_fits_{model}": fits,
            f"iteration_parts_{model}": parts,
        },
        seeds=[setup.seed],
        definitions=DEFINITIONS,
        settings={
            "gpu_flops": setup.gpu_flops, "experts": setup.experts, "delay_s": DELAY_S,
            "servers": SERVERS,
        },
    )  # fmt: skip


def time_table(model: str, rates_bps: Sequence[float], found: Iterations) -> pd.DataFrame:
    """Return a row per rate and fabric: iteration time, over the model's shortest, and the public one."""
    rows = []
    for rate_bps in rates_bps:
        public = public_times(model, rate_bps) if model in NORMALISED else {}
        for fabric in FABRICS:
            point = _point(model, fabric, rate_bps)
            seconds = TAKES[fabric](point, found) if fabric in TAKES else found[point].seconds
            known = math.nan if fabric == DELEGATED else public.get(BUILT.get(fabric, fabric), math.nan)
            rows.append(
                {
                    "model": model, "rate_gbps": rate_bps / 1e9, "fabric": fabric, "iteration_s": seconds,
                    "reconfigurations": found[point].reconfigurations, "public": known,
                }
            )  # fmt: skip
    table = pd.DataFrame(rows)
    shortest_s = table.loc[table["fabric"].isin(PUBLISHED), "iteration_s"].min()
    table["normalised"] = table["iteration_s"] / shortest_s
    table["ours_over_public"] = table["normalised"] / table["public"]
    return table


def _point(model: str, name: str, rate_bps: float) -> StepPoint:
    return StepPoint(model, PREDICTED_OVER.get(name, name), rate_bps)


def worth(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table of times with performance per dollar over the fat-tree's, by ours and by the public."""
    usd = [
        bill_of(BUILT.get(name, name), SERVERS, rate_gbps * 1e9).usd
        for name, rate_gbps in zip(table["fabric"], table["rate_gbps"], strict=True)
    ]
    spent = table[list(TIMES)].mul(usd, axis=0)
    base = spent.where(table["fabric"] == FAT_TREE).groupby(table["rate_gbps"]).transform("first")
    worth = base / spent
    return table.assign(worth=worth["iteration_s"], worth_public=worth["public"])


def fit_table(table: pd.DataFrame, model: MoeModel) -> pd.DataFrame:
    """Return a row per fabric of `FITTED`: its times as a + c / B, ours and the public ones.

    Returns
    -------
    DataFrame
        model, fabric; fixed_s and network_s, a and c / B at 100 Gbit/s by least squares over the rates; the
        same of the public times, over the model's shortest; flops, what a GPU would compute [FLOP/s] if the
        public a over c were that of our network. NaN for fewer than two rates.
    """
    rows = []
    for name in FITTED:
        here = table[table["fabric"] == name]
        (fixed, network), (fixed_public, network_public) = (
            fitted(here["rate_gbps"].to_list(), here[column].to_list()) for column in TIMES
        )
        rows.append(
            {
                "model": here["model"].iloc[0], "fabric": name, "fixed_s": fixed, "network_s": network,
                "fixed_public": fixed_public, "network_public": network_public,
                "flops": path_flop(model) / (network * fixed_public / network_public),
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


def fitted(rates_gbps: Sequence[float], times: Sequence[float]) -> tuple[float, float]:
    """Return a and c / B at 100 Gbit/s of times a + c / B by least squares; NaN for fewer than two rates.

    Examples
    --------
    >>> [round(each, 9) for each in fitted([100, 200], [1.5, 1.0])]
    [0.5, 1.0]
    """
    if len(set(rates_gbps)) < 2 or any(map(math.isnan, times)):
        return math.nan, math.nan
    network, fixed = np.polyfit(100 / np.array(rates_gbps), times, 1).tolist()
    return fixed, network


def path_flop(model: MoeModel) -> float:
    """Return the work of a GPU of each stage in turn on the way through the pipeline [FLOP].

    With as many micro-batches as stages that is 2 pp - 1 forwards and backwards of the longest stage, a
    backward with twice the work.
    """
    layer = model.attention_flop + model.gate_flop + model.expert_flop() + model.shared_flop
    return 3.0 * (2 * model.pp - 1) * max(model.stage_layers()) * layer / model.tp


def part_table(model: str, rates_bps: Sequence[float], found: Iterations) -> pd.DataFrame:
    """Return a row per rate and part of an iteration: what each fabric of `TRACED` spends on it [s]."""
    rows = []
    for rate_bps in rates_bps:
        ours, base = (found[_point(model, name, rate_bps)].parts_s for name in TRACED)
        rows += [
            {"model": model, "rate_gbps": rate_bps / 1e9, "part": part, "mfabric_s": ours[part],
             "fat_tree_s": base[part]}
            for part in PARTS
        ]  # fmt: skip
    return pd.DataFrame(rows)


def over(rows: pd.DataFrame, above: str, below: str, column: str = "iteration_s") -> pd.Series:
    """Return one fabric's times over another's, by rate [Gbit/s]."""
    times = rows.pivot_table(index="rate_gbps", columns="fabric", values=column, dropna=False)
    ratios: pd.Series = times[above] / times[below]
    return ratios


def _claims(model: str, rows: pd.DataFrame) -> list[Claim]:
    """Return the paper's claims about a model's times, beside mFabric with the waits of its simulations."""
    source, gain = f"mFabric, 7.3 (Figure 12), {model}", OVER_TOPOOPT[model]
    fat_tree, topoopt = over(rows, MFABRIC, FAT_TREE), over(rows, TOPOOPT, MFABRIC)
    rings = over(rows, RINGS, MFABRIC)
    each = _by_rate(fat_tree), _by_rate(topoopt)
    beside = f"{each[0]}; over the {DELEGATED}: {_by_rate(over(rows, MFABRIC, DELEGATED))}"
    claims = [
        predicted(f"{CLOSE[model]} (10 %)", source, (0, 1 + TOLERANCE), fat_tree.max(), beside),
        predicted(f"{gain}x over TopoOpt on average", source, around(gain), of_all_rates(topoopt), each[1]),
        predicted(
            f"{gain}x over {RINGS} on average", source, around(gain), of_all_rates(rings), _by_rate(rings)
        ),
    ]
    ordered = [rate for rate in ORDERED_GBPS if rate in fat_tree.index]
    if model in NORMALISED and ordered:
        at = f"{ordered[0]:g} to {ordered[-1]:g}G"
        no_faster, faster = f"no faster than the fat-tree, {at}", f"faster than TopoOpt, {at}"
        claims += [
            predicted(no_faster, source, AT_LEAST_AS_GOOD, fat_tree[ordered].min(), each[0]),
            predicted(faster, source, MORE, topoopt[ordered].min(), each[1]),
        ]
    if model == BLOCKED_MODEL:
        blocked = over(rows, OVERSUBSCRIBED, MFABRIC)
        most = f"up to {BLOCKED}x over 3:1"
        claims.append(predicted(most, source, around(BLOCKED), blocked.max(), _by_rate(blocked)))
    if model in MANY_EXPERTS:
        closing = fat_tree.iloc[0] / fat_tree.iloc[-1] if len(fat_tree) > 1 else math.nan
        text = "the gap to the fat-tree closes as rates grow"
        claims.append(predicted(text, source, MORE, closing, each[0]))
    return claims


def of_all_rates(ratios: pd.Series) -> float:
    """Return the mean of ratios; NaN if they are not of all rates, of which the paper's are."""
    return float(ratios.mean()) if len(ratios) == len(ALL_RATES) else math.nan


def _by_rate(ratios: pd.Series) -> str:
    """Return ratios by rate in words."""
    return ", ".join(f"{rate:g}G {ratio:.2f}" for rate, ratio in ratios.dropna().items())


def _sheet(rows: pd.DataFrame, setup: StepSetup) -> Sheet:
    model = str(rows["model"].iloc[0])
    by_fabric = {str(name): here.set_index("rate_gbps") for name, here in rows.groupby("fabric", sort=False)}

    def block(title: str, pattern: str, ours: str, public: str = "") -> Block:
        lines = [_line(name, pattern, here[ours], here.get(public)) for name, here in by_fabric.items()]
        return Block(lines, title)

    blocks = [
        block("iteration [s]", "{:.2f}", "iteration_s"),
        block("over the shortest (public)", "{:.3f}", "normalised", "public"),
        Block(_ratio_lines(rows), "at one rate (public)"),
        block("performance per dollar over the fat-tree's (public)", "{:.2f}", "worth", "worth_public"),
    ]
    if model in NORMALISED:
        blocks.insert(2, block("ours / public", "{:.3f}", "ours_over_public"))
    rates = [gbit(rate_bps) for rate_bps in setup.rates_bps]
    return Sheet((model,), rates, blocks, _caption(model, setup))


def _ratio_lines(rows: pd.DataFrame) -> list[Line]:
    """Return how fabrics compare at one rate."""
    pairs = (
        *((name, FAT_TREE) for name in (MFABRIC, NO_WAITS, ALL_WAITS)),
        (MFABRIC, DELEGATED),
        (OVERSUBSCRIBED, MFABRIC),
        (TOPOOPT, MFABRIC),
        (RINGS, MFABRIC),
    )
    return [
        _line(
            " / ".join(name.removeprefix(f"{MFABRIC}, ").replace(f"{FAT_TREE}, ", "") for name in pair),
            "{:.3f}",
            *(over(rows, *pair, column) for column in TIMES),
        )
        for pair in pairs
    ]


def _fit_sheet(fits: pd.DataFrame, model: str) -> Sheet:
    """Return the share of times that falls as rates grow, and the speed of GPUs by the public ones."""
    lines = lines_of(
        fits.assign(tflops=fits["flops"] / 1e12),
        "{fabric}", "{fixed_s:.2f}", "{network_s:.2f}", "{fixed_public:.3f}", "{network_public:.3f}",
        "{tflops:.0f}",
    )  # fmt: skip
    return Sheet(
        (f"{model}: a + c/B",),
        ("a [s]", "c/100G [s]", "public a", "public c/100G", "TFLOP/s"),
        [Block(lines)],
        "Least squares over the rates, public times over the shortest of the model. TFLOP/s: what a GPU "
        "would have to compute for the public ratio of a to c, by our c and the work on the way through the "
        "pipeline, with what NVLink takes. Each model's public times imply a rate of their own: where these "
        "differ no one --gpu-tflops fits all.",
    )


def _part_sheet(parts: pd.DataFrame, model: str) -> Sheet:
    """Return where the time goes by which mFabric is behind the fat-tree, at the lowest rate."""
    here = parts[parts["rate_gbps"] == parts["rate_gbps"].min()]
    columns = here[["mfabric_s", "fat_tree_s"]]
    shown = [*zip(here["part"], *(columns[name] for name in columns), strict=True)]
    shown.append(("iteration", *columns.sum()))
    lines = [Line([part, f"{ours:.3f}", f"{base:.3f}", f"{ours - base:+.3f}"]) for part, ours, base in shown]
    return Sheet(
        (f"{model}, {here['rate_gbps'].iloc[0]:g} Gbit/s [s]",),
        (ALL_WAITS, FAT_TREE, "difference"),
        [Block(lines)],
        "What the critical paths of both consist of, which add up to their iterations. A transfer is on "
        "circuits, or on packet NICs for pairs without one, and over the fat-tree on each GPU's own NIC; "
        f"mFabric's data parallelism and pipeline have {PACKET_NICS} packet NICs of a server. "
        f"With waits of {1e3 * DELAY_S:g} ms, none hidden.",
    )


def _line(name: str, pattern: str, ours: pd.Series, public: pd.Series | None = None) -> Line:
    """Return a line of numbers, each with the public one behind it where there is one."""
    behind = [math.nan] * len(ours) if public is None else public.to_list()
    return Line([name, *(_beside(pattern, *pair) for pair in zip(ours, behind, strict=True))])


def _beside(pattern: str, ours: float, public: float) -> str:
    own = "-" if math.isnan(ours) else pattern.format(ours)
    return own if math.isnan(public) else f"{own} ({pattern.format(public)})"


def _caption(model: str, setup: StepSetup) -> str:
    sized = STUDIED[model]
    public = (
        "In brackets the PUBLIC times of the paper's own simulations."
        if model in NORMALISED
        else "The project publishes no times of this model."
    )
    return (
        f"Figure 12: {sized.layers} layers, EP {sized.ep}, TP {sized.tp}, PP {sized.pp}, micro-batches of "
        f"{sized.micro_batch} sequences, 1,024 GPUs of {setup.gpu_flops / 1e12:g} TFLOP/s, which is "
        f"assumed; {EXPERTS_TEXT[setup.experts]}. {public} Over packets each GPU sends by its own NIC, as "
        f"in the paper's artifact; {DELEGATED}: all-to-alls as mFabric's own, spread over all NICs of a "
        "server. A fat-tree and a rail-optimised fabric are alike in the model: neither blocks. mFabric has "
        f"the waits of the paper's simulations: {1e3 * DELAY_S:g} ms before a forward's first all-to-all, "
        "and about none in backwards; no waits: circuits change in no time; all waits: as "
        "predicted, computing hides what it can. Why ours differ from the public times stands among the "
        "report's definitions."
    )


EXPERTS_TEXT = {
    "even": "experts compute the mean load, as in the paper's simulations, all-to-alls are uneven",
    "busiest": "experts compute what their rank receives, so the busiest sets the pace",
}


@styled
def _plot(table: pd.DataFrame) -> Figure:
    """Draw ours as bars, and the public times as lines across them."""
    about = f"{table['model'].iloc[0]}, 1,024 GPUs (SYNTHETIC gates)"
    figure = canvas(8.5, 3.8, f"Iteration time over the shortest, {about}")
    axes = figure.subplots()
    rates, names = list(dict.fromkeys(table["rate_gbps"])), list(dict.fromkeys(table["fabric"]))
    for place, name in enumerate(names):
        here = table[table["fabric"] == name].reset_index(drop=True)
        at = here.index + 0.8 / len(names) * (place - (len(names) - 1) / 2)
        axes.bar(at, here["normalised"], width=0.76 / len(names), color=BAR_COLOURS[name], label=name)
        axes.scatter(at, here["public"], marker="_", s=120, linewidth=1.8, color=BOUND, zorder=3)
    if table["public"].notna().any():
        axes.scatter([], [], marker="_", s=120, linewidth=1.8, color=BOUND, label="public")
    axes.set_xticks(range(len(rates)), [f"{rate:g} Gbit/s" for rate in rates])
    axes.set(ylabel="iteration time over the shortest")
    horizontal_grid(axes)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower left", ncols=-(-len(labels) // 2))
    return figure


CAPTION = (
    "Paper, figure 12. Bars are our predictions, red lines the times that the project publishes, each over "
    "the shortest of its model. 3:1 has no public times."
)
DEFINITIONS = (
    (
        "over the shortest",
        "Iteration time over the least of the model, over the fabrics that have public times, at any rate.",
    ),
    (
        "ours and public times",
        "Ours have a decision of the gates for each layer, micro-batch and replica, "
        "fluids that share links fairly, and sums of gradients at the end. The public ones have "
        "one matrix for all, DCTCP's packets on paths that ECMP draws, sums per operator, and compute times "
        "of a profile; where they have mFabric as fast as the fat-tree there is no room for waits. How "
        "TopoOpt's circuits were chosen is not published.",
    ),
    (
        "TopoOpt",
        "Circuits by TopologyFinder, for rings, pipelines and the mean of all-to-alls in the ten iterations "
        "before, with mFabric's degrees and placement. By its paper's Algorithm 1 they are a ring and, for "
        "what rings do not send, matchings: 6 of a server's 8. Rings: by its published program all are rings "
        "of data parallelism, and all-to-alls take what paths these make.",
    ),
)
