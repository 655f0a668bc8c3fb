"""Light: what OCSes were ordered, what is known to be lit or to have failed, and the routes that follow.

A change is of one OCS or of several. It drains the lanes whose routes change, darkens the circuits that end,
and is over when all of its OCSes are lit. Only then do routes follow and lanes go on, so that at no time is a
packet on its way while the routes differ that lead it. An OCS makes one change after the other. A backend is
the devices: it reports what became of them, and here alone it is decided what follows.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count

from controller.circuits.circuits import Circuits, check_permitted
from testbed.core import movers
from testbed.core.ledger import Ledger
from testbed.core.movers import Backend, Drained, Lead, LightChanged, NowProvisioned
from topologies.errors import ScenarioError, StuckError
from topologies.events import (
    AtDeadline,
    Event,
    Flip,
    Lit,
    Provision,
    Provisioned,
    Reconfigure,
    Refused,
    Show,
)
from topologies.fabric import Fabric, Nic, Port
from topologies.light import Circuit, Configuration
from topologies.routes import Route, Routes, light_leads
from topologies.routing import Routing
from traffic.clock import NEVER, ps
from traffic.spraying.policy import QueuePair


@dataclass(frozen=True)
class Moved:
    """What has become of light, for those who send."""

    event: Event | None = None
    """What decisions are to hear of it."""
    held: frozenset[int] = frozenset()
    """The lanes that stood for it, and go on."""
    cut: frozenset[int] = frozenset()
    """The lanes that did not drain in time, and are to be closed."""
    programs_ended: bool = False


@dataclass(slots=True, eq=False)
class _Change:
    """What some OCSes were ordered together."""

    circuits: Configuration
    deadline_s: float | None
    at_deadline: AtDeadline
    is_flip: bool = False
    drains: bool = False
    """Whether its lanes drain, and its OCSes have not moved yet."""
    moving: set[str] = field(default_factory=set)
    """The OCSes that move, and are not lit yet."""
    held: frozenset[int] = frozenset()
    """The lanes that stand for it."""

    @property
    def has_begun(self) -> bool:
        """Whether it drains or moves, and does not wait for a change before it any more."""
        return self.drains or bool(self.moving)


class Light:
    """What is ordered and known of the OCSes of one run, and the lanes that light carries.

    Parameters
    ----------
    fabric, backend, ledger
        Of the run.
    routing
        By which NIC servers send on; None by the shortest path.
    at
        Has something done at a time [ps].
    moved
        Receives what has become of light.
    """

    def __init__(
        self,
        fabric: Fabric,
        backend: Backend,
        ledger: Ledger,
        *,
        routing: Routing | None,
        at: Callable[[int, Callable[[], None]], None],
        moved: Callable[[Moved], None],
    ) -> None:
        self._fabric, self._backend, self._ledger = fabric, backend, ledger
        self._routing, self._at, self._moved = routing, at, moved
        self._carriers: dict[Nic, dict[int, QueuePair]] = defaultdict(dict)
        """The queue pairs in use by their numbers, for each NIC that sends."""
        ocses = [switch.name for switch in fabric.switches if switch.kind == "ocs"]
        self._lit: dict[str, tuple[Circuit, ...]] = dict.fromkeys(ocses, ())
        self._carry: dict[str, tuple[Circuit, ...]] | None = None
        """What `lit` returns; None after a change, until it is asked for."""
        self._changes: dict[int, _Change] = {}
        """What was ordered and is not lit yet, in order."""
        self._numbers = count()
        self._beside: dict[str, tuple[Circuit, ...]] = {}
        """What each OCS was to provision."""
        self._provisioned: set[str] = set()
        """The OCSes that have."""
        self._showing: set[str] = set()
        """The OCSes that show programs."""
        self._awaited: dict[str, tuple[str, ...]] = {}
        """The OCSes that each collective waits for that is held."""
        self._is_controlled = True
        self._failed: frozenset[Port] = frozenset()
        self.leads = light_leads(fabric)
        """Whether light leads queue pairs: over circuits of several OCSes, or on by servers that forward."""
        self._routes = self._routes_over({})

    # What is known

    @property
    def lit(self) -> Configuration:
        """The circuits of each OCS that carry: from the order of a change on those that it keeps."""
        if self._carry is None:
            self._carry = dict(self._lit)
            for change in self._changes.values():
                if change.has_begun:
                    self._carry |= {ocs: self._kept(ocs, change) for ocs in change.circuits}
        return self._carry

    @property
    def ordered(self) -> Configuration:
        """The circuits of each OCS once all is carried out that was ordered."""
        if not self._changes:
            return self.lit
        ordered, beside = dict(self._lit), dict(self._beside)
        for change in self._changes.values():
            for ocs, circuits in change.circuits.items():
                if change.is_flip and not change.has_begun:
                    ordered[ocs], beside[ocs] = beside[ocs], ordered[ocs]
                else:
                    ordered[ocs] = circuits
        return ordered

    @property
    def held(self) -> tuple[str, ...]:
        """The collectives that wait for OCSes."""
        return tuple(self._awaited)

    @property
    def is_moving(self) -> bool:
        """Whether any OCS does not yet show what was ordered."""
        return bool(self._changes)

    @property
    def is_showing(self) -> bool:
        """Whether OCSes show programs."""
        return bool(self._showing)

    def route(self, queue_pair: QueuePair) -> Route | None:
        """Return the route of a queue pair over circuits; None if it stands."""
        return self._routes.sending(queue_pair.source, queue_pair.destination)

    def ports(self, queue_pair: QueuePair) -> set[Port]:
        """Return the ports that send what a queue pair sends, and its acknowledgements."""
        found = self._both_ways(self._routes, queue_pair)
        return {port for route in found if route for port in route.ports}

    def carries(self, queue_pair: QueuePair) -> bool:
        """Return whether a queue pair goes over circuits."""
        return (
            bool(self._lit) and self._fabric.peer(self._fabric.nic_port(queue_pair.source)).node in self._lit
        )

    def is_routed(self, queue_pair: QueuePair) -> bool:
        """Return whether a queue pair's path depends on what is lit beyond the circuit at its NIC."""
        return self.leads and self.carries(queue_pair)

    # Lanes

    def using(self, nic: Nic) -> Mapping[int, QueuePair]:
        """Return the queue pairs from a NIC, by their carriers."""
        return self._carriers[nic]

    def use(self, carrier: int, queue_pair: QueuePair) -> None:
        """Record a queue pair in use; it stands if a change that has begun leads it elsewhere."""
        self._carriers[queue_pair.source][carrier] = queue_pair
        if self._changes and self.carries(queue_pair):
            self._stand_too({carrier: queue_pair})

    def forget(self, carrier: int, queue_pair: QueuePair) -> None:
        """Do not hold a queue pair that was closed, should it be opened again."""
        self._carriers[queue_pair.source].pop(carrier, None)
        holding = [change for change in self._changes.values() if carrier in change.held]
        for change in holding:
            change.held -= {carrier}
        if holding:
            self._backend.resume((carrier,))

    # Orders

    def begin(self, circuits: Configuration) -> None:
        """Have OCSes carry what is lit from the start."""
        self._order(circuits)
        self._backend.carry_out(movers.Light(circuits, first=True))
        self._show(circuits)
        for ocs in circuits:
            self._ledger.light(self._backend.now_ps, "lit", ocs, self._lit[ocs])

    def avoid(self, failed: Collection[Port]) -> None:
        """Lead routes around ports that are known to have failed: these are all of them."""
        self._failed = frozenset(failed)
        self._routes = self._routes_over({})
        self._backend.carry_out(Lead(self._routes, failed=self._failed))

    def reconfigure(self, order: Reconfigure) -> None:
        """Have OCSes show circuits, once they show what was ordered before.

        Raises
        ------
        ScenarioError
            If one is not there, or shows a program.
        DemandError
            If one cannot have such circuits.
        """
        self._add(_Change(dict(order.circuits), order.deadline_s, order.at_deadline))

    def provision(self, order: Provision) -> None:
        """Have an OCS set circuits beside those that it shows.

        Raises
        ------
        ScenarioError
            If it is not there, or was ordered to flip to what it provisioned before and has not done so.
        DemandError
            If it cannot have such circuits.
        """
        if any(change.is_flip and order.ocs in change.circuits for change in self._changes.values()):
            raise ScenarioError(
                f"OCS {order.ocs} was to provision circuits while it was to flip to others",
                "order it when they are lit (Lit)",
            )
        self._check({order.ocs: order.circuits})
        self._beside[order.ocs] = order.circuits
        self._provisioned.discard(order.ocs)
        self._command(order)

    def flip(self, order: Flip) -> None:
        """Have OCSes show what they provisioned, once they have.

        Raises
        ------
        ScenarioError
            If one was to provision nothing, or shows a program.
        """
        if missing := [ocs for ocs in order.ocses if ocs not in self._beside]:
            raise ScenarioError(
                f"OCS {missing[0]} was to flip, and was to provision nothing", "order Provision before Flip"
            )
        later = dict.fromkeys(order.ocses, ())  # what is beside when it begins
        self._add(_Change(later, order.deadline_s, order.at_deadline, is_flip=True))

    def show(self, order: Show) -> None:
        """Have OCSes show programs.

        Raises
        ------
        ScenarioError
            If one does not yet show what it was ordered before.
        """
        if again := [ocs for ocs, _ in order.programs if ocs in self._showing]:
            raise ScenarioError(
                f"OCS {again[0]} was to show a program while it shows another",
                "order it when programs have ended (ProgramsEnded)",
            )
        if busy := self._ordered.intersection(ocs for ocs, _ in order.programs):
            raise ScenarioError(
                f"OCS {min(busy)} was to show a program while it was to be reconfigured",
                "order it when it is lit (Lit)",
            )
        self._showing.update(ocs for ocs, _ in order.programs)
        for ocs, slots in order.programs:
            for slot in slots:
                self._order({ocs: slot.circuits})
        self._command(order)

    def hold(self, name: str, ocses: Iterable[str], deadline_s: float | None) -> None:
        """Hold a collective until OCSes show all that they were ordered, if they were ordered anything."""
        ordered = self._ordered
        if not (awaited := tuple(ocs for ocs in ocses if ocs in ordered)):
            return
        if name not in self._awaited:
            self._ledger.held(name, self._backend.now_ps)
        self._awaited[name] = (*self._awaited.get(name, ()), *awaited)
        if deadline_s is not None:
            self._at(self._backend.now_ps + ps(deadline_s), partial(self._give_up_waiting, name))

    def is_held(self, name: str) -> bool:
        """Return whether a collective waits for OCSes."""
        return name in self._awaited

    def let_go(self) -> list[str]:
        """Return the collectives that were held and wait for no OCS any more."""
        ordered = self._ordered
        names = [name for name, ocses in self._awaited.items() if ordered.isdisjoint(ocses)]
        for name in names:
            del self._awaited[name]
            self._ledger.released(name, self._backend.now_ps)
        return names

    def _give_up_waiting(self, name: str) -> None:
        if name in self._awaited:
            self._awaited[name] = ()
            self._moved(Moved())

    @property
    def _ordered(self) -> set[str]:
        """The OCSes that do not yet show what was ordered."""
        return {ocs for change in self._changes.values() for ocs in change.circuits}

    def control(self, *, works: bool) -> None:
        """Have a controller, or none; StuckError if there is none where OCSes wait for its commands."""
        self._is_controlled = works
        moving = any(change.moving for change in self._changes.values())
        if self._showing or moving or not self._provisioned.issuperset(self._beside):
            self._check_controlled()

    def _command(self, order: movers.Order) -> None:
        """Have OCSes do something, which their controller orders."""
        self._check_controlled()
        self._backend.carry_out(order)

    def _check_controlled(self) -> None:
        if not self._is_controlled:
            raise StuckError(
                "the controller was killed, and OCSes wait for its commands",
                "let it fail where nothing is switched, or over packets",
            )

    # Changes

    def happened(self, happening: Drained | LightChanged | NowProvisioned) -> None:
        """Go on with what has become of an OCS."""
        if isinstance(happening, Drained):
            change = self._changes.get(happening.change)
            if change and change.drains:  # else its time was up
                self._move(change, happening.at_ps)
        elif isinstance(happening, NowProvisioned):
            if happening.circuits == self._beside[happening.ocs]:  # else others were ordered meanwhile
                self._provisioned.add(happening.ocs)
                self._begin_waiting()
                self._moved(Moved(Provisioned(happening.ocs)))
        elif happening.ocs in self._showing:
            self._go_on_showing(happening)
        else:
            self._lit_now(happening)

    def _add(self, change: _Change) -> None:
        self._check(change.circuits)
        if not change.circuits:
            return
        if busy := self._showing.intersection(change.circuits):
            raise ScenarioError(
                f"OCS {min(busy)} was to be reconfigured while it shows a program",
                "order it when programs have ended (ProgramsEnded)",
            )
        self._changes[next(self._numbers)] = change
        self._begin_waiting()

    def _check(self, circuits: Configuration) -> None:
        """Raise ScenarioError for an OCS that is not there, DemandError for circuits that it cannot have."""
        for ocs, pairs in circuits.items():
            if ocs not in self._lit:
                raise ScenarioError(
                    f"circuits were ordered of {ocs!r}, which is not an OCS of {self._fabric.name!r}",
                    f"name one of {', '.join(self._lit) or 'none: it has no OCS'}",
                )
            switch = self._fabric.switches[self._fabric.switch_index[ocs]]
            check_permitted(switch, Circuits(switch.ports, pairs))

    def _begin_waiting(self) -> None:
        """Drain for the changes whose OCSes have made all that was ordered before, and provisioned it."""
        busy = set[str]()
        for number, change in list(self._changes.items()):
            can_flip = not change.is_flip or self._provisioned.issuperset(change.circuits)
            if can_flip and not change.has_begun and busy.isdisjoint(change.circuits):
                self._drain(number, change)
            busy |= change.circuits.keys()

    def _drain(self, number: int, change: _Change) -> None:
        change.drains, self._carry = True, None
        if change.is_flip:
            change.circuits = {ocs: self._beside[ocs] for ocs in change.circuits}
        change.held = frozenset(self._led_elsewhere(change, self._lanes_of(change)))
        if change.deadline_s is not None:
            due_ps = self._backend.now_ps + ps(change.deadline_s)
            self._at(due_ps, partial(self._time_is_up, number, change))
        self._backend.pause(change.held, number)

    def _stand_too(self, lanes: Mapping[int, QueuePair]) -> None:
        """Have lanes stand for changes that have begun, since which they were opened or got a route."""
        for change in self._changes.values():
            more = self._led_elsewhere(change, lanes) - change.held if change.has_begun else set[int]()
            if more:
                change.held |= more
                self._backend.pause(more)

    def _lanes_of(self, change: _Change) -> dict[int, QueuePair]:
        """Return the lanes that a change may lead elsewhere."""
        nics: Iterable[Nic] = list(self._carriers)
        if not self.leads:
            ending = [(ocs, a) for ocs in change.circuits for a, _ in self._ending(ocs, change)]
            nics = self._nics_at(ending)
        return {number: lane for nic in nics for number, lane in self._carriers[nic].items()}

    def _led_elsewhere(self, change: _Change, lanes: Mapping[int, QueuePair]) -> set[int]:
        """Return the lanes whose route differs after a change, or after all that have begun.

        A lane may have a route that none of several changes ends, and only all of them make shorter.
        """
        if not self.leads:
            ending = {Port(ocs, a) for ocs in change.circuits for a, _ in self._ending(ocs, change)}
            return {
                number
                for number, lane in lanes.items()
                if self._fabric.peer(self._fabric.nic_port(lane.source)) in ending
                and self._routes.next_nic(lane.source) == lane.destination
            }
        begun = dict[str, tuple[Circuit, ...]]()
        for each in self._changes.values():
            begun |= each.circuits if each.has_begun else {}
        targets = [self._routes_over(after) for after in (dict(change.circuits), begun)]
        return {
            number
            for number, lane in lanes.items()
            if self.carries(lane) and self._is_led_elsewhere(lane, targets)
        }

    def _is_led_elsewhere(self, lane: QueuePair, targets: Iterable[Routes]) -> bool:
        """Return whether a lane that has a route has another one in some of several cases."""
        now = self._both_ways(self._routes, lane)
        return now[0] is not None and any(self._both_ways(after, lane) != now for after in targets)

    def _both_ways(self, routes: Routes, lane: QueuePair) -> tuple[Route | None, Route | None]:
        """Return the route of a lane, and that of its acknowledgements where that may be another."""
        back = routes.route(lane.destination, lane.source) if self._fabric.servers_forward else None
        return routes.route(lane.source, lane.destination), back

    def _kept(self, ocs: str, change: _Change) -> tuple[Circuit, ...]:
        stay = set(change.circuits[ocs])
        return tuple(pair for pair in self._lit[ocs] if pair in stay)

    def _ending(self, ocs: str, change: _Change) -> set[Circuit]:
        return set(self._lit[ocs]) - set(change.circuits[ocs])

    def _time_is_up(self, number: int, change: _Change) -> None:
        """Close lanes that have not drained for a change, or leave everything as it is."""
        if not change.drains:
            return
        left = frozenset(each.lane for each in self._backend.under_way(list(change.held)) if each.on_the_way)
        if change.at_deadline == "cut" or not left:
            self._moved(Moved(cut=left))
            self._move(change, self._backend.now_ps)
            return
        for ocs in sorted(change.circuits):
            self._ledger.note(self._backend.now_ps, "refused", ocs)
        self._end(number, change, Refused(tuple(sorted(change.circuits))))

    def _move(self, change: _Change, at_ps: int) -> None:
        """Have the devices move: nothing is on its way through circuits that end."""
        change.drains, change.moving = False, set(change.circuits)
        if change.is_flip:
            self._beside |= {ocs: self._lit[ocs] for ocs in change.circuits}
        self._show({ocs: self._kept(ocs, change) for ocs in change.circuits})
        self._order(change.circuits)
        self._command(movers.Light(change.circuits, flips=change.is_flip))
        for ocs in change.circuits:
            self._ledger.light(at_ps, "drained", ocs, self._lit[ocs])
        self._moved(Moved())

    def _order(self, circuits: Configuration) -> None:
        for ocs, pairs in circuits.items():
            self._ledger.ordered(self._backend.now_ps, ocs, pairs)

    def _lit_now(self, happening: LightChanged) -> None:
        """Record that an OCS is lit; when all of its change are, let lanes go on over the new routes."""
        moving = [entry for entry in self._changes.items() if happening.ocs in entry[1].moving]
        for number, change in moving:  # there is one
            self._ledger.light(happening.at_ps, "lit", happening.ocs, happening.circuits)
            change.moving.discard(happening.ocs)
            if not change.moving:
                self._show(change.circuits)
                self._end(number, change, Lit(tuple(sorted(change.circuits))))

    def _end(self, number: int, change: _Change, event: Event) -> None:
        """Let the lanes go on that stand for no other change, and begin with what waited."""
        del self._changes[number]
        self._carry = None
        others = frozenset[int]().union(*(each.held for each in self._changes.values()))
        self._backend.resume(change.held - others)
        self._begin_waiting()
        self._moved(Moved(event, change.held))

    def _go_on_showing(self, happening: LightChanged) -> None:
        """Record what an OCS shows in its program."""
        ocs, circuits = happening.ocs, happening.circuits
        self._show({ocs: circuits})
        if happening.until_ps is None:
            what = "switching"
        elif happening.until_ps < NEVER:
            what = "lit"
        else:
            what = "shown"
        self._ledger.light(happening.at_ps, what, ocs, circuits, in_program=True)
        if what == "shown":
            self._showing.discard(ocs)
            if not self._showing:
                self._moved(Moved(programs_ended=True))

    def _show(self, circuits: Configuration) -> None:
        """Have routes follow what OCSes carry."""
        moved = {ocs: set(self._lit[ocs]) ^ set(pairs) for ocs, pairs in circuits.items()}
        self._lit |= circuits
        self._carry = None
        if not any(moved.values()):
            return
        self._routes = self._routes_over({})
        if self.leads and self._changes:
            every = {number: lane for own in self._carriers.values() for number, lane in own.items()}
            self._stand_too(every)
        begun_at = [(ocs, a) for ocs, pairs in moved.items() for a, _ in sorted(pairs)]
        self._backend.carry_out(Lead(self._routes, None if self.leads else self._nics_at(begun_at)))

    def _routes_over(self, circuits: Configuration) -> Routes:
        """Return the routes once some OCSes carry circuits, and the others what they carry."""
        return Routes(self._fabric, {**self._lit, **circuits}, self._failed, self._routing)

    def _nics_at(self, inputs: Iterable[tuple[str, int]]) -> tuple[Nic, ...]:
        """Return the NICs at input ports of OCSes, each once."""
        ports = [port for ocs, a in inputs if (port := Port(ocs, a)) in self._fabric.link_at]
        return tuple(dict.fromkeys(self._fabric.nic_at(self._fabric.peer(port)) for port in ports))
