"""NVLink beside a booted network: a fluid over the links inside servers, on that network's clock."""

from collections.abc import Sequence

from testbed.core.backend import NVLINK, Arrived, Flows
from testbed.model.backend import FluidBackend
from topologies.fabric import Fabric


class LiveNvlink:
    """Moves what stays inside servers, which arrives when it is noticed.

    Parameters
    ----------
    fabric
        Whose servers.
    """

    def __init__(self, fabric: Fabric) -> None:
        self._fluid = FluidBackend(fabric, {}, by_bytes=False)
        self._early: list[Arrived] = []
        """What has arrived and was not yet reported."""

    @property
    def due_ps(self) -> int:
        """When something is to be reported [ps]; `NEVER` if nothing is under way."""
        return self._fluid.now_ps if self._early else self._fluid.next_ps

    def start(self, flows: Sequence[Flows], now_ps: int) -> None:
        """Have bytes move from a time on."""
        self._pass(now_ps)
        self._fluid.start(flows)

    def advance(self, now_ps: int) -> list[Arrived]:
        """Let time pass; return what has arrived."""
        self._pass(now_ps)
        arrived, self._early = self._early, []
        return arrived

    def _pass(self, now_ps: int) -> None:
        while found := self._fluid.advance(now_ps):
            self._early += [Arrived(each.op, now_ps, NVLINK) for each in found if isinstance(each, Arrived)]
