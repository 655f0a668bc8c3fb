"""A training step on mFabric and on the fabrics it is compared with, emulated (section 7.3, Figure 12)."""

import _checkout  # first: runs this file under the checkout's Python

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Annotated, get_args

import pandas as pd
import typer

from scenarios._mfabric.fabrics import (
    DELEGATED,
    FAT_TREE,
    NICS,
    OVERSUBSCRIBED,
    OVERSUBSCRIPTION,
    PACKET_NICS,
    RAIL,
    RINGS,
    TOPOOPT,
)
from scenarios._mfabric.options import RUN_S, Layers, MicroBatches, Seed
from scenarios._mfabric.panel import KEPT_BACK, panel_experiment
from scenarios._mfabric.training_points import (
    ALL_LANES,
    GATEWAYS,
    OWN_GATEWAYS,
    Training,
    checked_delay,
    over_circuits,
    over_packets,
    training,
)
from scenarios._mfabric.training_report import training_findings
from testbed.report.claims import TOLERANCE, Claim, Range, around, judged, ratio_sentence
from testbed.run.experiment import Experiment
from testbed.run.region_plan import First
from testbed.study.command import run
from testbed.study.options import DelayMs, NicRate, chosen
from testbed.study.study import Study
from topologies.fabric import Fabric
from topologies.leaf_spine import leaf_spine_fabric
from topologies.mfabric import mfabric_fabric
from topologies.rail import rail_fabric
from traffic.models.moe import model_named

MODEL, SERVERS = "mixtral-8x22b", 8
"""What is trained, on a region of so many servers."""
PACKETS = {
    FAT_TREE: FAT_TREE,
    "fat-tree-delegated": DELEGATED,
    "fat-tree-3to1": OVERSUBSCRIBED,
    RAIL: RAIL,
}
"""Fabrics without circuits, as --fabrics names them, and what tables call them. A GPU sends over its own NIC,
as in the paper and its artifact, but on the delegated one, which gathers and scatters as mFabric does."""
FIRSTS: tuple[First, ...] = get_args(First)
"""What mFabric's dispatches do, by which --fabrics names it."""
PANELS = {"topoopt": TOPOOPT, "topoopt-rings": RINGS}
"""Patch panels, as --fabrics names them, and what tables call them."""
ALL = ",".join((*PACKETS, *PANELS, *FIRSTS))
CLOSE: Range = (0.0, 1 + TOLERANCE)
"""Iteration times over those of the fat-tree that are taken for close; the figure has no numbers."""
NIC_BPS = 8e6
"""What a NIC is shaped to at most [bit/s]: 64 of them, and as many links above."""

Fabrics = Annotated[str, typer.Option(help=f"Fabrics, comma-separated: {ALL}; the last ones are mFabric.")]


