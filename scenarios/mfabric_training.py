"""A training step on mFabric and on the fabrics it is compared with, emulated (section 7.3, Figure 12)."""

import _checkout  # first: runs this file under the checkout's Python

import math
from dataclasses import replace
from functools import partial
from typing import Annotated, get_args

import typer

from controller.circuits.devices import ReconfigurationDelay
from scenarios._harness import Scenario, no_claims, run
from scenarios._mfabric.training_points import over_circuits, over_packets, training
from scenarios._mfabric.training_report import training_findings
from scenarios._options import listed
from testbed.run.experiment import Experiment
from testbed.run.region_plan import First
from topologies.errors import ScenarioError
from topologies.fabric import Fabric
from topologies.leaf_spine import leaf_spine_fabric
from topologies.mfabric import mfabric_fabric
from topologies.rail import rail_fabric
from traffic.models.moe import model_named

MODEL, SERVERS, GPUS, NICS = "mixtral-8x22b", 8, 8, 8
"""What is trained, on a region of 8 servers of 8 GPUs and 8 NICs."""
PACKET_NICS = 2
OVERSUBSCRIPTION = 3
FAT_TREE = "fat-tree"
PACKET_FABRICS = (FAT_TREE, "fat-tree 3:1", "rail-optimised")
CIRCUITS: dict[str, First] = {f"mFabric, {first}": first for first in get_args(First)}
ALL = ";".join((*PACKET_FABRICS, *CIRCUITS))
NIC_BPS = 8e6
"""What a NIC is shaped to at most [bit/s]: 64 of them, and as many links above."""
RUN_S = 8.0
"""How long a point may take at emulated scale so that the steps of its data-parallel rings are long [s]."""

Fabrics = Annotated[str, typer.Option(help=f"Fabrics, separated by semicolons: {ALL}.")]
Layers = Annotated[int, typer.Option(help="Layers that are run, of 56.")]
MicroBatches = Annotated[int, typer.Option(help="Micro-batches of an iteration, of 8.")]
DelayMs = Annotated[float, typer.Option("--delay-ms", help="Of the OCS [ms].")]
Rate = Annotated[float, typer.Option(help="Rate of a NIC [Gbit/s].")]
Seed = Annotated[int, typer.Option(help="Of the gates, and of the circuits before the first all-to-all.")]


def mfabric_training(
    fabrics: Fabrics = ALL,
    layers: Layers = 2,
    micro_batches: MicroBatches = 1,
    delay_ms: DelayMs = 25.0,
    rate: Rate = 100.0,
    seed: Seed = 0,
) -> Scenario:
    """A training step of Mixtral 8x22B on 8 servers: mFabric against packet fabrics.

    A server has 8 GPUs and 8 NICs, on mFabric 2 on packets and 6 on the OCS. The fat-trees are of two
    tiers, a leaf for two servers, without and with oversubscription 3 to 1 at the leaf. One stage of a few
    layers and micro-batches is run, as the job's name says, on all fabrics at one dilation. Dispatches wait
    for circuits of their own (block), take those that are lit (reuse), or have those that Copilot predicts.

    Expect rail-optimised and fat-tree alike, mFabric somewhat longer, and 3:1 longest where all-to-alls
    weigh most. In the paper, at full size, mFabric is close to the fat-tree and up to 1.6 times as fast as
    3:1. A static patch panel is not among the fabrics.
    """
    if not (0 < rate < math.inf and 0 <= delay_ms < math.inf):
        raise ScenarioError(f"NICs of {rate:g} Gbit/s, a delay of {delay_ms:g} ms", "give a rate above 0")
    names = list(dict.fromkeys(listed(fabrics, by=";")))
    if unknown := [name for name in names if name not in (*PACKET_FABRICS, *CIRCUITS)]:
        raise ScenarioError(f"unknown fabric {unknown[0]!r} of --fabrics", f"choose from {ALL}")
    trained = training(
        replace(model_named(MODEL), pp=1), layers, micro_batches=micro_batches, gateways=(0, 4), seed=seed
    )
    delay = ReconfigurationDelay(f"{delay_ms:g} ms", delay_ms / 1e3)
    circuits = mfabric_fabric(
        SERVERS, nics=NICS, packet_nics=PACKET_NICS, one_packet_switch=True, rate_bps=rate * 1e9
    )
    experiments: list[Experiment] = []
    for name in names:
        if name in CIRCUITS:
            experiments.append(over_circuits(circuits, trained, CIRCUITS[name], delay, name, seed=seed))
        else:
            experiments.append(over_packets(_packet_fabric(name, rate * 1e9), trained, name, seed))
    return Scenario(
        "mfabric_training",
        "mFabric: a training step on 8 servers",
        experiments,
        no_claims,
        findings=partial(training_findings, baseline=FAT_TREE),
        rings_s=RUN_S,
        most_nic_bps=NIC_BPS,
    )


def _packet_fabric(name: str, rate_bps: float) -> Fabric:
    if name == "rail-optimised":
        return rail_fabric(SERVERS, NICS, rate_bps=rate_bps)
    over = 1 if name == FAT_TREE else OVERSUBSCRIPTION
    return leaf_spine_fabric(
        SERVERS, SERVERS // 2, 8, nics=NICS, rate_bps=rate_bps, uplink_bps=2 * rate_bps / over
    )


if __name__ == "__main__":
    run(mfabric_training)
