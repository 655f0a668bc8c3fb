"""How `pytest -n auto` shares tests out: unit tests among all workers, then emulation tests on one.

    worker 0   unit files ──► emulation files that measure nothing ─────► waits ─► all other emulation files
    worker 1   unit files ──► emulation files that measure nothing ──────────► ends

Most emulation tests measure what moves between processes, so nothing runs beside them: they begin when
all other workers have ended. A file is run by one worker, whose tests share what the file sets up.
"""

from collections.abc import Sequence
from pathlib import PurePath

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

EMULATION = "tests/emulation"
BESIDE = (
    "test_kill.py",
    "test_faults.py",
    "test_controller_ovs.py",
    "test_mininet.py",
    "test_no_sandbox.py",
    "test_network.py",
    "test_box.py",
)
"""The emulation files that run beside other tests, the longest first.

They ask who is reached and what is left behind, wait for it with deadlines of many seconds, and pass on a CPU
that is 14 times slower (but for Python's start in the first). None runs a scenario, which would calibrate the
machine."""


def is_alone(nodeid: str) -> bool:
    """Return whether nothing may run beside a test."""
    path = PurePath(nodeid.partition("::")[0])
    return path.is_relative_to(EMULATION) and path.name not in BESIDE


def in_order(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return tests in the order in which workers take their files.

    Files with an early test come first, so that no worker has one left when the others have ended;
    then all other unit tests, then emulation tests, those that measure last. Within these the order stays.
    """
    early = {item.path for item in items if item.get_closest_marker("early")}

    def place(item: pytest.Item) -> tuple[int, int]:
        if is_alone(item.nodeid):
            return 3, 0
        if item.nodeid.startswith(EMULATION):
            return 2, BESIDE.index(item.path.name)
        return int(item.path not in early), 0

    return sorted(items, key=place)


class EmulationAlone(LoadScopeScheduling):
    """A scheduler of pytest-xdist: a unit of work is a file, or all files of emulation tests that measure."""

    def _split_scope(self, nodeid: str) -> str:
        return EMULATION if is_alone(nodeid) else nodeid.partition("::")[0]

    def _assign_work_unit(self, node: WorkerController) -> None:
        others = [other for other in self.nodes if other is not node]
        if next(iter(self.workqueue)) != EMULATION or not others:
            super()._assign_work_unit(node)
        elif not all(other.shutting_down for other in others):
            node.shutdown()
        # Otherwise this is the worker that stays, and waits: it is asked again when another has ended.

    def remove_node(self, node: WorkerController) -> str | None:
        """Take note that a worker has ended; return the test that it crashed in, if it did."""
        crashed = super().remove_node(node)
        for other in self.nodes:
            self._reschedule(other)
        return crashed
