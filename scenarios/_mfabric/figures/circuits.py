"""How far Algorithm 1 is from the best circuits: small regions, where the best can be computed.

For up to 6 servers an integer program gives the circuits of the least transfer time; beside them stand
Algorithm 1, its other readings, and the bound that no circuits beat. The paper has no such comparison; of its
own numbers there is one, the 24 circuits of 8 servers.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from controller.schedulers.demand import Matrix
from controller.schedulers.mfabric import (
    Variant,
    circuit_counts,
    circuit_order,
    transfer_bound_s,
    transfer_s,
)
from controller.schedulers.mfabric_exact import best_circuits
from scenarios._mfabric.section import PlannedSection, Section
from testbed.report.claims import Claim, arithmetic
from testbed.report.page import Block, Findings, Line, Plot, Sheet, counted
from testbed.report.palette import canvas, horizontal_grid, styled
from testbed.report.table import lines_of
from testbed.study.call_json import Row
from testbed.study.computed import Call, Found
from traffic.models.moe import MODELS
from traffic.workloads.gate import ARTIFACT_TOKENS, gate_loads, gate_tokens

SERVERS, ALPHAS, PACKET_NICS = (3, 4, 5, 6), (3, 6), 2
GATES = (("early", 0.0), ("stable", 0.0), ("early", 0.5))
"""Phases and sparsities of the synthetic demands."""
LAYERS = 2
"""Demands per gate and seed."""
READINGS = {
    "Algorithm 1": Variant(),
    "printed end": Variant(stop="printed", ties="demand"),
    "artifact's rule": Variant(rule="artifact", ties="demand"),
    "first over packets": Variant(first="eps"),
}
COLOURS = dict(zip(READINGS, ("#0072b2", "#9a9a9a", "#e69f00", "#009e73"), strict=True))
WORKED: Matrix = 1e6 * np.array([[0, 90, 10, 20], [70, 0, 30, 40], [20, 10, 0, 25], [10, 20, 15, 0]])
"""A skewed demand between 4 servers [bytes]."""
WORKED_NICS = ((3, 1), (4, 2), (6, 2))
"""Circuit and packet NICs of a server, for the worked example."""
WORKED_BPS, MS = 100e9, 1e3
UNIT_BPS = 8.0
"""A rate at which a byte takes a second: only ratios are compared."""


def circuits(seeds: Sequence[int]) -> PlannedSection:
    """Return Algorithm 1 beside the best circuits of small regions."""
    cases = [(servers, *gate, seed) for servers in SERVERS for gate in GATES for seed in seeds]
    points = [Call(ratio_rows, case) for case in cases]
    return PlannedSection(partial(_section, seeds), points)


def _section(seeds: Sequence[int], found: Found) -> Section:
    table = pd.DataFrame([row for rows in found for row in rows])
    worked, public = worked_table(), public_table()
    return Section(
        name="circuits",
        about="how far Algorithm 1 is from the best circuits",
        basis="computed, on synthetic gates",
        findings=Findings(
            [_sheet(table, len(seeds)), _worked_sheet(worked), _public_sheet(public)],
            [Plot("greedy_over_best", partial(_plot, table), CAPTION)],
            _claims(public),
        ),
        tables={"circuits": table, "circuits_worked_example": worked, "circuits_public_matrix": public},
        seeds=seeds,
        definitions=DEFINITIONS,
        settings={"servers": list(SERVERS), "alpha": list(ALPHAS), "packet_nics": PACKET_NICS,
                  "layers": LAYERS, "gates": [f"{phase}, sparsity {q:g}" for phase, q in GATES]},
    )  # fmt: skip


def worked_table() -> pd.DataFrame:
    """Return Algorithm 1, the best and the bound for the worked example [s]."""
    return pd.DataFrame(
        [
            {
                "alpha": alpha,
                "packet_nics": eps,
                "algorithm_1_s": _algorithm_s(WORKED, alpha, eps, Variant(), WORKED_BPS),
                # The best reading has no packets either: what it leaves to them goes over the n_e NICs.
                "best_s": 8 * best_circuits(WORKED, alpha, eps).lane_bytes / WORKED_BPS,
                "bound_s": transfer_bound_s(WORKED, alpha + eps, WORKED_BPS),
            }
            for alpha, eps in WORKED_NICS
        ]
    )


def public_table() -> pd.DataFrame:
    """Return circuits by each reading of Algorithm 1: the artifact's matrix, 8 servers of 6 circuit NICs."""
    demand = ARTIFACT_TOKENS * (2.0 * MODELS["mixtral-8x22b"].hidden)
    np.fill_diagonal(demand, 0.0)
    bound_s = transfer_bound_s(demand, 6 + PACKET_NICS, WORKED_BPS)
    rows = []
    for name, variant in READINGS.items():
        order = circuit_order(demand, 6, PACKET_NICS, variant)
        counts = circuit_counts(order, len(demand))
        taken_s = transfer_s(demand, counts, PACKET_NICS, WORKED_BPS)
        rows.append(
            {"reading": name, "circuits": len(order), "pairs": len(set(order)), "transfer_s": taken_s,
             "over_bound": taken_s / bound_s}
        )  # fmt: skip
    return pd.DataFrame(rows)


