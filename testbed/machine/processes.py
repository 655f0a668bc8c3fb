"""Two processes that share work: predictions, and plots.

They are forked, so they have the items and all that is imported; only results are sent. They ignore an
interrupt, which the parent handles, and they end with the parent, however that ends.
"""

import gc
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from typing import TypeVar, cast

from testbed.machine.kernel import die_with_parent
from topologies.errors import MachineError

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

    Raises
    ------
    MachineError
        If a process is killed.

    Examples
    --------
    >>> with in_processes(str.upper, ["a", "b"]) as results:
    ...     list(results)
    ['A', 'B']
    """
    fork = get_context("fork")
    begin = partial(_begin, os.getpid(), lambda number: function(items[number]))
    pool = ProcessPoolExecutor(PROCESSES, fork, begin)
    try:
        yield cast(Iterator[Result], pool.map(_do, range(len(items))))
    except BrokenProcessPool as error:
        raise MachineError(
            "a process that shared the work was killed", "see whether memory ran out"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _begin(parent: int, work: Callable[[int], object]) -> None:
    die_with_parent()
    if os.getppid() != parent:  # it ended before the kernel was asked
        os._exit(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.freeze()  # what was inherited stays: it is not searched for garbage, which would copy it
    _work.append(work)


def _do(number: int) -> object:
    return _work[-1](number)
