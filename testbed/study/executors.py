"""Who predicts points: processes of this machine, or a cluster, behind `concurrent.futures.Executor`."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import Any, ParamSpec, TypeVar

from testbed.machine.processes import in_processes
from testbed.study.ray_cluster import opened
from testbed.study.study import Options

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")


class Forked(Executor):
    """Processes of this machine, forked for the items of a `map`, which they therefore have without sending.

    Parameters
    ----------
    jobs
        How many work at once.
    """

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._stack = ExitStack()
        self._threads = ThreadPoolExecutor(jobs)

    def map(
        self,
        fn: Callable[..., Result],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
    ) -> Iterator[Result]:
        """Return what a function returns for each item, in their order, as it is computed."""
        items = list(zip(*iterables, strict=True))
        return self._stack.enter_context(in_processes(lambda each: fn(*each), items, self._jobs))

    def submit(
        self, fn: Callable[Arguments, Result], /, *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> "Future[Result]":
        """Compute one value in a process of its own."""
        return self._threads.submit(_alone, partial(fn, *args, **kwargs))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End all; what is still being computed for a `map` ends at once."""
        self._stack.close()
        self._threads.shutdown(wait, cancel_futures=cancel_futures)


def executor_of(options: Options) -> AbstractContextManager[Executor]:
    """Return who predicts, a context manager: a cluster if one is named, else processes of this machine."""
    return opened(options.cluster) if options.cluster else Forked(options.jobs)


def _alone(function: Callable[[], Result]) -> Result:
    with in_processes(lambda called: called(), [function], 1) as results:
        return next(results)
