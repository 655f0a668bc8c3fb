"""Costs of networks of mFabric, fat-trees and patch panels: Figures 11 and 24.

Ports that are used are counted, part by part, on the fabrics as they are wired. The paper's curves have no
numbers; what its text says of them are the claims.
"""

import math
from collections.abc import Sequence
from functools import partial

import pandas as pd
from matplotlib.figure import Figure

from scenarios._mfabric.fabrics import (
    ALL_RATES,
    COLOURS,
    FAT_TREE,
    GPUS,
    MFABRIC,
    OVERSUBSCRIBED,
    RAIL,
    TOPOOPT,
    bill_of,
    gbit,
    servers_of,
)
from scenarios._mfabric.section import FIGURE_ONLY, PlannedSection, Section, farthest, printed
from testbed.report.claims import LESS, MORE, Claim, arithmetic
from testbed.report.page import Block, Findings, Line, Plot, Sheet
from testbed.report.palette import canvas, horizontal_grid, legend_below, styled
from testbed.study.computed import Call, Found
from topologies.cost import Bill
from topologies.fabric_bill import DAC_USD

SOURCE, CABLE_SOURCE = "mFabric, 7.2 (Figure 11)", "mFabric, D.3 (Figure 24)"
TOPOOPT_GPUS, MAIN_BPS = 1024, 400e9
"""Where the paper compares mFabric with TopoOpt, and the rate whose ratio it prints."""
CABLE_SERVERS = 512
"""4,096 GPUs, at `MAIN_BPS`: the setting of Figure 24."""
CABLES_USD = (100.0, DAC_USD, 800.0)
"""Prices of a cable that are tried: the paper does not state its own."""
SLIGHTLY = 1.25
"""Up to which ratio a cost is held to be slightly higher: the paper has no number."""
BAR_COLOURS = ("#9a9a9a", "#e69f00", "#d55e00", "#0072b2", "#56b4e9", "#009e73")
MEGA = 1e6


def costs(gpus: Sequence[int], rates_bps: Sequence[float]) -> PlannedSection:
    """Return the costs of the fabrics at every size and rate, and with cables to the servers.

    Parameters
    ----------
    gpus
        Sizes of the clusters, multiples of a region's GPUs.
    rates_bps
        Rates of a NIC that parts have prices for [bit/s].
    """
    points = [
        (name, servers_of(size), rate_bps) for rate_bps in rates_bps for size in gpus for name in COLOURS
    ]
    return PlannedSection(
        partial(_section, gpus, rates_bps, points), [Call(bill_of, point) for point in points]
    )


def _section(
    gpus: Sequence[int], rates_bps: Sequence[float], points: Sequence[tuple[str, int, float]], bills: Found
) -> Section:
    rows = [
        {"fabric": name, "gpus": servers * GPUS, "rate_gbps": rate_bps / 1e9, **_parts(bill)}
        for (name, servers, rate_bps), bill in zip(points, bills, strict=True)
    ]
    table = pd.DataFrame(rows)
    cables = cable_table()
    plots = [
        Plot("cost", partial(_cost_plot, table), f"Paper, figure 11 ({FIGURE_ONLY}). {COST_CAPTION}"),
        Plot(
            "cable_cost", partial(_cable_plot, cables), f"Paper, figure 24 ({FIGURE_ONLY}). {CABLE_CAPTION}"
        ),
    ]
    return Section(
        name="costs",
        about="what the networks cost",
        basis="computed",
        findings=Findings(
            [_cost_sheet(table), _cable_sheet(cables)], plots, [*_cost_claims(table), *_cable_claims(cables)]
        ),
        tables={"costs": table, "cable_costs": cables},
        definitions=DEFINITIONS,
        settings={"gpus": list(gpus), "rates_gbps": [rate / 1e9 for rate in rates_bps],
                  "cables_usd": list(CABLES_USD)},
    )  # fmt: skip


def cable_table() -> pd.DataFrame:
    """Return costs for 4,096 GPUs at 400 Gbit/s, with and without cables between servers and switches."""
    prices = (None, *CABLES_USD)
    return pd.DataFrame(
        [
            {
                "fabric": name, "gpus": CABLE_SERVERS * GPUS, "rate_gbps": MAIN_BPS / 1e9,
                "cable_usd": math.nan if usd is None else usd, **_parts(bill),
            }
            for name in COLOURS
            for usd in prices
            for bill in [bill_of(name, CABLE_SERVERS, MAIN_BPS, usd)]
        ]
    )  # fmt: skip


PARTS = ("NIC", "transceiver", "packet-switch port", "OCS port", "patch-panel port", "fibre")
CABLE = "cable to a server"


def _parts(bill: Bill) -> dict[str, float]:
    """Return a bill as columns, its sum and the dollars of each part."""
    none = dict.fromkeys((*PARTS, CABLE), 0.0)
    of_part = none | {part.name: quantity * part.price_usd for quantity, part in bill.parts}
    return {"usd": bill.usd} | {_column(part): usd for part, usd in of_part.items()}


