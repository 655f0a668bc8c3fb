"""The OCSes of a run: the circuits of each, the changes of light that are not over, and the routes.

A change is of one OCS or of several. It drains the lanes whose routes change, darkens the circuits that end,
and is over when all of its OCSes are lit. Only then do routes follow and lanes go on, so that at no time is a
packet on its way while the routes differ that lead it. An OCS makes one change after the other.
"""

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import chain, count

from testbed.core.lane_table import Lane
from topologies.events import AtDeadline
from topologies.fabric import Fabric, Nic, Port
from topologies.light import Circuit, Configuration
from topologies.routes import Route, Routes, light_leads
from topologies.routing import Routing


@dataclass(slots=True, eq=False)
class Change:
    """A change of light: the circuits that some OCSes were ordered together."""

    number: int
    circuits: Configuration
    deadline_s: float | None
    at_deadline: AtDeadline
    is_flip: bool = False
    drains: bool = False
    """True while its lanes drain: its OCSes have not moved yet."""
    moving: set[str] = field(default_factory=set)
    """The OCSes that were ordered to move and are not lit yet."""
    lanes: dict[int, Lane] = field(default_factory=dict)
    """The lanes that stand for it."""

    @property
    def has_begun(self) -> bool:
        """True if it drains or moves: it waits for no change before it any more."""
        return self.drains or bool(self.moving)

    @property
    def stage(self) -> str:
        """Its stage, in a word for people."""
        return "moves" if self.moving else "drains" if self.drains else "waits"

    def hold(self, lanes: Iterable[Lane]) -> None:
        """Have lanes stand for it."""
        for lane in lanes:
            self.lanes[lane.number] = lane
            lane.held_by.add(self.number)


