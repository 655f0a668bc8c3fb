"""What moves inside servers beside a booted network: NVLink is modelled, on the network's clock."""

from collections.abc import Callable, Sequence

from testbed.run.movers import NVLINK, Arrived, Chosen, Flows
from topologies.fabric import Fabric
from traffic.fluid.nvlink import Nvlink
from traffic.messages import Messages


class NvlinkMover:
    """A mover that has no clock of its own.

    Parameters
    ----------
    fabric
        Its servers' ``nvlink_bps`` is the rate of each GPU in each direction.
    now_ps
        Returns the time.
    """

    def __init__(self, fabric: Fabric, now_ps: Callable[[], int]) -> None:
        self._nvlink, self._now_ps = Nvlink(fabric), now_ps

    @property
    def due_ps(self) -> int:
        """When the next operation arrives if nothing changes [ps]; `NEVER` if none is on its way."""
        return self._nvlink.next_ps

    def start(self, flows: Sequence[Flows | Chosen], *, first: bool = False) -> None:
        """Send operations between GPUs of one server."""
        for each in flows:
            assert isinstance(each, Flows)
            moves = Messages(each.source, each.destination, each.bytes)
            if each.together:
                self._nvlink.couple(moves, int(each.op[0]), self._now_ps())
            else:
                self._nvlink.post(moves, each.op.tolist(), self._now_ps())

    def advance(self, to_ps: int) -> list[Arrived]:
        """Let time pass; return what arrived, as seen now."""
        return [Arrived(number, to_ps, NVLINK) for number in self._nvlink.advance(to_ps)]
