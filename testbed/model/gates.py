"""Gates: in the model, what lets a queue pair over circuits send while it has a route and does not stand."""

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence

from topologies.fabric import Fabric, Nic, Port
from topologies.routes import Routes, light_leads
from traffic.fluid.network import FluidNetwork


class Gate:
    """A link of its own at the head of a queue pair over circuits; it carries while it is open."""

    def __init__(self, source: Nic, destination: Nic) -> None:
        self.source, self.destination, self.link = source, destination, -1
        self.open = self.stands = False
        self.ports: list[int] = []
        """The links of the route that it has, or had last."""
        self.flows: list[int] = []

    @property
    def path(self) -> list[int]:
        """All links."""
        return [self.link, *self.ports]


class Gates(dict[Hashable, Gate]):
    """The gates of all queue pairs over circuits, by the queue pairs' numbers.

    Parameters
    ----------
    fabric, network
        Of the model.
    links
        The number of each port's link.
    meet
        Has coupled flows that were alone on some links share them.
    """

    def __init__(
        self,
        fabric: Fabric,
        network: FluidNetwork,
        links: Mapping[Port, int],
        meet: Callable[[Sequence[int] | None], None],
    ) -> None:
        super().__init__()
        self._fabric, self._network, self._links, self._meet = fabric, network, links, meet
        self.leads = light_leads(fabric)
        """Whether a queue pair's route may be another when circuits change."""
        self._routes = Routes(fabric, {})
        self._from: dict[Nic, list[Gate]] = defaultdict(list)
        """Those of the queue pairs that a NIC sends."""
        self._between: dict[tuple[Nic, Nic], list[Gate]] = defaultdict(list)
        """The same, by both NICs."""
        self._open: dict[Nic, list[Gate]] = defaultdict(list)
        """Those that are open, by the NIC that sends."""

    def add(self, numbers: Iterable[int], ends: Iterable[tuple[Nic, Nic]]) -> None:
        """Add the gates of new queue pairs, each with its source and destination."""
        new: dict[Hashable, Gate] = {number: Gate(*both) for number, both in zip(numbers, ends, strict=True)}
        self.update(new)
        for gate in new.values():
            self._from[gate.source].append(gate)
            self._between[gate.source, gate.destination].append(gate)
        self._lead({gate.source for gate in new.values()})

    def make_links(self, numbers: Iterable[int]) -> None:
        """Give gates that have none the link that opens and shuts."""
        for number in numbers:
            gate = self.get(number)
            if gate and gate.link < 0:
                gate.link = self._network.add_link(self._rate_bps(gate))

    def cross(self, over: Iterable[Hashable], flows: Iterable[int]) -> None:
        """Lead flows by the gates of the queue pairs that they go over, if these have any."""
        for each, flow in zip(over, flows, strict=True):
            if gate := self.get(each):
                gate.flows.append(flow)

    def follow(self, routes: Routes, nics: Collection[Nic] | None) -> None:
        """Lead what some NICs send, or all, over other routes."""
        self._routes = routes
        if nics is None:
            self._meet(None)  # any route may change
        else:
            self._meet([self._links[self._fabric.nic_port(nic)] for nic in nics])
        self._lead(self._from if nics is None else nics)

    def hold(self, numbers: Collection[int], *, stands: bool) -> None:
        """Have queue pairs stand, whether they have routes or not, or go on."""
        gates = [self[number] for number in numbers]
        self._meet(list({link for gate in gates for link in gate.ports}))
        for gate in gates:
            gate.stands = stands
        self._lead({gate.source for gate in gates})

    def _lead(self, nics: Iterable[Nic]) -> None:
        """Open the gates of queue pairs that have a route now, and lead them over it; shut the others."""
        changed: dict[int, float] = {}
        for nic in nics:
            gates = self._concerned(nic)
            for gate in gates:
                route = self._routes.sending(nic, gate.destination)
                opens = route is not None and not gate.stands
                if opens != gate.open:
                    gate.open = opens
                    changed[gate.link] = self._rate_bps(gate)
                ports = [self._links[port] for port in route.ports] if route else gate.ports
                if ports != gate.ports:
                    gate.ports = ports
                    for flow in gate.flows:
                        self._network.set_path(flow, gate.path)
            self._open[nic] = [gate for gate in gates if gate.open]
        changed.pop(-1, None)  # of gates that no flow has crossed
        self._network.set_rates(list(changed), list(changed.values()))

    def _concerned(self, nic: Nic) -> list[Gate]:
        """Return the gates of a NIC that may open or shut: few of thousands have light, or had it."""
        if self.leads:
            return self._from[nic]
        reached = self._routes.next_nic(nic)
        lit = self._between[nic, reached] if reached else []
        return [*self._open[nic], *(gate for gate in lit if not gate.open)]

    def _rate_bps(self, gate: Gate) -> float:
        return self._fabric.nic_rate_bps(gate.source) if gate.open else 0.0
