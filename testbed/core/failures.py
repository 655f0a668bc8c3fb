"""Failures: faults begin, are known, end and are forgotten; and how the job goes on.

Whenever a fault begins or is over, the states of links, GPUs and daemons are folded anew from the effects of
all faults that stand, in the order in which they began, so that overlapping ones compose. The backend gets
the differences. The state that the job knows is folded alike from the faults that are known. Then the job is
revised, and bytes that were not delivered are sent elsewhere.
"""

from collections.abc import Iterable, Sequence
from itertools import chain

from testbed.core.backend import Expect, KnowRates, Lead, SetDaemon, SetLink
from testbed.core.events import (
    ControllerChanged,
    FaultBegan,
    FaultEnded,
    FaultForgotten,
    FaultKnown,
    GpusGone,
    JobBegan,
    PiecesDone,
    RoutesChanged,
    RoutesLedAnew,
    SentAgain,
)
from testbed.core.lanes import is_cut, left_over, take_back, unsent
from testbed.core.losing import lose
from testbed.core.state import State
from testbed.core.steps import Asks, Do, Steps
from topologies.errors import ScenarioError
from topologies.events import FaultDetected, FaultOver, NodeStarted
from topologies.fabric import Fabric, Link
from traffic.clock import ps
from traffic.compose import renumbered
from traffic.effects import Daemon, DaemonState, Effect, LinkState, daemon_states, gpu_states, link_states
from traffic.faults import Fault, Moves, places_after
from traffic.job import Collective

HEALTHY = LinkState()

# Faults that begin and end


def job_began(state: State, _event: JobBegan) -> Steps:
    """Begin the faults that stand from the start, and set the time of those that count from there."""
    for fault in filter(state.setup.stands, state.setup.faults):
        yield FaultBegan(fault)
    _count_from(state, "")


def node_started(state: State, event: NodeStarted) -> Steps:
    """Set the time of the faults that count from the start of a node."""
    _count_from(state, event.node)
    return
    yield


def _count_from(state: State, node: str) -> None:
    for fault in state.setup.faults:
        if fault.when.node == node and not state.setup.stands(fault):
            state.later(state.now_ps + ps(fault.when.after_s), FaultBegan(fault))


def fault_began(state: State, event: FaultBegan) -> Steps:
    """Have a fault begin: its parts fail, and it is known once it is detected."""
    fault, failures = event.fault, state.failures
    failures.begun.append(fault)
    failures.standing.append(fault)
    gpus = gpu_states(_effects(failures.standing))
    failures.stopped.update(gpu for gpu, each in gpus.items() if not each.up)
    yield from _expect(state)
    yield from _set_links(state, fault)
    now_ps = state.now_ps  # an emulation's links carry something until all of them are down
    state.record.fault(now_ps, "failed", fault.name)
    _note_links(state, fault, now_ps)
    yield from _set_daemon(state, fault)
    if fault.when.lasts_s is None or fault.detect_s < fault.when.lasts_s:
        state.later(now_ps + ps(fault.detect_s), FaultKnown(fault))
    if fault.when.lasts_s is not None:
        state.later(now_ps + ps(fault.when.lasts_s), FaultEnded(fault))


def fault_ended(state: State, event: FaultEnded) -> Steps:
    """Have a fault end: its parts are back."""
    fault, failures, now_ps = event.fault, state.failures, state.now_ps
    state.record.fault(now_ps, "back", fault.name)
    failures.standing.remove(fault)
    yield from _expect(state)
    yield from _set_links(state, fault)
    _note_links(state, fault, now_ps)
    yield from _set_daemon(state, fault)
    if fault in failures.known or fault.daemon == "switches":
        state.later(now_ps + ps(fault.detect_s), FaultForgotten(fault))


def _set_links(state: State, fault: Fault) -> Steps:
    """Have the backend give the links of a fault the states that they have now."""
    failures = state.failures
    states = states_of_links(state.fabric, failures.standing)
    for link in states_of_links(state.fabric, [fault]):
        now = states.get(link, HEALTHY)
        if now != failures.links.get(link, HEALTHY):
            failures.links[link] = now
            yield Do(SetLink(link.a, now))


def _set_daemon(state: State, fault: Fault) -> Steps:
    """Have the backend follow what has become of a fault's daemon."""
    failures = state.failures
    states = daemon_states(_effects(failures.standing))
    for daemon in daemon_states(fault.effects):
        now = states.get(daemon, DaemonState())
        if now != failures.daemons.get(daemon, DaemonState()):
            failures.daemons[daemon] = now
            yield Do(SetDaemon(daemon, now))
            if daemon == "controller":
                yield ControllerChanged(now.up)


def _expect(state: State) -> Steps:
    """Tell the backend whether a link that is down, or the switches' daemon, will be back."""
    failures = state.failures
    stays = [fault for fault in failures.standing if fault.when.lasts_s is None]
    expects = not _down(state, failures.standing) <= _down(state, stays)
    if expects != failures.expects_back:
        failures.expects_back = expects
        yield Do(Expect(expects))


def _down(state: State, faults: Sequence[Fault]) -> set[Link | Daemon]:
    """Return the links that some faults take down, and the switches' daemon if they kill it."""
    switches = daemon_states(_effects(faults)).get("switches", DaemonState())
    links = states_of_links(state.fabric, faults).items()
    down: set[Link | Daemon] = {link for link, each in links if not each.up}
    return down if switches.up else {*down, "switches"}


def _note_links(state: State, fault: Fault, now_ps: int) -> None:
    """Record the states of the links of a fault, and whether they are known."""
    known = states_of_links(state.fabric, state.failures.known)
    for link in states_of_links(state.fabric, [fault]):
        now = state.failures.links.get(link, HEALTHY)
        is_known = now == known.get(link, HEALTHY)
        rate_bps = link.rate_bps * now.rate
        state.record.link(link, now_ps, rate_bps=rate_bps, up=now.up, known=is_known)


