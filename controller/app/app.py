"""The app that sends switches the rules of `controller.packet.routing`, and reads what they count.

Whatever comes from switches, timers and the northbound is an event in its queue, handled on one
thread: its state has one owner and no lock. ``python -m controller`` runs it under os-ken.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from controller.app.app_thread import AppThread, Work
from controller.app.notices import Subscriber
from controller.app.ocs import OpticalSwitches
from controller.app.openflow import (
    DEAD_DISPATCHER,
    MAIN_DISPATCHER,
    App,
    Datapath,
    EventBase,
    Message,
    barrier,
    change_messages,
    clearing_messages,
    error_text,
    events,
    flow_count_request,
    flow_stats_request,
    flow_status,
    group_request,
    hang_up,
    hub,
    live_ports,
    ofp,
    on,
    port_counters,
    port_stats_request,
    send_as_one,
)
from controller.app.proof import Proof
from controller.app.questions import Question, Questions
from controller.circuits.status import FlowStatus, OcsRecord, PortStatus, Status, SwitchStatus
from controller.packet.changes import changes, renumbered
from controller.packet.routing import TABLE_MISS, forwarding_rules
from controller.packet.rules import RuleSet
from topologies.addresses import datapath_id
from topologies.errors import NetworkError
from topologies.fabric import Fabric, Link, Port
from topologies.routing import Routing

SETTLE_S = 0.01
"""How long after news of a port the rules are computed anew: news of many ports is one piece."""

PROVE_AGAIN_S = 1.0
"""How long after a proof failed the next one is asked for."""

DARK = RuleSet((TABLE_MISS,))
"""The rules of an OCS that has connected; its circuits are sent by `controller.app.ocs`."""

log = logging.getLogger("controller")


@dataclass(eq=False)
class KnownSwitch:
    """What the app knows of a switch of the fabric, connected or not."""

    name: str
    datapath: Datapath = None
    """The connection, None if there is none."""
    down_ports: set[Port] = field(default_factory=set)
    """Linked ports that the switch calls down or does not have, as last reported."""
    rules: RuleSet | None = None
    """What was sent to it, None if nothing yet on this connection."""
    barrier: int | None = None
    """The transaction of the barrier that is not proved to be on the wire yet, None if none is."""
    error: str = ""
    """What it refused on this connection."""
    unproved: str = ""
    """Why its rules are not proved to be on the wire, until they are."""

    @property
    def ready(self) -> bool:
        """Whether all its rules are on the wire."""
        return self.rules is not None and self.barrier is None and not self.error


class _Settle(EventBase):  # type: ignore[misc]  # the library has no types
    """The rules may have to change."""


class _Work(EventBase):  # type: ignore[misc]
    """A piece of work for the app's thread."""

    def __init__(self, run: Work) -> None:
        super().__init__()
        self.run = run


