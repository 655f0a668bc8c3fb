"""Iteration time with a NIC, a GPU or a server gone, on 1,024 GPUs: Figure 14.

All layers and micro-batches have one gate, as in the paper's artifact: so no stage is slower than others for
its gates, and hides what a failure adds to another.
"""

import math
from collections.abc import Mapping
from functools import lru_cache, partial
from itertools import product

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from controller.circuits.devices import ReconfigurationDelay
from scenarios._mfabric.fabrics import GPUS
from scenarios._mfabric.failures.points import (
    CIRCUIT_NIC,
    FAILURES,
    GPU,
    PACKET_NIC,
    PACKET_NICS,
    SERVER,
    STEP,
    failure_of,
    steady,
)
from scenarios._mfabric.region_plan import RegionalSetup
from scenarios._mfabric.section import PlannedSection, Section
from scenarios._mfabric.step.points import DELAY_S, SERVERS, StepSetup
from scenarios._mfabric.step.study import step_section
from scenarios._mfabric.step.training import GATEWAYS, PHASE
from testbed.experiment.audit_of import sound
from testbed.experiment.experiment import Experiment
from testbed.model.predict import predict
from testbed.report.claims import MORE, TOLERANCE, Claim, predicted
from testbed.report.page import Block, Findings, Plot, Sheet
from testbed.report.palette import COLOURS, canvas, horizontal_grid, styled
from testbed.report.table import lines_of
from testbed.study.computed import Call
from topologies.mfabric import mfabric_fabric, region_gpus
from traffic.compose import placed
from traffic.delegated import DelegatedSetup
from traffic.models.moe import MoeModel, model_named
from traffic.models.moe_step import Machines, moe_step, repeated_gate
from traffic.workloads.gate import gate_loads, gate_tokens

SOURCE = "mFabric, 7.5 (Figure 14)"
MODELS = ("mixtral-8x22b", "deepseek-r1")
RATE_BPS = 400e9
"""Of a NIC, in the paper's simulations."""
LOST_SERVER, LOST_GPU = 2, 3
"""Which server of its region something is gone of, and which GPU."""
HEALTHY = "nothing"
POINTS = (HEALTHY, *FAILURES.values())
PAPER = {
    ("deepseek-r1", PACKET_NIC): 0.033,
    ("deepseek-r1", PACKET_NICS): 0.033,
    ("deepseek-r1", CIRCUIT_NIC): 0.033,
    ("mixtral-8x22b", GPU): 0.051,
    ("deepseek-r1", SERVER): 0.065,
}
"""The paper's numbers; which NICs failed it does not say, so its number stands beside each of them."""
FailureSeconds = Mapping[tuple[str, str], float]
"""The time of an iteration by model and by what is gone [s]."""


def failures(setup: StepSetup) -> PlannedSection:
    """Return the iteration of each model without and with each failure; rates of a setup do not count."""
    # Points of one model follow each other, so that a process makes its step once.
    points = list(product(MODELS, POINTS))
    return PlannedSection(
        lambda found: failure_section(setup, dict(zip(points, found, strict=True))),
        [Call(failure_iteration_s, (setup.alike, *point)) for point in points],
    )


def failure_section(setup: StepSetup, found: FailureSeconds) -> Section:
    """Return the time that failures add to an iteration, beside the paper's numbers.

    Parameters
    ----------
    setup, found
        The iterations of all models and `POINTS` with this setup.
    """
    rows = [
        {
            "model": model,
            "failure": name,
            "iteration_s": time_s,
            "added": time_s / found[model, HEALTHY] - 1,
            "paper_added": PAPER.get((model, name), math.nan),
        }
        for (model, name), time_s in found.items()
    ]
    table = pd.DataFrame(rows)
    plot = Plot("failures", partial(_bars, table), CAPTION)
    return step_section(
        "failures", "what failures add to an iteration", setup, table,
        Findings([_sheet(table, setup)], [plot], _claims(table)), DEFINITIONS,
        rate_gbps=RATE_BPS / 1e9, delay_s=DELAY_S,
    )  # fmt: skip


def failure_experiment(setup: StepSetup, model: str, name: str) -> Experiment:
    """Return a step of a model on 1,024 GPUs with something gone all along; a name is of `POINTS`."""
    healthy = _healthy(setup.alike, model)
    if name == HEALTHY:
        return healthy
    gone = failure_of(name, healthy.fabric, _server(model_named(model)), gpus=GPUS, gpu=LOST_GPU)
    return steady(healthy, gone)


