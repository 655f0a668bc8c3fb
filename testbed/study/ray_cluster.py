"""A Ray cluster as an executor: what is submitted runs on its machines, each from a checkout of its own.

Every node was started by `ray start` from the environment of a checkout of the same commit (docs/cluster.md). A task
names a function of this checkout and brings its arguments as bytes, which a node reads only once its sources are
known to be those of the driver. What it returns comes as bytes too: so arrays can be written to, as those
of a local process, and no result stays in Ray's store. A task whose node is lost runs again on another one.
"""

import pickle
import platform
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from concurrent.futures import wait as ended
from contextlib import contextmanager
from functools import partial
from itertools import islice
from traceback import format_exc
from typing import Any, ParamSpec, TypeVar

from testbed.machine.versions import sources
from topologies.errors import MachineError, ScenarioError

RETRIES = 2
"""How often a task runs again whose node was lost."""
LEAST_AHEAD, AHEAD_PER_CPU = 64, 4
"""How many results may be under way in `map`: enough that one long task leaves no CPU without work."""
EMULATION = "emulation"
"""The resource of a node that can emulate: one slot a machine."""
OFFER = f"""--resources='{{"{EMULATION}": 1}}'"""
PAGE = "see docs/cluster.md"

Result = TypeVar("Result")
Parameters = ParamSpec("Parameters")
Ray = Any
"""The module: an extra that only a cluster's machines install."""


@contextmanager
def opened(address: str) -> Iterator["RayCluster"]:
    """Connect to a cluster; at the end cancel what is under way and disconnect.

    Parameters
    ----------
    address
        ``auto`` for the cluster that this machine is a node of, ``HOST:PORT`` of its head for the same, or
        ``ray://HOST:10001`` from a machine that is no node.

    Raises
    ------
    ScenarioError
        If Ray is not installed here.
    MachineError
        If no cluster can be reached there, or one of another Ray or Python.
    """
    ray = _imported()
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address, log_to_driver=False, logging_level="CRITICAL")
    except (OSError, RuntimeError, ValueError) as error:
        raise MachineError(f"no Ray cluster at {address}: {' '.join(str(error).split())}", PAGE) from error
    if handler != signal.getsignal(signal.SIGTERM):
        signal.signal(signal.SIGTERM, handler)  # Ray has set its own
    cluster = RayCluster(ray, set(), {"num_cpus": 1})
    try:
        yield cluster
    finally:
        cluster.shutdown(wait=False, cancel_futures=True)
        ray.shutdown()


class RayCluster(Executor):
    """Runs functions of this checkout on the nodes of a cluster, one a CPU.

    Parameters
    ----------
    ray
        The module, connected.
    running
        The futures under way, of all executors of the connection.
    needs
        What a task needs of a node, in Ray's words.
    """

    def __init__(self, ray: Ray, running: "set[Future[Any]]", needs: dict[str, Any]) -> None:
        self._ray, self._running, self._needs = ray, running, needs
        self._task = ray.remote(_task).options(max_retries=RETRIES, retry_exceptions=False, **needs)
        self._closed = False

    def emulating(self) -> "RayCluster":
        """Return an executor of tasks that emulate: each has a machine's slot, and its CPUs to itself.

        Raises
        ------
        ScenarioError
            If no machine offers a slot.
        """
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        cpus = [node.get("CPU", 0) for node in nodes if node.get(EMULATION)]
        if not cpus:
            raise ScenarioError("no machine of the cluster offers to emulate", f"ray start {OFFER}; {PAGE}")
        needs = {"num_cpus": min(cpus), "resources": {EMULATION: 1}}
        return RayCluster(self._ray, self._running, needs)

    def submit(
        self, fn: Callable[Parameters, Result], /, *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> "Future[Result]":
        """Start a task; its future's `cancel` ends it also where it runs already.

        Parameters
        ----------
        fn
            A function of a module that every machine has.
        args, kwargs
            Values that can be pickled.
        """
        if self._closed:
            raise RuntimeError("this cluster was shut down")
        future: Future[Result] = Future()
        ref = self._task.remote(pickle.dumps((fn, args, kwargs)), sources())
        self._running.add(future)
        future.add_done_callback(self._running.discard)
        future.add_done_callback(partial(self._cancelled, ref))
        ref.future().add_done_callback(partial(_settle, future))
        return future

    def map(
        self,
        fn: Callable[..., Result],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
    ) -> Iterator[Result]:
        """Return what a function returns for each item, in their order.

        Some are started at once, and one more for each result that is taken, so memory does not grow
        with the number of items. `timeout` [s] is each result's; `chunksize` means nothing here.
        """
        items = zip(*iterables, strict=False)
        ahead = max(LEAST_AHEAD, AHEAD_PER_CPU * int(self._ray.cluster_resources().get("CPU", 0)))
        futures = deque(self.submit(fn, *item) for item in islice(items, ahead))

        def results() -> Iterator[Result]:
            try:
                while futures:
                    yield futures.popleft().result(timeout)
                    futures.extend(self.submit(fn, *item) for item in islice(items, 1))
            finally:
                for future in futures:
                    future.cancel()

        return results()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more tasks; cancel those under way, or wait for them."""
        self._closed = True
        for future in list(self._running) if cancel_futures else []:
            future.cancel()
        if wait:
            ended(list(self._running))

    def _cancelled(self, ref: object, future: "Future[Any]") -> None:
        if future.cancelled():
            self._ray.cancel(ref, force=True)


def _imported() -> Ray:
    try:
        import ray
    except ModuleNotFoundError as error:
        hint = "pip install '.[cluster]' or provision.sh --cluster"
        raise ScenarioError("this needs Ray", hint) from error
    return ray


def _settle(future: "Future[Any]", done: "Future[bytes]") -> None:
    """Give a future what its task has sent, or one sentence if it could not send anything."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        value, error = pickle.loads(done.result())
    except Exception as lost:  # of Ray's many; that of a function is in what was sent
        error = MachineError(f"a point was lost on the cluster: {_gist(lost)}", PAGE)
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)


def _gist(error: Exception) -> str:
    """Return the last line of what Ray says, which follows its tracebacks."""
    return str(error).strip().splitlines()[-1].strip()


def _task(call: bytes, expected: str) -> bytes:
    """Return what a call returns and None, or None and what it raises; runs on a node."""
    try:
        return pickle.dumps((_returned(call, expected), None))
    except Exception as error:
        error.add_note(format_exc())
        return pickle.dumps((None, error))


def _returned(call: bytes, expected: str) -> object:
    node = platform.node()
    if sources() != expected:
        raise MachineError(f"{node} has lightrail {sources()}, and not {expected} as this machine", PAGE)
    try:
        function, arguments, named = pickle.loads(call)
    except (ImportError, AttributeError) as error:
        raise MachineError(f"{node} lacks what a point is made of: {error}", PAGE) from error
    return function(*arguments, **named)
