"""TopoOpt's testbed: 12 servers that train six models, on a patch panel and on switches (section 6)."""

import _checkout  # first: runs this file under the checkout's Python

from functools import partial
from typing import Annotated

import typer

from scenarios._topoopt.experiments import plan_for
from scenarios._topoopt.testbed.points import (
    MODELS,
    Prototype,
    iteration_experiments,
    ring_experiments,
    trained_on,
)
from scenarios._topoopt.testbed.report import testbed_claims, testbed_findings
from testbed.experiment.experiment import Experiment
from testbed.study.command import run
from testbed.study.options import NicRate, chosen, nic_bps, whole_numbers
from testbed.study.study import Study
from topologies.errors import ScenarioError
from traffic.models.layered import LayeredModel

NIC_BPS = 72e6
"""Emulated rate of the fastest NIC at most [bit/s]: a panel's 48 interfaces have a quarter each."""
RUN_S = 10.0
"""How long a point may take at emulated scale so that the steps of its rings are long [s]."""
MOST_BUCKETS, MOST_BATCH = 64, 1 << 16
ALL, NONE = ",".join(MODELS), "none"

Models = Annotated[str, typer.Option(help=f"Models, comma-separated: {', '.join(MODELS)}; or none.")]
Batches = Annotated[
    str,
    typer.Option(help="Batches of DLRM, comma-separated, samples of a GPU: the more, the more all-to-all."),
]
AllReduces = Annotated[
    bool,
    typer.Option("--all-reduces/--no-all-reduces", help="Run AllReduces too, over circuits and over relays."),
]
Degree = Annotated[int, typer.Option(help="d, interfaces of a server on the panel.")]
Buckets = Annotated[
    int,
    typer.Option(help="Parts in which a model's gradients are summed, at most; more are longer to emulate."),
]
Seed = Annotated[int, typer.Option(help="Of shortest paths that are equally long.")]


def topoopt_testbed(
    models: Models = ALL,
    batches: Batches = "64,128,256,512",
    all_reduces: AllReduces = True,
    degree: Degree = 4,
    rate: NicRate = 25.0,
    buckets: Buckets = 1,
    seed: Seed = 0,
) -> Study:
    """Training on TopoOpt's testbed: circuits fixed for the job, against switches of d B and of B a server.

    Twelve servers have four interfaces of 25 Gbit/s (B) on a patch panel. TopologyFinder joins them by coins
    1 and 5, so that an AllReduce has four rings of its own; what has no circuit is forwarded by the kernels
    of servers between. A server with all four on one link to a switch is the ideal, one of 25 Gbit/s what a
    switch costs as much as. Six models train an iteration, DLRM at several batches: the larger, the more of
    its bytes are embeddings that every server sends to every other one (Figure 21).

    Expect TopoOpt to be like the ideal switch where all is AllReduce (ResNet50, VGG16, BERT, CANDLE), four
    times as fast as the slow switch where the network is all that counts, and behind the ideal where DLRM
    relays. A table says what relaying cost: the bandwidth tax as computed and as counted on the interfaces.
    """
    prototype = _prototype(degree, rate, buckets, seed)
    names = [name for name in chosen(models, (*MODELS, NONE), "--models") if name != NONE]
    trained = [
        trained_on(prototype, name, batch)
        for name in names
        for batch in (whole_numbers(batches, "--batches", most=MOST_BATCH) if name == "dlrm" else [None])
    ]
    experiments = [each for one in trained for each in iteration_experiments(prototype, one)]
    known: dict[str, LayeredModel] = {one.job().name: one.model for one in trained}
    if all_reduces:
        experiments += _rings(prototype)
    if not experiments:
        raise ScenarioError("no model and no AllReduces", "name a model, or leave out --no-all-reduces")
    return Study(
        "topoopt_testbed",
        "TopoOpt's testbed: 12 servers on a patch panel and on switches",
        experiments,
        partial(testbed_claims, prototype),
        findings=partial(testbed_findings, prototype, known),
        baseline=prototype.full_name,
        rings_s=RUN_S,
        most_nic_bps=NIC_BPS,
        transports="ideal",
    )


def _rings(prototype: Prototype) -> list[Experiment]:
    one = trained_on(prototype, "resnet50")
    *_, panel = iteration_experiments(prototype, one)
    return list(ring_experiments(prototype, panel, plan_for(one, prototype.degree)))


def _prototype(degree: int, rate: float, buckets: int, seed: int) -> Prototype:
    if not (2 <= degree <= 10 and 1 <= buckets <= MOST_BUCKETS):
        raise ScenarioError(
            f"{degree} interfaces, {buckets} buckets",
            f"take 2 to 10 interfaces, and 1 to {MOST_BUCKETS} buckets",
        )
    return Prototype(degree, nic_bps(rate), buckets, seed)


if __name__ == "__main__":
    run(topoopt_testbed)
