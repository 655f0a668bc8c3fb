"""The demand of gates over training: Figures 4, 5 and 18, whose data are not published.

All of it is *synthetic*, made to have the statistics of the one public matrix, which stands beside it. So it
confirms nothing that the paper says of its own traces: it shows what the other parts of the study run on.
"""

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from scenarios._mfabric.section import FIGURE_ONLY, PlannedSection, Section
from testbed.report.claims import LESS, MORE, Claim
from testbed.report.page import Block, Findings, Line, Plot, Sheet, counted
from testbed.report.palette import COLOURS as SCHEMES
from testbed.report.palette import HEAT, OWN, canvas, horizontal_grid, legend_below, styled
from testbed.study.call_json import Row
from testbed.study.computed import Call, Found
from traffic.models.moe import MODELS
from traffic.workloads.gate import ARTIFACT_TOKENS, gate_demand, gate_loads, gate_statistics, gate_tokens
from traffic.workloads.mixtral import PHASES

MODEL = MODELS["mixtral-8x7b"]
"""Whose figures these are."""
SOURCES, ITERATIONS, LAYERS = 8, 30, 8
"""Of each phase and seed; all layers would say the same and take four times as long."""
GATES = (*((phase, 0.0) for phase in PHASES), ("early", 0.5))
"""Phases and sparsities."""
TOP = 0.25
"""Share of the pairs that are the heaviest."""
COPIES = MODEL.tokens * MODEL.top_k
"""Copies of tokens that a source sends."""
SHOWN_ITERATIONS = 10
"""Of each phase in the plot over training."""
SYNTHETIC = "the gate is synthetic, made to do so"
COLUMNS = ("gini", "most", "least", "row_gini", "spread", "wander", "zeros", "top_pairs")


def gates(seeds: Sequence[int]) -> PlannedSection:
    """Return the statistics of synthetic gates, and what they look like."""
    points = [Call(gate_row, (*gate, seed)) for gate in GATES for seed in seeds]
    return PlannedSection(partial(_section, seeds), points)


def _section(seeds: Sequence[int], found: Found) -> Section:
    table, public = pd.DataFrame(found), statistics(ARTIFACT_TOKENS[None, None])
    traffic = cluster_traffic(seeds[0])
    plots = [
        Plot("gate_loads", partial(_over_training, seeds[0]), f"Paper, figure 4a ({FIGURE_ONLY}). {LOADS}"),
        Plot("gate_matrices", partial(_matrices, seeds[0]), f"Paper, figure 4b ({FIGURE_ONLY}). {MATRICES}"),
        Plot("cluster_traffic", partial(_cluster, traffic), f"Paper, figure 5 ({FIGURE_ONLY}). {CLUSTER}"),
        Plot("gate_by_block", partial(_blocks, seeds[0]), f"Paper, figure 18 ({FIGURE_ONLY}). {BLOCKS}"),
    ]  # fmt: skip
    return Section(
        name="gates",
        about="how demands of gates vary",
        basis="synthetic",
        findings=Findings([_sheet(table, public, len(seeds))], plots, _claims(table)),
        tables={"gate_statistics": table},
        seeds=seeds,
        definitions=DEFINITIONS,
        settings={"experts": SOURCES, "iterations": ITERATIONS, "layers": LAYERS, "copies_of_tokens": COPIES,
                  "gates": [f"{phase}, sparsity {q:g}" for phase, q in GATES]},
    )  # fmt: skip


def statistics(tokens: NDArray[np.int64]) -> dict[str, float]:
    """Return the statistics of a gate's tokens, and what the heaviest quarter of the pairs carries."""
    pairs = np.sort(tokens.reshape(*tokens.shape[:2], -1), axis=2)[:, :, ::-1]
    top = pairs[:, :, : round(TOP * pairs.shape[2])].sum(axis=2) / pairs.sum(axis=2)
    return asdict(gate_statistics(tokens)) | {"top_pairs": float(top.mean())}