def ratio_rows(servers: int, phase: str, sparsity: float, seed: int) -> list[Row]:
    """Return a row per demand of a gate: the times of each reading and the lower bound, over the best's.

    There is a server per expert-parallel rank, an expert on each.
    """
    loads = gate_loads([phase], LAYERS, servers, seed=seed)
    tokens = gate_tokens(loads, servers, MODELS["mixtral-8x22b"].tokens, sparsity=sparsity, seed=seed)[0]
    rows: list[Row] = []
    for layer, sent in enumerate(tokens):
        demand = sent.astype(float)
        np.fill_diagonal(demand, 0.0)
        for alpha in ALPHAS:
            best_s = best_circuits(demand, alpha, PACKET_NICS).lane_bytes
            rows.append(
                {
                    "servers": servers, "alpha": alpha, "phase": phase, "sparsity": sparsity, "seed": seed,
                    "layer": layer, "bound": transfer_bound_s(demand, alpha + PACKET_NICS, UNIT_BPS) / best_s,
                    **{
                        name: _algorithm_s(demand, alpha, PACKET_NICS, variant, UNIT_BPS) / best_s
                        for name, variant in READINGS.items()
                    },
                }
            )  # fmt: skip
    return rows


def _algorithm_s(demand: Matrix, alpha: int, eps_nics: int, variant: Variant, nic_bps: float) -> float:
    """Return the transfer time over the circuits that a reading of Algorithm 1 makes [s]."""
    counts = circuit_counts(circuit_order(demand, alpha, eps_nics, variant), len(demand))
    return transfer_s(demand, counts, eps_nics, nic_bps)


def _claims(public: pd.DataFrame) -> list[Claim]:
    circuits = public.set_index("reading")["circuits"]
    reason = f"the loop as printed ends after {circuits['printed end']}"
    return [
        arithmetic(
            "24 circuits for 8 servers of 6 circuit NICs", "mFabric, 7.3", (24.0, 24.0),
            float(circuits["Algorithm 1"]), reason, "{:.0f}",
        )
    ]  # fmt: skip


