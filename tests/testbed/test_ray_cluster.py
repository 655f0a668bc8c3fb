"""A Ray cluster of this machine's own nodes: results as here, in order, whatever becomes of a node."""

import fcntl
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from itertools import pairwise, takewhile
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import pytest

from testbed.experiment.experiment import Experiment
from testbed.machine.residue import until
from testbed.machine.versions import sources
from testbed.model.predict import predict
from testbed.study.ray_cluster import RayCluster, opened
from tests.tools import CHECKOUT, path_of
from topologies.errors import DemandError, MachineError, ScenarioError
from topologies.rail import rail_fabric
from traffic.steps import single
from traffic.workloads.synthetic import sparse

SLOT = """--resources={"emulation": 1}"""
QUICK = {f"RAY_health_check_{name}": "500" for name in ("initial_delay_ms", "period_ms", "timeout_ms")}
"""By default a node counts as dead only after some 15 s."""


def waited(number: int, seconds: float) -> tuple[int, int]:
    """Compute for a time, and return a number and the node that did so."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
    return number, os.getppid()


def locked(file: Path, seconds: float) -> tuple[float, float, int]:
    """Compute while a file is locked, as an emulation does; return from when to when, and the node."""
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        start = time.monotonic()
        _, node = waited(0, seconds)
        return start, time.monotonic(), node


def told(file: Path) -> None:
    """Write one's process into a file, and compute until killed."""
    file.write_text(str(os.getpid()))
    waited(0, 600)


def refused() -> None:
    """Raise an error of lightrail's."""
    raise DemandError("a sentence", "a hint")


def killed() -> None:
    """End as a process does for which there is no memory."""
    os.kill(os.getpid(), signal.SIGKILL)


class Nodes:
    """Nodes of one cluster, each a `ray start` of one CPU; with the block their process groups end."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._folder = stack.enter_context(TemporaryDirectory(dir="/tmp"))  # short: it holds sockets
        self.port, self.client_port = free_ports(2)

    def head(self, *words: str, checkout: Path = CHECKOUT) -> int:
        """Start the first node."""
        ports = (f"--port={self.port}", f"--ray-client-server-port={self.client_port}")
        return self._start(
            checkout, "--head", *ports, "--include-dashboard=false", f"--temp-dir={self._folder}", *words
        )

    def join(self, *words: str) -> int:
        """Start another one, and return its process."""
        return self._start(CHECKOUT, f"--address={self.address}", *words)

    @property
    def address(self) -> str:
        """Where the cluster is reached from this machine."""
        return f"127.0.0.1:{self.port}"

    def _start(self, checkout: Path, *words: str) -> int:
        common = ("--num-cpus=1", "--object-store-memory=100000000", "--disable-usage-stats", "--block")
        process = self._stack.enter_context(
            subprocess.Popen(
                [path_of("ray"), "start", *words, *common],
                env=os.environ | QUICK | {"PYTHONPATH": str(checkout)},
                cwd=self._folder,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        )
        self._stack.callback(end, process.pid)
        assert process.stdout
        said = list(takewhile(lambda line: "Ray runtime started" not in line, process.stdout))
        assert process.poll() is None, "".join(said)
        return process.pid


def end(node: int) -> None:
    """Kill a node with all of its processes."""
    try:
        os.killpg(node, signal.SIGKILL)
    except ProcessLookupError:
        return


def free_ports(count: int) -> list[int]:
    """Return ports that nothing listens on."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]


@contextmanager
def started() -> Iterator[Nodes]:
    """Yield a cluster that has no node yet."""
    pytest.importorskip("ray", reason="Ray is optional and not installed: provision.sh --cluster")
    with ExitStack() as stack:
        yield Nodes(stack)


@pytest.fixture(scope="module")
def two() -> Iterator[Nodes]:
    """Return a cluster of two nodes that each offer to emulate."""
    with started() as nodes:
        nodes.head(SLOT)
        nodes.join(SLOT)
        yield nodes


@pytest.fixture
def cluster(two: Nodes) -> Iterator[RayCluster]:
    """Return a connection to it."""
    with opened(two.address) as cluster:
        yield cluster


def experiments() -> list[Experiment]:
    """Return six small points."""
    fabric = rail_fabric(servers=4, rails=2)
    jobs = [single(sparse(fabric.gpus, sparsity=0.4, top_k=1, seed=seed)) for seed in range(3)]
    return [Experiment(fabric, job, scheme) for job in jobs for scheme in ("rails", "ecmp")]


def test_without_ray_one_sentence_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    said = r"this needs Ray; pip install '\.\[cluster\]' or provision.sh --cluster"
    with pytest.raises(ScenarioError, match=said), opened("auto"):
        pass


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "somewhere", "host.invalid:6379"])
def test_where_no_cluster_answers_one_sentence_says_so_at_once(address: str) -> None:
    pytest.importorskip("ray", reason="Ray is optional and not installed: provision.sh --cluster")
    with pytest.raises(MachineError, match=f"no Ray cluster at {address}: .*cluster.md"), opened(address):
        pass


