"""The costs of interconnects, as a table, a plot and claims (Figure 10)."""

from functools import partial

import pandas as pd
from matplotlib.figure import Figure

from scenarios._topoopt.costs import FIGURE_DEGREE, FIGURE_SERVERS, cost_table, mean_over_topoopt
from scenarios._topoopt.fabrics import COLOURS, FAT_TREE, IDEAL, OCS_RECONFIG
from scenarios._topoopt.scale.rows import ALIKE, FIGURE
from testbed.report.claims import arithmetic, around
from testbed.report.page import Block, Findings, Line, Plot, Sheet
from testbed.report.palette import canvas, horizontal_grid, styled
from testbed.report.table import number

PRICED = "from the paper's prices"
COUNTED = f"{PRICED}; how fibres are counted was chosen to meet it"


def costs() -> Findings:
    """Return the costs of Figure 10."""
    table = cost_table()
    kinds = list(dict.fromkeys(table["interconnect"]))
    lines = []
    for (rate_gbps, servers), rows in table.groupby(["rate_gbps", "servers"]):
        cells = [number(usd / 1e6, "{:.2f}") for usd in rows.set_index("interconnect")["usd"][kinds]]
        lines.append(Line([f"{servers} servers, {FIGURE_DEGREE} x {rate_gbps:.0f}G", *cells]))
    sheet = Sheet(
        ("cluster",),
        tuple(kinds),
        [Block(lines)],
        "What interconnects cost, millions of dollars (Figure 10), by the prices of the paper's Table 2 and "
        "one fibre per interface. SiP-ML has no public prices.",
    )
    plot = Plot("figure_10", partial(_draw_costs, table), "Costs over servers, at 100 Gbit/s (Figure 10).")
    said = (
        ("the ideal switch costs 3.2 times as much as TopoOpt on average", around(3.2), IDEAL, COUNTED),
        ("with OCSes TopoOpt costs 1.33 times as much", around(1.33), OCS_RECONFIG, COUNTED),
        ("a fat-tree of a quarter of the bandwidth costs as much as TopoOpt", ALIKE, FAT_TREE, PRICED),
    )
    claims = [
        arithmetic(text, FIGURE.format(10), expected, mean_over_topoopt(kind, 128, FIGURE_DEGREE), why)
        for text, expected, kind, why in said
    ]
    return Findings([sheet], [plot], claims)


@styled
def _draw_costs(table: pd.DataFrame) -> Figure:
    figure = canvas(5.5, 3.4, f"Cost of interconnects, {FIGURE_DEGREE} x 100 Gbit/s a server")
    axes = figure.subplots()
    own = table[(table["rate_gbps"] == 100) & table["usd"].notna()]
    for kind in dict.fromkeys(own["interconnect"]):
        rows = own[own["interconnect"] == kind]
        axes.plot(rows["servers"], rows["usd"] / 1e6, "o-", color=COLOURS[kind], label=kind, markersize=3)
    axes.set(xscale="log", yscale="log", xlabel="servers", ylabel="million dollars")
    axes.set_xticks(FIGURE_SERVERS, [str(servers) for servers in FIGURE_SERVERS], rotation=45)
    axes.minorticks_off()
    horizontal_grid(axes)
    axes.legend()
    return figure
