"""mFabric with optical I/O on GPUs beside NVL72: Figure 16, whose data are not published.

2,048 GPUs train DeepSeek-V3, 128 GPUs an expert-parallel group, in two domains of 64 GPUs that NVLink joins.
With NVL72 a GPU has all its bandwidth on NVLink but for its packet NIC, by which groups cross domains. With
mFabric half of it is on the OCS of the group. All-to-alls are predicted between the two domains of a group;
an iteration is the longest path through the pipeline (1F1B) of the times of its stages.

The paper does not say how fast its GPUs compute, what its gate decides, nor how ports are divided: here a GPU
has one circuit NIC of all its optical bandwidth, and packet NICs are on a switch that does not block.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray

from controller.circuits.devices import ReconfigurationDelay
from scenarios._mfabric.fabrics import COLOURS, FAT_TREE, MFABRIC
from scenarios._mfabric.figures.shares import EVEN, tokens_of
from scenarios._mfabric.region_plan import RegionalSetup
from scenarios._mfabric.section import FIGURE_ONLY, PlannedSection, Section
from scenarios._mfabric.step.points import DELAY_S
from testbed.experiment.audit_of import sound
from testbed.experiment.experiment import Experiment
from testbed.model.predict import predict
from testbed.report.claims import MORE, Claim, around, predicted
from testbed.report.page import Block, Findings, Plot, Sheet
from testbed.report.palette import canvas, horizontal_grid, legend_below, styled
from testbed.report.table import lines_of
from testbed.study.computed import Call, Found
from topologies.big_switch import big_switch_fabric
from topologies.fabric import Fabric
from topologies.mfabric import mfabric_fabric
from traffic.delegated import DelegatedSetup
from traffic.models.moe import MODELS
from traffic.models.moe_step import (
    Machines,
    attention_s,
    expert_s,
    moe_step,
    repeated_gate,
)
from traffic.models.pipeline import pipeline_s

SOURCE = "mFabric, 8 (Figure 16)"
NVL72 = "NVL72"
DOMAIN_GPUS, DOMAINS = 64, 2
"""GPUs that NVLink joins, 64 of 72; domains of an expert-parallel group."""
MODEL = replace(MODELS["deepseek-r1"], name="deepseek-v3", ep=DOMAIN_GPUS * DOMAINS, micro_batch=240)
"""DeepSeek-R1's sizes are DeepSeek-V3's; 240 sequences are what the paper calls the micro-batch size."""
GATES = (EVEN, "early")
"""Loads as the model's training aims at, which claims are ruled by, and a synthetic gate."""
GPU_FLOPS = {"GB200": 1.0e15, "H800": 400e12, "A100": 140e12}
"""40 % of a GB200's peak (2.5e15), 40 % of an H800's, 45 % of an A100's [FLOP/s]."""
MAIN_GPU = "GB200"
GAIN = 1.3
TERA = 1e12


@dataclass(frozen=True)
class Ports:
    """How a GPU's bandwidth is divided; each way [bit/s]."""

    name: str
    total_bps: float
    packet_bps: float
    """Of its packet NIC."""

    def nvlink_bps(self, fabric: str) -> float:
        """Return the rate of NVLink: all that is left with NVL72, half of it with mFabric."""
        return (self.total_bps - self.packet_bps) / (1 if fabric == NVL72 else 2)


PORTS = (
    Ports("8 Tbit/s", 8e12, 0.8e12),
    Ports("16 Tbit/s", 16e12, 1.6e12),
    Ports("16 Tbit/s, NIC 0.8", 16e12, 0.8e12),
)
"""The paper's, the double of all, and the double with the same packet NIC: the paper does not say which."""
FABRICS = (NVL72, MFABRIC)


@dataclass(frozen=True)
class Case:
    """Ports and a gate that both fabrics are compared under."""

    ports: Ports
    gate: str
    pipelined: bool = False
    """Whether the legs of an all-to-all overlap."""

    @property
    def name(self) -> str:
        """The case as tables name it."""
        return f"{self.ports.name}, {self.gate} gate" + ", legs at once" * self.pipelined


CASES = (*(Case(*each) for each in product(PORTS, GATES)), Case(PORTS[0], EVEN, pipelined=True))


def lookahead(seeds: Sequence[int]) -> PlannedSection:
    """Return iteration times of DeepSeek-V3 on NVL72 and on mFabric with optical I/O."""
    points = [Call(exchanges_s, (seeds[0], *each)) for each in product(CASES, FABRICS)]
    return PlannedSection(partial(_section, seeds), points)


