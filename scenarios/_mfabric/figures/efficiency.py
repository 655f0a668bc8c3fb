"""Performance per dollar and the Pareto front: Figure 13, by the iteration times that the project publishes.

The costs are computed; the times are the project's own and are named *public* wherever they enter. So what is
checked here is that the paper's ratios follow from its prices and its times. DeepSeek-R1 has no public times;
LLaMA-MoE has, and is none of the four models that the paper evaluates (7.3): it stands in tables and plots,
and counts in no claim.
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial

import pandas as pd
from matplotlib.figure import Figure

from scenarios._mfabric.fabrics import COLOURS, FAT_TREE, MFABRIC, RAIL, TOPOOPT, bill_of, servers_of
from scenarios._mfabric.figures.costs import MEGA
from scenarios._mfabric.figures.public_times import GPUS, NORMALISED, public_times
from scenarios._mfabric.section import FIGURE_ONLY, PlannedSection, Section, farthest, printed
from testbed.report.claims import MORE, Claim, Range, arithmetic
from testbed.report.page import Block, Findings, Line, Plot, Sheet
from testbed.report.palette import canvas, horizontal_grid, legend_below, styled
from testbed.study.computed import Found
from topologies.cost import pareto_front

SOURCE = "mFabric, 7.4 (Figure 13), public times"
OVER_FAT_TREE = {100.0: (1.2, 1.5), 200.0: (1.4, 1.8), 400.0: (1.9, 2.3), 800.0: (2.0, 2.4)}
OVER_RAIL = {100.0: (1.4, 1.5), 200.0: (1.7, 1.9), 400.0: (2.3, 2.4), 800.0: (2.2, 2.6)}
"""Performance per dollar of the models that the paper prints, by rate [Gbit/s]."""
AT_400 = {"mixtral-8x7b": 2.3, "mixtral-8x22b": 2.2, "deepseek-r1": 2.1}
"""The same over the fat-tree at 400 Gbit/s, by model."""
EVALUATED = ("mixtral-8x22b", "mixtral-8x7b", "qwen-moe")
"""Models of section 7.3 that have public times; DeepSeek-R1, the fourth, has none."""
NOT_STUDIED = "the rate was not studied"
PUBLIC = "PUBLIC iteration times"
COST_TICKS = (1, 2, 5, 10, 20)
FEW_TIMES, MANY_TIMES = (1.0, 1.5, 2.0, 3.0), (1.0, 2.0, 4.0, 8.0)
"""Of models whose times differ little, and of the others."""


def efficiency(rates_bps: Sequence[float]) -> PlannedSection:
    """Return performance per dollar and Pareto fronts at these rates, by the public iteration times."""
    return PlannedSection(partial(_section, rates_bps))


def _section(rates_bps: Sequence[float], _found: Found) -> Section:
    usd = {
        rate_bps: {name: bill_of(name, servers_of(GPUS), rate_bps).usd for name in COLOURS}
        for rate_bps in rates_bps
    }
    rows = [
        row
        for model in NORMALISED
        for rate_bps in rates_bps
        for row in efficiency_rows(model, rate_bps, public_times(model, rate_bps), usd[rate_bps])
    ]
    table = pd.DataFrame(rows)
    plots = [
        Plot("performance_per_dollar", partial(_bars, table), f"Paper, figure 13. {BARS_CAPTION}"),
        Plot("pareto_front", partial(_fronts, table), f"Paper, figure 13 ({FIGURE_ONLY}). {FRONT_CAPTION}"),
    ]
    return Section(
        name="efficiency",
        about="performance per dollar",
        basis="costs computed, iteration times public",
        findings=Findings([_sheet(table)], plots, _claims(table)),
        tables={"performance_per_dollar_public_times": table},
        definitions=DEFINITIONS,
        settings={"gpus": GPUS, "iteration_times": "public, of mixnet-project.github.io"},
    )


def efficiency_rows(
    model: str, rate_bps: float, times: Mapping[str, float], usd: Mapping[str, float]
) -> list[dict[str, object]]:
    """Return a row per fabric: its cost, its iteration time, what it is worth, and whether none is better.

    Parameters
    ----------
    model, rate_bps
        What was trained, at which rate of a NIC.
    times
        Iteration time of each fabric, in any unit.
    usd
        What each costs.
    """
    front = pareto_front({name: (usd[name], time) for name, time in times.items()})
    spent = {name: usd[name] * time for name, time in times.items()}
    return [
        {
            "model": model, "rate_gbps": rate_bps / 1e9, "fabric": name, "usd": usd[name], "time": time,
            "over_fat_tree": spent[FAT_TREE] / spent[name], "over_rail": spent[RAIL] / spent[name],
            "on_front": name in front,
        }
        for name, time in times.items()
    ]  # fmt: skip


def _claims(table: pd.DataFrame) -> list[Claim]:
    ours = table[(table["fabric"] == MFABRIC) & table["model"].isin(EVALUATED)]
    claims = [
        _of_all(f"{rate:g} Gbit/s: {low} to {high} over {base}", printed(low, high), ours, column, rate)
        for base, column, ranges in (
            (FAT_TREE, "over_fat_tree", OVER_FAT_TREE),
            (RAIL, "over_rail", OVER_RAIL),
        )
        for rate, (low, high) in ranges.items()
    ]
    claims += [_of_model(model, ratio, ours) for model, ratio in AT_400.items()]
    behind = ours[~ours["on_front"]]
    against = [
        f"{model} at {rate:g}G" for model, rate in zip(behind["model"], behind["rate_gbps"], strict=True)
    ]
    text = "on the Pareto front of every model of 7.3 and rate"
    share = 1 - len(behind) / len(ours)
    reason = f"not {', '.join(against)}" if against else ""
    return [*claims, _highest(ours), arithmetic(text, SOURCE, (1.0, 1.0), share, reason, "{:.0%}")]


def _by_model(ours: pd.DataFrame, rate: float, column: str) -> dict[str, float]:
    """Return mFabric's performance per dollar at a rate; nothing where that was not studied."""
    here = ours[ours["rate_gbps"] == rate]
    return {str(model): float(ratio) for model, ratio in zip(here["model"], here[column], strict=True)}


