"""Tokens per second by the size of the cluster: Figure 26, by whole training steps in the fluid model.

A larger cluster has more replicas of the model, each with gates of its own: nothing is solved once for
several. A fat-tree and a rail-optimised fabric have as many NICs and no tier of theirs blocks, so both are
one switch, as is mFabric's packet side. Queue pairs that a hash leads over one link would share it; the
paper's simulations have such collisions, this study has none on any fabric.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pandas as pd
from matplotlib.figure import Figure
from rich.progress import Progress

from controller.circuits.devices import ReconfigurationDelay
from scenarios._mfabric.fabrics import COLOURS, FAT_TREE, GPUS, MFABRIC, NICS, PACKET_NICS, RAIL, bill_of
from scenarios._mfabric.section import FIGURE_ONLY, Section, judged
from scenarios._mfabric.training_points import Training, over_circuits, over_packets, training
from testbed.report.claims import Claim
from testbed.report.page import Block, Findings, Line, Plot, Sheet
from testbed.report.palette import canvas, horizontal_grid, styled
from testbed.run.experiment import Experiment
from testbed.run.predict import predict
from topologies.big_switch import big_switch_fabric
from topologies.cost import performance_per_dollar
from topologies.errors import ScenarioError
from topologies.mfabric import mfabric_fabric
from traffic.models.moe import MoeModel, model_named

SOURCE = "mFabric, D.5 (Figure 26)"
MODEL, RATE_BPS, DELAY_S = "mixtral-8x7b", 400e9, 25e-3
GATEWAYS = (0, 4)
PAPER_SERVERS = (128, 256, 512, 1024, 2048, 4096)
SAME, ABOUT_TWICE = (0.95, 1.05), (1.5, 2.5)
"""What "as" and "about 2 x" are taken for; the paper shows a figure."""
MEGA = 1e6


@dataclass(frozen=True)
class SizePoint:
    """Mixtral 8x7B on a cluster."""

    servers: int
    fabric: str
    """mFabric, or packet switches that do not block: the fat-tree's name."""


def size_points(servers: Sequence[int]) -> list[SizePoint]:
    """Return what is predicted for clusters of these sizes."""
    return [SizePoint(size, fabric) for size in servers for fabric in (FAT_TREE, MFABRIC)]


def checked_servers(servers: Sequence[int]) -> list[int]:
    """Return the sizes of clusters, each once; ScenarioError if replicas do not fill one."""
    replica = model_named(MODEL).replica_gpus // GPUS
    for size in servers:
        if size < replica or size % replica:
            raise ScenarioError(
                f"{MODEL} on {size} servers of {GPUS} GPUs",
                f"give multiples of {replica}, a replica's servers",
            )
    return sorted(set(servers))


def cluster_step(model: MoeModel, servers: int, seed: int) -> Training:
    """Return a step of all layers and stages of a model, with as many replicas as fill the servers."""
    replicas = servers * GPUS // model.replica_gpus
    return training(
        model, model.layers, replicas=replicas, micro_batches=model.pp, gateways=GATEWAYS, seed=seed
    )


def cluster_experiment(trained: Training, servers: int, fabric: str, seed: int) -> Experiment:
    """Return a step over mFabric, whose regions wait for circuits of their own, or over one packet switch."""
    if fabric != MFABRIC:
        packets = big_switch_fabric(servers, nics=NICS, rate_bps=RATE_BPS)
        return over_packets(packets, trained, fabric, seed)
    wired = mfabric_fabric(
        servers,
        trained.model.region_servers(GPUS),
        nics=NICS,
        packet_nics=PACKET_NICS,
        one_packet_switch=True,
        rate_bps=RATE_BPS,
    )
    return over_circuits(wired, trained, "block", ReconfigurationDelay("25 ms", DELAY_S), fabric, seed=seed)


def size_iterations(servers: Sequence[int], seed: int, progress: Progress) -> Mapping[SizePoint, float]:
    """Return how long an iteration takes at each of `size_points` [s], the smallest cluster first."""
    model, found = model_named(MODEL), dict[SizePoint, float]()
    points = size_points(servers)
    for point in progress.track(points, description="predict training steps by size"):
        trained = cluster_step(model, point.servers, seed)
        experiment = cluster_experiment(trained, point.servers, point.fabric, seed)
        found[point] = predict(experiment, couples=True).iteration_s
    return found


