"""Moving: the movers of one run as one, the backend and what moves beside it.

Beside a booted network what stays inside servers is fluid over NVLink's links, on that network's clock.
"""

from collections.abc import Iterator, Sequence

from testbed.core.ledger import Op
from testbed.core.movers import NVLINK, Arrived, Backend, Chosen, Flows, Happening
from testbed.model.backend import FluidBackend
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
        self._inside = None if backend.moves_inside else FluidBackend(fabric, {}, by_bytes=False)
        """Moves what stays inside servers, if the backend does not."""
        self._early: list[Arrived] = []
        """What has arrived there, and was not yet reported."""
        self._begun: set[str] = set()
        """The collectives of which nothing has left a server yet."""

    def begin(self, name: str) -> None:
        """Take that a collective begins: what leaves a server first of it may follow a pause."""
        self._begun.add(name)

    def start(self, flows: Sequence[Flows | Chosen]) -> None:
        """Have flows move, all inside servers or none."""
        if all(isinstance(each, Flows) and each.inside for each in flows):
            if self._inside:
                self._early += _passed(self._inside, self._backend.now_ps)
            (self._inside or self._backend).start(flows)
            return
        nodes = {self._ops[int(each.op[0])].node for each in flows}
        self._backend.start(flows, first=not self._begun.isdisjoint(nodes))
        self._begun -= nodes

    def advance(self, to_ps: int) -> Iterator[Happening]:
        """Let time pass until something happens, at most until a time [ps]; yield what did."""
        if not self._inside:
            yield from self._backend.advance(to_ps)
            return
        due_ps = self._inside.now_ps if self._early else self._inside.next_ps
        yield from self._backend.advance(min(to_ps, due_ps))
        early, self._early = self._early, []
        yield from (*early, *_passed(self._inside, self._backend.now_ps))


def _passed(inside: FluidBackend, to_ps: int) -> list[Arrived]:
    """Let time pass inside servers; return what has arrived by then, which counts from then on."""
    arrived = list[Arrived]()
    while found := inside.advance(to_ps):
        arrived += [Arrived(each.op, to_ps, NVLINK) for each in found if isinstance(each, Arrived)]
    return arrived
