"""A Ray cluster as an executor: what is submitted runs on its machines, from checkouts of the same commit.

A node reads a task's arguments only once it has found its own sources to be the driver's. Results come as
bytes: their arrays can be written to, as a local process's, and none stays in Ray's store.
"""

import pickle
import platform
import signal
import socket
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from traceback import format_exc
from types import ModuleType
from typing import Any, TypeVar

from testbed.machine.processes import in_order
from testbed.machine.versions import sources
from topologies.errors import MachineError, ScenarioError

EMULATION = "emulation"
"""The resource of a node that can emulate: one slot a machine."""
ANSWER_S = 10.0
"""How long a cluster may take to answer [s]; Ray itself would try for minutes."""
PAGE = "see docs/reference/cluster.md"
Result = TypeVar("Result")


@contextmanager
def opened(address: str) -> Iterator["RayCluster"]:
    """Connect to a cluster; at the end cancel what is under way, and disconnect.

    `address` is ``auto`` or the head's ``HOST:PORT`` on a machine of it, ``ray://HOST:10001`` on any other.
    """
    try:
        import ray
    except ModuleNotFoundError as error:
        raise ScenarioError("this needs Ray", "pip install '.[cluster]' or provision.sh --cluster") from error
    _connect(ray, address)
    cluster = RayCluster(ray, set(), {"num_cpus": 1})
    try:
        yield cluster
    finally:
        cluster.shutdown(wait=False, cancel_futures=True)
        ray.shutdown()


class RayCluster(Executor):
    """Runs functions of modules on the nodes of the cluster that `ray` is connected to."""

    def __init__(self, ray: ModuleType, running: set[Future[Any]], needs: dict[str, Any]) -> None:
        self._ray, self._running = ray, running
        self._task = ray.remote(_task).options(max_retries=2, retry_exceptions=False, **needs)

    @property
    def emulators(self) -> list[str]:
        """The machines that offer to emulate."""
        return list(dict.fromkeys(node["NodeManagerHostname"] for node in self._offers(None)))

    def emulating(self, machine: str | None = None) -> "RayCluster":
        """Return an executor of tasks that emulate, of one machine or any: each takes its slot and CPUs."""
        offers = self._offers(machine)
        there = {f"node:{offers[0]['NodeManagerAddress']}": 0.001} if machine else {}
        cpus = min(node["Resources"].get("CPU", 0) for node in offers)
        return RayCluster(self._ray, self._running, {"num_cpus": cpus, "resources": {EMULATION: 1, **there}})

    def _offers(self, machine: str | None) -> list[dict[str, Any]]:
        """Return the nodes that offer to emulate, of one machine or any; ScenarioError if none does."""
        offers = [node for node in self._ray.nodes() if node["Alive"] and EMULATION in node["Resources"]]
        if here := [node for node in offers if machine in (None, node["NodeManagerHostname"])]:
            return here
        raise ScenarioError(f"{machine or 'the cluster'} offers no slot to emulate", PAGE)

    def submit(self, fn: Callable[..., Result], /, *args: object, **kwargs: object) -> Future[Result]:
        """Start a task; what it is given is pickled. Its future's `cancel` ends it also while it runs."""
        future = Future[Result]()
        ref = self._task.remote(pickle.dumps((fn, args, kwargs)), sources())
        self._running.add(future)
        future.add_done_callback(self._running.discard)
        future.add_done_callback(lambda done: done.cancelled() and self._ray.cancel(ref, force=True))
        ref.future().add_done_callback(lambda done: _settle(future, done))
        return future

    def map(
        self, fn: Callable[..., Result], *iterables: Iterable[Any], **_ignored: float | None
    ) -> Iterator[Result]:
        """Return results in their items' order; some tasks start at once, one more as each is taken."""
        # So many are under way that no CPU waits while one task takes long.
        ahead = max(64, 4 * int(self._ray.cluster_resources().get("CPU", 0)))
        return in_order(lambda item: self.submit(fn, *item), zip(*iterables, strict=False), ahead)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Cancel what is under way, where that is asked for; wait for nothing."""
        for future in list(self._running) if cancel_futures else []:
            future.cancel()


def _connect(ray: ModuleType, address: str) -> None:
    handler = signal.getsignal(signal.SIGTERM)
    try:
        host, _, port = address.removeprefix("ray://").rpartition(":")
        if host:
            socket.create_connection((host.strip("[]"), int(port)), ANSWER_S).close()
        ray.init(address, log_to_driver=False, logging_level="CRITICAL")
    except (OSError, RuntimeError, ValueError) as error:
        raise MachineError(f"no Ray cluster at {address}: {' '.join(str(error).split())}", PAGE) from error
    finally:
        if handler != signal.getsignal(signal.SIGTERM):
            signal.signal(signal.SIGTERM, handler)  # Ray has set its own


def _settle(future: Future[Any], done: Future[bytes]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        value, error = pickle.loads(done.result())
    except Exception as lost:  # of Ray's many; what a function raises is among what it sends
        *_, said = str(lost).strip().split("\n")  # after a traceback
        value, error = None, MachineError(f"a task was lost on the cluster: {said.strip()}", PAGE)
    future.set_exception(error) if error else future.set_result(value)


def _task(call: bytes, expected: str) -> bytes:
    """Return what a call returns and None, or None and what it raises; a node runs it."""
    node = platform.node()
    try:
        if sources() != expected:
            raise MachineError(f"{node} has lightrail {sources()}, this machine {expected}", PAGE)
        try:
            function, arguments, named = pickle.loads(call)
        except (ImportError, AttributeError) as missing:
            raise MachineError(f"{node} lacks what a task is made of: {missing}", PAGE) from missing
        return pickle.dumps((function(*arguments, **named), None))
    except Exception as error:
        error.add_note(f"on {node}: {format_exc()}")
        return pickle.dumps((None, error))