def states_of_links(fabric: Fabric, faults: Iterable[Fault]) -> dict[Link, LinkState]:
    """Return the states of links that faults change; they are in the order in which they began."""
    return link_states(_effects(faults), fabric.link_at.__getitem__)


def _effects(faults: Iterable[Fault]) -> Iterable[Effect]:
    return chain.from_iterable(fault.effects for fault in faults)


# Faults that are known


def _learn(state: State, fault: Fault, known: Sequence[Fault]) -> Asks[bool]:
    """Have some faults be known from now on, and no others; return True if traffic is led anew by one."""
    failures, fabric = state.failures, state.fabric
    failures.known = [each for each in failures.begun if each in known]
    before, states = failures.ports, states_of_links(fabric, failures.known)
    failures.ports = fabric.both_ends(link.a for link, each in states.items() if not each.up)
    rates = {
        fabric.nic_at(end): each.rate
        for link, each in states.items()
        for end in (link.a, link.b)
        if end.node in fabric.server_index and each.up and each.rate < 1
    }
    if rates != failures.rates:
        failures.rates = rates
        yield Do(KnowRates(rates))
    return not fault.only_impairs or failures.ports != before


def fault_known(state: State, event: FaultKnown) -> Steps:
    """Revise the job and, where a fault leads traffic anew, close what crosses the failed links."""
    fault, failures, now_ps = event.fault, state.failures, state.now_ps
    state.record.fault(now_ps, "detected", fault.name)
    leads = yield from _learn(state, fault, [*failures.known, fault])
    _note_links(state, fault, now_ps)
    revision = state.setup.revisions.of(fault)
    _check_running(state, revision.cancel)
    failures.gone.update(fault.gpus)
    again = _move(state, revision.moves)
    given_up = {state.nodes[name].number for name in (*revision.cancel, *again)}
    cancelled = [number for number, node in enumerate(state.ops.node) if node in given_up]
    state.ops.lost.update(cancelled)
    ended = lose(state, state.under_way)
    lanes = state.lanes.open.values() if leads else ()
    closing = [lane.number for lane in lanes if is_cut(state, lane, failures.ports)]
    left = yield from take_back(state, closing, ())
    state.ops.elsewhere.update(number for number, _ in left)
    if leads:
        yield from _lead_anew(state, "gone around", fault)
    for number in cancelled:
        state.ops.then.pop(number, None)
    _give_up(state, [*again, *revision.cancel])
    for name in revision.cancel:
        state.record.ended(state.nodes[name], state.now_ps)
    yield FaultDetected(fault.name)
    yield from left_over(state, left)
    for name in again:
        yield SentAgain(name)
    state.start(state.graph.replace(revision.cancel, revision.nodes))
    yield GpusGone(fault.gpus, revision.moves, tuple(ended))
    for name in sorted(row.name for row in state.nodes.rows if row.unfinished):
        yield PiecesDone(name, 0)


def fault_forgotten(state: State, event: FaultForgotten) -> Steps:
    """Send anew the bytes that had to go elsewhere; all bytes, if the switches forwarded nothing."""
    fault, failures, ops = event.fault, state.failures, state.ops
    leads = yield from _learn(state, fault, [each for each in failures.known if each != fault])
    _note_links(state, fault, state.now_ps)
    if not leads:
        yield FaultOver(fault.name)
        return
    if fault.daemon == "switches":  # connections would wait for their timeouts
        left = yield from take_back(state, list(state.lanes.open), set(state.under_way))
    else:
        left = yield from take_back(state, (), list(ops.choosing))
        left += yield from unsent(state, ops.elsewhere)
    if not failures.ports:
        ops.elsewhere.clear()
    yield from _lead_anew(state, "in use again", fault)
    yield FaultOver(fault.name)
    yield from left_over(state, left)
    yield from left_over(state, ops.lighten())


def _lead_anew(state: State, what: str, fault: Fault) -> Steps:
    """Have routes and rules lead around what is known to have failed."""
    for row in state.nodes.rows:
        row.kept.clear()
    state.ocses.avoid(state.failures.ports)
    yield RoutesLedAnew()  # before lanes may send over them
    yield Do(Lead(state.ocses.routes, failed=state.ocses.failed))
    yield RoutesChanged(everywhere=True)
    state.record.fault(state.now_ps, what, fault.name)


def _move(state: State, moves: Moves) -> list[str]:
    """Have GPUs take the places of others; return the collectives under way that have to begin again."""
    again, gone = list[str](), {gpu for gpu, _ in moves}
    if not gone:
        return again
    places = places_after(moves, state.fabric.gpus)
    for node in list(state.graph.nodes.values()):
        if gone.isdisjoint(node.gpus):
            continue
        if isinstance(node, Collective):
            state.communicator(node)
            if _is_sent(state, node.name):
                again.append(node.name)
        state.graph.swap(renumbered(node, places))
    return again


def _is_sent(state: State, name: str) -> bool:
    """Return whether a node is under way, or a collective has sent all and has not ended."""
    row = state.nodes.get(name)
    return row is not None and (bool(row.pieces) or row.unfinished)


def _check_running(state: State, names: Iterable[str]) -> None:
    for name in names:
        if not (_is_sent(state, name) and isinstance(state.graph.nodes[name], Collective)):
            raise ScenarioError(f"{name!r} is given up, and is not a collective that runs now")


def _give_up(state: State, names: Iterable[str]) -> None:
    for name in names:
        state.record.fault(state.now_ps, "given up", name)
        row = state.nodes[name]
        row.pieces, row.unfinished = 0, False
