"""Where bytes and time go in training: Figures 2, 3 and 17, whose data are not published.

Bytes are those of a training step as it is built here; the time of a layer is predicted on the
rail-optimised fabric of the paper's production cluster. The paper does not say how it counts bytes, how fast
its GPUs compute, nor which gates it measured; so what hangs on these stands in the table.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray

from scenarios._mfabric.section import FIGURE_ONLY, PlannedSection, Section
from testbed.experiment.audit_of import sound
from testbed.experiment.experiment import Experiment
from testbed.model.predict import predict
from testbed.report.claims import Claim, Range, around, predicted
from testbed.report.page import Block, Findings, Line, Plot, Sheet, counted
from testbed.report.palette import COLOURS as SCHEMES
from testbed.report.palette import canvas, horizontal_grid, legend_below, styled
from testbed.report.table import lines_of
from testbed.study.call_json import Row
from testbed.study.computed import Call, Found
from topologies.fabric import Fabric
from topologies.rail import rail_fabric
from traffic.collectives.all_to_all import AllToAll
from traffic.collectives.pattern import Pattern
from traffic.collectives.point_to_point import PointToPoint
from traffic.collectives.ring import Ring
from traffic.delegated import DelegatedSetup
from traffic.job import Compute
from traffic.models.moe import MODELS, NUMBER_BYTES, MoeModel
from traffic.models.moe_step import Machines, MoeStep, moe_step, repeated_gate
from traffic.workloads.gate import ARTIFACT_TOKENS, gate_loads, gate_tokens
from traffic.workloads.gating import apportioned

FIGURE_2, FIGURE_3 = "mFabric, 2 (Figure 2)", "mFabric, 3 (Figure 3)"
FIGURE_17 = "mFabric, A.2 (Figure 17)"
NAMES = ("mixtral-8x7b", "llama-moe", "qwen-moe")
"""Whose figures these are."""
GPUS, NICS = 128, 8
"""Of the production cluster; of a server."""
RATE_BPS, H800_FLOPS, A100_FLOPS = 400e9, 400e12, 140e12
"""Of its NICs [bit/s]; 40 % of an H800's peak; 45 % of an A100's, which the other parts take [FLOP/s]."""
PUBLIC, EVEN = "public matrix", "even"
PHASES = ("early", "stable")
"""Of the synthetic gates."""
KINDS = ("TP", "EP", "PP", "DP")
KIND_OF: dict[type[Pattern], str] = {AllToAll: "EP", PointToPoint: "PP", Ring: "DP"}
"""Of which parallelism a pattern's collectives are."""
READINGS = ("sent", "sent, whole tokens", "sizes of calls")
"""How bytes are counted; the first is that of the step."""
STEPS = ("attention", "dispatch", "experts", "combine")
A2A: dict[str, Range] = {"mixtral-8x7b": (0.33, 0.55), "llama-moe": (0.42, 0.58)}
"""Shares of a layer's time that the paper prints."""
KNOWN = {"mixtral-8x7b": PUBLIC, "llama-moe": EVEN, "qwen-moe": EVEN}
"""The gates that claims are ruled by: a synthetic one bears nothing out."""
MOST_QWEN, EXPERTS_S = 0.68, 0.1
PERCENT, MS = "{:.0%}", 1e3


def training_shares(seeds: Sequence[int]) -> PlannedSection:
    """Return which parallelism sends how much, and what the parts of a layer take."""
    gates = [*product(PHASES, seeds)]
    points = [Call(time_rows, (name, *gate)) for name in NAMES for gate in [(KNOWN[name], 0), *gates]]
    return PlannedSection(partial(_section, seeds), points)


def _section(seeds: Sequence[int], found: Found) -> Section:
    traffic, times = traffic_table(), pd.DataFrame([row for rows in found for row in rows])
    plots = [
        Plot("traffic_shares", partial(_traffic_plot, traffic), f"Paper, figure 2 ({FIGURE_ONLY}). {BYTES}"),
        Plot("layer_times", partial(_time_plot, times), f"Paper, figures 3 and 17 ({FIGURE_ONLY}). {TIMES}"),
    ]
    return Section(
        name="shares",
        about="where bytes and time go in training",
        basis="computed, claims by the public matrix and even loads, other gates synthetic",
        findings=Findings(
            [_traffic_sheet(traffic), _time_sheet(times, len(seeds))],
            plots,
            [*_traffic_claims(traffic), *_time_claims(times)],
        ),
        tables={"traffic_shares": traffic, "layer_times": times},
        seeds=seeds,
        definitions=DEFINITIONS,
        settings={"gpus": GPUS, "rate_bps": RATE_BPS, "gpu_flops": H800_FLOPS, "phases": list(PHASES)},
    )


