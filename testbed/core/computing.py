"""Computing: what each GPU computes, one task at a time, first ready first."""

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial

from testbed.core.ledger import Ledger
from traffic.clock import ps
from traffic.job import Compute, Node


class Computing:
    """The GPUs of one run.

    Parameters
    ----------
    ledger
        Of the run.
    stopped
        The GPUs that compute nothing any more; they may become more.
    now_ps, at
        Return the time, and have something done at a time [ps].
    began
        Told that a GPU computes something of a node from now on.
    done
        Told that so many GPUs have computed what a node has them do.
    """

    def __init__(
        self,
        ledger: Ledger,
        stopped: Collection[int],
        *,
        now_ps: Callable[[], int],
        at: Callable[[int, Callable[[], None]], None],
        began: Callable[[str], None],
        done: Callable[[str, int], None],
    ) -> None:
        self._ledger, self._stopped = ledger, stopped
        self._now_ps, self._at, self._began, self._done = now_ps, at, began, done
        self._queued: dict[int, deque[Compute]] = defaultdict(deque)
        self._computing: dict[int, str] = {}
        """What each GPU that is not idle computes."""

    def start(self, node: Compute, gpus: Sequence[int]) -> None:
        """Have GPUs compute what a node has them do, when they have done what was ready before."""
        busy = [gpu for gpu in gpus if self._is_busy(gpu) or self._queued.get(gpu)]
        for gpu in busy:
            self._queued[gpu].append(node)
        self._compute(node, [gpu for gpu in gpus if gpu not in busy] if busy else gpus)
        self._compute_next(busy)

    def give_up(self, gpus: Iterable[int], moves: Mapping[int, int], nodes: Mapping[str, Node]) -> list[str]:
        """Return what GPUs that are gone had yet to compute, but for what others compute in their place.

        ``nodes`` are those of the job as they are now, by name: they say of which GPUs each is.
        """
        idled = []
        for gpu in gpus:
            begun = filter(None, [self._computing.pop(gpu, None)])
            left = [*begun, *(node.name for node in self._queued.pop(gpu, ()))]
            if gpu not in moves:
                idled += left
                continue
            own = map(nodes.__getitem__, left)
            self._queued[moves[gpu]] += (node for node in own if isinstance(node, Compute))
            self._compute_next([moves[gpu]])
        return idled

    def _compute(self, node: Compute, gpus: Sequence[int]) -> None:
        """Start a task on GPUs that are idle; those that take equally long end together."""
        if not gpus:
            return
        start_ps = self._now_ps()
        self._computing.update(dict.fromkeys(gpus, node.name))
        self._began(node.name)
        for lasts_s, together in node.by_duration(gpus):
            end_ps = start_ps + ps(lasts_s)
            self._at(end_ps, partial(self._computed, node.name, together, start_ps, end_ps))

    def _compute_next(self, gpus: Iterable[int]) -> None:
        """Start the next task of GPUs that are idle."""
        for gpu in gpus:
            if (queued := self._queued.get(gpu)) and not self._is_busy(gpu):
                self._compute(queued.popleft(), [gpu])

    def _is_busy(self, gpu: int) -> bool:
        """Return whether a GPU computes something, or nothing any more."""
        return gpu in self._computing or gpu in self._stopped

    def _computed(self, name: str, gpus: Sequence[int], start_ps: int, end_ps: int) -> None:
        if self._stopped:
            gpus = [gpu for gpu in gpus if gpu not in self._stopped]
        if not gpus:
            return
        self._ledger.computed(name, gpus, start_ps, end_ps)
        for gpu in gpus:
            del self._computing[gpu]
        self._compute_next(gpus[:-1])
        self._done(name, len(gpus))
        self._compute_next(gpus[-1:])
