"""mFabric's Copilot on synthetic gates: Figure 19, and what its predictions are worth as circuits.

The first all-to-all of a layer comes before its gate is known. Copilot predicts the gate's loads from those
of the layer before; beside it stand the paper's other guesses: *unchanged*, the layer before itself, and
*uniform*, a random order of the experts. A guess counts by how many of the K most loaded experts it finds,
and by how long the transfer takes over the circuits that Algorithm 1 makes of it.

The paper measures on traces that it does not publish. Here layers are tied by construction, so that what is
reached says that Copilot finds such ties and not how strong they are in a model.
"""

import math
from collections.abc import Sequence
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from controller.schedulers.copilot import DECAY, WINDOW, predicted_tokens, top_k_accuracy, transitions
from controller.schedulers.demand import Matrix
from controller.schedulers.mfabric import circuit_counts, circuit_order, transfer_s
from scenarios._mfabric.figures.circuits import UNIT_BPS
from scenarios._mfabric.section import FIGURE_ONLY, PlannedSection, Section
from testbed.report.claims import SAME, Claim
from testbed.report.page import Block, Findings, Line, Plot, Sheet, counted
from testbed.report.palette import canvas, horizontal_grid, legend_below, styled
from testbed.study.call_json import Row
from testbed.study.computed import Call, Found
from traffic.models.moe import MODELS
from traffic.workloads.gate import gate_loads, gate_tokens
from traffic.workloads.mixtral import PHASES

MODEL = MODELS["mixtral-8x22b"]
"""A region of 8 servers, an expert on each."""
ITERATIONS, LAYERS = 30, 8
"""Of each phase and seed: 203 predictions."""
TOP = (1, 2, 3, 4)
ALPHAS, PACKET_NICS = (3, 6), 2
"""Circuit NICs of a server, and its packet NICs."""
COPILOT, UNCHANGED, UNIFORM = "Copilot", "unchanged", "uniform"
COLOURS = {COPILOT: "#0072b2", UNCHANGED: "#e69f00", UNIFORM: "#9a9a9a"}
SOURCE = "mFabric, B.1 (Figure 19)"
SYNTHETIC = "layers of the synthetic gate are tied by construction"


def copilot(seeds: Sequence[int]) -> PlannedSection:
    """Return the accuracy of Copilot and of other guesses over training, and their transfer times."""
    points = [Call(guess_rows, case) for case in product(PHASES, seeds)]
    return PlannedSection(partial(_section, seeds), points)


def _section(seeds: Sequence[int], found: Found) -> Section:
    table = pd.DataFrame([row for rows in found for row in rows])
    plots = [
        Plot("copilot_accuracy", partial(_accuracy_plot, table), f"Paper, figure 19. {ACCURACY}"),
        Plot("copilot_transfer", partial(_transfer_plot, table), TRANSFER),
    ]  # fmt: skip
    return Section(
        name="copilot",
        about="what Copilot predicts",
        basis="synthetic",
        findings=Findings([_sheet(table, len(seeds))], plots, _claims(table)),
        tables={"copilot": table},
        seeds=seeds,
        definitions=DEFINITIONS,
        settings={"experts": MODEL.experts, "iterations": ITERATIONS, "layers": LAYERS, "window": WINDOW,
                  "decay": DECAY, "alpha": list(ALPHAS), "packet_nics": PACKET_NICS},
    )  # fmt: skip


def guess_rows(phase: str, seed: int) -> list[Row]:
    """Return a row per guess: top-K accuracy, and transfer time over that of exact demand."""
    loads = gate_loads([phase] * ITERATIONS, LAYERS, MODEL.experts, seed=seed)
    tokens = gate_tokens(loads, MODEL.ep, MODEL.tokens * MODEL.top_k, seed=seed).astype(float)
    true, before = tokens[1:, 1:], tokens[1:, :-1]
    predicted = np.empty_like(true)
    matrices = transitions(loads)
    for at in np.ndindex(true.shape[:2]):
        predicted[at] = predicted_tokens(matrices[at], before[at])
    # A guess of its own per source and expert: its circuits are as random as its ranking.
    drawn = np.random.default_rng([seed, 2]).random(true.shape)
    rows: list[Row] = []
    for name, guess in ((COPILOT, predicted), (UNCHANGED, before), (UNIFORM, drawn)):
        accuracy = {f"top_{k}": top_k_accuracy(guess.sum(axis=2), true.sum(axis=2), k) for k in TOP}
        times = {f"transfer_alpha_{alpha}": _over_exact(guess, true, alpha) for alpha in ALPHAS}
        rows.append({"phase": phase, "seed": seed, "guess": name, **accuracy, **times})
    return rows


def _over_exact(guesses: Matrix, true: Matrix, alpha: int) -> float:
    """Return the transfer time over circuits for guessed demands over that for the exact ones: of means."""
    taken = [
        [_transfer(guess[at], true[at], alpha) for guess in (guesses, true)]
        for at in np.ndindex(true.shape[:2])
    ]
    guessed, exact = np.mean(taken, axis=0)
    return float(guessed / exact)


def _transfer(guess: Matrix, demand: Matrix, alpha: int) -> float:
    """Return the transfer time of a demand between servers over the circuits made for a guess."""
    counts = circuit_counts(circuit_order(guess, alpha), len(guess))
    return transfer_s(demand, counts, PACKET_NICS, UNIT_BPS)