def cluster_traffic(seed: int) -> NDArray[np.float64]:
    """Return the bytes between the 128 GPUs of a replica in the all-to-alls of one micro-batch, forward.

    GPU ``(stage ep + rank) tp + t`` is the t-th of a rank of a stage; a stage has its own layers. There
    are no bytes between stages by construction: the experts of a layer are on one stage.
    """
    tokens = gate_tokens(gate_loads(["stable"], MODEL.layers, seed=seed), MODEL.ep, COPIES, seed=seed)[0]
    gpus = MODEL.ep * MODEL.tp
    traffic = np.zeros((MODEL.pp * gpus,) * 2)
    layer = 0
    for stage, layers in enumerate(MODEL.stage_layers()):
        own = slice(stage * gpus, (stage + 1) * gpus)
        for sent in tokens[layer : layer + layers]:
            dispatch = gate_demand(sent, 2 * MODEL.hidden, MODEL.tp).matrix
            traffic[own, own] += dispatch + dispatch.T  # the combine is the dispatch turned round
        layer += layers
    np.fill_diagonal(traffic, 0.0)
    return traffic


def gate_row(phase: str, sparsity: float, seed: int) -> Row:
    """Return the statistics of a gate."""
    loads = gate_loads([phase] * ITERATIONS, LAYERS, SOURCES, seed=seed)
    tokens = gate_tokens(loads, SOURCES, COPIES, sparsity=sparsity, seed=seed)
    return {"phase": phase, "sparsity": sparsity, "seed": seed, **statistics(tokens)}


def _claims(table: pd.DataFrame) -> list[Claim]:
    """Return the paper's claims about its traces; a synthetic gate cannot bear them out."""
    full = table[table["sparsity"] == 0].groupby("phase")[list(COLUMNS)].mean()
    wander, most = full["wander"], full["most"]
    falling = ", ".join(f"{phase} {wander[phase]:.3f}" for phase in PHASES)
    return [
        Claim(
            "experts' volumes vary less over iterations as training goes on", "mFabric, 3 (Figure 4)", LESS,
            float(wander["stable"] / wander["start"]), reason=f"{SYNTHETIC}: {falling}",
        ),
        Claim(
            "a trained gate is uneven: most loaded expert over the mean", "mFabric, A.3 (Figure 18)", MORE,
            float(most["stable"]), reason=SYNTHETIC,
        ),
    ]  # fmt: skip


def _sheet(table: pd.DataFrame, public: dict[str, float], seeds: int) -> Sheet:
    """Return the statistics of the gates under those of the public matrix."""

    def line(name: str, values: dict[str, float], *, iterations: bool = True) -> Line:
        numbers = [f"{values[column]:.3f}" for column in COLUMNS[:-2]]
        shares = [f"{values[column]:.0%}" for column in COLUMNS[-2:]]
        if not iterations:
            numbers[COLUMNS.index("wander")] = "-"
        return Line([name, *numbers, *shares])

    lines = []
    for phase, sparsity in GATES:
        here = table[(table["phase"] == phase) & (table["sparsity"] == sparsity)]
        name = f"{phase}, sparsity {sparsity:g}" if sparsity else phase
        lines.append(line(name, {column: float(here[column].mean()) for column in COLUMNS}))
    return Sheet(
        ("gate",),
        ("Gini", "most", "least", "row", "spread", "wander", "zeros", "top 1/4"),
        [
            Block([line("public matrix", public, iterations=False)], "of the artifact"),
            Block(lines, "synthetic"),
        ],
        f"Statistics of 8 x 8 gates, means over {ITERATIONS} iterations of {LAYERS} layers and "
        f"{counted(seeds, 'seed')}. The paper's figures 4, 5 and 18 have no numbers; the generator is held "
        "to the public matrix in the phase early, and flattens as RailS' phases do.",
    )


@styled
def _over_training(seed: int) -> Figure:
    phases = [phase for phase in PHASES for _ in range(SHOWN_ITERATIONS)]
    loads = gate_loads(phases, 2, SOURCES, seed=seed)
    figure = canvas(8.5, 3.4, "Load of each expert over training (SYNTHETIC gate)")
    colours = [*SCHEMES.values(), *OWN]
    for layer, axes in enumerate(figure.subplots(1, 2, sharey=True)):
        for expert in range(SOURCES):
            axes.plot(100 * loads[:, layer, expert], color=colours[expert], label=f"expert {expert}")
        for number, phase in enumerate(PHASES):
            axes.axvline(number * SHOWN_ITERATIONS, color="#dddddd", linewidth=0.8, zorder=0)
            axes.annotate(
                phase, ((number + 0.5) * SHOWN_ITERATIONS, 1.0), xycoords=("data", "axes fraction"),
                ha="center", va="top", fontsize=7,
            )  # fmt: skip
        axes.set(xlabel="iteration drawn", title=f"layer {layer}", ylim=(0, 40))
        horizontal_grid(axes)
    figure.axes[0].set(ylabel="tokens [%]")
    legend_below(figure, SOURCES)
    return figure


