"""Computing: what each GPU computes, one task at a time, first ready first."""

from collections.abc import Iterable, Sequence

from testbed.core.events import Computed, GpusGone, PiecesDone, TaskBegan, TaskReady
from testbed.core.state import State
from testbed.core.steps import Steps
from traffic.clock import ps
from traffic.job import Compute


def task_ready(state: State, event: TaskReady) -> Steps:
    """Have GPUs compute for a node, each when it has done the tasks that were ready before."""
    node, queued = state.graph.nodes[event.node], state.gpus.queued
    assert isinstance(node, Compute)
    busy = [gpu for gpu in event.gpus if _is_busy(state, gpu) or queued.get(gpu)]
    for gpu in busy:
        queued[gpu].append(node)
    yield from _compute(state, node, [gpu for gpu in event.gpus if gpu not in busy] if busy else event.gpus)
    yield from _compute_next(state, busy)


def computed(state: State, event: Computed) -> Steps:
    """Have GPUs go on with their next tasks, and count the pieces of the node that are done."""
    stopped, gpus = state.failures.stopped, event.gpus
    if stopped:
        gpus = tuple(gpu for gpu in gpus if gpu not in stopped)
    if not gpus:
        return
    state.record.computed(state.nodes[event.node], gpus, event.start_ps, event.end_ps)
    for gpu in gpus:
        del state.gpus.computing[gpu]
    yield from _compute_next(state, gpus[:-1])
    yield PiecesDone(event.node, len(gpus))
    yield from _compute_next(state, gpus[-1:])


def gpus_gone(state: State, event: GpusGone) -> Steps:
    """Give up the tasks of GPUs that are gone, but for those that others compute in their place."""
    moves, idled, queued = dict(event.moves), list[str](), state.gpus.queued
    for gpu in event.gpus:
        begun = filter(None, [state.gpus.computing.pop(gpu, None)])
        left = [*begun, *(node.name for node in queued.pop(gpu, ()))]
        if gpu not in moves:
            idled += left
            continue
        own = map(state.graph.nodes.__getitem__, left)  # as they are now: they say of which GPUs each is
        queued[moves[gpu]] += (node for node in own if isinstance(node, Compute))
        yield from _compute_next(state, [moves[gpu]])
    for name in (*event.ended, *idled):
        yield PiecesDone(name)


def _compute(state: State, node: Compute, gpus: Sequence[int]) -> Steps:
    """Start a task on GPUs that are idle; those that take equally long end together."""
    if not gpus:
        return
    start_ps = state.now_ps
    state.gpus.computing.update(dict.fromkeys(gpus, node.name))
    yield TaskBegan(node.name)
    for lasts_s, together in node.by_duration(gpus):
        end_ps = start_ps + ps(lasts_s)
        state.later(end_ps, Computed(node.name, tuple(together), start_ps, end_ps))


def _compute_next(state: State, gpus: Iterable[int]) -> Steps:
    """Start the next task of GPUs that are idle."""
    for gpu in gpus:
        if (queued := state.gpus.queued.get(gpu)) and not _is_busy(state, gpu):
            yield from _compute(state, queued.popleft(), [gpu])


def _is_busy(state: State, gpu: int) -> bool:
    """Return True if a GPU computes something, or is gone and never will."""
    return gpu in state.gpus.computing or gpu in state.failures.stopped
