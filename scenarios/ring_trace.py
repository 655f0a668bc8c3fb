"""Ring collectives of a training step, from a trace, over a rail fabric, a fat tree or TopoOpt's circuits."""

import _checkout  # first: runs this file under the checkout's Python

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, cast

import typer

from testbed.experiment.experiment import Experiment
from testbed.report.page import counted
from testbed.study.command import run
from testbed.study.options import check_effect, listed, nic_bps, seed_range, with_default
from testbed.study.study import Study
from topologies.errors import LightrailError, ScenarioError, TraceError
from topologies.fabric import Fabric
from topologies.fat_tree import fat_tree_fabric, least_k
from topologies.own import own_fabric, own_object
from topologies.patch_panel import patch_panel_fabric
from topologies.rail import rail_fabric
from traffic.job import Job
from traffic.readers.detect import read_step
from traffic.rings_over import HowMany, with_rings
from traffic.training import Layout
from traffic.workloads.datasets import GPT_STEP, NO_TRACE, dataset_path
from traffic.workloads.gpt import gpt_step
from traffic.workloads.placement import placed, servers_for

FabricKind = Literal["rail", "fat-tree", "topoopt"]
PER_RAIL: HowMany = "per-rail"
SCHEME = "ecmp"
LEAST_MB = 1.0
OVER_TOPOOPT = "scenarios._topoopt.trace_rings:trace_scenario"
"""Imported when it is asked for, so that the paper can be taken out."""
Trace = Annotated[
    Path | None,
    typer.Option(
        help="The step: a SimAI workload (.txt) or AICB's CSV; none for a made-up one. By default SimAI's GPT"
        " 13B where it is found."
    ),
]
Synthetic = Annotated[
    bool, typer.Option("--synthetic", help="Make up a GPT's step, though the data set is here.")
]
DEFAULTS: tuple[FabricKind, int, int, float] = ("rail", 4, 8, 100.0)
"""Kind, servers, rails and rate [Gbit/s] of the fabric."""
Kind = Annotated[
    FabricKind | None,
    typer.Option(
        "--fabric-kind",
        help=with_default("What joins the servers; topoopt: circuits for this step.", DEFAULTS[0]),
    ),
]
Servers = Annotated[
    int | None,
    typer.Option(
        help=with_default(
            "Servers, each with as many GPUs and NICs as there are rails; by default as many as a trace of"
            " yours fills that says how many GPUs it has.",
            DEFAULTS[1],
        )
    ),
]
Rails = Annotated[
    int | None, typer.Option(help=with_default("Rails; NIC n of every server is on leaf n.", DEFAULTS[2]))
]
Rate = Annotated[
    float | None,
    typer.Option(help=with_default("Rate of a NIC, at real scale [Gbit/s].", f"{DEFAULTS[3]:g}")),
]
OwnFabric = Annotated[
    str | None,
    typer.Option(
        metavar="FABRIC",
        help="A fabric of your own, as module:function or a JSON file (docs/howto/own_fabric.md), in place of"
        " a rail fabric of the size and the rate above.",
    ),
]
Rings = Annotated[
    HowMany | None,
    typer.Option(
        help=with_default("One ring per group, or one for each of the group's GPUs in a server.", PER_RAIL)
    ),
]
Layers = Annotated[
    int, typer.Option(help="Of layers of a trace that are equal so many are replayed, the first; or made up.")
]
LeastMb = Annotated[
    float | None,
    typer.Option(
        "--least-mb",
        help=with_default(
            "Collectives of a trace of less are left out: latency decides them [1e6 bytes].", f"{LEAST_MB:g}"
        ),
    ),
]
Tp = Annotated[
    int | None, typer.Option(help="Tensor-parallel ranks of the made-up step; by default a server's.")
]
Schemes = Annotated[
    str | None,
    typer.Option(
        help=with_default(
            "Spraying schemes, comma-separated: ecmp, plb, minrtt, reps, spray, pxn, rails, optimal; ecmp:4,"
            " reps:8, pxn:4 have so many entropies; or your own as module:function"
            " (docs/howto/own_scheme.md).",
            SCHEME,
        )
    ),
]
Seeds = Annotated[
    int, typer.Option(help="How many seeds; each draws the workload, and what the switches hash, anew.")
]
OverCircuits = Callable[[Job, Fabric, str, Sequence[int]], Study]
"""Takes the step, the panel, a title, and seeds of equally short relayed paths."""


