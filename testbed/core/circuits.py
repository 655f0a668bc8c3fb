"""Circuits: a rule hears what happens to a job, its orders are carried out, and light changes.

Nothing is on its way through circuits that end: lanes whose routes change drain first, and go on when all
OCSes of the change are lit (`testbed.core.ocses`). The backend has the devices and reports what they show;
what follows from that is decided here.
"""

from collections.abc import Iterable

from controller.circuits.circuits import Circuits, check_permitted
from testbed.core.backend import Drained, Lead, LightChanged, NowProvisioned, SetCircuits
from testbed.core.events import (
    ControllerChanged,
    DrainExpired,
    HoldExpired,
    JobBegan,
    LanesCut,
    LanesGoOn,
    LanesOpened,
    Ordered,
    Released,
    RestOrdered,
    RoutesChanged,
    RoutesLedAnew,
)
from testbed.core.lane_table import Lane
from testbed.core.lanes import lacking
from testbed.core.ocses import Change
from testbed.core.state import State
from testbed.core.steps import Do, Pause, Resume, Steps
from testbed.core.views import progress, view_of
from topologies.errors import ScenarioError, StuckError
from topologies.events import (
    Event,
    Flip,
    Hold,
    Lit,
    ProgramsEnded,
    Provision,
    Provisioned,
    Reconfigure,
    Refused,
    SendRest,
    SetTimer,
    Show,
    TimerFired,
)
from topologies.light import Configuration
from traffic.clock import NEVER, ps

MOST_IN_VAIN = 10_000
"""How many decisions in a row may leave the job where it is."""

# Decisions


def decide(state: State, event: Event) -> Steps:
    """Have the rule decide after an event, and carry out what is ordered."""
    rule, memory = state.setup.circuits, state.rule_memory
    if rule is None:
        return
    if not (isinstance(event, TimerFired) and state.ocses.changes):  # a slow device may be waited for
        _check_progress(state)
    memory.state, orders = rule.decide(memory.state, view_of(state), event)
    for order in orders:
        yield Ordered(order)


def _check_progress(state: State) -> None:
    """Raise StuckError if a rule goes on deciding, and nothing comes of it."""
    memory = state.rule_memory
    memory.decisions += 1
    if memory.decisions % MOST_IN_VAIN:
        return
    before, memory.progress = memory.progress, progress(state)
    if before is not None and before == memory.progress:
        raise StuckError(
            f"the rule for circuits decided {MOST_IN_VAIN:,} times in a row, by timers or by what it "
            "ordered, and the job did not go on",
            "light circuits for what is owed (view.owed()), and set timers that are longer",
        )


def ordered(state: State, event: Ordered) -> Steps:
    """Carry out what the rule orders."""
    order = event.order
    if isinstance(order, SetTimer):
        state.later(state.now_ps + ps(order.after_s), TimerFired(order.name))
    elif isinstance(order, SendRest):
        yield RestOrdered()
    elif isinstance(order, Hold):
        _hold(state, order)
    elif isinstance(order, Show):
        yield from _show_programs(state, order)
    elif isinstance(order, Provision):
        yield from _provision(state, order)
    elif isinstance(order, Flip):
        yield from _flip(state, order)
    else:
        yield from _add(state, order.circuits, order)


def _hold(state: State, order: Hold) -> None:
    """Hold a collective that begins now until all changes of some OCSes are over, if there are any."""
    name, now_ps = order.node, state.now_ps
    if name != state.starting:
        raise ScenarioError(
            f"{name!r} was to be held, and is not a collective that begins now",
            "order it when the collective starts (NodeStarted)",
        )
    if not (busy := tuple(filter(state.ocses.is_busy, order.ocses))):
        return
    awaited = state.nodes.awaited
    if name not in awaited:
        state.nodes[name].held_ps = now_ps
        state.record.note(now_ps, "held", name)
    awaited[name] = (*awaited.get(name, ()), *busy)
    if order.deadline_s is not None:
        state.later(now_ps + ps(order.deadline_s), HoldExpired(name))