def _column(part: str) -> str:
    """Return the column of a part's dollars."""
    return f"{part.replace(' ', '_').replace('-', '_')}_usd"


def _ratios(table: pd.DataFrame, above: str, below: str) -> pd.Series:
    """Return a fabric's cost over another's, by rate; means over the sizes, of which it is independent."""
    usd = table.pivot_table(index=["rate_gbps", "gpus"], columns="fabric", values="usd")
    ratios: pd.Series = (usd[above] / usd[below]).groupby("rate_gbps").mean()
    return ratios


def _cost_claims(table: pd.DataFrame) -> list[Claim]:
    complete = set(table["rate_gbps"]) == {rate / 1e9 for rate in ALL_RATES}
    claims = []
    for name in (FAT_TREE, RAIL):
        ratios = _ratios(table, name, MFABRIC)
        each = _each(ratios) if complete else "not all rates were studied"
        measured = float(ratios.mean()) if complete else math.nan
        claims.append(
            arithmetic(f"2.0x cheaper than {name}, mean of the rates", SOURCE, printed(2.0), measured, each)
        )
    at_main = _ratios(table, FAT_TREE, MFABRIC).get(MAIN_BPS / 1e9, math.nan)
    reason = f"{gbit(MAIN_BPS)} was not studied" if math.isnan(at_main) else ""
    claims.append(
        arithmetic(f"2.3x cheaper than fat-tree at {gbit(MAIN_BPS)}", SOURCE, printed(2.3), at_main, reason)
    )
    here = table[table["gpus"] == TOPOOPT_GPUS]
    over = _ratios(here, MFABRIC, TOPOOPT) if len(here) else pd.Series(dtype=float)
    measured = float(over.max()) if len(over) else math.nan
    reason = (
        f"{_each(over)}; held to be slight up to {SLIGHTLY}, the paper has no number. One flat panel: "
        "TopoOpt with several tiers of panels, which the paper says it needs beyond 1K GPUs, is dearer"
        if len(over)
        else f"{TOPOOPT_GPUS:,} GPUs were not studied"
    )
    text = f"slightly dearer than TopoOpt at {TOPOOPT_GPUS:,} GPUs"
    return [*claims, arithmetic(text, SOURCE, (MORE[0], SLIGHTLY), measured, reason)]


def _cable_claims(cables: pd.DataFrame) -> list[Claim]:
    """Return the paper's claims about cables, at every price that is tried: it does not state its own."""
    usd = cables.pivot_table(index="cable_usd", columns="fabric", values="usd")
    ratios = usd[FAT_TREE] / usd[MFABRIC]
    each = ", ".join(f"${price:g} {ratio:.2f}x" for price, ratio in ratios.items())
    without = cables[cables["cable_usd"].isna()].set_index("fabric")["usd"]
    kept = {name: float(usd[name][DAC_USD] / without[name]) for name in (FAT_TREE, MFABRIC)}
    of_both = ", ".join(f"{name} {share:.3f}x" for name, share in kept.items())
    return [
        arithmetic(
            "4,096 GPUs, 400 Gbit/s, cables: 2.2x cheaper than fat-tree", CABLE_SOURCE, printed(2.2),
            farthest(ratios, printed(2.2)), f"by the price of a cable, which is assumed: {each}",
        ),
        arithmetic(
            "cables cost either fabric less than fibres", CABLE_SOURCE, LESS, max(kept.values()),
            f"at ${DAC_USD:g}, which is assumed: {of_both}",
        ),
    ]  # fmt: skip


def _each(ratios: pd.Series) -> str:
    """Return ratios by rate in words."""
    return ", ".join(f"{rate:g}G {ratio:.2f}x" for rate, ratio in ratios.items())


def _cost_sheet(table: pd.DataFrame) -> Sheet:
    """Return costs by rate and size, and how many times mFabric's each is."""
    sizes = list(dict.fromkeys(table["gpus"]))
    blocks = []
    for rate, rows in table.groupby("rate_gbps", sort=False):
        usd = rows.pivot_table(index="gpus", columns="fabric", values="usd").loc[sizes]
        lines = [
            Line(
                [
                    name, *(f"{cost:.1f}" for cost in usd[name] / MEGA),
                    f"{(usd[name] / usd[MFABRIC]).mean():.2f}x",
                ]
            )
            for name in COLOURS
        ]  # fmt: skip
        blocks.append(Block(lines, f"{rate:g} Gbit/s"))
    return Sheet(
        ("network [M$], by GPUs",),
        (*(f"{size:,}" for size in sizes), "/ mFabric"),
        blocks,
        "Figure 11: NICs, transceivers, used ports of packet switches, OCSes and patch panels, fibres, at "
        "the paper's prices (Table 4). It names no numbers but 2.0x on average and 2.3x at 400 Gbit/s.",
    )


