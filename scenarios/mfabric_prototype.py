"""mFabric's prototype: training steps over 3 circuit NICs and 1 packet NIC (section 6)."""

import _checkout  # first: runs this file under the checkout's Python

from dataclasses import replace
from functools import partial
from typing import Literal

import pandas as pd

from controller.circuits.devices import device_named, real_delay
from scenarios._mfabric.step.training import (
    ALL_LANES,
    OWN_NIC,
    Training,
    checked_delay,
    over_circuits,
    training,
)
from scenarios._mfabric.training.report import training_findings
from testbed.experiment.experiment import Experiment
from testbed.report.claims import LIGHTRAIL, TOLERANCE, Claim, Range, judged, ratio_sentence
from testbed.study.study_options import run_file
from topologies.big_switch import big_switch_fabric
from topologies.errors import ScenarioError
from topologies.fabric import Fabric
from topologies.mfabric import mfabric_fabric
from traffic.models.moe import model_named

CIRCUITS, SPILL, PACKETS = "3 + 1 NICs", "3 + 1, spill", "4 packet NICs"
PACKETS_DELEGATED = f"{PACKETS}, delegated"
"""Networks that are run: the paper's packets go over a GPU's own NIC, delegated ones as mFabric's."""
Name = Literal["mixtral-8x7b", "llama-moe", "qwen-moe", "mixtral-8x22b"]
CASES: dict[Name, tuple[int, int, int]] = {
    "mixtral-8x7b": (8, 4, 1),
    "llama-moe": (16, 1, 2),
    "qwen-moe": (16, 1, 2),
    "mixtral-8x22b": (8, 8, 1),
}
"""EP, TP and DP of the models: the three of the prototype's 4 servers, where Algorithm 1 always gives the
full mesh (8x7B) or all circuits to the one pair of a region; on 8x22B's 8 servers circuits change."""
GATEWAY, OWN_GATEWAYS = (0,), (0, 2, 4, 6)
"""The GPUs of a server that sum gradients for it, one per packet NIC: of one, and of four."""
COMPARABLE: Range = (0.0, 1 + TOLERANCE)
"""Iteration times over those of packet NICs that are taken for comparable; the figure has no numbers."""
LEAST_BPS, MOST_BPS = 1e9, 1e15
"""Of what NVLinks, or PCIe, carry inside a server [bit/s]."""

findings = partial(training_findings, baseline=PACKETS)


def figure_10(table: pd.DataFrame) -> list[Claim]:
    """Return whether mFabric is comparable to packets: Figure 10 for its three models, and for 8 servers."""
    claims = []
    points = dict.fromkeys(zip(table["workload"], table["name"], strict=True))
    for step, scheme in sorted(points, key=lambda point: point[1] == SPILL):
        if scheme in (PACKETS, PACKETS_DELEGATED):
            continue
        is_8x22b = step.startswith("mixtral-8x22b")
        source = f"{LIGHTRAIL}, 8 servers" if is_8x22b else "mFabric, Figure 10"
        text = f"{step.partition(' ')[0]}: {scheme} are comparable to {PACKETS}, a GPU's own each"
        sentence = ratio_sentence(text, source, COMPARABLE, step, (scheme, PACKETS), "iteration_s")
        claims.append(judged(sentence, table))
    return claims


def prototype_points(
    models: list[Name],
    layers: int,
    micro_batches: int,
    sparsity: float,
    spill: bool,
    rate_bps: float,
    inside_bps: float,
    seed: int,
    delay_ms: float | None = None,
) -> list[Experiment]:
    """Return each model's step over mFabric, and over 4 packet NICs by both schemes.

    Parameters
    ----------
    models
        Models: mixtral-8x7b, llama-moe, qwen-moe, and on 8 servers, not on 4, mixtral-8x22b.
    layers
        Layers of a model that are run.
    micro_batches
        Micro-batches of an iteration, per replica.
    sparsity
        Share of the experts that a source sends nothing to, from 0 to below 1.
    spill
        Run it also with what circuits cannot carry in time on packet NICs.
    rate_bps
        Rate of a NIC, at real scale [bit/s].
    inside_bps
        Rate from a GPU to those of its server [bit/s]. The prototype's NVLink joins pairs of neighbours only,
        by 12 links of an A100, 300 GB/s each way; the others have PCIe, 252 with 16 lanes of version 4.
    seed
        Of the gates, and of the circuits before the first all-to-all.
    delay_ms
        Of the OCS [ms]; by default what 4 pairs of a Polatis took, 42.4.
    """
    if not LEAST_BPS <= inside_bps <= MOST_BPS:
        raise ScenarioError(
            f"{inside_bps / 1e9:g} Gbit/s inside a server",
            f"give {LEAST_BPS / 1e9:g} to {MOST_BPS / 1e9:g} Gbit/s",
        )
    delay = checked_delay(delay_ms or 0.0, rate_bps)
    if delay_ms is None:
        delay = real_delay(device_named("polatis-4"))
    points = []
    for name in models:
        ep, tp, replicas = CASES[name]
        train = partial(
            training,
            replace(model_named(name), ep=ep, tp=tp, pp=1),
            layers,
            replicas=replicas,
            micro_batches=micro_batches,
            sparsity=sparsity,
            nvlink_bps=inside_bps,
            seed=seed,
        )
        trained, with_own_nics = train(gateways=GATEWAY), train(gateways=OWN_GATEWAYS)
        circuits, packets = _fabrics(trained, rate_bps, inside_bps)
        spilled = [over_circuits(circuits, trained, "block", delay, SPILL, spill=True, seed=seed)]
        points += [
            over_circuits(circuits, trained, "block", delay, CIRCUITS, seed=seed),
            *(spilled if spill else []),
            Experiment(packets, with_own_nics.job, OWN_NIC, seed=seed, label=PACKETS),
            Experiment(packets, trained.job, ALL_LANES, seed=seed, label=PACKETS_DELEGATED),
        ]
    return points


def _fabrics(trained: Training, rate_bps: float, nvlink_bps: float) -> tuple[Fabric, Fabric]:
    """Return 3 circuit NICs and a packet NIC a server, a region per EP group; and 4 packet NICs a server."""
    servers = trained.job.gpus // 8
    circuits = mfabric_fabric(
        servers,
        trained.model.region_servers(),
        nics=4,
        packet_nics=1,
        one_packet_switch=True,
        rate_bps=rate_bps,
        nvlink_bps=nvlink_bps,
    )
    return circuits, big_switch_fabric(servers, nics=4, gpus=8, rate_bps=rate_bps, nvlink_bps=nvlink_bps)


if __name__ == "__main__":
    run_file(__file__)
