"""Queue pairs over circuits of a booted network: they send while they have a route and need not stand.

What is sent into the dark, a SYN too, TCP repeats only after a timeout. So a queue pair connects at its first
route, and is held whenever it has none.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

from testbed.network.forwarding import KernelRoutes
from topologies.fabric import Fabric, Nic
from topologies.light import Circuit
from topologies.routes import Route, Routes
from traffic.spraying.policy import QueuePair
from traffic.transports.datagram_engine import DatagramEngine
from traffic.transports.engine import Engine


class LiveLanes:
    """The queue pairs over circuits, by their numbers.

    Parameters
    ----------
    fabric, engine
        Of the run.
    kernels
        The kernels' routes where servers forward.
    crosses
        Has a queue pair reckon with the route that it takes.
    """

    def __init__(
        self,
        fabric: Fabric,
        engine: Engine | DatagramEngine,
        kernels: KernelRoutes | None,
        crosses: Callable[[int, Route], None],
    ) -> None:
        self._engine, self._kernels, self._crosses = engine, kernels, crosses
        ocses = {switch.name for switch in fabric.switches if switch.kind == "ocs"}
        nodes = {nic: fabric.peer(fabric.nic_port(nic)).node for nic in fabric.nics}
        self.ocs_of: Mapping[Nic, str] = {nic: node for nic, node in nodes.items() if node in ocses}
        """The OCS that each NIC is on."""
        dark: dict[str, tuple[Circuit, ...]] = dict.fromkeys(ocses, ())
        self._routes = Routes(fabric, dark)
        self._open: dict[int, QueuePair] = {}
        self._posted: set[int] = set()
        """Those that TCP carries: which have, or had, bytes of their own."""
        self._standing: set[int] = set()
        """Those that stand for a change of light."""
        self._draining: dict[int, set[int]] = {}
        """Those of them that may have something on the way, by the change."""

    def carries(self, queue_pair: QueuePair) -> bool:
        """Return whether a queue pair goes over circuits."""
        return queue_pair.source in self.ocs_of

    def add(self, queue_pairs: Mapping[int, QueuePair]) -> None:
        """Add queue pairs; servers forward between their NICs from now on."""
        self._open |= queue_pairs
        if queue_pairs:
            self._set_kernels()

    def post(self, numbers: Iterable[int]) -> None:
        """Have those of some queue pairs send that are over circuits, when they can."""
        mine = self._open.keys() & set(numbers)
        self._posted |= mine
        self._lead(mine)

    def forget(self, number: int) -> None:
        """Forget a queue pair that was closed: nothing of it is on its way any more."""
        self._open.pop(number, None)
        for draining in self._draining.values():
            draining.discard(number)
        self._posted.discard(number)
        self._standing.discard(number)

    def follow(self, routes: Routes) -> None:
        """Have servers and queue pairs take other routes."""
        self._routes = routes
        self._set_kernels()
        self._lead(self._posted)

    def hold(self, numbers: Collection[int], change: int | None = None) -> None:
        """Hold queue pairs until they are resumed; a change of light may wait for what they have sent."""
        self._standing.update(numbers)
        self._engine.hold(numbers)
        if change is not None:
            self._draining[change] = set(numbers)

    @property
    def drains(self) -> bool:
        """Whether something may be on its way of what stands."""
        return bool(self._draining)

    def drained(self) -> list[int]:
        """Return the changes of whose queue pairs nothing is on its way any more, each once."""
        found = [
            change
            for change, numbers in self._draining.items()
            if all(self._engine.drained(number) for number in numbers)
        ]
        for change in found:
            del self._draining[change]
        return found

    def resume(self, numbers: Collection[int]) -> None:
        """Let queue pairs send again that have a route; a change that waited for them alone is given up."""
        self._standing.difference_update(numbers)
        for change, draining in list(self._draining.items()):
            if draining and draining.issubset(numbers):
                del self._draining[change]
            draining.difference_update(numbers)
        self._lead(self._posted.intersection(numbers))

    def _lead(self, numbers: Iterable[int]) -> None:
        """Let queue pairs send that have a route, and connect them at the first; hold others."""
        for number in numbers:
            queue_pair = self._open[number]
            route = self._routes.sending(queue_pair.source, queue_pair.destination)
            if not route:
                self._engine.hold([number])
            elif number not in self._standing:
                self._crosses(number, route)
                if not self._engine.dialled(number):
                    self._engine.dial(number)
                self._engine.resume([number])

    def _set_kernels(self) -> None:
        """Have servers that forward do so between the NICs in use."""
        if self._kernels:
            ends = [(lane.source, lane.destination) for lane in self._open.values()]
            flows = dict.fromkeys([*ends, *((near, far) for far, near in ends)])
            self._kernels.follow(self._routes, flows.keys())
