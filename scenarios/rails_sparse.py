"""Sparse MoE all-to-all over a rail fabric: RailS against ECMP (RailS, section VI-C)."""

import _checkout  # first: runs this file under the checkout's Python

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from scenarios._harness import PointOf, Scenario, run
from scenarios._options import (
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
from testbed.machine.sandbox import inside_sandbox
from topologies.errors import TraceError
from topologies.fabric import Fabric
from traffic.job import Job
from traffic.readers.detect import read_trace
from traffic.steps import single
from traffic.workloads.datasets import A100_LOG, dataset_path
from traffic.workloads.placement import placed
from traffic.workloads.synthetic import HIDDEN, NUMBER_BYTES, sparse

SPARSITIES = "0.6,0.4,0.2,0"
"""Those of the paper."""


def rails_sparse(
    servers: Servers = 8,
    rails: Rails = 4,
    spines: Spines = None,
    rate: Rate = 100.0,
    fabric: OwnFabric = None,
    sparsity: Annotated[str, typer.Option(help="Shares of inactive experts, comma-separated.")] = SPARSITIES,
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
) -> Scenario:
    """Sparse MoE all-to-all over a rail fabric: how far RailS beats ECMP, the sparser the further.

    Every GPU spreads its tokens over its top 2 of the experts that are active (RailS, section
    VI-C). ECMP keeps a message on the NICs beside its GPUs and lets the fabric hash it onto a
    spine; RailS sprays its chunks over all rails. Expect RailS close to the lower bound at every
    sparsity, and ECMP 1.5 to 2.5 times above it. Where the measured log of a MoE training on
    A100s is found, one real step of it is replayed too.

    All numbers are at real scale; the machine emulates them slower and smaller (see run.json).
    """
    wired = fabric_of(fabric, servers, rails, spines, rate)
    points = sparse_points(wired, listed(schemes), seed_range(seeds), shares(sparsity))
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
    return Scenario.of("rails_sparse", f"Sparse MoE all-to-all over a {wired.name} fabric", wired, points)


def sparse_points(
    fabric: Fabric, schemes: list[str], seeds: range, sparsities: Iterable[float]
) -> list[PointOf]:
    """Return the scenario's synthetic points."""
    return [
        (single(sparse(fabric.gpus, sparsity, top_k=2, seed=seed)), scheme, seed)
        for sparsity in sparsities
        for seed in seeds
        for scheme in schemes
    ]


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