def _show_programs(state: State, order: Show) -> Steps:
    """Have OCSes show programs.

    Raises
    ------
    ScenarioError
        If one is not there, shows another program, or has changes that are not over.
    DemandError
        If one cannot have such circuits.
    """
    ocses, names = state.ocses, [ocs for ocs, _ in order.programs]
    for ocs, slots in order.programs:
        for circuits in dict.fromkeys([(), *(slot.circuits for slot in slots)]):
            _check(state, {ocs: circuits})
    if twice := [ocs for ocs in names if names.count(ocs) > 1]:
        raise ScenarioError(f"OCS {twice[0]} was to show two programs at once", "put their slots into one")
    if again := [ocs for ocs in names if ocs in ocses.showing]:
        raise ScenarioError(
            f"OCS {again[0]} was to show a program while it shows another",
            "order it when programs have ended (ProgramsEnded)",
        )
    if busy := list(filter(ocses.is_busy, names)):
        raise ScenarioError(
            f"OCS {min(busy)} was to show a program while it was to be reconfigured",
            "order it when it is lit (Lit)",
        )
    state.light_is_over = False
    ocses.showing.update(names)
    for ocs, slots in order.programs:
        for slot in slots:
            state.record.ordered(state.now_ps, ocs, slot.circuits)
    yield from _command(state, order)


def _provision(state: State, order: Provision) -> Steps:
    """Have an OCS set circuits beside those that it shows.

    Raises
    ------
    ScenarioError
        If it is not there, or was ordered to flip to what it provisioned before and has not done so.
    DemandError
        If it cannot have such circuits.
    """
    ocses = state.ocses
    if any(change.is_flip and order.ocs in change.circuits for change in ocses.changes.values()):
        raise ScenarioError(
            f"OCS {order.ocs} was to provision circuits while it was to flip to others",
            "order it when they are lit (Lit)",
        )
    _check(state, {order.ocs: order.circuits})
    ocses.beside[order.ocs] = order.circuits
    ocses.provisioned.discard(order.ocs)
    yield from _command(state, order)


def _flip(state: State, order: Flip) -> Steps:
    """Have OCSes show what they provisioned, once they have."""
    if missing := [ocs for ocs in order.ocses if ocs not in state.ocses.beside]:
        raise ScenarioError(
            f"OCS {missing[0]} was to flip, and was to provision nothing", "order Provision before Flip"
        )
    yield from _add(state, dict.fromkeys(order.ocses, ()), order)  # what is beside when it begins


def _command(state: State, order: SetCircuits | Provision | Show) -> Steps:
    """Give OCSes an order, which takes a controller."""
    _check_controlled(state)
    yield Do(order)


def _check_controlled(state: State) -> None:
    if not state.ocses.is_controlled:
        raise StuckError(
            "the controller was killed, and OCSes wait for its commands",
            "let it fail where nothing is switched, or over packets",
        )


def controller_changed(state: State, event: ControllerChanged) -> Steps:
    """Note that there is a controller, or none; StuckError if OCSes wait for its commands."""
    ocses = state.ocses
    ocses.is_controlled = event.works
    moving = any(change.moving for change in ocses.changes.values())
    if ocses.showing or moving or not ocses.provisioned.issuperset(ocses.beside):
        _check_controlled(state)
    return
    yield


# Changes


def job_began(state: State, _event: JobBegan) -> Steps:
    """Have OCSes carry what is lit from the start."""
    circuits = state.setup.lit
    if not circuits:
        return
    _note_order(state, circuits)
    yield Do(SetCircuits(circuits, first=True))
    yield from _show(state, circuits)
    for ocs in circuits:
        state.record.shown(state.now_ps, "lit", ocs, state.ocses.shown[ocs])


def _add(state: State, circuits: Configuration, order: Reconfigure | Flip) -> Steps:
    """Add a change: OCSes show circuits once all changes before it are over.

    Raises
    ------
    ScenarioError
        If one is not there, or shows a program.
    DemandError
        If one cannot have such circuits.
    """
    _check(state, circuits)
    if not circuits:
        return
    ocses = state.ocses
    if busy := ocses.showing.intersection(circuits):
        raise ScenarioError(
            f"OCS {min(busy)} was to be reconfigured while it shows a program",
            "order it when programs have ended (ProgramsEnded)",
        )
    number, flips = ocses.new_number(), isinstance(order, Flip)
    ocses.add(Change(number, dict(circuits), order.deadline_s, order.at_deadline, flips))
    yield from _begin_waiting(state, circuits)