def _of_all(text: str, expected: Range, ours: pd.DataFrame, column: str, rate: float) -> Claim:
    """Return a claim about all models at a rate, measured at the one that is farthest from the range."""
    ratios = _by_model(ours, rate, column)
    each = ", ".join(f"{model} {ratio:.4f}" for model, ratio in ratios.items())
    return arithmetic(text, SOURCE, expected, farthest(ratios.values(), expected), each or NOT_STUDIED)


def _of_model(model: str, ratio: float, ours: pd.DataFrame) -> Claim:
    text = f"400 Gbit/s, {model}: {ratio} over {FAT_TREE}"
    measured = _by_model(ours, 400.0, "over_fat_tree").get(model, math.nan)
    missing = NOT_STUDIED if model in NORMALISED else "no public iteration times"
    return arithmetic(text, SOURCE, printed(ratio), measured, missing if math.isnan(measured) else "")


def _highest(ours: pd.DataFrame) -> Claim:
    text = "100 Gbit/s: mixtral-8x7b gains the most over fat-tree"
    ratios = _by_model(ours, 100.0, "over_fat_tree")
    if not ratios:
        return arithmetic(text, SOURCE, MORE, math.nan, NOT_STUDIED)
    gain = ratios.pop("mixtral-8x7b")
    second = max(ratios, key=ratios.__getitem__)
    return arithmetic(text, SOURCE, MORE, gain / ratios[second], f"over {second}, the next")


def _sheet(table: pd.DataFrame) -> Sheet:
    """Return mFabric's and TopoOpt's performance per dollar by rate and model, with the paper's ranges."""
    rates = list(dict.fromkeys(table["rate_gbps"]))
    blocks = []
    for title, name, column, ranges in (
        (f"{MFABRIC} over {FAT_TREE}", MFABRIC, "over_fat_tree", OVER_FAT_TREE),
        (f"{MFABRIC} over {RAIL}", MFABRIC, "over_rail", OVER_RAIL),
        (f"{TOPOOPT} over {FAT_TREE}", TOPOOPT, "over_fat_tree", {}),
    ):
        ratios = table[table["fabric"] == name].pivot_table(index="rate_gbps", columns="model", values=column)
        lines = [
            Line([model, *(f"{ratio:.2f}" for ratio in ratios[model].loc[rates])]) for model in NORMALISED
        ]
        if ranges:
            said = ["{:.1f} .. {:.1f}".format(*ranges[rate]) for rate in rates]
            lines.append(Line(["the paper", *said]))
        blocks.append(Block(lines, title))
    return Sheet(
        ("performance per dollar",),
        [f"{rate:g} Gbit/s" for rate in rates],
        blocks,
        f"Figure 13, by the {PUBLIC} of the paper's own simulations (1,024 GPUs) and costs computed here: "
        "1 / (iteration time x cost), over the same of the fat-tree or the rail-optimised fabric. "
        "DeepSeek-R1 has no public times; LLaMA-MoE is none of the paper's four models and counts in no "
        f"claim. TopoOpt's is above mFabric's in {_topoopt_ahead(table)}: the "
        "paper compares mFabric with the fat-tree and the rail-optimised fabric only.",
    )