def _section(seeds: Sequence[int], found: Found) -> Section:
    table = _iteration_table(seeds[0], found)
    return Section(
        name="lookahead",
        about="mFabric with optical I/O beside NVL72",
        basis="computed, claims by even loads, the other gate synthetic",
        findings=Findings(
            [_sheet(table)],
            [Plot("lookahead", partial(_plot, table), f"Paper, figure 16 ({FIGURE_ONLY}). {CAPTION}")],
            _claims(table),
        ),
        tables={"lookahead": table},
        seeds=seeds[:1],
        definitions=DEFINITIONS,
        settings={
            "gpus": MODEL.replica_gpus, "ep": MODEL.ep, "pp": MODEL.pp, "micro_batches": MODEL.pp,
            "sequences": MODEL.micro_batch, "gpu_flops": GPU_FLOPS, "delay_s": DELAY_S,
        },
    )  # fmt: skip


def _iteration_table(seed: int, found: Found) -> pd.DataFrame:
    """Return a row per case and speed of GPUs: the iteration on both fabrics, and their ratio."""
    rows, taken_s = [], dict(zip(product(CASES, FABRICS), found, strict=True))
    for case, (gpu, flops) in product(CASES, GPU_FLOPS.items()):
        tokens = tokens_of(MODEL, case.gate, seed)
        nvl72_s, mfabric_s = (
            iteration_s(tokens, flops, case.ports, taken_s[case, fabric]) for fabric in FABRICS
        )
        a2a_s = {fabric: sum(taken_s[case, fabric]) / 2 for fabric in FABRICS}
        rows.append(
            {"case": case.name, "gpu": gpu, "gpu_flops": flops, "nvl72_s": nvl72_s, "mfabric_s": mfabric_s,
             "gain": nvl72_s / mfabric_s, "nvl72_all_to_all_s": a2a_s[NVL72],
             "mfabric_all_to_all_s": a2a_s[MFABRIC]}
        )  # fmt: skip
    return pd.DataFrame(rows)


def iteration_s(
    tokens: NDArray[np.int64], gpu_flops: float, ports: Ports, taken_s: tuple[float, float]
) -> float:
    """Return the time of an iteration, without data parallelism, which takes less than 0.1 % of it [s].

    Parameters
    ----------
    tokens
        From rank to expert, in every layer.
    gpu_flops
        What a GPU computes [FLOP/s].
    ports
        What a GPU sends.
    taken_s
        What a dispatch and a combine take [s]; those of the backward pass are the same two.

    Notes
    -----
    The whole step predicted on NVL72, whose sends share packet NICs with all-to-alls, took 0.9 % longer: 898
    s against 890, of a synthetic gate. To predict it takes two minutes and 11 GB.
    """
    machines = Machines(gpu_flops=gpu_flops)
    busiest = int(tokens.reshape(len(tokens), MODEL.ep, -1).sum(axis=(0, 2)).max())
    forward_s: list[float] = []
    backward_s: list[float] = []
    first = 0
    for layers in MODEL.stage_layers():
        own = range(first, first + layers)
        first += layers
        moe = sum(layer >= MODEL.dense_layers for layer in own)
        for passes, times_s in ((1, forward_s), (2, backward_s)):
            attention = sum(attention_s(MODEL, layer, machines, passes) for layer in own)
            experts = moe * expert_s(MODEL, busiest, machines, passes)
            times_s.append(attention + experts + moe * sum(taken_s))
    send_s = 8 * MODEL.pipeline_bytes / ports.packet_bps
    return pipeline_s(forward_s, backward_s, send_s, MODEL.pp)


def group_fabric(ports: Ports, fabric: str) -> Fabric:
    """Return the domains of an expert-parallel group: a packet NIC per GPU, with mFabric one on light too."""
    nvlink_bps = ports.nvlink_bps(fabric)
    if fabric == NVL72:
        return big_switch_fabric(DOMAINS, nics=DOMAIN_GPUS, rate_bps=ports.packet_bps, nvlink_bps=nvlink_bps)
    return mfabric_fabric(
        DOMAINS,
        gpus=DOMAIN_GPUS,
        nics=2 * DOMAIN_GPUS,
        packet_nics=DOMAIN_GPUS,
        one_packet_switch=True,
        rate_bps=nvlink_bps,
        packet_bps=ports.packet_bps,
        nvlink_bps=nvlink_bps,
    )


