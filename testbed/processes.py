"""Work on many things at once: two processes that share it, for predictions and for plots.

They are forked: they have all that is imported, and the things to work on, and only results are sent. An
interrupt is for the process that started them, and they end with it, however it ends.
"""

import gc
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import TypeVar, cast

from testbed.kernel import die_with_parent

PROCESSES = 2
"""What the smallest machine has CPUs for; each holds what it computes, and no copy of the rest."""
Item = TypeVar("Item")
Result = TypeVar("Result")
_work: list[Callable[[int], object]] = []
"""In a process of the pool: what it does with the item of a number."""


@contextmanager
def in_processes(function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Iterator[Result]]:
    """Yield what a function returns for each item, in their order, as it is computed.

    Parameters
    ----------
    function
        Pure; what it returns or raises is pickled.
    items
        What it is called with, one each.

    Examples
    --------
    >>> with in_processes(str.upper, ["a", "b"]) as results:
    ...     list(results)
    ['A', 'B']
    """
    fork = get_context("fork")
    pool = ProcessPoolExecutor(PROCESSES, fork, _begin, (lambda number: function(items[number]),))
    try:
        yield cast(Iterator[Result], pool.map(_do, range(len(items))))
    finally:
        pool.shutdown(cancel_futures=True)


def _begin(work: Callable[[int], object]) -> None:
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.freeze()  # what was inherited stays: it is not searched for garbage, which would copy it
    _work.append(work)


def _do(number: int) -> object:
    return _work[-1](number)