def ring_trace(
    trace: Trace = None,
    synthetic: Synthetic = False,
    fabric_kind: Kind = None,
    servers: Servers = None,
    rails: Rails = None,
    rate: Rate = None,
    fabric: OwnFabric = None,
    rings: Rings = None,
    layers: Layers = 2,
    least_mb: LeastMb = None,
    tp: Tp = None,
    schemes: Schemes = None,
    seeds: Seeds = 1,
) -> Study:
    """Ring collectives of a training step, replayed from a trace over a rail fabric, a fat tree or circuits.

    AllReduce, AllGather and ReduceScatter run as rings over their groups (Megatron's order of ranks), step
    by step as NCCL does, with the trace's sizes and compute between them; groups inside a server
    stay on NVLink. The table has a line per kind and size: busbw as nccl-tests defines it beside the
    closed form, that of rings that have their links to themselves. Expect rings over rails to meet it,
    and ECMP's collisions to keep those over a fat tree's uplinks below; ECMP keeps a ring's edge on the NICs
    of its GPUs.

    Over topoopt NICs are on a patch panel, with the circuits that TopologyFinder chooses for the whole step.
    A ring collective takes every directed ring that is planned for its servers; other collectives are relayed
    by servers where no circuit joins two. Groups that go at once share all rings, which the closed form does
    not count: a second table has what the circuits allow them together. Expect AllReduces to meet that.

    Equal layers are replayed a few times only; the table says what was left out. Emulated steps are of 80
    packets where that takes less than 25 s, else of 20 at least; with fewer, what a step costs beyond its
    bytes shows, and a larger --volume makes them longer.
    """
    kind = fabric_kind or DEFAULTS[0]
    if kind == "topoopt":
        hint = "leave it out with topoopt"
        check_effect("TopoOpt plans rings and paths", {"--rings": rings, "--schemes": schemes}, hint)
    size = {"--fabric-kind": fabric_kind, "--servers": servers, "--rails": rails, "--rate": rate}
    if trace == Path(NO_TRACE):
        trace, synthetic = None, True
    if trace is not None and (servers, fabric) == (None, None):
        servers = _servers_of(trace, DEFAULTS[2] if rails is None else rails)
    wired = _fabric(kind, servers, rails, rate) if fabric is None else _own_fabric(fabric, size)
    step = _step(wired, trace, layers, least_mb, tp, synthetic=synthetic)
    title = f"Ring collectives of a training step over a {kind if fabric is None else wired.name} fabric"
    drawn = seed_range(seeds)
    if kind == "topoopt":
        over_circuits = cast(OverCircuits, own_object("fabric kind", OVER_TOPOOPT))
        return over_circuits(step, wired, title, drawn)
    step = with_rings(step, wired, rings or PER_RAIL)
    points = [
        Experiment(wired, step, scheme, seed=seed)
        for seed in drawn
        for scheme in listed(SCHEME if schemes is None else schemes)
    ]
    return Study("ring_trace", title, points, report="rings")


def _own_fabric(name: str, size: Mapping[str, object]) -> Fabric:
    check_effect("--fabric is wired already", size, "leave out the one or the other")
    return own_fabric(name)


def _servers_of(trace: Path, rails: int) -> int | None:
    """Return how many servers the GPUs of a trace fill; None where it leaves their number open."""
    try:
        gpus = read_step(trace, alike=1).gpus
    except LightrailError:  # whoever reads it in earnest gets the sentence
        return None
    return servers_for(trace.name, gpus, rails)


def _step(
    fabric: Fabric,
    trace: Path | None,
    layers: int,
    least_mb: float | None,
    tp: int | None,
    *,
    synthetic: bool,
) -> Job:
    """Return the step that is replayed, or made up where that is asked for or there is none."""
    of_trace = {"--trace": trace, "--least-mb": least_mb}
    least_mb = LEAST_MB if least_mb is None else least_mb
    if layers < 1 or not 0 <= least_mb < 1e6:
        raise ScenarioError(
            f"{layers} layers, of {least_mb:g} MB or more", "take a layer at least, and 0 MB or more"
        )
    step = None if synthetic else _replayed(trace, fabric, layers, round(least_mb * 1e6))
    if step is None:
        check_effect("the step is made up", of_trace)
        return _made_up(fabric, layers, fabric.servers[0].gpus if tp is None else tp)
    check_effect("the step is of a trace", {"--tp": tp}, "leave it out, or make up a step by --synthetic")
    return step


def _check_planned(servers: int, rails: int) -> None:
    """Refuse what has no circuits."""
    needed = 1 if servers == 2 else 2
    if servers < 2 or rails < needed:
        raise ScenarioError(
            f"no ring of circuits joins {counted(servers, 'server')} of {counted(rails, 'NIC')}",
            "take 2 servers or more, and 2 rails or more: a ring takes two NICs of each server",
        )


def _fabric(kind: FabricKind, servers: int | None, rails: int | None, rate_gbps: float | None) -> Fabric:
    """Return a fabric of so many servers and NICs; the fat tree is the smallest that holds them."""
    servers = DEFAULTS[1] if servers is None else servers
    rails = DEFAULTS[2] if rails is None else rails
    rate_bps = nic_bps(DEFAULTS[3] if rate_gbps is None else rate_gbps)
    if kind == "rail":
        return rail_fabric(servers, rails, rate_bps=rate_bps)
    if kind == "topoopt":
        _check_planned(servers, rails)
        return patch_panel_fabric(servers, nics=rails, rate_bps=rate_bps)
    return fat_tree_fabric(least_k(servers * rails), servers=servers, nics=rails, rate_bps=rate_bps)


def _replayed(trace: Path | None, fabric: Fabric, layers: int, least_bytes: int) -> Job | None:
    """Return the user's trace, else the data set where it is found."""
    try:
        path = dataset_path(GPT_STEP, trace)
    except TraceError as error:
        if trace is not None:
            raise
        typer.echo(f"{error}; going on with a synthetic step", err=True)
        return None
    step = read_step(path, gpus=fabric.gpus, alike=layers, least_bytes=least_bytes)
    if not step.collectives:
        raise TraceError(f"{path} holds no collective of {least_bytes:g} bytes or more", "lower --least-mb")
    return placed(step, fabric)


def _made_up(fabric: Fabric, layers: int, tp: int) -> Job:
    """Return a GPT's step on all GPUs."""
    if tp < 1 or fabric.gpus % tp:
        raise ScenarioError(
            f"{tp} tensor-parallel ranks on {fabric.gpus} GPUs", "take a number that divides them"
        )
    return gpt_step(Layout(tp, fabric.gpus // tp), layers=layers)


if __name__ == "__main__":
    run(ring_trace)