def _topoopt_ahead(table: pd.DataFrame) -> str:
    """Return at how many models and rates TopoOpt's performance per dollar is above mFabric's."""
    worth = table.pivot_table(index=["model", "rate_gbps"], columns="fabric", values="over_fat_tree")
    return f"{(worth[TOPOOPT] > worth[MFABRIC]).sum()} of {len(worth)}"


@styled
def _bars(table: pd.DataFrame) -> Figure:
    figure = canvas(8.5, 5.4, f"Performance per dollar over the fat-tree's ({PUBLIC})")
    rates = list(dict.fromkeys(table["rate_gbps"]))
    for axes, model in zip(figure.subplots(2, 2, sharey=True).ravel(), NORMALISED, strict=True):
        here = table[table["model"] == model]
        names = list(dict.fromkeys(here["fabric"]))
        for place, name in enumerate(names):
            values = here.loc[here["fabric"] == name, "over_fat_tree"].to_list()
            x = [index + 0.2 * (place - (len(names) - 1) / 2) for index in range(len(rates))]
            axes.bar(x, values, width=0.19, color=COLOURS[name], label=name)
            for at, value in zip(x, values, strict=True):
                axes.annotate(
                    f"{value:.1f}", (at, value), (0, 1), textcoords="offset points", ha="center", fontsize=6
                )
        axes.set_xticks(range(len(rates)), [f"{rate:g} Gbit/s" for rate in rates])
        axes.set_title(model)
        horizontal_grid(axes)
    legend_below(figure)
    return figure


@styled
def _fronts(table: pd.DataFrame) -> Figure:
    figure = canvas(8.5, 5.8, f"Cost and iteration time, 1,024 GPUs ({PUBLIC})")
    for axes, model in zip(figure.subplots(2, 2).ravel(), NORMALISED, strict=True):
        here = table[table["model"] == model]
        for rate, rows in here.groupby("rate_gbps"):
            front = rows[rows["on_front"]].sort_values("usd")
            axes.plot(front["usd"] / MEGA, front["time"], color="#bbbbbb", linewidth=1, zorder=1)
            left = front.iloc[0]
            axes.annotate(
                f"{rate:g}G", (left["usd"] / MEGA, left["time"]), (-5, 0), textcoords="offset points",
                fontsize=7, ha="right", va="center",
            )  # fmt: skip
            for name, usd, time, on_front in zip(
                rows["fabric"], rows["usd"], rows["time"], rows["on_front"], strict=True
            ):
                face = COLOURS[name] if on_front else "white"
                axes.scatter(usd / MEGA, time, s=22, color=face, edgecolors=COLOURS[name], zorder=2)
        for name in dict.fromkeys(here["fabric"]):
            axes.scatter([], [], s=22, color=COLOURS[name], label=name)
        axes.set(xlabel="cost [M$]", ylabel="normalised time", title=model, xscale="log", yscale="log")
        axes.margins(x=0.14, y=0.1)
        axes.set_xticks(COST_TICKS, [f"{tick:g}" for tick in COST_TICKS])
        ticks = MANY_TIMES if here["time"].max() > FEW_TIMES[-1] else FEW_TIMES
        axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
        horizontal_grid(axes)
    legend_below(figure)
    return figure


BARS_CAPTION = "The times are the project's own simulations, not computed here; 1,024 GPUs."
FRONT_CAPTION = (
    "Full marks are on the Pareto front of their rate, which a line joins; hollow ones are as dear and as "
    "slow as another or worse. The times are the project's own, over the shortest of each model."
)
DEFINITIONS = (
    ("performance per dollar", "1 / (iteration time x network cost), over that of the fat-tree."),
    ("Pareto front", "Fabrics that no other one beats in cost or time without being worse in the other."),
    ("public times", "Of the mFabric project's page: its simulations, which are not repeated in this study."),
)