def _check(state: State, circuits: Configuration) -> None:
    """Raise ScenarioError for an OCS that is not there, DemandError for circuits that it cannot have."""
    for ocs, pairs in circuits.items():
        if ocs not in state.ocses.shown:
            raise ScenarioError(
                f"circuits were ordered of {ocs!r}, which is not an OCS of {state.fabric.name!r}",
                f"name one of {', '.join(state.ocses.shown) or 'none: it has no OCS'}",
            )
        switch = state.fabric.switches[state.fabric.switch_index[ocs]]
        check_permitted(switch, Circuits(switch.ports, pairs))


def _begin_waiting(state: State, ocses: Iterable[str]) -> Steps:
    """Begin those changes of some OCSes that may."""
    for change in state.ocses.may_begin(ocses):
        yield from _drain(state, change)


def _drain(state: State, change: Change) -> Steps:
    ocses = state.ocses
    ocses.begin(change)
    change.hold(ocses.led_elsewhere(change, _lanes_of(state, change)))
    if change.deadline_s is not None:
        state.later(state.now_ps + ps(change.deadline_s), DrainExpired(change.number))
    yield Pause(tuple(change.lanes), change.number)


def _lanes_of(state: State, change: Change) -> list[Lane]:
    """Return the lanes that a change may lead elsewhere."""
    if state.ocses.leads:
        return list(state.lanes.light.values())
    nics = state.ocses.nics_at(state.ocses.ending(change))
    return [lane for nic in nics for lane in state.lanes.sent_by(nic)]


def stand_too(state: State, event: LanesOpened) -> Steps:
    """Have lanes stand for changes that have begun, since which they were opened."""
    yield from _stand_too(state, [state.lanes[number] for number in event.lanes])


def all_stand_too(state: State, _event: RoutesLedAnew) -> Steps:
    """Have lanes stand that have got a route through circuits that are to end."""
    if state.ocses.begun:
        yield from _stand_too(state, state.lanes.light.values())


def _stand_too(state: State, lanes: Iterable[Lane]) -> Steps:
    """Have lanes stand for changes that have begun, since which they were opened or got a route."""
    mine = list(lanes)
    for change in list(state.ocses.begun.values()):
        if more := state.ocses.led_elsewhere(change, mine):
            change.hold(more)
            yield Pause([lane.number for lane in more])


def drained(state: State, event: Drained) -> Steps:
    """Have the OCSes of a change move, unless it ended at its deadline."""
    change = state.ocses.changes.get(event.change)
    if change and change.drains:
        yield from _move(state, change, event.at_ps)


def drain_expired(state: State, event: DrainExpired) -> Steps:
    """Close lanes that have not drained for a change, or refuse the change and leave all as it is."""
    change = state.ocses.changes.get(event.change)
    if not (change and change.drains):
        return
    carrying = state.backend.under_way(list(change.lanes))
    left = frozenset(each.lane for each in carrying if each.on_the_way)
    if change.at_deadline == "cut" or not left:
        yield from _settle(state, cut=left)
        yield from _move(state, change, state.now_ps)
        return
    for ocs in sorted(change.circuits):
        state.record.note(state.now_ps, "refused", ocs)
    yield from _end(state, change, Refused(tuple(sorted(change.circuits))))


def _move(state: State, change: Change, at_ps: int) -> Steps:
    """Have the OCSes of a change move: nothing is on its way through circuits that end."""
    ocses = state.ocses
    change.drains, change.moving = False, set(change.circuits)
    if change.is_flip:
        ocses.beside |= {ocs: ocses.shown[ocs] for ocs in change.circuits}
    yield from _show(state, {ocs: ocses.kept(ocs, change) for ocs in change.circuits})
    _note_order(state, change.circuits)
    yield from _command(state, SetCircuits(change.circuits, flips=change.is_flip))
    for ocs in change.circuits:
        state.record.shown(at_ps, "drained", ocs, ocses.shown[ocs])
    yield from _settle(state)


