"""How `pytest -n auto` shares tests out: unit tests among all workers, then emulation tests on one.

    worker 0   unit files ─────────► waits ─► tests/emulation
    worker 1   unit files ──────────────► ends

Emulation tests measure what moves between processes, so nothing runs beside them: they begin when
all other workers have ended. A file is run by one worker, whose tests share what the file sets up.
"""

from collections.abc import Sequence

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

EMULATION = "tests/emulation"


def in_order(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return tests in the order in which workers take their files.

    Files with a slow test come first, so that no worker has one left when the others have ended;
    then all other unit tests, then emulation tests. Within these the order stays.
    """
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    return sorted(items, key=lambda item: (item.nodeid.startswith(EMULATION), item.path not in slow))


class EmulationAlone(LoadScopeScheduling):
    """A scheduler of pytest-xdist: a unit of work is a file of unit tests, or all of tests/emulation."""

    def _split_scope(self, nodeid: str) -> str:
        return EMULATION if nodeid.startswith(EMULATION) else nodeid.partition("::")[0]

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
