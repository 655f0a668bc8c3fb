"""The parts of an iteration's time: its critical path, part by part.

The path goes back from the node that ends last, each time to the one that it waited for longest. So the parts
add up to the iteration, exactly.
"""

from collections.abc import Iterator

from testbed.core.run import Run
from testbed.experiment.experiment import Experiment
from traffic.clock import NEVER, SECOND
from traffic.delegated import DelegatedSetup
from traffic.job import Collective, Job, Node
from traffic.tables import NVLINK as OVER_NVLINK

COMPUTE, TRANSFER, NVLINK = "compute", "all-to-all transfer", "gather, scatter"
FORWARD, BACKWARD = "forward waits", "backward waits"
PIPELINE, DATA_PARALLEL = "pipeline", "data parallelism"
PARTS = (COMPUTE, TRANSFER, NVLINK, FORWARD, BACKWARD, PIPELINE, DATA_PARALLEL)
STAGES = (0, 2)
"""The operations of a delegated all-to-all that gather and scatter (`traffic.tables`)."""


def iteration_parts(experiment: Experiment, run: Run) -> dict[str, float]:
    """Return how long each of `PARTS` takes on the critical path of an iteration [s].

    Parameters
    ----------
    experiment
        A training step (`traffic.models.moe_step`) over some fabric.
    run
        Of it. Waits are those for circuits; gather and scatter are of all-to-alls that are delegated.
    """
    spans = run.tables.spans.assign(node=run.names(run.tables.spans)).groupby("node", sort=False)
    found = spans.agg({"ready_ps": "min", "held_ps": "min", "released_ps": "min", "end_ps": "max"})
    path = list(
        critical_path(
            experiment.job, dict(zip(found.index.to_list(), found["end_ps"].to_list(), strict=True))
        )
    )
    times = found.loc[[node.name for node in path]]
    took = (times["end_ps"] - times["ready_ps"]).to_list()
    held = (times["released_ps"] - times["held_ps"]).where(times["held_ps"] < NEVER, 0).to_list()
    inside_ps = _inside_ps(run) if isinstance(experiment.scheme, DelegatedSetup) else {}
    parts_ps = dict.fromkeys(PARTS, 0)
    for node, took_ps, held_ps in zip(path, took, held, strict=True):
        part, wait = _part(node), FORWARD if node.name.startswith("F") else BACKWARD
        in_servers_ps = inside_ps.get(node.name, 0) if part == TRANSFER else 0
        parts_ps[part] += took_ps - held_ps - in_servers_ps
        parts_ps[NVLINK] += in_servers_ps
        parts_ps[wait] += held_ps
    return {part: time_ps / SECOND for part, time_ps in parts_ps.items()}


def critical_path(job: Job, end_ps: dict[str, int]) -> Iterator[Node]:
    """Yield the nodes that each waited for the next one longest, from the one that ends last."""
    nodes = {node.name: node for node in job.nodes}
    name = max(end_ps, key=end_ps.__getitem__)
    while True:
        yield nodes[name]
        if not nodes[name].after:
            return
        name = max(nodes[name].after, key=end_ps.__getitem__)


def _part(node: Node) -> str:
    if node.name.startswith("DP "):
        return DATA_PARALLEL
    if not isinstance(node, Collective):
        return COMPUTE
    return PIPELINE if node.name.endswith(" send") else TRANSFER


def _inside_ps(run: Run) -> dict[str, int]:
    """Return how long gather and scatter take of each delegated all-to-all [ps]."""
    legs = run.tables.legs
    times = legs[legs["op"].isin(STAGES) & (legs["medium"] == OVER_NVLINK)].groupby(["node", "op"])
    each = (times["last_ps"].max() - times["first_ps"].min()).groupby("node").sum()
    names = (run.tables.nodes[node] for node in each.index.to_list())
    return dict(zip(names, each.to_list(), strict=True))
