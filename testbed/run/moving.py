"""Moving: the movers of one run as one, the backend and what moves beside it."""

from collections.abc import Iterator, Sequence

from testbed.run.ledger import Op
from testbed.run.movers import Backend, Chosen, Flows, Happening
from testbed.run.nvlink import NvlinkMover
from topologies.fabric import Fabric


class Moving:
    """What moves bytes.

    Parameters
    ----------
    fabric, backend
        Of the run.
    ops
        All operations, by number.
    """

    def __init__(self, fabric: Fabric, backend: Backend, ops: Sequence[Op]) -> None:
        self._backend, self._ops = backend, ops
        self._inside = None if backend.moves_inside else NvlinkMover(fabric, lambda: backend.now_ps)
        self._begun: set[str] = set()
        """The collectives of which nothing has left a server yet."""

    def begin(self, name: str) -> None:
        """Take that a collective begins: what leaves a server first of it may follow a pause."""
        self._begun.add(name)

    def start(self, flows: Sequence[Flows | Chosen]) -> None:
        """Have flows move, all inside servers or none."""
        if all(isinstance(each, Flows) and each.inside for each in flows):
            (self._inside or self._backend).start(flows)
            return
        nodes = {self._ops[int(each.op[0])].node for each in flows}
        self._backend.start(flows, first=not self._begun.isdisjoint(nodes))
        self._begun -= nodes

    def advance(self, to_ps: int) -> Iterator[Happening]:
        """Let time pass until something happens, at most until a time [ps]; yield what did."""
        yield from self._backend.advance(min(to_ps, self._inside.due_ps) if self._inside else to_ps)
        if self._inside:
            yield from self._inside.advance(self._backend.now_ps)