def _claims(table: pd.DataFrame) -> list[Claim]:
    """Return the paper's sentence, against either guess; a synthetic gate cannot bear it out."""
    claims = []
    for other in (UNIFORM, UNCHANGED):
        gains = {
            f"K = {k}, {phase}": float(accuracy[COPILOT, phase] - accuracy[other, phase])
            for k in TOP
            for accuracy in [_means(table, f"top_{k}")]
            for phase in PHASES
        }
        least = min(gains, key=gains.__getitem__)
        reason = f"{SYNTHETIC}; the least gain of accuracy, {least}; the paper has no number"
        text = f"Copilot finds the top-K experts better than {other}"
        claims.append(Claim(text, SOURCE, (SAME, math.inf), gains[least], reason=reason, pattern="{:+.2f}"))
    return claims


def _means(table: pd.DataFrame, column: str) -> pd.Series:
    """Return the mean of a column over the seeds, by guess and phase."""
    return table.groupby(["guess", "phase"])[column].mean()


def _sheet(table: pd.DataFrame, seeds: int) -> Sheet:
    """Return accuracy and transfer times by phase and guess."""
    columns = [f"top_{k}" for k in TOP]
    times = [f"transfer_alpha_{alpha}" for alpha in ALPHAS]
    means = {column: _means(table, column) for column in (*columns, *times)}
    blocks = []
    for phase in PHASES:
        lines = [
            Line(
                [
                    name,
                    *(f"{means[column][name, phase]:.2f}" for column in columns),
                    *(f"{means[column][name, phase]:.2f}x" for column in times),
                ]
            )
            for name in COLOURS
        ]
        blocks.append(Block(lines, phase))
    return Sheet(
        ("top-K accuracy",),
        (*(f"K = {k}" for k in TOP), *(f"alpha = {alpha}" for alpha in ALPHAS)),
        blocks,
        f"SYNTHETIC gates, 8 experts, {(ITERATIONS - 1) * (LAYERS - 1)} predictions per phase and seed "
        f"({counted(seeds, 'seed')}): share of the K most loaded experts that are found; by chance K / 8. "
        "Last columns: transfer time over circuits made of the guess, over that of the exact demand. The "
        "paper's Figure 19 has no numbers.",
    )


@styled
def _accuracy_plot(table: pd.DataFrame) -> Figure:
    figure = canvas(8.5, 3.0, "Top-K accuracy of predicted expert loads (SYNTHETIC gates)")
    columns = [f"top_{k}" for k in TOP]
    for axes, phase in zip(figure.subplots(1, len(PHASES), sharey=True), PHASES, strict=True):
        here = table[table["phase"] == phase].groupby("guess")[columns]
        mean, spread = here.mean(), here.std().fillna(0.0)
        for name, colour in COLOURS.items():
            axes.errorbar(
                TOP, mean.loc[name], spread.loc[name], color=colour, label=name, marker="o", markersize=3,
                capsize=2,
            )  # fmt: skip
        axes.plot(
            TOP, [k / MODEL.experts for k in TOP], color="#333333", linestyle=":", linewidth=1, label="K / 8"
        )
        axes.set(title=phase, xlabel="K", xticks=TOP, ylim=(0, 1.02))
        horizontal_grid(axes)
    figure.axes[0].set(ylabel="accuracy")
    legend_below(figure)
    return figure


@styled
def _transfer_plot(table: pd.DataFrame) -> Figure:
    figure = canvas(
        8.5, 2.8, "Transfer time over circuits of a guess / of the exact demand (SYNTHETIC gates)"
    )
    for axes, alpha in zip(figure.subplots(1, len(ALPHAS), sharey=True), ALPHAS, strict=True):
        means = _means(table, f"transfer_alpha_{alpha}")
        for place, (name, colour) in enumerate(COLOURS.items()):
            x = np.arange(len(PHASES)) + 0.27 * (place - 1)
            axes.bar(x, [means[name, phase] for phase in PHASES], width=0.25, color=colour, label=name)
        axes.axhline(1, color="#c0262d", linewidth=1)
        axes.set(title=f"alpha = {alpha}")
        axes.set_xticks(range(len(PHASES)), PHASES)
        horizontal_grid(axes)
    legend_below(figure)
    return figure


ACCURACY = (
    f"{FIGURE_ONLY.capitalize()}. Means over the seeds; bars are standard deviations over "
    "them. The dotted line is chance."
)
TRANSFER = (
    "8 servers, 2 packet NICs each: over the red line circuits of a guess are slower than those of the exact "
    "demand, which the other all-to-alls of a layer have. The reconfiguration delay is not part of it. With "
    "alpha = 6 random circuits can be under the line: Algorithm 1 serves pairs of great demand first, and "
    "leaves servers of small demand several peers over two packet NICs, which then take the longest."
)
DEFINITIONS = (
    ("Copilot", f"Loads predicted from the layer before, by ties fitted to {WINDOW} iterations."),
    ("unchanged", "The demand of the layer before, whose circuits are lit."),
    ("uniform", "A random demand: every pair as likely as another to get circuits."),
)