def exchanges_s(seed: int, case: Case, fabric: str) -> tuple[float, float]:
    """Return the times of a dispatch and a combine, with their waits for light [s]."""
    step = moe_step(
        replace(MODEL, layers=1, dense_layers=0, pp=1),
        repeated_gate(tokens_of(MODEL, case.gate, seed)),
        micro_batches=1,
        machines=Machines(server_gpus=DOMAIN_GPUS, gateways=(0,)),
    )
    late = tuple(dispatch.node for dispatch in step.dispatches)
    regional = RegionalSetup(ReconfigurationDelay("25 ms", DELAY_S), "block", late)
    experiment = Experiment(
        group_fabric(case.ports, fabric),
        step.job,
        DelegatedSetup(pipelined=case.pipelined),
        circuits=None if fabric == NVL72 else regional,
    )
    tasks = sound(predict(experiment, couples=True)).tasks.set_index("node")
    took_s = tasks["end_s"] - tasks["start_s"]
    return float(took_s["F0 0.0 l0 dispatch"]), float(took_s["F0 0.0 l0 combine"])


def _gains(table: pd.DataFrame, case: Case) -> dict[str, float]:
    """Return NVL72's iteration time over mFabric's by GPU."""
    here = table[table["case"] == case.name]
    return {str(gpu): float(gain) for gpu, gain in zip(here["gpu"], here["gain"], strict=True)}


def _claims(table: pd.DataFrame) -> list[Claim]:
    said = (
        (f"8 Tbit/s a GPU: {GAIN} x as fast as NVL72", around(GAIN)),
        ("16 Tbit/s a GPU: faster than NVL72 too", MORE),
        ("16 Tbit/s a GPU, the packet NIC as before: faster too", MORE),
    )
    claims = []
    for ports, (text, expected) in zip(PORTS, said, strict=True):
        gains = _gains(table, Case(ports, EVEN))
        by_gpu = ", ".join(f"{gpu} {gain:.2f}x" for gpu, gain in gains.items())
        uneven = _gains(table, Case(ports, "early"))[MAIN_GPU]
        reason = f"by the GPU that computes: {by_gpu}; with a synthetic gate {uneven:.2f}x"
        if ports == PORTS[0]:
            at_once = _gains(table, CASES[-1])[MAIN_GPU]
            reason += f"; where the legs of all-to-alls overlap {at_once:.2f}x: the paper gives none of these"
        claims.append(predicted(text, SOURCE, expected, gains[MAIN_GPU], reason))
    return claims


def _sheet(table: pd.DataFrame) -> Sheet:
    exchanges = "{nvl72_all_to_all_s:.2f}", "{mfabric_all_to_all_s:.2f}"
    cells = "{gpu}", "{nvl72_s:.0f}", "{mfabric_s:.0f}", *exchanges, "{gain:.2f}x"
    blocks = [Block(lines_of(table[table["case"] == case.name], *cells), case.name) for case in CASES]
    speeds = ", ".join(f"{gpu} {flops / TERA:g}" for gpu, flops in GPU_FLOPS.items())
    return Sheet(
        ("GPUs",),
        (f"{NVL72} [s]", "mFabric [s]", f"{NVL72} A2A", "mFabric A2A", "gain"),
        blocks,
        f"Figure 16: an iteration of DeepSeek-V3 on {MODEL.replica_gpus:,} GPUs, EP {MODEL.ep}, {MODEL.pp} "
        f"stages, as many micro-batches of {MODEL.micro_batch} sequences; the gate early is synthetic; A2A: "
        f"the mean of an all-to-all's seconds. {speeds} TFLOP/s. A group's two domains have all circuits of "
        "their OCS, which never change; every ratio is the same for smaller micro-batches.",
    )  # fmt: skip


@styled
def _plot(table: pd.DataFrame) -> Figure:
    figure = canvas(8.5, 3.0, "Iteration of DeepSeek-V3 on 2,048 GPUs, normalised (even loads)")
    for axes, gpu in zip(figure.subplots(1, len(GPU_FLOPS), sharey=True), GPU_FLOPS, strict=True):
        shown = {Case(ports, EVEN).name: ports.name for ports in PORTS}
        here = table[(table["gpu"] == gpu) & table["case"].isin(list(shown))]
        for place, (column, name, colour) in enumerate(
            (("nvl72_s", NVL72, COLOURS[FAT_TREE]), ("mfabric_s", MFABRIC, COLOURS[MFABRIC]))
        ):
            x = [index + 0.36 * (place - 0.5) for index in range(len(here))]
            axes.bar(x, here[column] / here["mfabric_s"].min(), 0.34, color=colour, label=name)
        axes.set_xticks(range(len(here)), shown.values(), fontsize=6)
        axes.set(title=gpu)
        horizontal_grid(axes)
    figure.axes[0].set(ylabel="normalised time")
    legend_below(figure)
    return figure


CAPTION = "Times over the shortest of each kind of GPU."
DEFINITIONS = (
    ("NVL72", "Domains of 64 GPUs with all their bandwidth on NVLink but a packet NIC each."),
    ("gain", "NVL72's iteration time over that of mFabric with optical I/O."),
)