def _note_order(state: State, circuits: Configuration) -> None:
    for ocs, pairs in circuits.items():
        state.record.ordered(state.now_ps, ocs, pairs)


def light_changed(state: State, event: LightChanged) -> Steps:
    """Record what an OCS carries; when all of its change are lit, let lanes go on over the new routes."""
    ocses = state.ocses
    if event.ocs in ocses.showing:
        yield from _go_on_showing(state, event)
        return
    change = next((each for each in ocses.begun.values() if event.ocs in each.moving), None)
    if change is None:
        return
    state.record.shown(event.at_ps, "lit", event.ocs, event.circuits)
    change.moving.discard(event.ocs)
    if not change.moving:
        del ocses.begun[change.number]
        yield from _show(state, change.circuits)
        yield from _end(state, change, Lit(tuple(sorted(change.circuits))))


def _end(state: State, change: Change, event: Lit | Refused) -> Steps:
    """End a change: lanes that stand for no other one may go on, and changes behind it may begin."""
    lanes = frozenset(change.lanes)
    yield Resume(state.ocses.end(change))
    yield from _begin_waiting(state, change.circuits)
    yield from _settle(state, event=event, lanes=lanes)


def provisioned(state: State, event: NowProvisioned) -> Steps:
    """Record that an OCS has provisioned circuits, unless others were ordered meanwhile."""
    ocses = state.ocses
    if event.circuits == ocses.beside[event.ocs]:
        ocses.provisioned.add(event.ocs)
        yield from _begin_waiting(state, [event.ocs])
        yield from _settle(state, event=Provisioned(event.ocs))


def _go_on_showing(state: State, event: LightChanged) -> Steps:
    """Record what an OCS shows in its program."""
    ocs, showing = event.ocs, state.ocses.showing
    yield from _show(state, {ocs: event.circuits})
    if event.until_ps is None:
        what = "switching"
    elif event.until_ps < NEVER:
        what = "lit"
    else:
        what = "shown"
    state.record.shown(event.at_ps, what, ocs, event.circuits, in_program=True)
    if what == "shown":
        showing.discard(ocs)
        if not showing:
            yield from _settle(state, programs_ended=True)


def _show(state: State, circuits: Configuration) -> Steps:
    """Have routes follow what OCSes carry."""
    ocses = state.ocses
    if (moved := ocses.show(circuits)) is None:
        return
    if ocses.leads and ocses.changes:
        yield from _stand_too(state, state.lanes.light.values())
    nics = None if ocses.leads else ocses.nics_at((ocs, a) for ocs, (a, _) in moved)
    yield Do(Lead(ocses.routes, nics))


# What waits for light


def hold_expired(state: State, event: HoldExpired) -> Steps:
    """Let a collective go that has waited for OCSes as long as it may."""
    if event.node in state.nodes.awaited:
        state.nodes.awaited[event.node] = ()
        yield from _settle(state)


def _settle(
    state: State,
    *,
    cut: frozenset[int] = frozenset(),
    programs_ended: bool = False,
    event: Lit | Refused | Provisioned | None = None,
    lanes: frozenset[int] = frozenset(),
) -> Steps:
    """Yield all that follows once routes have changed, in this order."""
    yield RoutesChanged()
    if cut:
        yield LanesCut(cut)
    if programs_ended:
        yield ProgramsEnded(lacking(state))
    if event:
        yield event
    if isinstance(event, Lit | Refused):
        yield LanesGoOn(lanes)
    for name in _release_held(state):
        yield Released(name)


def _release_held(state: State) -> list[str]:
    """Release the collectives that were held and wait for no OCS any more; return their names."""
    awaited = state.nodes.awaited
    names = [name for name, ocses in awaited.items() if not any(map(state.ocses.is_busy, ocses))]
    for name in names:
        del awaited[name]
        state.nodes[name].released_ps = state.now_ps
        state.record.note(state.now_ps, "released", name)
    return names
