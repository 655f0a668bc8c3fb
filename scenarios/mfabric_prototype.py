"""mFabric's prototype: training steps over 3 circuit NICs and 1 packet NIC (section 6)."""

import _checkout  # first: runs this file under the checkout's Python

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated

import pandas as pd
import typer

from controller.circuits.devices import ReconfigurationDelay, device_named, real_delay
from scenarios._mfabric.options import Layers, MicroBatches, Seed
from scenarios._mfabric.training_points import (
    ALL_LANES,
    Training,
    checked_delay,
    over_circuits,
    over_packets,
    training,
)
from scenarios._mfabric.training_report import training_findings
from testbed.report.claims import TOLERANCE, Claim, Range, judged, ratio_sentence
from testbed.run.experiment import Experiment
from testbed.study.command import run
from testbed.study.options import NicRate, chosen
from testbed.study.study import Study
from topologies.big_switch import big_switch_fabric
from topologies.errors import ScenarioError
from topologies.fabric import Fabric
from topologies.mfabric import mfabric_fabric
from traffic.models.moe import MoeModel, model_named

CIRCUITS, SPILL, PACKETS = "3 + 1 NICs", "3 + 1, spill", "4 packet NICs"
PACKETS_DELEGATED = f"{PACKETS}, delegated"
"""What is run: the paper's packet network sends over a GPU's own NIC, the delegated one as mFabric does."""
CASES = {
    "mixtral-8x7b": (8, 4, 1),
    "llama-moe": (16, 1, 2),
    "qwen-moe": (16, 1, 2),
    "mixtral-8x22b": (8, 8, 1),
}
"""EP, TP and DP of the models: the three of the prototype's 4 servers, where Algorithm 1 always gives the
full mesh (8x7B) or all circuits to the one pair of a region; on 8x22B's 8 servers circuits change."""
ALL = ",".join(CASES)
GATEWAY, OWN_GATEWAYS = (0,), (0, 2, 4, 6)
"""The GPUs of a server that sum gradients for it, one per packet NIC: of one, and of four."""
COMPARABLE: Range = (0.0, 1 + TOLERANCE)
"""Iteration times over those of packet NICs that are taken for comparable; the figure has no numbers."""
NVLINK_GBPS, LEAST_GBPS, MOST_GBPS = 2400.0, 1.0, 1e6
"""What the NVLinks carry that join pairs of neighbours in the prototype: 12 of an A100, 300 GB/s each way."""
RUN_S = 16.0
"""How long a point may take at emulated scale [s]: messages of Qwen's 16 ranks are of 8 packets then. With
2 packets its all-to-alls over own packet NICs took 1.23 times what they take in the model."""
NIC_BPS = 15e6
"""What a NIC is shaped to at most [bit/s]."""

Models = Annotated[
    str, typer.Option(help=f"Models, comma-separated: {ALL}; the last on 8 servers, not on 4.")
]
Inside = Annotated[
    float,
    typer.Option(
        help="Rate from a GPU to those of its server [Gbit/s]. The prototype's NVLink joins pairs of "
        "neighbours only; the others have PCIe, 252 with 16 lanes of version 4."
    ),
]
Sparsity = Annotated[
    float, typer.Option(help="Share of the experts that a source sends nothing to, from 0 to below 1.")
]
DelayMs = Annotated[
    float | None,
    typer.Option("--delay-ms", help="Of the OCS [ms]; by default what 4 pairs of a Polatis took, 42.4."),
]
Spill = Annotated[
    bool, typer.Option("--spill", help="Run it also with what circuits cannot carry in time on packet NICs.")
]


