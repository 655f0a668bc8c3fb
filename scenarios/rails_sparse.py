"""Sparse MoE all-to-all over a rail fabric: RailS against ECMP (RailS, section VI-C)."""

import _checkout  # first: runs this file under the checkout's Python

from pathlib import Path
from typing import Annotated

import typer

from scenarios._harness import Options, Scenario, carry_out, main
from scenarios._options import (
    Cli,
    Debug,
    EmulatedRate,
    ModelOnly,
    NoSandbox,
    Out,
    Rails,
    Rate,
    Schemes,
    Seeds,
    Servers,
    Spines,
    listed,
    seed_range,
    shares,
)
from testbed.sandbox import inside_sandbox
from topologies.errors import TraceError
from topologies.fabric import Fabric
from topologies.rail import rail_fabric
from traffic.collective import Collective, single
from traffic.datasets import A100_LOG, dataset_path
from traffic.placement import placed
from traffic.readers.detect import read_collective
from traffic.workloads import sparse

TOP_K = 2


def rails_sparse(
    servers: Servers = 8,
    rails: Rails = 4,
    spines: Spines = None,
    rate: Rate = 100.0,
    sparsity: Annotated[str, typer.Option(help="Shares of inactive experts, by commas.")] = "0.6,0.4,0.2,0",
    schemes: Schemes = "rails,ecmp",
    seeds: Seeds = 3,
    trace: Annotated[Path | None, typer.Option(help="A trace to replay instead of the A100 log.")] = None,
    emulated_rate: EmulatedRate = None,
    model_only: ModelOnly = False,
    cli: Cli = False,
    no_sandbox: NoSandbox = False,
    out: Out = None,
    debug: Debug = False,
) -> None:
    """Sparse MoE all-to-all over a rail fabric: how far RailS beats ECMP, and the sparser the more.

    Every GPU spreads its tokens over its top 2 of the experts that are active (RailS, section
    VI-C). ECMP keeps a message on its GPUs' NICs and lets the fabric hash it onto a spine;
    RailS sprays its chunks over all rails. Expect RailS close to the lower bound at every
    sparsity, and ECMP 1.5 to 2.5 times above it. Where the measured log of a MoE training on
    A100s is found, one real step of it is replayed too.

    All numbers are at real scale; the machine emulates them slower and smaller (see run.json).
    """
    fabric = rail_fabric(servers, rails, spines, rate_bps=rate * 1e9)
    points = [
        (single(sparse(fabric.gpus, share, top_k=TOP_K, seed=seed)), scheme, seed)
        for share in shares(sparsity)
        for seed in seed_range(seeds)
        for scheme in listed(schemes)
    ]
    points += [
        (step, scheme, seed)
        for step in _replayed(trace, fabric)
        for seed in seed_range(seeds)
        for scheme in listed(schemes)
    ]
    scenario = Scenario("rails_sparse", "Sparse MoE all-to-all over a rail fabric", fabric, points)
    rate_bps = emulated_rate * 1e6 if emulated_rate is not None else None
    carry_out(scenario, Options(rate_bps, model_only, cli, not no_sandbox, out))


def _replayed(trace: Path | None, fabric: Fabric) -> list[Collective]:
    """Return the user's trace, else one step of the A100 log where it is found and fits."""
    try:
        return [placed(read_collective(dataset_path(A100_LOG, trace)), fabric)]
    except TraceError as error:
        if trace is not None:
            raise
        if not inside_sandbox():
            typer.echo(f"{error}; going on without it", err=True)
        return []


if __name__ == "__main__":
    main(rails_sparse)