@styled
def _matrices(seed: int) -> Figure:
    phases = [phase for phase in PHASES for _ in range(SHOWN_ITERATIONS)]
    tokens = gate_tokens(gate_loads(phases, 1, SOURCES, seed=seed), SOURCES, COPIES, seed=seed)[:, 0]
    shown = {"public matrix": ARTIFACT_TOKENS}
    shown |= {f"{phase} (synthetic)": tokens[at * SHOWN_ITERATIONS] for at, phase in enumerate(PHASES)}
    figure = canvas(8.5, 2.6, "Tokens from source to expert")
    for axes, (name, matrix) in zip(figure.subplots(1, len(shown)), shown.items(), strict=True):
        image = axes.imshow(100 * matrix / matrix.sum(axis=1)[0], cmap=HEAT, vmin=0, vmax=35)
        axes.set(xlabel="expert", xticks=range(0, SOURCES, 2), yticks=range(0, SOURCES, 2))
        axes.set_title(name, fontsize=8)
    figure.axes[0].set(ylabel="source")
    figure.colorbar(image, ax=figure.axes, label="% of a source's", shrink=0.75)
    return figure


@styled
def _cluster(traffic: NDArray[np.float64]) -> Figure:
    figure = canvas(5.2, 4.4, "All-to-alls between 128 GPUs, Mixtral 8x7B (SYNTHETIC gate)")
    axes = figure.subplots()
    shown = np.ma.masked_equal(traffic / 1e6, 0)
    image = axes.imshow(shown, cmap=HEAT, vmin=0, interpolation="nearest")
    _cut_stages(axes, len(traffic))
    axes.set(xlabel="destination GPU", ylabel="source GPU")
    figure.colorbar(image, ax=axes, label="MB per micro-batch")
    return figure


def _cut_stages(axes: Axes, gpus: int) -> None:
    """Draw the borders of the pipeline stages."""
    for stage in range(1, MODEL.pp):
        at = stage * gpus / MODEL.pp - 0.5
        axes.axhline(at, color="#999999", linewidth=0.6)
        axes.axvline(at, color="#999999", linewidth=0.6)
    axes.set(xticks=range(0, gpus + 1, gpus // MODEL.pp), yticks=range(0, gpus + 1, gpus // MODEL.pp))


@styled
def _blocks(seed: int) -> Figure:
    loads = gate_loads(["stable"], MODEL.layers, SOURCES, seed=seed)[0]
    figure = canvas(8.5, 2.8, "Load of each expert by MoE block in a trained model (SYNTHETIC gate)")
    axes = figure.subplots()
    image = axes.imshow(100 * loads.T, cmap=HEAT, aspect="auto", vmin=0)
    axes.set(xlabel="MoE block", ylabel="expert", yticks=range(SOURCES), xticks=range(0, MODEL.layers, 4))
    figure.colorbar(image, ax=axes, label="tokens [%]")
    return figure


LOADS = f"Two layers, {SHOWN_ITERATIONS} iterations of each phase of training; an even load is 12.5 %."
MATRICES = "Rows are sources. The artifact uses the first matrix for all layers and iterations."
CLUSTER = (
    "Dispatch and combine of all layers, forward: 4 stages of 8 ranks of 4 GPUs. Nothing goes between stages "
    "by construction: the experts of a layer are on one stage."
)
BLOCKS = "The phase stable, one iteration; an even load is 12.5 %."
DEFINITIONS = (
    ("Gini", "Coefficient over the experts' loads: 0 even; row, of one source's tokens."),
    ("most, least", "The most and the least loaded expert over the mean."),
    ("spread, wander", "Deviation of an expert's share over sources, and over iterations, relative."),
    ("top 1/4", "What the heaviest quarter of the 64 pairs carries; 25 % if all carry the same."),
)
