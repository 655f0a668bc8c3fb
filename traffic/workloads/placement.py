"""Where a trace's ranks run: on the fabric's GPUs in order, server by server."""

from dataclasses import replace

from topologies.errors import TraceError
from topologies.fabric import Fabric
from traffic import compose
from traffic.collectives.all_to_all import AllToAll
from traffic.demand import sends
from traffic.job import Collective, Job


def placed(job: Job, fabric: Fabric) -> Job:
    """Return a job on the first GPUs of a fabric: rank i runs on GPU i, the rest idle.

    Parameters
    ----------
    job
        For at most as many GPUs as the fabric has.
    fabric
        Where it runs.

    Returns
    -------
    Job
        For all GPUs of the fabric; its note says how many of them work. One that fills the fabric is
        returned as it is.

    Raises
    ------
    TraceError
        If the job is for more GPUs than the fabric has, or all it does is to send no bytes.
    """
    if not _does_something(job):
        raise TraceError(f"{job.name} holds no bytes from one GPU to another", "give one with some")
    if job.gpus > fabric.gpus:
        raise TraceError(
            f"{job.name} is between {job.gpus} GPUs, the fabric has {fabric.gpus}",
            "take a larger fabric or a smaller trace",
        )
    if job.gpus == fabric.gpus:
        return job
    note = f"on GPUs 0 to {job.gpus - 1} of {fabric.gpus}"
    spread = compose.placed(job, range(job.gpus), of=fabric.gpus)
    return replace(spread, note="; ".join(filter(None, (job.note, note))))


def servers_for(name: str, gpus: int, server_gpus: int) -> int:
    """Return how many servers a trace fills.

    Parameters
    ----------
    name
        Of the trace.
    gpus
        Between how many it is.
    server_gpus
        How many a server has.

    Raises
    ------
    TraceError
        If it does not fill two servers or more; the hint has a number of rails with which it would.
    """
    if gpus % server_gpus == 0 and gpus > server_gpus:
        return gpus // server_gpus
    if gpus == 1:
        raise TraceError(f"{name} is of one GPU, which sends to no other", "give a trace between several")
    rails = max(each for each in range(1, max(server_gpus, 1) + 1) if gpus % each == 0 and each < gpus)
    raise TraceError(
        f"{name} is between {gpus} GPUs, which do not fill several servers of {server_gpus}",
        f"give --rails {rails}, or --servers for a fabric of which it takes the first GPUs",
    )


def _does_something(job: Job) -> bool:
    """Return whether a job computes, or sends bytes from one GPU to another."""
    patterns = [node.pattern if isinstance(node, Collective) else None for node in job.nodes]
    return any(not isinstance(each, AllToAll) or sends(each.demand.matrix) for each in patterns)
