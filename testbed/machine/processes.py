"""Forked processes: those that share work (predictions, and plots), and those that run beside a measurement.

They are forked, so they have all that is imported and what they work on; only results are sent. They ignore
what ends a command (`testbed.machine.signals`), which the parent handles, and are killed when the block that
they were made for is left. They end with the parent, however that ends.
"""

import gc
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import islice
from multiprocessing import get_context
from multiprocessing.connection import Connection
from traceback import format_exc
from typing import TypeVar, cast

from testbed.machine.kernel import tie_to_this_process
from testbed.machine.signals import ENDING, ignore
from topologies.errors import MachineError

PROCESSES = len(os.sched_getaffinity(0))
"""As many as CPUs; each holds what it computes, and no copy of the rest."""
AHEAD = 4
"""So many items per process are asked for before the first one's result is taken: the results of a long list
would fill memory where whoever takes them is slow."""
Item = TypeVar("Item")
Result = TypeVar("Result")
_fork = get_context("fork")


@contextmanager
def in_processes(
    function: Callable[[Item], Result], items: Sequence[Item], count: int = PROCESSES
) -> Iterator[Iterator[Result]]:
    """Yield what a function returns for each item, in their order, as it is computed.

    What is still being computed when the block is left ends at once. `ProcessPoolExecutor` would wait for
    it, for minutes where items take that long. Here each process has a pipe of its own, and a thread that
    waits for its answers: one that is killed in the middle of an answer blocks nothing.

    Parameters
    ----------
    function
        Pure; what it returns or raises is pickled.
    items
        What it is called with, one each.
    count
        How many processes share the work, at most one an item.

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
    pipes, own, count = list[Connection](), threading.local(), min(count, len(items))

    def take_pipe() -> None:
        own.pipe = pipes.pop()

    with (
        ExitStack() as ends,
        ThreadPoolExecutor(max(count, 1), initializer=take_pipe) as threads,
        ExitStack() as processes,
    ):
        for _ in range(count):
            here, there = _fork.Pipe()
            pipes.append(ends.enter_context(here))
            with there:  # then the process alone has this end, and the pipe ends with it
                processes.enter_context(
                    beside(partial(_answer, there, lambda number: function(items[number])))
                )

        def submit(number: int) -> Future[object]:
            return threads.submit(lambda: _answer_of(own.pipe, number))

        yield cast(Iterator[Result], in_order(submit, range(len(items)), AHEAD * count))


def in_order(submit: Callable[[Item], Future[Result]], items: Iterable[Item], ahead: int) -> Iterator[Result]:
    """Return the results of items in their order; some are under way at once, one more as each is taken.

    What is still under way is cancelled when the iterator ends early.
    """
    left = iter(items)
    waiting = deque(submit(item) for item in islice(left, ahead))

    def results() -> Iterator[Result]:
        try:
            while waiting:
                yield waiting.popleft().result()
                waiting.extend(submit(item) for item in islice(left, 1))
        finally:
            for future in waiting:
                future.cancel()

    return results()


@contextmanager
def beside(*functions: Callable[[], None]) -> Iterator[None]:
    """Run functions, each in a process, while the block runs; kill them when it is left, also by an error.

    Parameters
    ----------
    functions
        What is called; it may run for ever.
    """
    with ExitStack() as stack:
        for function in functions:
            process = _fork.Process(target=_begin, args=(tie_to_this_process(), function), daemon=True)
            with _interrupts_blocked():
                process.start()
            stack.callback(process.join)
            stack.callback(process.kill)
        yield


@contextmanager
def interrupt_deferred() -> Iterator[None]:
    """Have an interrupt wait until the block is left, so that what it changes together is changed."""
    if threading.current_thread() is not threading.main_thread():  # it handles no signals
        yield
        return
    heard = list[int]()
    # A handler, not a mask: any other thread may take the signal.
    found = {number: signal.getsignal(number) for number in ENDING}
    before = {number: now for number, now in found.items() if now not in (None, signal.SIG_IGN)}
    for ending in before:
        signal.signal(ending, lambda number, _frame: heard.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for each in dict.fromkeys(heard):
        signal.raise_signal(each)


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Have an interrupt wait, so that a fork does not take it before it ignores interrupts."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(tie: Callable[[], None], function: Callable[[], None]) -> None:
    tie()
    ignore()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    gc.freeze()  # what was inherited stays: it is not searched for garbage, which would copy it
    function()


def _answer(pipe: Connection, function: Callable[[int], object]) -> None:
    """Answer each number with what a function returns for it, or with what it raises."""
    while True:
        number = pipe.recv()
        try:
            pipe.send((function(number), None))
        except BaseException as error:
            error.add_note(format_exc())
            pipe.send((None, error))


def _answer_of(pipe: Connection, number: int) -> object:
    try:
        pipe.send(number)
        answer, error = pipe.recv()
    except (OSError, EOFError) as lost:
        raise MachineError(
            "a process that shared the work was killed", "see whether memory ran out (dmesg, ulimit -v)"
        ) from lost
    if error is not None:
        raise error
    return answer