class Ocses:
    """The circuits and changes of all OCSes, and the routes over them.

    Parameters
    ----------
    fabric
        Of the run.
    routing
        By which NIC servers send on; None by the shortest path.
    """

    def __init__(self, fabric: Fabric, routing: Routing | None) -> None:
        self._fabric, self._routing = fabric, routing
        names = [switch.name for switch in fabric.switches if switch.kind == "ocs"]
        self.shown: dict[str, tuple[Circuit, ...]] = dict.fromkeys(names, ())
        """The circuits of each, over which routes go; while it moves, those that its change keeps."""
        self.changes: dict[int, Change] = {}
        """The changes that are not over, by number, in order."""
        self._waiting: dict[str, deque[int]] = {name: deque() for name in names}
        """The numbers of each OCS' changes that are not over, in order."""
        self._numbers = count()
        self.begun: dict[int, Change] = {}
        """The changes that drain or move."""
        self.beside: dict[str, tuple[Circuit, ...]] = {}
        """The circuits that each OCS was to provision."""
        self.provisioned: set[str] = set()
        """The OCSes that have provisioned them."""
        self.showing: set[str] = set()
        """The OCSes that show programs."""
        self.is_controlled = True
        """False while the controller is killed."""
        self.failed: frozenset[Port] = frozenset()
        """The ports that routes avoid."""
        self.leads = light_leads(fabric)
        """Whether light leads queue pairs: over circuits of several OCSes, or on by servers that forward."""
        self.routes = Routes(fabric, self.shown, self.failed, routing)
        """The routes over what OCSes show."""
        self._lit: Configuration | None = None
        """The value of `lit`; None until it is asked for again after something has changed."""
        self._lit_routes: Routes | None = None
        """The same of `lit_routes`."""
        self._later: Routes | None = None
        """The same of `_later_routes`."""

    # What is known

    @property
    def lit(self) -> Configuration:
        """The circuits of each OCS, without those that a change ends which has begun."""
        if self._lit is None:
            kept = {ocs: self.kept(ocs, change) for change in self.begun.values() for ocs in change.circuits}
            self._lit = self.shown | kept
        return self._lit

    @property
    def lit_routes(self) -> Routes:
        """The routes over what is lit."""
        if self._lit_routes is None:
            begun = (ocs for change in self.begun.values() for ocs in change.circuits)
            self._lit_routes = self.routes.over({ocs: self.lit[ocs] for ocs in begun})
        return self._lit_routes

    @property
    def _later_routes(self) -> Routes:
        """The routes once all changes are over that have begun."""
        if self._later is None:
            begun = (each.circuits.items() for each in self.begun.values())
            self._later = self.routes.over(dict(chain.from_iterable(begun)))
        return self._later

    def _forget(self) -> None:
        """Forget what was found of the light, which has changed."""
        self._lit = self._lit_routes = self._later = None

    @property
    def ordered(self) -> Configuration:
        """The circuits of each OCS once all changes are over."""
        if not self.changes:
            return self.lit
        ordered, beside = dict(self.shown), dict(self.beside)
        for change in self.changes.values():
            for ocs, circuits in change.circuits.items():
                if change.is_flip and not change.has_begun:
                    ordered[ocs], beside[ocs] = beside[ocs], ordered[ocs]
                else:
                    ordered[ocs] = circuits
        return ordered

    @property
    def busy(self) -> set[str]:
        """The OCSes with changes that are not over."""
        return {ocs for change in self.changes.values() for ocs in change.circuits}

    def is_busy(self, ocs: str) -> bool:
        """Return True if an OCS has changes that are not over."""
        return bool(self._waiting.get(ocs))

    def kept(self, ocs: str, change: Change) -> tuple[Circuit, ...]:
        """Return the circuits of an OCS that a change leaves as they are."""
        stay = set(change.circuits[ocs])
        return tuple(pair for pair in self.shown[ocs] if pair in stay)

    def ending(self, change: Change) -> list[tuple[str, int]]:
        """Return the input ports of circuits that a change ends."""
        return [
            (ocs, a) for ocs, pairs in change.circuits.items() for a, _ in set(self.shown[ocs]) - set(pairs)
        ]

    # Changes

    def add(self, change: Change) -> None:
        """Add a change behind those of its OCSes."""
        self.changes[change.number] = change
        for ocs in change.circuits:
            self._waiting[ocs].append(change.number)

    def new_number(self) -> int:
        """Return a number that no change has had."""
        return next(self._numbers)

    def may_begin(self, ocses: Iterable[str]) -> list[Change]:
        """Return the changes, of those first in line at some OCSes, that may begin.

        A change may begin when all changes before it at its OCSes are over. If it is a flip, they also have
        provisioned their circuits.
        """
        heads = sorted({self._waiting[ocs][0] for ocs in ocses if self._waiting[ocs]})
        return [change for number in heads if self._may_begin(change := self.changes[number])]

    def _may_begin(self, change: Change) -> bool:
        is_first = all(self._waiting[ocs][0] == change.number for ocs in change.circuits)
        can_flip = not change.is_flip or self.provisioned.issuperset(change.circuits)
        return is_first and can_flip and not change.has_begun

    def begin(self, change: Change) -> None:
        """Have a change drain."""
        change.drains = True
        self.begun[change.number] = change
        if change.is_flip:
            change.circuits = {ocs: self.beside[ocs] for ocs in change.circuits}
        self._forget()

    def end(self, change: Change) -> list[int]:
        """End a change; return the lanes that stand for no other one, which may go on."""
        del self.changes[change.number]
        self.begun.pop(change.number, None)
        self._forget()
        for ocs in change.circuits:
            self._waiting[ocs].popleft()
        for lane in change.lanes.values():
            lane.held_by.discard(change.number)
        return [number for number, lane in change.lanes.items() if not lane.held_by]

    def let_go(self, lane: Lane) -> bool:
        """Have a lane stand for no change any more; return whether it did for one."""
        held = bool(lane.held_by)
        for number in lane.held_by:
            del self.changes[number].lanes[lane.number]
        lane.held_by.clear()
        return held

    def show(self, circuits: Configuration) -> list[tuple[str, Circuit]] | None:
        """Have routes follow what OCSes carry; return the circuits that begin or end, None if none does."""
        moved = [
            (ocs, pair)
            for ocs, pairs in circuits.items()
            for pair in sorted(set(self.shown[ocs]) ^ set(pairs))
        ]
        self.shown |= circuits
        self._forget()
        if not moved:
            return None
        self.routes = self.routes.over(circuits)
        return moved

    def avoid(self, failed: Collection[Port]) -> None:
        """Lead routes around ports that are known to have failed; ``failed`` has all of them."""
        self.failed = frozenset(failed)
        self.routes = Routes(self._fabric, self.shown, self.failed, self._routing)
        self._forget()

    # Routes

    def route(self, lane: Lane) -> Route | None:
        """Return the route of a lane over circuits; None if it stands."""
        return self.routes.sending(lane.pair.source, lane.pair.destination)

    def both_ways(self, routes: Routes, lane: Lane) -> tuple[Route | None, Route | None]:
        """Return the route of a lane, and that of its acknowledgements where that may be another."""
        near, far = lane.pair.source, lane.pair.destination
        return routes.route(near, far), routes.route(far, near) if self._fabric.servers_forward else None

    def ports(self, lane: Lane) -> set[Port]:
        """Return the ports that send what a lane sends, and its acknowledgements."""
        found = self.both_ways(self.routes, lane)
        return {port for route in found if route for port in route.ports}

    def led_elsewhere(self, change: Change, lanes: Iterable[Lane]) -> list[Lane]:
        """Return the lanes whose route differs after a change, or after all that have begun.

        Those that stand for it are left out. A lane may have a route that none of several changes ends, and
        only all of them make shorter.
        """
        go = [lane for lane in lanes if lane.number not in change.lanes]
        if not self.leads:
            ending = {Port(ocs, a) for ocs, a in self.ending(change)}
            return [
                lane
                for lane in go
                if self._fabric.peer(self._fabric.nic_port(lane.pair.source)) in ending
                and self.routes.next_nic(lane.pair.source) == lane.pair.destination
            ]
        later = [self._later_routes]
        if len(self.begun) > 1:
            later.append(self.routes.over(change.circuits))
        return [lane for lane in go if lane.is_light and self._is_led_elsewhere(lane, later)]

    def _is_led_elsewhere(self, lane: Lane, later: Iterable[Routes]) -> bool:
        """Return whether a lane that has a route has another one in some of several cases."""
        now = self.both_ways(self.routes, lane)
        return now[0] is not None and any(self.both_ways(after, lane) != now for after in later)

    def nics_at(self, inputs: Iterable[tuple[str, int]]) -> tuple[Nic, ...]:
        """Return the NICs at input ports of OCSes, each once."""
        ports = [port for ocs, a in inputs if (port := Port(ocs, a)) in self._fabric.link_at]
        return tuple(dict.fromkeys(self._fabric.nic_at(self._fabric.peer(port)) for port in ports))