def _sheet(table: pd.DataFrame, seeds: int) -> Sheet:
    """Return means and greatest values of each reading over the best."""
    blocks = []
    for alpha, rows in table.groupby("alpha"):
        lines = []
        for servers, of_size in rows.groupby("servers"):
            each = [f"{of_size[name].mean():.2f} ({of_size[name].max():.2f})" for name in READINGS]
            lines.append(Line([f"{servers} servers", *each, f"{of_size['bound'].mean():.2f}"]))
        blocks.append(Block(lines, f"alpha = {alpha} circuit NICs, {PACKET_NICS} packet NICs"))
    demands = len(GATES) * LAYERS * seeds
    return Sheet(
        ("transfer / best's",),
        ("Algorithm 1", "printed end", "artifact", "1st / packets", "bound"),
        blocks,
        f"Transfer time of an all-to-all over that of the best circuits: means over {demands} synthetic "
        f"demands per size ({counted(seeds, 'seed')}), and the greatest in brackets. The bound is that of "
        "all NICs together. The paper has no such comparison.",
    )


def _worked_sheet(worked: pd.DataFrame) -> Sheet:
    times_s = ["algorithm_1_s", "best_s", "bound_s"]
    shown = worked.assign(over=worked["algorithm_1_s"] / worked["best_s"], **(MS * worked[times_s]))
    cells = (*(f"{{{name}:.2f}}" for name in times_s), "{over:.2f}x")
    lines = lines_of(shown, "alpha = {alpha}, n_e = {packet_nics}", *cells)
    return Sheet(
        ("worked example [ms]",), ("Algorithm 1", "best", "bound", "/ best"), [Block(lines)],
        f"A skewed demand between 4 servers, {WORKED.sum() / 1e6:.0f} MB in all, NICs of 100 Gbit/s; n_e "
        "packet NICs. The best leaves small pairs to the packet NICs; Algorithm 1 gives each a circuit.",
    )  # fmt: skip


def _public_sheet(public: pd.DataFrame) -> Sheet:
    lines = lines_of(
        public.assign(transfer_ms=MS * public["transfer_s"]),
        "{reading}", "{circuits}", "{pairs} of 28", "{transfer_ms:.1f}", "{over_bound:.2f}x",
    )  # fmt: skip
    return Sheet(
        ("public 8 x 8 matrix",), ("circuits", "pairs", "transfer [ms]", "/ bound"), [Block(lines)],
        "The artifact's matrix of tokens between 8 servers (Mixtral 8x22B), 6 circuit and 2 packet NICs of "
        "100 Gbit/s. The paper counts 24 circuits.",
    )  # fmt: skip


@styled
def _plot(table: pd.DataFrame) -> Figure:
    figure = canvas(8.5, 3.6, "Transfer time over that of the best circuits (SYNTHETIC gates)")
    rng = np.random.default_rng(0)
    for axes, (alpha, rows) in zip(
        figure.subplots(1, len(ALPHAS), sharey=True), table.groupby("alpha"), strict=True
    ):
        for place, (name, colour) in enumerate(COLOURS.items()):
            spread = 0.2 * (place - 1.5) + rng.uniform(-0.06, 0.06, len(rows))
            axes.scatter(
                rows["servers"] + spread, rows[name], s=7, alpha=0.6, color=colour, linewidth=0, label=name
            )
        axes.axhline(1, color="#c0262d", linewidth=1)
        axes.set(title=f"alpha = {alpha}", xlabel="servers")
        axes.set_xticks(SERVERS)
        horizontal_grid(axes)
    figure.axes[0].set(ylabel="transfer time / best's")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower left", ncols=len(labels), markerscale=2)
    return figure


CAPTION = (
    "A dot per demand; the red line is the best. Algorithm 1 first gives every pair with demand a circuit, "
    "small ones too, which the best leaves to the packet NICs."
)
DEFINITIONS = (
    ("alpha, n_e", "Circuit and packet NICs of a server."),
    ("printed end", "Algorithm 1 ends at the first pair of which a server has no free NIC; else it goes on."),
    ("artifact's rule", "Further circuits go round by round in order of demand, as in the artifact."),
    (
        "first over packets",
        "A pair without a circuit counts as slow as its packets, and not as infinitely slow.",
    ),
    (
        "best",
        "Circuits of the least transfer time, by an integer program; each pair is on circuits or packets.",
    ),
)
