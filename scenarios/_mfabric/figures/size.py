"""Tokens per second by the size of the cluster: Figure 26, by whole training steps in the fluid model.

A larger cluster has more replicas of the model, each with gates of its own: nothing is solved once for
several. A fat-tree and a rail-optimised fabric have as many NICs and no tier of theirs blocks, so both are
one switch, as is mFabric's packet side. Queue pairs that a hash leads over one link would share it; the
paper's simulations have such collisions, this study has none on any fabric.
"""

from collections.abc import Sequence
from functools import partial

import pandas as pd
from matplotlib.figure import Figure

from scenarios._mfabric.fabrics import COLOURS, FAT_TREE, GPUS, MFABRIC, RAIL, bill_of
from scenarios._mfabric.section import FIGURE_ONLY, Section, farthest
from scenarios._mfabric.step.points import DELAY_S, STUDIED, StepPoint, StepSetup
from scenarios._mfabric.step.study import Iterations, StepStudy, as_simulated_s, step_section, with_waits
from testbed.report.claims import Claim, predicted
from testbed.report.page import Block, Findings, Plot, Sheet
from testbed.report.palette import canvas, horizontal_grid, styled
from testbed.report.table import lines_of
from topologies.errors import ScenarioError
from topologies.fabric import MOST_GPUS

SOURCE = "mFabric, D.5 (Figure 26)"
MODEL, RATE_BPS = "mixtral-8x7b", 400e9
SAME, ABOUT_TWICE = (0.95, 1.05), (1.5, 2.5)
"""Ranges that stand for "as" and "about 2 x"; the paper shows a figure."""
MEGA = 1e6


def _points(setup: StepSetup) -> list[StepPoint]:
    """Return the training steps of Figure 26."""
    return with_waits(_point(fabric, servers) for servers in setup.sizes for fabric in (FAT_TREE, MFABRIC))


def checked_servers(servers: Sequence[int]) -> list[int]:
    """Return the sizes of clusters, each once; ScenarioError if replicas do not fill one."""
    replica = STUDIED[MODEL].replica_gpus // GPUS
    for size in servers:
        if not replica <= size <= MOST_GPUS // GPUS or size % replica:
            raise ScenarioError(
                f"{MODEL} on {size} servers of {GPUS} GPUs",
                f"give multiples of {replica}, a replica's servers, up to {MOST_GPUS // GPUS}",
            )
    return sorted(set(servers))


def _section(setup: StepSetup, found: Iterations) -> Section:
    """Return tokens per second, and what they cost, by the size of the cluster."""
    table = size_table(setup, found)
    plot = Plot("size", partial(_plot, table), f"Paper, figure 26 ({FIGURE_ONLY}). {CAPTION}")
    return step_section(
        "size", "tokens per second by the size of the cluster", setup, table,
        Findings([_sheet(table)], [plot], _claims(table)), DEFINITIONS,
        model=MODEL, rate_gbps=RATE_BPS / 1e9, delay_s=DELAY_S,
    )  # fmt: skip


def size_table(setup: StepSetup, found: Iterations) -> pd.DataFrame:
    """Return a row per size and fabric; the rail-optimised one takes the fat-tree's time."""
    model = STUDIED[MODEL]
    rows = []
    for servers in setup.sizes:
        times_s = {name: as_simulated_s(_point(name, servers), found) for name in (FAT_TREE, MFABRIC)}
        times_s |= {RAIL: times_s[FAT_TREE]}
        usd = {name: bill_of(name, servers, RATE_BPS).usd for name in times_s}
        spent = {name: usd[name] * times_s[name] for name in times_s}
        tokens = model.tokens * model.pp * (servers * GPUS // (model.pp * model.tp))
        rows += [
            {
                "servers": servers, "gpus": servers * GPUS, "fabric": name, "iteration_s": times_s[name],
                "tokens_per_s": tokens / times_s[name], "usd": usd[name],
                "speed_over_fat_tree": times_s[FAT_TREE] / times_s[name],
                "over_fat_tree": spent[FAT_TREE] / spent[name],
            }
            for name in (FAT_TREE, RAIL, MFABRIC)
        ]  # fmt: skip
    return pd.DataFrame(rows)


def _point(fabric: str, servers: int) -> StepPoint:
    return StepPoint(MODEL, fabric, RATE_BPS, servers=servers)


def _claims(table: pd.DataFrame) -> list[Claim]:
    ours = table[table["fabric"] == MFABRIC]
    claims = []
    for text, column, expected in (
        (f"tokens/s as over the {FAT_TREE} and the {RAIL} fabric", "speed_over_fat_tree", SAME),
        (f"about 2 x the performance per dollar of the {FAT_TREE}", "over_fat_tree", ABOUT_TWICE),
    ):
        each = ", ".join(
            f"{gpus:,} GPUs {ratio:.3f}" for gpus, ratio in zip(ours["gpus"], ours[column], strict=True)
        )
        claims.append(predicted(text, SOURCE, expected, farthest(ours[column], expected), each, "{:.3f}"))
    return claims


def _sheet(table: pd.DataFrame) -> Sheet:
    blocks = []
    for name, rows in table.groupby("fabric", sort=False):
        lines = lines_of(
            rows.assign(tokens=rows["tokens_per_s"] / MEGA, musd=rows["usd"] / MEGA),
            "{gpus:,}", "{iteration_s:.3f}", "{tokens:.3f}", "{speed_over_fat_tree:.3f}", "{musd:.1f}",
            "{over_fat_tree:.2f}",
        )  # fmt: skip
        blocks.append(Block(lines, str(name)))
    return Sheet(
        ("GPUs",),
        ("iteration [s]", "tokens/s [M]", f"/ {FAT_TREE}", "cost [M$]", f"per dollar / {FAT_TREE}"),
        blocks,
        f"Figure 26: {MODEL}, {RATE_BPS / 1e9:g} Gbit/s, EP 8, TP 4, PP 4, each further 128 GPUs a replica. "
        f"The {FAT_TREE} and the {RAIL} fabric are one switch that does not block: they take equally "
        "long. mFabric waits in forwards, about, and not in backwards.",
    )


@styled
def _plot(table: pd.DataFrame) -> Figure:
    figure = canvas(8.5, 3.4, f"{MODEL} by the size of the cluster (SYNTHETIC gates)")
    speed, worth = figure.subplots(1, 2)
    for name, rows in table.groupby("fabric", sort=False):
        style = {"color": COLOURS[str(name)], "marker": "o", "label": str(name)}
        dashes = "--" if name == RAIL else "-"
        speed.plot(rows["gpus"], rows["tokens_per_s"] / MEGA, linestyle=dashes, **style)
        worth.plot(rows["gpus"], rows["over_fat_tree"], **style)
    speed.set(ylabel="tokens/s [M]", yscale="log")
    worth.set(ylabel=f"performance per dollar over {FAT_TREE}", ylim=(0, None))
    for axes in (speed, worth):
        axes.set(xlabel="GPUs", xscale="log")
        axes.set_xticks(table["gpus"].unique(), [f"{gpus:,}" for gpus in table["gpus"].unique()])
        axes.minorticks_off()
        horizontal_grid(axes)
    speed.legend()
    return figure


CAPTION = f"At 400 Gbit/s; the {RAIL} fabric's tokens/s are the {FAT_TREE}'s."
DEFINITIONS = [
    ("tokens/s", "tokens of all sequences of an iteration over its time"),
    (
        "replicas",
        "each has its own gates and is predicted on its own; they meet in the rings of data parallelism",
    ),
]
STUDY = StepStudy(_points, _section)