def traffic_table() -> pd.DataFrame:
    """Return the bytes of one iteration by model, reading and parallelism, and their share."""
    rows = []
    for name in NAMES:
        for reading, sent in traffic_bytes(MODELS[name], GPUS // MODELS[name].replica_gpus).items():
            total = sum(sent.values())
            rows += [
                {"model": name, "reading": reading, "kind": kind, "bytes": sent[kind],
                 "share": sent[kind] / total}
                for kind in KINDS
            ]  # fmt: skip
    return pd.DataFrame(rows)


def traffic_bytes(model: MoeModel, replicas: int) -> dict[str, Counter[str]]:
    """Return the bytes that all GPUs send in an iteration, by reading and parallelism.

    Parameters
    ----------
    model, replicas
        What is trained; dp, how often experts are held.
    """
    # Without compute, what is left of the computes is what goes over NVLink: TP and DP inside servers.
    machines = Machines(gpu_flops=math.inf)
    sharded, whole = (
        moe_step(
            model,
            repeated_gate(tokens_of(model, EVEN, 0)),
            replicas=replicas,
            machines=machines,
            tp_shards_tokens=shards,
        )
        for shards in (True, False)
    )
    counted_so = sent_bytes(sharded, machines), sent_bytes(whole, machines), _call_bytes(model, sharded)
    return dict(zip(READINGS, counted_so, strict=True))


def sent_bytes(step: MoeStep, machines: Machines) -> Counter[str]:
    """Return the bytes that leave the GPUs of a step, by parallelism.

    Parameters
    ----------
    step
        On GPUs that compute in no time.
    machines
        These.
    """
    sent = Counter[str]()
    for node in step.job.nodes:
        if isinstance(node, Compute):
            busy_s = sum(node.durations_s) if node.durations_s else node.duration_s * len(node.gpus)
            sums = node.name.startswith("DP ")
            # TP sends from every GPU; sums go to a server's gateways, each as long as the node, or come back.
            busy = len(machines.gateways) / machines.server_gpus if sums else 1
            sent["DP" if sums else "TP"] += round(busy * busy_s * machines.nvlink_bps / 8)
        else:
            sent[KIND_OF[type(node.pattern)]] += int(node.pattern.lower(coupled=True).moves.bytes.sum())
    return sent


def _call_bytes(model: MoeModel, step: MoeStep) -> Counter[str]:
    """Return the sizes of all calls, as a profiler that logs these adds them up [bytes].

    Four AllReduces of a layer's tokens for TP; of an all-to-all the buffer, own share included.
    """
    sizes = Counter[str]()
    for pattern in (node.pattern for node in step.job.collectives):
        if isinstance(pattern, AllToAll):
            size = int(pattern.demand.matrix.sum())
        elif isinstance(pattern, Ring):
            size = pattern.bytes * len(pattern.gpus)
        else:
            size = int(pattern.lower().moves.bytes.sum())
        sizes[KIND_OF[type(pattern)]] += size
    if model.tp > 1:
        # Two in each pass of a layer, of all tokens on each GPU; a dispatch is one layer's of one rank group.
        sizes["TP"] = 4 * len(step.dispatches) * model.ep * model.tp * model.tokens * model.hidden
        sizes["TP"] *= NUMBER_BYTES
    return sizes


def time_rows(name: str, gate: str, seed: int) -> list[Row]:
    """Return a row per speed of the GPUs and division of tokens: what a layer of a model takes."""
    rows, model = [], MODELS[name]
    fabric = rail_fabric(model.region_servers(), NICS, rate_bps=RATE_BPS)
    tokens = tokens_of(model, gate, seed)
    for flops in (H800_FLOPS, A100_FLOPS):
        for shards in (False, True) if model.tp > 1 else (False,):
            times_s = layer_times(model, tokens, fabric, Machines(flops), tp_shards_tokens=shards)
            taken_s, exchanging_s = times_s.sum(), times_s.loc[["dispatch", "combine"]].sum()
            rows.append(
                {"model": name, "gate": gate, "seed": seed, "gpu_flops": flops, "whole_tokens": not shards,
                 "share": exchanging_s["F"] / taken_s["F"], "of_both": exchanging_s.sum() / taken_s.sum()}
                | {f"{part}_s": times_s.loc[part, "F"] for part in STEPS}
            )  # fmt: skip
    return rows


def layer_times(
    model: MoeModel,
    tokens: NDArray[np.int64],
    fabric: Fabric,
    machines: Machines,
    *,
    tp_shards_tokens: bool = False,
) -> pd.DataFrame:
    """Return the times of a layer of one micro-batch on packet switches; other regions take as long.

    Parameters
    ----------
    model, tokens
        Whose layer; from rank to expert.
    fabric, machines
        The servers of one region, and their GPUs.
    tp_shards_tokens
        Whether the GPUs of a rank divide its tokens, or each sends all of them.

    Returns
    -------
    DataFrame
        By part of the layer, `STEPS`, and pass, ``F`` and ``B``: from when all GPUs begin until the last
        ends [s].
    """
    step = moe_step(
        replace(model, layers=1, pp=1),
        repeated_gate(tokens),
        micro_batches=1,
        machines=machines,
        tp_shards_tokens=tp_shards_tokens,
    )
    run = sound(predict(Experiment(fabric, step.job, DelegatedSetup()), couples=True))
    spans = run.tasks.groupby("node").agg(start_s=("start_s", "min"), end_s=("end_s", "max"))
    took_s = spans["end_s"] - spans["start_s"]
    return pd.DataFrame(
        {kind: [took_s[f"{kind}0 0.0 l0 {part}"] for part in STEPS] for kind in "FB"}, index=STEPS
    )


def tokens_of(model: MoeModel, gate: str, seed: int) -> NDArray[np.int64]:
    """Return copies of tokens from rank to expert: the public matrix's, even, a synthetic gate's."""
    copies, experts = model.tokens * model.top_k, model.expert_slots
    if gate == PUBLIC:
        found: NDArray[np.int64] = ARTIFACT_TOKENS * (copies // int(ARTIFACT_TOKENS[0].sum()))
    elif gate == EVEN:
        found = np.tile(apportioned(copies, np.full(experts, 1 / experts)), (model.ep, 1))
    else:
        found = gate_tokens(gate_loads([gate], 1, experts, seed=seed), model.ep, copies, seed=seed)[0, 0]
    return found


def _share(table: pd.DataFrame, model: str, kinds: Sequence[str], reading: str = READINGS[0]) -> float:
    here = (table["model"] == model) & (table["reading"] == reading) & table["kind"].isin(kinds)
    return float(table.loc[here, "share"].sum())


def _traffic_claims(table: pd.DataFrame) -> list[Claim]:
    mixtral, *others = NAMES
    said: list[tuple[str, str, tuple[str, ...], Range]] = [
        ("TP sends 60 % of the bytes", mixtral, ("TP",), around(0.60)),
        ("EP sends 30 % of the bytes", mixtral, ("EP",), around(0.30)),
        ("PP and DP send less than 6 %", mixtral, ("PP", "DP"), (0.0, 0.06)),
        *(("EP sends more than 80 %", model, ("EP",), (0.80, 1.0)) for model in others),
    ]
    claims = []
    for text, model, kinds, expected in said:
        counted_so = [f"{reading} {_share(table, model, kinds, reading):.0%}" for reading in READINGS]
        reason = f"by how bytes are counted: {', '.join(counted_so)}"
        measured = _share(table, model, kinds)
        claims.append(predicted(f"{model}: {text}", FIGURE_2, expected, measured, reason, PERCENT))
    return claims


def _time_claims(table: pd.DataFrame) -> list[Claim]:
    """Return the paper's claims about a layer's time, whole tokens sent, on an H800."""
    main = table[table["whole_tokens"] & (table["gpu_flops"] == H800_FLOPS)]
    by_gate = main.groupby(["model", "gate"], sort=False)["share"].mean()
    shares = {model: by_gate[model] for model in NAMES}

    def each(model: str) -> str:
        return ", ".join(f"{gate} {share:.0%}" for gate, share in shares[model].items())

    claims = [
        predicted(
            f"{model}: all-to-alls take {low:.0%} to {high:.0%} of a layer",
            FIGURE_3 if model == "mixtral-8x7b" else FIGURE_17,
            (low, high),
            float(shares[model][KNOWN[model]]),
            each(model),
            PERCENT,
        )
        for model, (low, high) in A2A.items()
    ]
    claims.append(
        predicted(
            f"qwen-moe: all-to-alls take up to {MOST_QWEN:.0%} of a layer",
            FIGURE_17,
            around(MOST_QWEN),
            float(shares["qwen-moe"][KNOWN["qwen-moe"]]),
            f"{each('qwen-moe')}; its shared experts alone take "
            f"{MODELS['qwen-moe'].shared_flop / H800_FLOPS * MS:.1f} ms, at 40 % of an H800's peak",
            PERCENT,
        )
    )
    mixtral = table[(table["model"] == NAMES[0]) & (table["gate"] == KNOWN[NAMES[0]])]
    slowest_s = mixtral.groupby("gpu_flops")["experts_s"].max()
    claims.append(
        predicted(
            "mixtral-8x7b, 8 sequences: experts take more than 100 ms",
            FIGURE_3,
            (EXPERTS_S * MS, math.inf),
            float(slowest_s[H800_FLOPS] * MS),
            f"the busiest rank at 400 TFLOP/s; {slowest_s[A100_FLOPS] * MS:.0f} ms at 140 TFLOP/s, "
            "45 % of an A100: the paper does not say what its GPUs reach",
            "{:.0f} ms",
        )
    )
    return claims


def _traffic_sheet(table: pd.DataFrame) -> Sheet:
    blocks = [
        Block(
            [
                Line([model, *(PERCENT.format(_share(table, model, [kind], reading)) for kind in KINDS)])
                for model in NAMES
            ],
            reading,
        )
        for reading in READINGS
    ]
    return Sheet(
        ("bytes of an iteration",),
        KINDS,
        blocks,
        f"Figure 2, on {GPUS} GPUs, as many micro-batches as stages. Sent: what leaves GPUs, AllReduce as a "
        "ring and data parallelism inside servers too; with whole tokens each GPU of a rank sends them all. "
        "Sizes of calls: AllReduce and all-to-all count their buffer once. The paper does not say how it "
        "counts; claims are ruled by what the step sends.",
    )  # fmt: skip


def _time_sheet(table: pd.DataFrame, seeds: int) -> Sheet:
    def lines(flops: float, *, whole: bool) -> list[Line]:
        here = table[(table["gpu_flops"] == flops) & (table["whole_tokens"] == whole)]
        means = here.groupby(["model", "gate"], sort=False, as_index=False).mean(numeric_only=True)
        times = [f"{part}_s" for part in STEPS]
        means[times] *= MS
        cells = (*(f"{{{time}:.1f}}" for time in times), "{share:.0%}", "{of_both:.0%}")
        return lines_of(means, "{model}, {gate}", *cells)

    return Sheet(
        ("a layer forward [ms]",),
        ("attention", "A2A 1", "experts", "A2A 2", "A2As", "both"),
        [
            Block(lines(H800_FLOPS, whole=True), "H800 (400 TFLOP/s), whole tokens"),
            Block(lines(H800_FLOPS, whole=False), "H800, tokens divided by a rank's GPUs"),
            Block(lines(A100_FLOPS, whole=True), "140 TFLOP/s, whole tokens"),
        ],
        f"Figures 3 and 17: 8 sequences, rail-optimised, 400 Gbit/s, early and stable gates synthetic, "
        f"means over {counted(seeds, 'seed')}. Experts: the busiest rank's, which all wait for. A2As: share "
        "of the two all-to-alls in the forward pass; both: in forward and backward. In this model no share "
        "depends on how many sequences a micro-batch has.",
    )  # fmt: skip


@styled
def _traffic_plot(table: pd.DataFrame) -> Figure:
    figure = canvas(8.5, 2.8, "Bytes of an iteration by parallelism")
    colours = dict(zip(KINDS, SCHEMES.values(), strict=False))
    for axes, reading in zip(figure.subplots(1, len(READINGS), sharey=True), READINGS, strict=True):
        below = np.zeros(len(NAMES))
        for kind in KINDS:
            shares = [100 * _share(table, model, [kind], reading) for model in NAMES]
            axes.bar(range(len(NAMES)), shares, 0.6, below, color=colours[kind], label=kind)
            below += shares
        axes.set(title=reading, xticks=range(len(NAMES)), xticklabels=NAMES)
        axes.tick_params("x", labelsize=7)
        horizontal_grid(axes)
    figure.axes[0].set(ylabel="%")
    legend_below(figure, len(KINDS))
    return figure


@styled
def _time_plot(table: pd.DataFrame) -> Figure:
    figure = canvas(8.5, 3.0, "A layer forward on H800s, 400 Gbit/s (gates early and stable SYNTHETIC)")
    main = table[table["whole_tokens"] & (table["gpu_flops"] == H800_FLOPS)]
    means = main.groupby(["model", "gate"], sort=False).mean(numeric_only=True)
    axes = figure.subplots()
    colours = dict(zip(STEPS, SCHEMES.values(), strict=False))
    left = np.zeros(len(means))
    for part in STEPS:
        times_ms = means[f"{part}_s"].to_numpy() * MS
        axes.barh(range(len(means)), times_ms, 0.7, left, color=colours[part], label=part)
        left += times_ms
    axes.set(xlabel="ms", yticks=range(len(means)), yticklabels=[", ".join(key) for key in means.index])
    axes.invert_yaxis()
    legend_below(figure, len(STEPS))
    return figure


BYTES = "Three ways to count the same step; the paper does not say which is its own."
TIMES = "Each GPU sends whole tokens; experts as long as the busiest rank's."
DEFINITIONS = (
    ("whole tokens", "Each GPU of a tensor-parallel rank sends the rank's tokens, not its part of them."),
    ("sizes of calls", "What a profiler adds up that logs the buffer of each call."),
)