def _cable_sheet(cables: pd.DataFrame) -> Sheet:
    """Return costs with cables of several prices."""
    usd = cables.assign(cable_usd=cables["cable_usd"].fillna(0)).pivot_table(
        index="cable_usd", columns="fabric", values="usd"
    )
    lines = [Line([name, *(f"{cost:.2f}" for cost in usd[name] / MEGA)]) for name in COLOURS]
    over = usd[FAT_TREE] / usd[MFABRIC]
    lines.append(Line(["fat-tree / mFabric", *(f"{ratio:.3f}x" for ratio in over)], look="bound"))
    return Sheet(
        ("network [M$], 4,096 GPUs",),
        ("fibres", *(f"cables ${price:g}" for price in CABLES_USD)),
        [Block(lines, gbit(MAIN_BPS))],
        "Figure 24: one cable instead of two transceivers and a fibre between a server and its packet "
        "switch. The paper does not state its price: three are tried.",
    )


@styled
def _cost_plot(table: pd.DataFrame) -> Figure:
    rates = list(dict.fromkeys(table["rate_gbps"]))
    rows = -(-len(rates) // 2)
    figure = canvas(8.5, 0.6 + 2.7 * rows, "What the network costs")
    panels = figure.subplots(rows, 2, squeeze=False).ravel()
    for spare in panels[len(rates) :]:
        spare.set_visible(False)
    for axes, rate in zip(panels, rates, strict=False):
        here = table[table["rate_gbps"] == rate]
        for name, colour in COLOURS.items():
            of_fabric = here[here["fabric"] == name]
            # The rail-optimised fabric has as many ports as the fat-tree: its line lies on the other's.
            axes.plot(
                of_fabric["gpus"], of_fabric["usd"] / MEGA, color=colour, label=name, marker="o",
                markersize=3, linestyle="--" if name == RAIL else "-",
            )  # fmt: skip
        axes.set(xlabel="GPUs", ylabel="M$", xscale="log", yscale="log", title=f"{rate:g} Gbit/s")
        sizes = list(dict.fromkeys(here["gpus"]))
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes], minor=False)  # numbers, and not powers
        axes.set_xticks([], minor=True)
        axes.yaxis.set_major_formatter("{x:g}")
        horizontal_grid(axes)
    legend_below(figure, len(COLOURS))
    return figure


@styled
def _cable_plot(cables: pd.DataFrame) -> Figure:
    figure = canvas(8.5, 3.6, "Cables instead of transceivers and fibres, 4,096 GPUs at 400 Gbit/s")
    axes = figure.subplots()
    shown = cables[cables["cable_usd"].isna() | (cables["cable_usd"] == DAC_USD)]
    links = shown["cable_usd"].isna().map({True: "fibres", False: "cables"})
    names = (shown["fabric"] + "\n" + links).to_list()
    bottom = pd.Series(0.0, index=shown.index)
    for part, colour in zip((*PARTS[:3], "OCS or panel port", PARTS[-1], CABLE), BAR_COLOURS, strict=True):
        usd = _dollars(shown, part) / MEGA
        axes.bar(names, usd, bottom=bottom, color=colour, width=0.7, label=part)
        bottom += usd
    for place, total in enumerate(bottom):
        axes.annotate(
            f"{total:.1f}", (place, total), (0, 2), textcoords="offset points", ha="center", fontsize=7
        )
    axes.set(ylabel="M$")
    axes.tick_params(axis="x", labelsize=7)
    horizontal_grid(axes)
    axes.legend(loc="upper right", ncols=2)
    return figure


def _dollars(table: pd.DataFrame, part: str) -> pd.Series:
    """Return the dollars of a part in each row; ports of OCSes and of panels are one."""
    names = ("OCS port", "patch-panel port") if part == "OCS or panel port" else (part,)
    dollars: pd.Series = table[[_column(name) for name in names]].sum(axis=1)
    return dollars


COST_CAPTION = (
    "A rail-optimised fabric has as many ports as a fat-tree. Costs grow in proportion to the GPUs: only "
    "ports that are used count."
)
CABLE_CAPTION = f"Cables are ${DAC_USD:g} each, which is assumed; the table has other prices."
DEFINITIONS = (
    (FAT_TREE, "Non-blocking: five used ports per NIC, at edge (2), aggregation (2) and core (1)."),
    (RAIL, "The same, NIC k of neighbouring servers on one edge switch."),
    (OVERSUBSCRIBED, "Edge switches with three times as many NICs as uplinks; non-blocking above."),
    (MFABRIC, "2 of a server's 8 NICs on a non-blocking fat-tree, 6 on the OCS of its region."),
    (TOPOOPT, "All NICs on one flat patch panel, one port per NIC."),
)