def _server(model: MoeModel) -> int:
    """Return where something is gone: the last of the stages that have most layers, whose pace others keep.

    With as many micro-batches as stages the first stage's forwards are all done before its first backward, so
    that what it lacks costs an iteration once, and the last stage once per micro-batch.
    """
    layers = model.stage_layers()
    stage = max(range(model.pp), key=lambda number: (layers[number], number))
    return stage * (SERVERS // model.pp) + LOST_SERVER


def failure_iteration_s(setup: StepSetup, model: str, name: str) -> float:
    """Return how long the step of `failure_experiment` takes [s]."""
    return sound(predict(failure_experiment(setup, model, name), couples=True)).iteration_s


@lru_cache(maxsize=1)
def _healthy(setup: StepSetup, model: str) -> Experiment:
    sized, seed = model_named(model), setup.seed
    loads = gate_loads([PHASE], 1, sized.experts, seed=seed)
    tokens = gate_tokens(loads, sized.ep, sized.tokens * sized.top_k, seed=seed)[0, 0]
    step = moe_step(
        sized,
        repeated_gate(tokens),
        replicas=SERVERS * GPUS // sized.replica_gpus,
        machines=Machines(gpu_flops=setup.gpu_flops, gateways=GATEWAYS),
        sums_apart=[_server(sized) * GPUS + LOST_GPU],
        experts=setup.experts,
    )
    fabric = mfabric_fabric(
        SERVERS,
        sized.region_servers(),
        backup_gpu=True,
        spare_servers=1,
        one_packet_switch=True,
        rate_bps=RATE_BPS,
    )
    delay = ReconfigurationDelay(f"{DELAY_S:g} s", DELAY_S)
    return Experiment(
        fabric,
        placed(step.job, region_gpus(fabric, GPUS), of=fabric.gpus),
        DelegatedSetup(),
        seed=seed,
        label=STEP,
        circuits=RegionalSetup(delay, "block", tuple(dispatch.node for dispatch in step.dispatches)),
    )


def _claims(table: pd.DataFrame) -> list[Claim]:
    """Return the paper's numbers as claims, and its order."""
    added = {(row["model"], row["failure"]): row["added"] for row in table.to_dict("records")}
    claims = [
        predicted(
            f"{model}: {name} gone adds {100 * share:.1f} %", SOURCE,
            (share * (1 - TOLERANCE), share * (1 + TOLERANCE)), added[model, name],
            UNNAMED if "NIC" in name else REASONS[name], "{:.4f}",
        )
        for (model, name), share in PAPER.items()
    ]  # fmt: skip
    server, gpu = (added["mixtral-8x22b", name] for name in (SERVER, GPU))
    over = server / gpu if gpu > 0 else math.nan
    order = predicted("a server adds more than a GPU, 8x22B", SOURCE, MORE, over, ORDER)
    return [*claims, order]


UNNAMED = "which NICs failed is not said"
ORDER = "a server's rank sums inside its spare one, a GPU's over packet NICs"
REASONS = {
    GPU: "sums of one rank cross two packet NICs, unhidden; its layers and rates are not given",
    SERVER: "all of its all-to-alls go over the packet NICs of both ends",
}


def _sheet(table: pd.DataFrame, setup: StepSetup) -> Sheet:
    blocks = []
    for model, own in table.groupby("model", sort=False):
        percent = own.assign(added=100 * own["added"], paper=100 * own["paper_added"])
        lines = lines_of(percent, "{failure}", "{iteration_s:.2f}", "{added:.2f} %", "{paper:.1f} %")
        blocks.append(Block(lines, str(model)))
    return Sheet(
        ("gone",),
        ("iteration [s]", "added", "paper"),
        blocks,
        f"Figure 14: 1,024 GPUs of {setup.gpu_flops / 1e12:g} TFLOP/s, 400 Gbit/s, 25 ms. One decision of "
        "the gate repeats in all layers and micro-batches, as in the artifact, so that no stage hides what "
        "another loses. All along gone of one server, in the last of the stages that have most layers: "
        "others keep its pace, and of the first stage the pipeline hides most. Which NICs failed the paper "
        "does not say, nor where: its number stands beside all of them.",
    )


@styled
def _bars(table: pd.DataFrame) -> Figure:
    figure = canvas(8.5, 3.2, "What failures add to an iteration, 1,024 GPUs (SYNTHETIC gates)")
    axes = figure.subplots()
    shown = table[table["failure"] != HEALTHY]
    names = list(dict.fromkeys(shown["failure"]))
    for place, (model, scheme) in enumerate(zip(MODELS, ("rails", "reps"), strict=True)):
        own = shown[shown["model"] == model]
        at = np.arange(len(own)) + 0.4 * (place - 0.5)
        axes.bar(at, 100 * own["added"], 0.36, color=COLOURS[scheme], label=model)
        axes.scatter(at, 100 * own["paper_added"], marker="D", s=18, color="black", zorder=3)
    axes.scatter([], [], marker="D", s=18, color="black", label="paper")
    axes.set_xticks(range(len(names)), names)
    axes.set(ylabel="added [%]")
    horizontal_grid(axes)
    axes.legend(loc="upper left")
    return figure


CAPTION = "Paper, figure 14. Over an iteration without failures; diamonds are what the paper states."
DEFINITIONS = (
    ("gone", "From the start of the iteration on, and known to be."),
    ("a GPU", "Its place is taken by the backup GPU of the next server of its region."),
    ("a server", "Its place is taken by a spare one that has packet NICs only."),
)
