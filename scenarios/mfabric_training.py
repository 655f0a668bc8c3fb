"""A training step on mFabric and on the fabrics it is compared with, emulated (section 7.3, Figure 12)."""

import _checkout  # first: runs this file under the checkout's Python

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Literal, get_args

import pandas as pd

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
from scenarios._mfabric.region_plan import First
from scenarios._mfabric.step.panel import KEPT_BACK, panel_experiment
from scenarios._mfabric.step.training import (
    ALL_LANES,
    GATEWAYS,
    OWN_GATEWAYS,
    OWN_NIC,
    Training,
    checked_delay,
    over_circuits,
    training,
)
from scenarios._mfabric.training.report import training_findings
from testbed.experiment.experiment import Experiment
from testbed.report.claims import TOLERANCE, Claim, Range, around, judged, ratio_sentence
from testbed.study.study_options import run_file
from topologies.fabric import Fabric
from topologies.leaf_spine import leaf_spine_fabric
from topologies.mfabric import mfabric_fabric
from topologies.rail import rail_fabric
from traffic.models.moe import model_named

MODEL, SERVERS = "mixtral-8x22b", 8
"""The model that is trained, on a region of so many servers."""
PACKETS = {
    FAT_TREE: FAT_TREE,
    "fat-tree-delegated": DELEGATED,
    "fat-tree-3to1": OVERSUBSCRIBED,
    RAIL: RAIL,
}
"""Fabrics without circuits, as --fabrics names them, and what tables call them. A GPU sends over its own NIC,
as in the paper and its artifact, but on the delegated one, which gathers and scatters as mFabric does."""
FIRSTS: tuple[First, ...] = get_args(First)
"""How mFabric's dispatches start, by which --fabrics names it."""
PANELS = {"topoopt": TOPOOPT, "topoopt-rings": RINGS}
"""Patch panels, as --fabrics names them, and what tables call them."""
Name = Literal[
    "fat-tree", "fat-tree-delegated", "fat-tree-3to1", "rail-optimised", "topoopt", "topoopt-rings", First
]
CLOSE: Range = (0.0, 1 + TOLERANCE)
"""Iteration times over those of the fat-tree that are taken for close; the figure has no numbers."""

findings = partial(training_findings, baseline=FAT_TREE)


def training_points(
    fabrics: list[Name],
    layers: int,
    micro_batches: int,
    delay_ms: float,
    rate_bps: float,
    seed: int,
) -> list[Experiment]:
    """Return a training step over each fabric.

    Parameters
    ----------
    fabrics
        Fabrics: fat-tree, fat-tree-delegated, fat-tree-3to1, rail-optimised, topoopt, topoopt-rings; block,
        reuse and copilot are mFabric.
    layers
        Layers of a model that are run.
    micro_batches
        Micro-batches of an iteration, per replica.
    delay_ms
        Reconfiguration delay of the OCSes [ms].
    rate_bps
        Rate of a NIC, at real scale [bit/s].
    seed
        Of the gates, and of the circuits before the first all-to-all.
    """
    delay = checked_delay(delay_ms, rate_bps)
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
        SERVERS, nics=NICS, packet_nics=PACKET_NICS, one_packet_switch=True, rate_bps=rate_bps
    )
    over: dict[str, Callable[[], Experiment]] = {
        first: partial(over_circuits, circuits, trained, first, delay, f"mFabric, {first}", seed=seed)
        for first in FIRSTS
    }
    for name, label in PANELS.items():
        kept_back = KEPT_BACK[label]
        over[name] = partial(panel_experiment, trained, rate_bps, label, kept_back=kept_back, seed=seed)
    return [
        over[name]() if name in over else _over_packets(name, rate_bps, trained, with_own_nics, seed)
        for name in fabrics
    ]


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
                claims.append(judged(sentence, table))
    return claims


def _over_packets(
    name: str, rate_bps: float, trained: Training, with_own_nics: Training, seed: int
) -> Experiment:
    """Return the step over a fabric of `PACKETS`; gradients go over as many NICs as it has on packets."""
    label = PACKETS[name]
    step, scheme = (trained, ALL_LANES) if label == DELEGATED else (with_own_nics, OWN_NIC)
    return Experiment(_packet_fabric(name, rate_bps), step.job, scheme, seed=seed, label=label)


def _packet_fabric(name: str, rate_bps: float) -> Fabric:
    if name == RAIL:
        return rail_fabric(SERVERS, NICS, rate_bps=rate_bps)
    over = OVERSUBSCRIPTION if PACKETS[name] == OVERSUBSCRIBED else 1
    return leaf_spine_fabric(
        SERVERS, SERVERS // 2, 8, nics=NICS, rate_bps=rate_bps, uplink_bps=2 * rate_bps / over
    )


if __name__ == "__main__":
    run_file(__file__)
