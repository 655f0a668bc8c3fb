"""The OCSes of a run: what each has lit, reconfigurations one by one (drain, dark, lit), and routes."""

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping

from testbed.run.backend import Backend
from topologies.fabric import Fabric, Nic, Port
from topologies.light import Circuit
from topologies.routes import Route, Routes
from traffic.spraying.policy import QueuePair


class Optics:
    """What is lit, and what was ordered; made for one run.

    Parameters
    ----------
    fabric, backend
        Of the run.
    """

    def __init__(self, fabric: Fabric, backend: Backend) -> None:
        self._fabric, self._backend = fabric, backend
        self._carriers: dict[Nic, dict[int, QueuePair]] = defaultdict(dict)
        """The queue pairs in use by their numbers, for each NIC that sends."""
        ocses = [switch.name for switch in fabric.switches if switch.kind == "ocs"]
        self._lit: dict[str, tuple[Circuit, ...]] = dict.fromkeys(ocses, ())
        self._ordered: dict[str, deque[tuple[Circuit, ...]]] = {ocs: deque() for ocs in ocses}
        self._changing: set[str] = set()
        """Those that do not yet show what was ordered."""
        self._carry: dict[str, tuple[Circuit, ...]] | None = None
        """What `lit` returns; None after a change, until it is asked for."""
        self._held: dict[str, set[int]] = {}
        self._failed: frozenset[Port] = frozenset()
        in_series = any({link.a.node, link.b.node} <= self._lit.keys() for link in fabric.links)
        self._is_simple = not (fabric.servers_forward or in_series)
        """Whether a circuit carries the queue pairs of the NIC at its input only."""
        self._routes = Routes(fabric, self._lit)

    @property
    def lit(self) -> dict[str, tuple[Circuit, ...]]:
        """The circuits of each OCS that carry: under a reconfiguration those that it keeps."""
        if self._carry is None:
            self._carry = dict(self._lit)
            for ocs in filter(self._lit.get, self._changing):
                stay = set(self._ordered[ocs][0])
                self._carry[ocs] = tuple(pair for pair in self._lit[ocs] if pair in stay)
        return self._carry

    def reconfigure(self, ocs: str, circuits: tuple[Circuit, ...]) -> None:
        """Have an OCS show circuits, once it shows what was ordered before."""
        self._ordered[ocs].append(circuits)
        self._changing.add(ocs)
        self._carry = None
        if len(self._ordered[ocs]) == 1:
            self._drain(ocs)

    def is_ordered(self, ocs: str) -> bool:
        """Return whether an OCS does not yet show what was ordered."""
        return bool(self._ordered[ocs])

    def drained(self, ocs: str) -> None:
        """Have the device move: nothing is on its way through circuits that end."""
        kept = tuple(pair for pair in self._lit[ocs] if pair in self._ordered[ocs][0])
        self.shows(ocs, kept)
        self._backend.light(ocs, self._ordered[ocs][0])

    @property
    def is_moving(self) -> bool:
        """Whether any OCS does not yet show what was ordered."""
        return bool(self._changing)

    def now_lit(self, ocs: str) -> set[int]:
        """Record that an OCS shows what was ordered; return the queue pairs that were held meanwhile."""
        circuits = self._ordered[ocs].popleft()
        if not self._ordered[ocs]:
            self._changing.discard(ocs)
        self.shows(ocs, circuits)
        held = self._held.pop(ocs)
        self._backend.resume(held)
        if self._ordered[ocs]:
            self._drain(ocs)
        return held

    def shows(self, ocs: str, circuits: tuple[Circuit, ...]) -> None:
        """Record what an OCS carries."""
        self._lit[ocs] = circuits
        self._carry = None
        self._routes = Routes(self._fabric, self._lit, self._failed)

    def avoid(self, ports: Iterable[Port]) -> None:
        """Lead routes around failed ports: these are all of them."""
        self._failed = frozenset(ports)
        self._routes = Routes(self._fabric, self._lit, self._failed)
        self._backend.avoid(self._failed)

    @property
    def leads(self) -> bool:
        """Whether light leads queue pairs: over circuits of several OCSes, or on by servers that forward."""
        return not self._is_simple

    def is_routed(self, queue_pair: QueuePair) -> bool:
        """Return whether a queue pair's path depends on what is lit beyond the circuit at its NIC."""
        return self.leads and self.carries(queue_pair)

    def carries(self, queue_pair: QueuePair) -> bool:
        """Return whether a queue pair goes over circuits."""
        return (
            bool(self._lit) and self._fabric.peer(self._fabric.nic_port(queue_pair.source)).node in self._lit
        )

    def route(self, queue_pair: QueuePair) -> Route | None:
        """Return the route of a queue pair over circuits; None if it stands."""
        return self._routes.sending(queue_pair.source, queue_pair.destination)

    def ports(self, queue_pair: QueuePair) -> set[Port]:
        """Return the ports that send what a queue pair sends, and its acknowledgements."""
        ends = queue_pair.source, queue_pair.destination
        found = self._routes.route(*ends), self._routes.route(*reversed(ends))
        return {port for route in found if route for port in route.ports}

    def using(self, nic: Nic) -> Mapping[int, QueuePair]:
        """Return the queue pairs from a NIC, by their carriers."""
        return self._carriers[nic]

    def use(self, carrier: int, queue_pair: QueuePair) -> None:
        """Record a queue pair in use."""
        self._carriers[queue_pair.source][carrier] = queue_pair

    def forget(self, carrier: int, queue_pair: QueuePair) -> None:
        """Do not hold or resume a queue pair that was closed."""
        self._carriers[queue_pair.source].pop(carrier, None)
        for held in self._held.values():
            held.discard(carrier)

    def _drain(self, ocs: str) -> None:
        """Hold the queue pairs whose route crosses circuits that end."""
        ending = {(ocs, pair) for pair in set(self._lit[ocs]) - set(self._ordered[ocs][0])}
        nics: Iterable[Nic] = self._carriers
        if self._is_simple:
            ports = [port for _, (a, _) in ending if (port := Port(ocs, a)) in self._fabric.link_at]
            nics = [self._fabric.nic_at(self._fabric.peer(port)) for port in ports]
        self._held[ocs] = {
            number
            for nic in list(nics)
            for number, queue_pair in self._carriers[nic].items()
            if ending & self._routes.circuits(queue_pair.source, queue_pair.destination)
        }
        self._backend.drain(ocs, self._held[ocs])