class Controller(App):  # type: ignore[misc]
    """The network's controller.

    Parameters
    ----------
    fabric
        What is wired.
    routing
        By which ports packet switches send on before the shortest path; by default nothing else.
    hosts
        Whether switches forward to the addresses of hosts.
    routed
        Whether packet switches route by themselves and never connect.
    records
        What another controller left of OCSes, from which this one takes over.
    news
        A unix datagram socket that hears all that OCSes light, and which links have failed; None for none.
    """

    OFP_VERSIONS = (ofp.OFP_VERSION,)

    def __init__(
        self,
        *args: object,
        fabric: Fabric,
        routing: Routing | None = None,
        hosts: bool = False,
        routed: bool = False,
        records: Sequence[OcsRecord] = (),
        news: Path | None = None,
        **kwargs: object,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.fabric = fabric
        self._rules_around = partial(forwarding_rules, fabric, routing=routing, hosts=hosts)
        names = [switch.name for switch in fabric.switches if switch.kind == "ocs" or not routed]
        self._switches = {datapath_id(fabric, name): KnownSwitch(name) for name in names}
        self._named = {switch.name: switch for switch in self._switches.values()}
        self._failed_links: frozenset[Link] = frozenset()
        self._rules = self._rules_around()
        self._settling = False
        self._failure = ""
        self._questions = Questions()
        self._thread = AppThread(lambda work: self.send_event(self.name, _Work(work)))
        self._proof = Proof(self._thread)
        self._news = Subscriber(news, self._thread) if news else None
        self.ocses = OpticalSwitches(self.fabric, self._thread, self._proof, records, self._news)

    @on(events.EventOFPStateChange, MAIN_DISPATCHER, DEAD_DISPATCHER)
    def connection_changed(self, event: Message) -> None:
        """Begin with a switch that has connected, or forget the connection that ended."""
        datapath = event.datapath
        switch = self._switches.get(datapath.id)
        if switch is None:
            if event.state == MAIN_DISPATCHER:
                log.warning(
                    "refused a switch with the datapath id %s, which is not in the fabric", datapath.id
                )
                hang_up(datapath)
        elif event.state == MAIN_DISPATCHER:
            if switch.datapath:
                hang_up(switch.datapath)  # it has been replaced, whether or not it knows
            self._forget(switch)
            switch.datapath = datapath
            self._note_ports(switch)
            self._settle()
        elif switch.datapath is datapath:
            self._forget(switch)

    # Not EventOFPPortStatus: that one may come before the library has updated the datapath's ports.
    @on(events.EventOFPPortStateChange, MAIN_DISPATCHER)
    def port_changed(self, event: Message) -> None:
        """Remember which ports are down, and settle soon."""
        switch = self._switches.get(event.datapath.id)
        if switch and switch.datapath is event.datapath:
            self._note_ports(switch)
            if not self._settling:
                self._settling = True
                hub.spawn_after(SETTLE_S, self.send_event, self.name, _Settle())

    @on(_Settle)
    def settle(self, _: _Settle) -> None:
        """Send what has changed since the last time."""
        try:
            self._settle()
        finally:
            self._settling = False  # not before: until all is sent, the network is not ready

    @on(_Work)
    def work(self, work: _Work) -> None:
        """Run a piece of work that another thread has posted."""
        work.run()

    @on(events.EventOFPBarrierReply, MAIN_DISPATCHER)
    def barrier_answered(self, event: Message) -> None:
        """Ask for a proof that a switch's rules, which have changed, are on the wire."""
        switch = self._switches.get(event.msg.datapath.id)
        if switch and switch.datapath is event.msg.datapath:
            self._prove(switch, switch.datapath, event.msg.xid)
            self.ocses.answered(switch.name, event.msg.xid)

    @on(events.EventOFPErrorMsg, MAIN_DISPATCHER)
    def refused(self, event: Message) -> None:
        """Handle a refusal: it answers a question, ends a reconfiguration, or is an error of the switch."""
        switch = self._switches.get(event.msg.datapath.id)
        if switch is None or switch.datapath is not event.msg.datapath:
            return
        sentence = f"switch {switch.name} refused a message: {error_text(event.msg)}"
        log.warning(sentence)
        if self._questions.refuse(event.msg, sentence):
            return
        if not self.ocses.refused(switch.name, event.msg.xid, sentence):
            switch.error = switch.error or sentence  # the first one tells most

    @on(events.EventOFPFlowStatsReply, MAIN_DISPATCHER)
    @on(events.EventOFPAggregateStatsReply, MAIN_DISPATCHER)
    @on(events.EventOFPGroupDescStatsReply, MAIN_DISPATCHER)
    @on(events.EventOFPPortStatsReply, MAIN_DISPATCHER)
    def answered(self, event: Message) -> None:
        """Hand a switch's answer to its question."""
        self._questions.take(event.msg)

    def failed(self, sentence: str) -> None:
        """Record that a handler raised an exception: from then on the network is not ready, and says why."""
        self._failure = self._failure or sentence  # the first one tells most

    def status(self) -> Status:
        """Return whether the network forwards as it should; from any thread, as all below."""
        return self._thread.ask(self._status)

    def switches(self) -> list[SwitchStatus]:
        """Return all switches, with what they count."""
        known = self._thread.ask(lambda: [replace(switch) for switch in self._named.values()])
        return [self._switch_status(switch) for switch in known]

    def flows(self, name: str) -> list[FlowStatus]:
        """Return a switch's rules; NetworkError if it does not answer, as below."""
        return [flow_status(stats) for stats in self._answer(self._known(name), flow_stats_request)]

    def ports(self, name: str) -> PortStatus:
        """Return a switch's counters."""
        counters = (port_counters(stats) for stats in self._answer(self._known(name), port_stats_request))
        used = {port.number for port in self.fabric.used_ports(name)}
        misses = [flow.packets for flow in self.flows(name) if flow.priority == TABLE_MISS.priority]
        return PortStatus(
            tuple(sorted((port for port in counters if port.port in used), key=lambda port: port.port)),
            sum(misses),
        )

    def _status(self) -> Status:
        switches = list(self._named.values())
        waiting = tuple(switch.name for switch in switches if switch.datapath and not switch.ready)
        missing = tuple(switch.name for switch in switches if not switch.datapath)
        errors = (self._failure, *(switch.error for switch in switches))
        return Status(
            ready=not (missing or waiting or self._settling or self._failure),
            missing=missing,
            waiting=waiting,
            failed_links=tuple(sorted(map(str, self._failed_links))),
            unproved=tuple(switch.unproved for switch in switches if switch.unproved),
            errors=tuple(error for error in errors if error),
        )

    def _forget(self, switch: KnownSwitch) -> None:
        """Forget a switch's connection, if it has one, and all that was on its way over it."""
        if switch.datapath:
            self._questions.drop(switch.datapath)
            self.ocses.disconnected(switch.name)
        switch.datapath = switch.rules = switch.barrier = None
        switch.error = switch.unproved = ""

    def _prove(self, switch: KnownSwitch, datapath: Datapath, barrier: int) -> None:
        if switch.datapath is datapath and switch.barrier == barrier:
            self._proof.ask(partial(self._confirmed, switch, datapath, barrier))

    def _confirmed(
        self, switch: KnownSwitch, datapath: Datapath, barrier: int, _now: float, error: str
    ) -> None:
        """Handle the proof that rules are on the wire, or record why there is none and ask again."""
        if switch.datapath is not datapath or switch.barrier != barrier:
            return
        switch.unproved = error and f"switch {switch.name}: {error}"
        if error:
            again = partial(self._prove, switch, datapath, barrier)
            hub.spawn_after(PROVE_AGAIN_S, self._thread.post, again)
            return
        switch.barrier = None
        self.ocses.connected(switch.name, datapath)

    def _note_ports(self, switch: KnownSwitch) -> None:
        live = live_ports(switch.datapath)
        switch.down_ports = {port for port in self.fabric.used_ports(switch.name) if port.number not in live}

    def _settle(self) -> None:
        """Send every connected switch what has changed in its rules."""
        down = {port for switch in self._switches.values() for port in switch.down_ports}
        failed = frozenset(self.fabric.link_at[port] for port in down)
        if failed != self._failed_links:
            self._rules = self._rules_around(failed)
            self._failed_links = failed
            if self._news:
                self._news.notify({"failed_links": sorted(map(str, failed))})
        for switch in self._switches.values():
            rules = renumbered(self._rules.get(switch.name, DARK), switch.rules or RuleSet())
            if switch.datapath and switch.rules != rules:
                self._send_rules(switch, rules)

    def _send_rules(self, switch: KnownSwitch, rules: RuleSet) -> None:
        datapath = switch.datapath
        is_new = switch.rules is None and not self.ocses.keeps(switch.name, datapath)
        first = clearing_messages(datapath) if is_new else []
        then = change_messages(datapath, changes(switch.rules or RuleSet(), rules))
        switch.rules, switch.barrier = rules, send_as_one(datapath, [*first, *then, barrier(datapath)])

    def _switch_status(self, switch: KnownSwitch) -> SwitchStatus:
        try:
            flows = sum(stats.flow_count for stats in self._answer(switch, flow_count_request))
            groups = len(self._answer(switch, group_request))
        except NetworkError:  # it is not connected, has gone meanwhile, or is silent
            return SwitchStatus(switch.name, connected=False, ready=False, flows=None, groups=None)
        return SwitchStatus(switch.name, connected=True, ready=switch.ready, flows=flows, groups=groups)

    def _known(self, name: str) -> KnownSwitch:
        """Return what is known of a switch now; from any thread."""
        if name not in self._named:
            raise NetworkError(f"switch {name} routes by itself")
        return self._thread.ask(lambda: replace(self._named[name]))

    def _answer(self, switch: KnownSwitch, request: Callable[[Datapath], Message]) -> list[Message]:
        """Return a switch's answer to a question: the parts of its body."""
        if switch.datapath is None:
            raise NetworkError(f"switch {switch.name} is not connected")
        question = Question(switch.name, switch.datapath, request)
        self._thread.post(partial(self._questions.send, question))
        return question.answer()
