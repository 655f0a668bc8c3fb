"""How `pytest -n auto` shares tests out: unit tests among all workers, then emulation tests on one.

    worker 0   unit files ──► tests/emulation ─────► waits ─► tests/emulation/alone
    worker 1   unit files ──► tests/emulation ──────────► ends
    worker 2   unit files ──► tests/emulation ────► ends

Emulated networks leave CPUs idle while packets are on their way, so workers outnumber CPUs by a half.
Some emulation tests measure what moves between processes, so nothing runs beside them: they begin when
all other workers have ended. A file is run by one worker, whose tests share what the file sets up.
"""

import os
from collections.abc import Sequence
from pathlib import PurePath

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

EMULATION, ALONE = "tests/emulation", "tests/emulation/alone"
"""Most emulation tests ask who is reached and what is left behind, and wait for it with deadlines of many
seconds; those that measure are in a folder of their own."""


def workers() -> int:
    """Return how many workers share the tests."""
    return 3 * len(os.sched_getaffinity(0)) // 2


def is_alone(nodeid: str) -> bool:
    """Return whether nothing may run beside a test."""
    return _path(nodeid).is_relative_to(ALONE)


def _path(nodeid: str) -> PurePath:
    return PurePath(nodeid.partition("::")[0])


def in_order(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return tests in the order in which workers take their files.

    First unit tests, then emulation tests, those that measure last; of each, files with an early test first,
    so that no worker has one left when the others have ended. Within these the order stays.
    """
    early = {item.path for item in items if item.get_closest_marker("early")}

    def place(item: pytest.Item) -> tuple[int, bool]:
        emulates = _path(item.nodeid).is_relative_to(EMULATION)
        return emulates + is_alone(item.nodeid), item.path not in early

    return sorted(items, key=place)


class EmulationAlone(LoadScopeScheduling):
    """A scheduler of pytest-xdist: a unit of work is a file, or all files of emulation tests that measure."""

    def _split_scope(self, nodeid: str) -> str:
        return ALONE if is_alone(nodeid) else str(_path(nodeid))

    def _assign_work_unit(self, node: WorkerController) -> None:
        others = [other for other in self.nodes if other is not node]
        if next(iter(self.workqueue)) != ALONE or not others:
            super()._assign_work_unit(node)
        elif not all(other.shutting_down for other in others):
            node.shutdown()
        # Otherwise this is the worker that stays, and waits: it is asked again when another has ended.

    def remove_node(self, node: WorkerController) -> str | None:
        """Handle the end of a worker; return the test that it crashed in, if it did."""
        crashed = super().remove_node(node)
        for other in self.nodes:
            self._reschedule(other)
        return crashed
