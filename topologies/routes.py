"""Routes: where traffic goes over lit circuits, directly or through servers that forward.

A queue pair is pinned to its NICs: its first hop is the light of its source NIC, its last the light that
ends at its destination NIC. Between two a routing says by which NIC a server sends on
(`topologies.routing`). By default that is the NIC from which the fewest light paths remain, of equal ones the
lowest, whatever the source: as a kernel's routing table has it.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from topologies.errors import ScenarioError
from topologies.fabric import Fabric, Nic, Path, Port
from topologies.light import Circuit, Configuration, LightPath, light_path
from topologies.routing import Flow, Routing


@dataclass(frozen=True)
class Route:
    """The light paths from a source NIC to a destination NIC; between two a server forwards."""

    light: tuple[LightPath, ...]

    @property
    def ports(self) -> Path:
        """The ports that send on the way: NICs, and output ports of OCSes."""
        return tuple(port for path in self.light for port in path.ports)

    @property
    def circuits(self) -> tuple[tuple[str, Circuit], ...]:
        """The OCSes on the way and the circuit in each."""
        return tuple(circuit for path in self.light for circuit in path.circuits)


def light_leads(fabric: Fabric) -> bool:
    """Return whether routes may cross OCSes in series, or servers that forward.

    If not, a circuit carries what the NIC at its input sends, and nothing else.
    """
    ocses = {switch.name for switch in fabric.switches if switch.kind == "ocs"}
    return fabric.servers_forward or any({link.a.node, link.b.node} <= ocses for link in fabric.links)


class _Light(NamedTuple):
    """Where the light of a NIC goes if it reaches another one, and which that is; else None."""

    path: LightPath | None
    end: Nic | None


class Routes:
    """The routes over circuits that do not change, each found when it is first asked for.

    Parameters
    ----------
    fabric
        Says whether servers forward; if not, a route is one light path.
    lit
        The circuits of each OCS that carry.
    failed
        Ports that are avoided: light that crosses one carries nothing.
    routing
        By which NIC servers send on; by default by the shortest path.

    Raises
    ------
    ScenarioError
        By what asks for a route, if the routing leads it in a circle.
    """

    def __init__(
        self,
        fabric: Fabric,
        lit: Configuration,
        failed: Collection[Port] = frozenset(),
        routing: Routing | None = None,
    ) -> None:
        self._fabric, self._lit, self._failed = fabric, dict(lit), frozenset(failed)
        self._routing = routing if fabric.servers_forward else None
        self._light: dict[str, dict[Nic, _Light]] = defaultdict(dict)
        """By part of the fabric (`Fabric.light_parts`), as routes over other circuits share it."""
        self._forwarding: dict[Nic, dict[int, Nic]] = {}
        self._routes: dict[Flow, Route | None] = {}
        self._asked: tuple[Configuration, Routes] | None = None
        """The question of `over` that was asked last, and its answer: each change asks one more than once."""

    def over(self, circuits: Configuration) -> "Routes":
        """Return the routes once some OCSes carry circuits; the others' light is found once for both."""
        if self._asked and self._asked[0] == circuits:
            return self._asked[1]
        others = {ocs for ocs, pairs in circuits.items() if self._lit.get(ocs) != pairs}
        if not others:
            return self
        then = Routes(self._fabric, {**self._lit, **circuits}, self._failed, self._routing)
        then._light.update(self._light)
        for ocs in others:
            then._light.pop(self._fabric.ocs_parts.get(ocs, ocs), None)
        self._asked = dict(circuits), then
        return then

    def are_for(
        self, fabric: Fabric, lit: Configuration, failed: Collection[Port], routing: Routing | None
    ) -> bool:
        """Return whether routes over these circuits are these."""
        is_same = self._fabric is fabric and self._routing is (routing if fabric.servers_forward else None)
        return is_same and self._lit == lit and self._failed == failed

    @property
    def has_routing(self) -> bool:
        """Whether something else than the shortest path says by which NIC servers send on."""
        return self._routing is not None

    def light(self, nic: Nic) -> LightPath | None:
        """Return where a NIC's light goes if it reaches a NIC, else None."""
        return self._light_of(nic).path

    def next_nic(self, nic: Nic) -> Nic | None:
        """Return the NIC that a NIC's light reaches, or None."""
        return self._light_of(nic).end

    def _light_of(self, nic: Nic) -> _Light:
        found = self._light[self._fabric.light_parts[nic]]
        if nic not in found:
            found[nic] = self._found(light_path(self._fabric, self._lit, nic))
        return found[nic]

    def _found(self, path: LightPath) -> _Light:
        end = path.end
        if not (path.circuits and end and end.node in self._fabric.server_index):
            return _Light(None, None)
        works = self._failed.isdisjoint((*path.ports, end))
        return _Light(path, self._fabric.nic_at(end)) if works else _Light(None, None)

    def forwarding(self, destination: Nic) -> Mapping[int, Nic]:
        """Return the NIC through which each other server sends on what is for a NIC.

        Servers from which nothing gets there are left out; if servers do not forward, all are.
        """
        if self._routing:
            return self._hops[1].get(destination, {})
        if destination not in self._forwarding:
            self._forwarding[destination] = self._towards(destination) if self._fabric.servers_forward else {}
        return self._forwarding[destination]

    def of_flow(self, flow: Flow) -> Mapping[int, Nic]:
        """Return the NIC through which servers send on what is of a flow, where it has one of its own."""
        return self._hops[0].get(flow, {}) if self._routing else {}

    def leaves_by(self, source: Nic, destination: Nic) -> Nic | None:
        """Return the NIC by which a routing has a queue pair's server send; None by whichever."""
        return self.onward(source.server, (source, destination)) if self._routing else None

    def onward(self, server: int, flow: Flow) -> Nic | None:
        """Return the NIC through which a server sends on what is of a flow, or None."""
        return self.of_flow(flow).get(server) or self.forwarding(flow[1]).get(server)

    def route(self, source: Nic, destination: Nic) -> Route | None:
        """Return the route of a queue pair between two NICs, or None.

        None too if the light of its source leads to a server whose route goes back through the
        source's own server: no kernel accepts packets from its own address.
        """
        ends = source, destination
        if ends not in self._routes:
            self._routes[ends] = self._route(*ends)
        return self._routes[ends]

    def _route(self, source: Nic, destination: Nic) -> Route | None:
        light, at, passed = [self.light(source)], self.next_nic(source), list[int]()
        while at and at != destination:
            then = self.onward(at.server, (source, destination))
            if then is None or then.server in (source.server, destination.server):
                return None
            if at.server in passed:
                raise _in_a_circle(source, destination, [*passed[passed.index(at.server) :], at.server])
            passed.append(at.server)
            light.append(self.light(then))
            at = self.next_nic(then)
        return Route(tuple(filter(None, light))) if at else None

    def sending(self, source: Nic, destination: Nic) -> Route | None:
        """Return the route of a queue pair if it can send, else None.

        Through servers that forward there must be a route back too, for acknowledgements.
        """
        found = self.route(source, destination)
        returns = found is None or len(found.light) == 1 or self.route(destination, source)
        return found if returns else None

    def circuits(self, source: Nic, destination: Nic) -> set[tuple[str, Circuit]]:
        """Return the OCSes and circuits without which a queue pair stands.

        Where servers forward, these are also those of the route back, which may be others.
        """
        found = [self.route(source, destination)]
        if self._fabric.servers_forward:
            found.append(self.route(destination, source))
        return {circuit for route in found if route for circuit in route.circuits}

    @cached_property
    def _hops(self) -> tuple[dict[Flow, dict[int, Nic]], dict[Nic, dict[int, Nic]]]:
        """What the routing says of each flow, and of what is for each NIC: next hops by server."""
        assert self._routing
        of_flow: dict[Flow, dict[int, Nic]] = defaultdict(dict)
        towards: dict[Nic, dict[int, Nic]] = defaultdict(dict)
        table = self._routing.table(fabric=self._fabric, lit=self._lit, failed=self._failed)
        for (server, what), out in table.items():
            if not (isinstance(server, int) and isinstance(out, Nic)):
                continue  # a switch's
            if isinstance(what, Nic):
                towards[what][server] = out
            else:
                of_flow[what][server] = out
        return of_flow, towards

    def _towards(self, destination: Nic) -> dict[int, Nic]:
        """Return the next NIC of each server, breadth first from the destination."""
        through: dict[int, Nic] = {}
        left = {*range(len(self._fabric.servers))} - {destination.server}
        reaching, into = self._into
        found = {nic.server: nic for nic in reaching[destination] if nic.server in left}
        while found:
            through |= found
            left -= found.keys()
            further: dict[int, Nic] = {}
            for server in found if left else ():
                for far in into[server].keys() & left:
                    nic = into[server][far]
                    further[far] = min(nic, further.get(far, nic))
            found = dict(sorted(further.items()))
        return through

    @cached_property
    def _into(self) -> tuple[dict[Nic, list[Nic]], dict[int, dict[int, Nic]]]:
        """The NICs whose light reaches each NIC, the highest first; the lowest from server to server."""
        reaching: dict[Nic, list[Nic]] = defaultdict(list)
        into: dict[int, dict[int, Nic]] = defaultdict(dict)
        for nic in reversed(self._fabric.nics):
            if reached := self.next_nic(nic):
                reaching[reached].append(nic)
                into[reached.server][nic.server] = nic
        return reaching, into


def _in_a_circle(source: Nic, destination: Nic, servers: Sequence[int]) -> ScenarioError:
    circle = " > ".join(map(str, servers))
    near, far = (f"NIC {nic.nic} of server {nic.server}" for nic in (source, destination))
    return ScenarioError(
        f"the routing leads what {near} sends to {far} in a circle: servers {circle}",
        "have each hop come nearer to its destination",
    )