@pytest.mark.slow
@pytest.mark.parametrize("client", [False, True])
def test_points_are_predicted_as_here_and_in_order(two: Nodes, client: bool) -> None:
    points = experiments()
    with opened(f"ray://127.0.0.1:{two.client_port}" if client else two.address) as cluster:
        found = list(cluster.map(predict, points))
    for run, here in zip(found, map(predict, points), strict=True):
        pd.testing.assert_frame_equal(run.messages, here.messages)


@pytest.mark.slow
def test_a_map_starts_some_and_then_one_for_each_result(cluster: RayCluster) -> None:
    taken = []

    def items() -> Iterator[int]:
        for number in range(200):
            taken.append(number)
            yield number

    results = cluster.map(abs, items())
    assert len(taken) == 64
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    assert len(taken) == 66
    assert list(results) == list(range(3, 200))


@pytest.mark.slow
def test_arrays_can_be_written_to_as_those_of_a_local_process(cluster: RayCluster) -> None:
    found = cluster.submit(np.zeros, 1_000_000).result()
    found[0] = 1
    assert found.sum() == 1


@pytest.mark.slow
def test_a_node_killed_in_the_middle_loses_no_point(two: Nodes) -> None:
    third = two.join()
    with opened(two.address) as cluster:
        results = cluster.map(waited, range(60), [0.1] * 60)
        found = [next(results) for _ in range(18)]
        end(third)
        found += results
    assert [number for number, _ in found] == list(range(60))
    assert len({node for _, node in found[:18]}) == 3


@pytest.mark.slow
def test_errors_arrive_as_they_are_and_a_process_that_is_killed_as_a_sentence(cluster: RayCluster) -> None:
    with pytest.raises(DemandError, match=r"^a sentence; a hint") as raised:
        cluster.submit(refused).result()
    assert "in refused" in raised.value.__notes__[0]
    with pytest.raises(TypeError, match=r"missing (1 )?required"):
        cluster.submit(np.zeros).result()
    with pytest.raises(
        MachineError, match=r"a task was lost on the cluster: .*; see docs/reference/cluster\.md"
    ):
        cluster.submit(killed).result()


@pytest.mark.slow
def test_an_interrupt_ends_what_runs_and_leaves_nothing_in_this_process(two: Nodes, tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM), threading.enumerate()
    running, waiting = [tmp_path / name for name in "ab"], tmp_path / "never"

    def interrupted() -> None:
        with opened(two.address) as cluster:
            futures.extend(cluster.submit(told, file) for file in (*running, waiting))
            assert until(lambda: all(file.exists() and file.read_text() for file in running), 60)
            raise KeyboardInterrupt

    futures: list[Future[None]] = []
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert all(future.cancelled() for future in futures)
    assert until(lambda: not any(Path("/proc", file.read_text()).exists() for file in running), 60)
    assert not waiting.exists()
    assert (signal.getsignal(signal.SIGTERM), threading.enumerate()) == before


@pytest.mark.slow
def test_emulations_of_two_slots_of_one_machine_take_turns(cluster: RayCluster, tmp_path: Path) -> None:
    found = sorted(cluster.emulating().map(locked, [tmp_path / "lock"] * 6, [0.2] * 6))
    assert all(end <= start for (_, end, _), (start, _, _) in pairwise(found))
    assert len({node for _, _, node in found}) == 2


@pytest.mark.slow
def test_a_machine_that_is_named_emulates_and_no_other(cluster: RayCluster) -> None:
    here = socket.gethostname()
    assert cluster.emulators == [here]
    assert cluster.emulating(here).submit(abs, -1).result() == 1
    with pytest.raises(ScenarioError, match="elsewhere offers no slot to emulate"):
        cluster.emulating("elsewhere")


@pytest.mark.slow
def test_a_node_of_another_commit_is_refused_and_says_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    git = [path_of("git"), "-c", "user.name=x", "-c", "user.email=x", "-C", str(other)]
    subprocess.run([git[0], "clone", "--quiet", CHECKOUT, other], check=True)
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "--message=x"], check=True)
    theirs = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout
    monkeypatch.chdir(tmp_path)  # Ray has nodes import what is in the driver's directory first
    with started() as nodes:
        nodes.head(checkout=other)
        with opened(nodes.address) as cluster:
            here = re.escape(sources())
            said = f"has lightrail {theirs[:12]} .*, this machine {here}; see docs/reference/cluster.md"
            with pytest.raises(MachineError, match=f"^{socket.gethostname()} {said}"):
                cluster.submit(abs, 1).result()
            with pytest.raises(ScenarioError, match="the cluster offers no slot to emulate"):
                cluster.emulating()