def size(found: Mapping[SizePoint, float], seed: int) -> Section:
    """Return tokens per second, and what they cost, by the size of the cluster.

    Parameters
    ----------
    found
        The iteration time of each point [s].
    seed
        Of the gates.
    """
    table = size_table(found)
    plot = Plot("size", partial(_plot, table), f"Paper, figure 26 ({FIGURE_ONLY}). {CAPTION}")
    return Section(
        name="size",
        about="tokens per second by the size of the cluster",
        basis="computed by the fluid model, on synthetic gates",
        findings=Findings([_sheet(table)], [plot], _claims(table)),
        tables={"size": table},
        seeds=[seed],
        definitions=DEFINITIONS,
        settings={"model": MODEL, "rate_gbps": RATE_BPS / 1e9, "delay_s": DELAY_S},
    )


def size_table(found: Mapping[SizePoint, float]) -> pd.DataFrame:
    """Return a row per size and fabric; the rail-optimised one takes the fat-tree's time."""
    model = model_named(MODEL)
    rows = []
    for servers in sorted({point.servers for point in found}):
        times_s = {name: found[SizePoint(servers, name)] for name in (FAT_TREE, MFABRIC)}
        times_s |= {RAIL: times_s[FAT_TREE]}
        usd = {name: bill_of(name, servers, RATE_BPS).usd for name in times_s}
        tokens = model.tokens * model.pp * (servers * GPUS // (model.pp * model.tp))
        for name in (FAT_TREE, RAIL, MFABRIC):
            over = performance_per_dollar(
                usd[name], times_s[name], base_usd=usd[FAT_TREE], base_s=times_s[FAT_TREE]
            )
            rows.append(
                {
                    "servers": servers, "gpus": servers * GPUS, "fabric": name, "iteration_s": times_s[name],
                    "tokens_per_s": tokens / times_s[name], "usd": usd[name],
                    "speed_over_fat_tree": times_s[FAT_TREE] / times_s[name], "over_fat_tree": over,
                }
            )  # fmt: skip
    return pd.DataFrame(rows)


def _claims(table: pd.DataFrame) -> list[Claim]:
    ours = table[table["fabric"] == MFABRIC]
    claims = []
    for text, column, expected in (
        (f"tokens/s as over the {FAT_TREE} and the {RAIL} fabric", "speed_over_fat_tree", SAME),
        (f"about 2 x the performance per dollar of the {FAT_TREE}", "over_fat_tree", ABOUT_TWICE),
    ):
        middle = sum(expected) / 2
        farthest = max(ours[column], key=lambda ratio: abs(ratio - middle))
        each = ", ".join(
            f"{gpus:,} GPUs {ratio:.3f}" for gpus, ratio in zip(ours["gpus"], ours[column], strict=True)
        )
        claims.append(judged(text, SOURCE, expected, farthest, each, "{:.3f}"))
    return claims


def _sheet(table: pd.DataFrame) -> Sheet:
    blocks = []
    for name, rows in table.groupby("fabric", sort=False):
        lines = [
            Line(
                [
                    f"{row['gpus']:,}", f"{row['iteration_s']:.3f}", f"{row['tokens_per_s'] / MEGA:.3f}",
                    f"{row['speed_over_fat_tree']:.3f}", f"{row['usd'] / MEGA:.1f}",
                    f"{row['over_fat_tree']:.2f}",
                ]
            )
            for _, row in rows.iterrows()
        ]  # fmt: skip
        blocks.append(Block(lines, str(name)))
    return Sheet(
        ("GPUs",),
        ("iteration [s]", "tokens/s [M]", f"/ {FAT_TREE}", "cost [M$]", f"per dollar / {FAT_TREE}"),
        blocks,
        f"Figure 26: {MODEL}, {RATE_BPS / 1e9:g} Gbit/s, EP 8, TP 4, PP 4, each further 128 GPUs a replica. "
        f"The {FAT_TREE} and the {RAIL} fabric are one switch that does not block: they take equally long.",
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