def mfabric_training(
    fabrics: Fabrics = ALL,
    layers: Layers = 2,
    micro_batches: MicroBatches = 1,
    delay_ms: DelayMs = 25.0,
    rate: NicRate = 100.0,
    seed: Seed = 0,
) -> Study:
    """A training step of Mixtral 8x22B on 8 servers: mFabric against packet fabrics.

    A server has 8 GPUs and 8 NICs, on mFabric 2 on packets and 6 on the OCS. The fat-trees are of two
    tiers, a leaf for two servers, without and with oversubscription 3 to 1 at the leaf. On packet fabrics a
    GPU sends over the NIC beside it, on the delegated fat-tree as on mFabric. One stage of a few
    layers and micro-batches is run, as the job's name says, on all fabrics at one dilation. Dispatches wait
    for circuits of their own (block), take those that are lit (reuse), or have those that Copilot predicts.
    On TopoOpt's patch panel circuits are lit for the ten iterations before: by its Algorithm 1 a ring for
    data parallelism, and six matchings, so that each two servers have a circuit. By its published program
    (topoopt-rings) all circuits are rings: at full size 6 of 8 NICs lead to the other replica, and are dark
    here; the other two are a ring of the 8 servers, which forward what has no circuit.

    Expect rail-optimised and fat-tree alike, mFabric somewhat longer, and 3:1 longest where all-to-alls
    weigh most. With a circuit for each pair TopoOpt is faster than mFabric, since the pipelines that it
    relays at full size are not in this step; with a ring alone it takes longest. In the paper, at full size,
    mFabric is close to the fat-tree, up to 1.6 times as fast as 3:1, and 1.5 times as fast as TopoOpt on
    average.
    """
    delay = checked_delay(delay_ms, rate)
    names = chosen(fabrics, ALL.split(","), "--fabrics")
    trained, with_own_nics = (
        training(
            replace(model_named(MODEL), pp=1),
            layers,
            micro_batches=micro_batches,
            gateways=gateways,
            seed=seed,
        )
        for gateways in (GATEWAYS, OWN_GATEWAYS)
    )
    circuits = mfabric_fabric(
        SERVERS, nics=NICS, packet_nics=PACKET_NICS, one_packet_switch=True, rate_bps=rate * 1e9
    )
    over: dict[str, Callable[[], Experiment]] = {
        first: partial(over_circuits, circuits, trained, first, delay, f"mFabric, {first}", seed=seed)
        for first in FIRSTS
    }
    for name, label in PANELS.items():
        kept_back = KEPT_BACK[label]
        over[name] = partial(panel_experiment, trained, rate * 1e9, label, kept_back=kept_back, seed=seed)
    experiments = [
        over[name]() if name in over else _over_packets(name, rate * 1e9, trained, with_own_nics, seed)
        for name in names
    ]
    return Study(
        "mfabric_training",
        "mFabric: a training step on 8 servers",
        experiments,
        figure_12a,
        findings=partial(training_findings, baseline=FAT_TREE),
        baseline=FAT_TREE,
        rings_s=RUN_S,
        most_nic_bps=NIC_BPS,
    )


def figure_12a(table: pd.DataFrame) -> list[Claim]:
    """Return whether mFabric is close to the fat-tree, and faster than 3:1 and TopoOpt.

    Nothing is claimed over TopoOpt's rings: most of its NICs lead to another replica, and are dark here.
    """
    (step,) = set(table["workload"])
    there, claims = set(table["name"]), list[Claim]()
    for name in (f"mFabric, {first}" for first in FIRSTS):
        for text, expected, ends in (
            ("close to the fat-tree", CLOSE, (name, FAT_TREE)),
            ("up to 1.6 times as fast as 3:1", around(1.6), (OVERSUBSCRIBED, name)),
            ("1.5 times as fast as TopoOpt", around(1.5), (TOPOOPT, name)),
        ):
            if there.issuperset(ends):
                about = f"{name}: {text}", "mFabric, Figure 12a", expected
                sentence = ratio_sentence(*about, step, ends, "iteration_s")
                claims.append(judged(sentence, table, by_model=False))
    return claims


def _over_packets(
    name: str, rate_bps: float, trained: Training, with_own_nics: Training, seed: int
) -> Experiment:
    """Return the step over a fabric of `PACKETS`; gradients go over as many NICs as it has on packets."""
    fabric, label = _packet_fabric(name, rate_bps), PACKETS[name]
    if label == DELEGATED:
        return over_packets(fabric, trained, label, seed, scheme=ALL_LANES)
    return over_packets(fabric, with_own_nics, label, seed)


def _packet_fabric(name: str, rate_bps: float) -> Fabric:
    if name == RAIL:
        return rail_fabric(SERVERS, NICS, rate_bps=rate_bps)
    over = OVERSUBSCRIPTION if PACKETS[name] == OVERSUBSCRIBED else 1
    return leaf_spine_fabric(
        SERVERS, SERVERS // 2, 8, nics=NICS, rate_bps=rate_bps, uplink_bps=2 * rate_bps / over
    )


if __name__ == "__main__":
    run(mfabric_training)
