"""A file's training step as one of a mixture of experts: which of its all-to-alls only a gate knows.

AICB's logs and SimAI's workloads have the sizes of collectives, not what gates decided. In a forward pass the
all-to-alls of expert-parallel ranks are in turn a layer's *dispatch* and its *combine*; the backward pass has
them in reverse, the last layer first, combine before dispatch. With D the dispatch the four are D, D', D, D'.
A dispatch after a backward pass is the first layer's of the next micro-batch.

Those of all expert-parallel groups whose tensor-parallel ranks are the same are one all-to-all, of the
servers that share a region: groups stride over tensor-parallel ranks.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from topologies.errors import TraceError
from traffic.collectives.all_to_all import AllToAll
from traffic.demand import Demand
from traffic.job import Collective
from traffic.models.moe_step import Dispatch, Gate, MoeStep
from traffic.readers.detect import read_phases
from traffic.readers.text import Taken
from traffic.training import StepPhase, calls, job_of_phases
from traffic.workloads.gating import apportioned


def read_expert_step(
    path: Path,
    *,
    gpus: int | None = None,
    alike: int | None = None,
    least_bytes: int = 0,
    gate: Gate | None = None,
) -> MoeStep:
    """Return a training step and its dispatches, numbered by micro-batch and layer as the file has them.

    Parameters
    ----------
    path
        AICB's CSV or a SimAI workload.
    gpus, least_bytes
        As of `traffic.readers.detect.read_step`.
    alike
        Of layers that are equal at most so many, the first ones; by default all. Dispatches are unlike
        combines.
    gate
        What the gates of a region (its replica), a micro-batch and a layer decide; only its shares count.
        By default all ranks send all others the same.

    Raises
    ------
    TraceError
        If the file cannot be read, has no expert all-to-alls between several ranks, or a dispatch without its
        combine; or if a gate is not of as many ranks.
    """
    read = read_phases(path, Taken(gpus, alike, least_bytes, in_pairs=True))
    ep, region = read.layout.ep, read.layout.ep * read.layout.tp
    regions = [range(first, first + region) for first in range(0, read.layout.gpus, region)]
    exchanges = [phase for phase in read.phases if _exchanges(phase) and phase.size_bytes >= least_bytes]
    if ep < 2 or not exchanges:
        raise TraceError(
            f"{path} has no all-to-alls of expert-parallel ranks", "give the step of a mixture of experts"
        )
    places = _places(path, read.phases, exchanges)
    dispatches: list[Dispatch] = []
    demands: dict[object, Demand] = {}

    def sent(label: str, phase: StepPhase, waits: tuple[str, ...]) -> tuple[Collective, ...]:
        if phase.call is None or not _exchanges(phase):
            groups = read.layout.groups(phase.kind)
            return calls(label, phase.call, groups, phase.size_bytes, waits) if phase.call else ()
        micro_batch, layer, is_back = places[phase.name]
        found = []
        for number, ranks in enumerate(regions):
            tokens = np.ones((ep, ep), dtype=np.int64) if gate is None else gate(number, micro_batch, layer)
            key = tokens.tobytes(), phase.size_bytes, is_back
            if key not in demands:
                demands[key] = _demand(path, tokens, phase.size_bytes, ep, read.layout.tp, is_back=is_back)
            name = label if len(regions) == 1 else f"{label} {number}"
            found.append(Collective(name, AllToAll(demands[key], tuple(ranks)), waits))
            if phase.forward and not is_back:
                dispatches.append(Dispatch(name, number, micro_batch, layer))
        return tuple(found)

    gates = "gates send all experts the same" if gate is None else "gates are not the file's"
    noted = replace(read, note="; ".join(filter(None, (read.note, gates))))
    job = job_of_phases(noted, least_bytes=least_bytes, sent=sent)
    return MoeStep(job, tuple(dispatches))


def _exchanges(phase: StepPhase) -> bool:
    return phase.call == "all-to-all" and phase.kind == "ep" and phase.size_bytes > 0


def _places(
    path: Path, phases: Sequence[StepPhase], exchanges: Sequence[StepPhase]
) -> dict[str, tuple[int, int, bool]]:
    """Return the place of each all-to-all.

    That is its micro-batch, its layer, and whether its bytes go the other way than the dispatch's.
    """
    forward = sum(phase.forward for phase in exchanges)
    backward = len(exchanges) - forward
    if forward % 2 or backward % 2 or backward > forward:
        raise TraceError(
            f"{path} has {forward} expert all-to-alls forward and {backward} backward",
            "expected a dispatch and a combine of each layer, and no more backward",
        )
    places: dict[str, tuple[int, int, bool]] = {}
    micro_batch, was_backward = 0, False
    turns, layers_under_way, names = {True: 0, False: 0}, list[int](), {phase.name for phase in exchanges}
    for phase in phases:
        was_backward |= not phase.forward
        if phase.name not in names:
            continue
        if phase.forward and was_backward and turns[True]:
            micro_batch, turns, layers_under_way = micro_batch + 1, {True: 0, False: 0}, []
        was_backward = not phase.forward
        layer, is_second = divmod(turns[phase.forward], 2)
        turns[phase.forward] += 1
        if not phase.forward:
            if not layers_under_way:
                raise TraceError(f"{path} has an expert all-to-all backward before that forward")
            layer = layers_under_way.pop() if is_second else layers_under_way[-1]
        elif is_second:
            layers_under_way.append(layer)
        places[phase.name] = micro_batch, layer, bool(is_second)
    return places


def _demand(
    path: Path, tokens: NDArray[np.int64], size_bytes: int, ep: int, tp: int, *, is_back: bool
) -> Demand:
    """Return what the GPUs of a region send each other: rank by rank, by the shares of tokens."""
    ranks, experts = tokens.shape
    if ranks != ep or experts % ep or not (tokens.sum(axis=1) > 0).all():
        raise TraceError(
            f"a gate of {ranks} ranks and {experts} experts for {path.name}, which has {ep} ranks",
            "give a row per rank, with tokens, and as many experts on each",
        )
    owed = tokens.reshape(ep, ep, -1).sum(axis=2)
    shares = np.stack([apportioned(size_bytes, row / row.sum()) for row in owed])
    matrix = np.kron(shares.T if is_back else shares, np.eye(tp, dtype=np.int64))
    return Demand("combine" if is_back else "dispatch", matrix)