def mfabric_prototype(
    models: Models = ALL,
    layers: Layers = 1,
    micro_batches: MicroBatches = 4,
    sparsity: Sparsity = 0.0,
    delay_ms: DelayMs = None,
    spill: Spill = False,
    rate: NicRate = 100.0,
    inside: Inside = NVLINK_GBPS,
    seed: Seed = 0,
) -> Study:
    """Training steps on mFabric's prototype: an OCS beside one packet switch, against packets alone.

    Servers of 8 GPUs have 4 NICs: 3 on an OCS and 1 on a packet switch, or all 4 on a packet switch. There
    a GPU sends over the NIC beside it, as in the paper; delegated packets are gathered and scattered as
    mFabric's are. Models are cut to a few layers and micro-batches, as their names say. With 4 servers and 3
    circuit NICs Algorithm 1 gives the full mesh whatever the demand, and nothing is reconfigured; LLaMA-MoE
    and Qwen-MoE have two expert-parallel groups of 2 servers, so the OCS is cut into two regions, each with
    all circuits on one pair. Circuits change on the 8 servers of Mixtral 8x22B, whose dispatches wait for
    theirs.

    Expect mFabric to be as long as 4 packet NICs on 4 servers, as in the paper's Figure 10, with 12 optical
    and 4 electrical ports instead of 16: a pair has its circuits only, but all its GPUs share them, where a
    GPU of the packet network has its own NIC, whatever it is sent. Delegated packets are faster than both.
    Qwen-MoE is so with few seeds only, and over PCIe alone (--inside 252), where what is gathered and
    scattered weighs more, none is: 1.2 to 1.6 times as long. A table says which demand costs how much, and
    what the best circuits would take. With --cli 'circuits' shows the OCS, and 'light' and 'replay' carry
    bytes.
    """
    if not LEAST_GBPS <= inside <= MOST_GBPS:
        raise ScenarioError(
            f"{inside:g} Gbit/s inside a server", f"give {LEAST_GBPS:g} to {MOST_GBPS:g} Gbit/s"
        )
    delay = checked_delay(delay_ms or 0.0, rate)
    if delay_ms is None:
        delay = real_delay(device_named("polatis-4"))
    experiments = [
        experiment
        for name in chosen(models, CASES, "--models")
        for experiment in prototype_points(
            name,
            layers,
            micro_batches,
            sparsity,
            delay,
            spill=spill,
            rate_bps=rate * 1e9,
            nvlink_bps=inside * 1e9,
            seed=seed,
        )
    ]
    return Study(
        "mfabric_prototype",
        "mFabric's prototype: training steps over circuits and packets",
        experiments,
        figure_10,
        findings=partial(training_findings, baseline=PACKETS),
        baseline=PACKETS,
        rings_s=RUN_S,
        most_nic_bps=NIC_BPS,
    )


def figure_10(table: pd.DataFrame) -> list[Claim]:
    """Return whether mFabric is comparable to packets: Figure 10 for its three models, and for 8 servers."""
    claims = []
    points = dict.fromkeys(zip(table["workload"], table["name"], strict=True))
    for step, scheme in sorted(points, key=lambda point: point[1] == SPILL):
        if scheme in (PACKETS, PACKETS_DELEGATED):
            continue
        is_8x22b = step.startswith("mixtral-8x22b")
        source = "8 servers, not in the paper" if is_8x22b else "mFabric, Figure 10"
        text = f"{step.partition(' ')[0]}: {scheme} are comparable to {PACKETS}, a GPU's own each"
        sentence = ratio_sentence(text, source, COMPARABLE, step, (scheme, PACKETS), "iteration_s")
        claims.append(judged(sentence, table, by_model=False))
    return claims


def prototype_points(
    name: str,
    layers: int,
    micro_batches: int,
    sparsity: float,
    delay: ReconfigurationDelay,
    *,
    spill: bool,
    rate_bps: float = 100e9,
    nvlink_bps: float = 1e9 * NVLINK_GBPS,
    seed: int = 0,
) -> Sequence[Experiment]:
    """Return a model's step over mFabric, and over 4 packet NICs by both schemes."""
    ep, tp, replicas = CASES[name]
    model = replace(model_named(name), ep=ep, tp=tp, pp=1)
    trained, with_own_nics = (
        training(
            model,
            layers,
            replicas=replicas,
            micro_batches=micro_batches,
            gateways=gateways,
            sparsity=sparsity,
            nvlink_bps=nvlink_bps,
            seed=seed,
        )
        for gateways in (GATEWAY, OWN_GATEWAYS)
    )
    circuits = _prototype(model, trained, rate_bps, nvlink_bps)
    servers = len(circuits.servers)
    packets = big_switch_fabric(servers, nics=4, gpus=8, rate_bps=rate_bps, nvlink_bps=nvlink_bps)
    spilled = [over_circuits(circuits, trained, "block", delay, SPILL, spill=True, seed=seed)]
    return [
        over_circuits(circuits, trained, "block", delay, CIRCUITS, seed=seed),
        *(spilled if spill else []),
        over_packets(packets, with_own_nics, PACKETS, seed),
        over_packets(packets, trained, PACKETS_DELEGATED, seed, scheme=ALL_LANES),
    ]


def _prototype(model: MoeModel, trained: Training, rate_bps: float, nvlink_bps: float) -> Fabric:
    """Return servers of 3 circuit NICs and a packet NIC, a region per expert-parallel group."""
    servers = trained.job.gpus // 8
    return mfabric_fabric(
        servers,
        model.region_servers(),
        nics=4,
        packet_nics=1,
        one_packet_switch=True,
        rate_bps=rate_bps,
        nvlink_bps=nvlink_bps,
    )


if __name__ == "__main__":
    run(mfabric_prototype)
