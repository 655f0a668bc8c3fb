"""Sparse MoE all-to-all over a rail fabric: RailS against ECMP (RailS, section VI-C)."""

import _checkout  # first: runs this file under the checkout's Python

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from scenarios._rails.rail_study import rail_study
from testbed.machine.sandbox import inside_sandbox
from testbed.study.command import run
from testbed.study.options import (
    OwnFabric,
    Rails,
    Rate,
    Schemes,
    Seeds,
    Servers,
    Spines,
    fabric_of,
    listed,
    seed_range,
    shares,
)
from testbed.study.study import PointOf, Study
from topologies.errors import ScenarioError, TraceError
from topologies.fabric import Fabric
from traffic.job import Job
from traffic.readers.detect import read_trace
from traffic.steps import single
from traffic.workloads.datasets import A100_LOG, dataset_path
from traffic.workloads.placement import placed
from traffic.workloads.synthetic import GATINGS, HIDDEN, NUMBER_BYTES, Gating, sparse

SPARSITIES = "0.6,0.4,0.2,0"
"""Those of the paper."""
TopK = Annotated[
    int, typer.Option(help="To how many of the active experts each token goes, or each GPU's tokens.")
]
Gatings = Annotated[
    str,
    typer.Option(
        help="What chooses its top k experts, comma-separated: token (each for itself), gpu (each for all of"
        " its tokens)."
    ),
]


def rails_sparse(
    servers: Servers = 8,
    rails: Rails = 4,
    spines: Spines = None,
    rate: Rate = 100.0,
    fabric: OwnFabric = None,
    sparsity: Annotated[str, typer.Option(help="Shares of inactive experts, comma-separated.")] = SPARSITIES,
    top_k: TopK = 2,
    gating: Gatings = "token",
    schemes: Schemes = "rails,ecmp,pxn",
    seeds: Seeds = 2,
    trace: Annotated[
        Path | None,
        typer.Option(
            help="A trace to replay instead of the A100 log; Megatron's file per rank as their directory."
        ),
    ] = None,
    experts: Annotated[
        int | None, typer.Option(help="How many experts the model has; only routing traces need it.")
    ] = None,
    token_bytes: Annotated[
        int, typer.Option(help="Size of a token, where a trace counts tokens [bytes].")
    ] = HIDDEN * NUMBER_BYTES,
    all_to_alls: Annotated[
        int | None, typer.Option(help="Replay so many all-to-alls of a trace, the first; by default all.")
    ] = None,
) -> Study:
    """Sparse MoE all-to-all over a rail fabric: how far RailS beats ECMP, the sparser the further.

    Every token goes to its top 2 of the experts that are active (RailS, section VI-C). With
    --gating gpu every GPU gives all its tokens to the same two, which is the other reading of
    the paper: a row then has two cells. Claims are ruled for each. ECMP keeps a message on the
    NICs beside its GPUs and lets the fabric hash it onto a spine; RailS sprays its chunks over
    all rails. Expect RailS close to the lower bound at every sparsity, ECMP 2 times above it at
    0.6 and near it at 0.2 and 0; per GPU 1.5 to 2.5 times above it at all. Where the measured
    log of a MoE training on A100s is found, one real step of it is replayed too.

    All numbers are at real scale; the machine emulates them slower and smaller (see run.json).
    """
    wired = fabric_of(fabric, servers, rails, spines, rate)
    each = [(share, kind) for kind in gatings(gating) for share in shares(sparsity)]
    points = sparse_points(wired, listed(schemes), seed_range(seeds), each, top_k)
    read = partial(
        read_trace,
        gpus=wired.gpus,
        experts=experts,
        bytes_per_token=token_bytes,
        all_to_alls=all_to_alls,
    )
    points += [
        (step, scheme, 0)  # once: at ten seconds a point seeds would cost more than they tell
        for step in _replayed(trace, read, wired)
        for scheme in listed(schemes)
    ]
    return rail_study("rails_sparse", f"Sparse MoE all-to-all over a {wired.name} fabric", wired, points)


def sparse_points(
    fabric: Fabric,
    schemes: list[str],
    seeds: range,
    sparsities: Iterable[tuple[float, Gating]],
    top_k: int = 2,
) -> list[PointOf]:
    """Return the scenario's synthetic points: for each sparsity and gating, those of its seeds."""
    return [
        (job, scheme, seed)
        for sparsity, gating in sparsities
        for seed in seeds
        for job in [single(sparse(fabric.gpus, sparsity, top_k=top_k, gating=gating, seed=seed))]
        for scheme in schemes
    ]


def gatings(text: str) -> list[Gating]:
    """Return the gatings of a list by commas; ScenarioError if one is unknown."""
    words = list(dict.fromkeys(listed(text)))
    if unknown := [word for word in words if word not in GATINGS]:
        raise ScenarioError(f"there is no gating {unknown[0]!r}", f"choose among {', '.join(GATINGS)}")
    return [gating for gating in GATINGS if gating in words]


def _replayed(trace: Path | None, read: Callable[[Path], Job], fabric: Fabric) -> list[Job]:
    """Return the user's trace, else one step of the A100 log where it is found and fits."""
    try:
        return [placed(read(dataset_path(A100_LOG, trace)), fabric)]
    except TraceError as error:
        if trace is not None:
            raise
        if not inside_sandbox():
            typer.echo(f"{error}; going on without it", err=True)
        return []


if __name__ == "__main__":
    run(rails_sparse)
