"""The one file that imports an OpenFlow library: os-ken, the maintained fork of Ryu.

First what the app needs of the library, then rules made into OpenFlow 1.3 messages, and a switch's
answers made into values. The fabric's ports count from 0, OpenFlow's from 1: they meet here and nowhere
else.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from functools import wraps
from ipaddress import IPv4Network
from socket import SHUT_RDWR, socket
from typing import Any, TypeVar

from os_ken.base.app_manager import AppManager
from os_ken.base.app_manager import OSKenApp as App
from os_ken.controller import ofp_event as events
from os_ken.controller.controller import Datapath as Connection
from os_ken.controller.event import EventBase
from os_ken.controller.handler import DEAD_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
from os_ken.controller.ofp_handler import OFPHandler
from os_ken.lib import hub
from os_ken.ofproto import ofproto_v1_3 as ofp
from os_ken.ofproto import ofproto_v1_3_parser as messages

from controller.circuits.status import FlowStatus, PortCounters
from controller.packet.changes import RuleChanges
from controller.packet.rules import Action, Bucket, FlowRule, Match, Output, SelectGroup, SetEthDst, ToGroup
from topologies.addresses import openflow_port

__all__ = [
    "DEAD_DISPATCHER",
    "MAIN_DISPATCHER",
    "App",
    "EventBase",
    "events",
    "hub",
    "ofp",
    "on",
]

ACCEPT_AGAIN_S = 0.2
"""How long after a connection could not be accepted the next attempt is made; the switch waits meanwhile."""

log = logging.getLogger("controller")

# The library has no types: its datapaths, messages and statistics are Any by necessity.
Datapath = Any
Message = Any


class _Handshake(OFPHandler):  # type: ignore[misc]
    """The library's greeting of switches, without its listener: ours is open already."""

    def start(self) -> None:
        App.start(self)


class _UnixSocket(socket):
    """A switch's connection, of which the library wants what only TCP has: to send at once."""

    def setsockopt(self, *_option: object) -> None:
        """Do nothing: a unix socket sends at once."""


class _Connection(Connection):  # type: ignore[misc]
    """The library's connection to a switch, which sends at once, and whose end is noticed.

    The library hands messages to a sending thread; what asks `controller.app.proof` next would overtake
    them. On native threads os-ken 4.2 waits at the end for that thread, and that one for something
    to send: the switch would seem connected for ever.
    """

    def __init__(self, connected: socket) -> None:
        self._sending = hub.Semaphore(1)
        super().__init__(_UnixSocket(fileno=connected.detach()), address="")

    def send(self, data: bytes, close_socket: bool = False) -> bool:
        """Send on the caller's thread; return whether the switch is still there."""
        if close_socket:
            return bool(super().send(data, close_socket))
        try:
            with self._sending:
                self.socket.sendall(data)
        except OSError:
            hang_up(self)
            return False
        return True

    def _recv_loop(self) -> None:
        try:
            super()._recv_loop()
        finally:  # also where a message makes no sense
            self.close()
            super().send(b"")


_Handler = TypeVar("_Handler", bound=Callable[..., None])


def on(event: type, *phases: str) -> Callable[[_Handler], _Handler]:
    """Return a decorator for an app's method that handles an event in phases of a connection.

    It is the library's. What the method raises is logged, and reported to the app's `failed`: on native
    threads os-ken 4.2 would end the app's one thread without a word.
    """

    def decorator(handler: _Handler) -> _Handler:
        @wraps(handler)
        def guarded(app: App, *event: object) -> None:
            try:
                handler(app, *event)
            except Exception as error:
                log.exception("%s failed", handler.__qualname__)
                app.failed(f"the controller failed in {handler.__name__}: {error!r}")

        decorated: _Handler = set_ev_cls(event, list(phases))(guarded)
        return decorated

    return decorator


def run(app_class: type, listener: socket, **arguments: object) -> App:
    """Start an app and serve the switches that connect to a listening socket; return the app."""
    apps = AppManager.get_instance()
    handshake = apps.instantiate(_Handshake)
    app = apps.instantiate(app_class, **arguments)
    handshake.start()
    app.start()
    hub.spawn(_accept, listener)
    return app


def _accept(listener: socket) -> None:
    while True:
        try:
            hub.spawn(_serve, listener.accept()[0])
        except (OSError, RuntimeError) as error:  # no descriptor or no thread is left
            log.error("accept a switch: %s", error)
            hub.sleep(ACCEPT_AGAIN_S)


def _serve(connected: socket) -> None:
    with closing(_Connection(connected)) as connection:
        connection.serve()


def hang_up(datapath: Datapath) -> None:
    """End a connection; from any thread.

    The library's own `close` announces the end on the caller's thread. On the app's that could wait
    for ever for room in the queue that only this thread empties. So only the receiving thread, which
    sees the end at once, announces it.
    """
    with suppress(OSError):  # it has ended already
        datapath.socket.shutdown(SHUT_RDWR)


def send_as_one(datapath: Datapath, parts: Iterable[Message]) -> int:
    """Send messages as one piece, and return the transaction of the last.

    A unix socket that nobody reads takes 70 rules one by one, and 1,900 as one piece.
    """
    parts = list(parts)
    for part in parts:
        datapath.set_xid(part)
        part.serialize()
    datapath.send(b"".join(part.buf for part in parts))
    transaction: int = parts[-1].xid
    return transaction


def clearing_messages(datapath: Datapath) -> list[Message]:
    """Return the messages that delete all rules and all groups of a switch."""
    return [
        messages.OFPFlowMod(
            datapath,
            table_id=ofp.OFPTT_ALL,
            command=ofp.OFPFC_DELETE,
            out_port=ofp.OFPP_ANY,
            out_group=ofp.OFPG_ANY,
            match=messages.OFPMatch(),
        ),
        messages.OFPGroupMod(datapath, ofp.OFPGC_DELETE, ofp.OFPGT_SELECT, ofp.OFPG_ALL),
    ]


def change_messages(datapath: Datapath, changes: RuleChanges) -> Iterator[Message]:
    """Yield the messages that apply changes; a rule always finds its group."""
    for group in changes.new_groups:
        yield _group_mod(datapath, group)
    for rule in changes.new_rules:
        yield _flow_mod(datapath, ofp.OFPFC_ADD, rule)
    for rule in changes.gone_rules:
        yield _flow_mod(datapath, ofp.OFPFC_DELETE_STRICT, rule)
    for group in changes.gone_groups:
        yield messages.OFPGroupMod(datapath, ofp.OFPGC_DELETE, ofp.OFPGT_SELECT, group.number)


def barrier(datapath: Datapath) -> Message:
    """Return the request that a switch answers when it has done all that was sent before."""
    return messages.OFPBarrierRequest(datapath)


def flow_stats_request(datapath: Datapath) -> Message:
    """Return the question for all rules and their counters."""
    return messages.OFPFlowStatsRequest(datapath, out_port=ofp.OFPP_ANY, out_group=ofp.OFPG_ANY)


def flow_count_request(datapath: Datapath) -> Message:
    """Return the question how many rules there are."""
    return messages.OFPAggregateStatsRequest(
        datapath, 0, ofp.OFPTT_ALL, ofp.OFPP_ANY, ofp.OFPG_ANY, 0, 0, messages.OFPMatch()
    )


def group_request(datapath: Datapath) -> Message:
    """Return the question for all groups."""
    return messages.OFPGroupDescStatsRequest(datapath)


def port_stats_request(datapath: Datapath) -> Message:
    """Return the question for all port counters."""
    return messages.OFPPortStatsRequest(datapath, 0, ofp.OFPP_ANY)


def more_follows(answer: Message) -> bool:
    """Return whether a switch's answer has further parts."""
    return bool(answer.flags & ofp.OFPMPF_REPLY_MORE)


def live_ports(datapath: Datapath) -> set[int]:
    """Return the numbers of the ports that a switch calls up."""
    return {
        port.port_no - 1
        for port in datapath.ports.copy().values()  # the receiving thread changes it; a copy is one step
        if port.port_no <= ofp.OFPP_MAX
        and not port.state & ofp.OFPPS_LINK_DOWN
        and not port.config & ofp.OFPPC_PORT_DOWN
    }


def flow_status(stats: Message) -> FlowStatus:
    """Return a rule and its counters, of a switch's answer."""
    rule = flow_rule(stats)
    return FlowStatus(
        rule.priority, str(rule.match), ",".join(map(str, rule.actions)), stats.packet_count, stats.byte_count
    )


def port_counters(stats: Message) -> PortCounters:
    """Return a port's counters, of a switch's answer."""
    return PortCounters(
        stats.port_no - 1,
        stats.rx_packets,
        stats.tx_packets,
        stats.rx_bytes,
        stats.tx_bytes,
        stats.rx_dropped,
        stats.tx_dropped,
    )


def error_text(error: Message) -> str:
    """Return what a switch refused, in OpenFlow's words; bundles' errors are an experimenter's, the ONF."""
    kind = ofp.ofp_error_type_to_str(error.type)
    if error.code is None:
        onf = {number: name for name, number in vars(ofp).items() if name.startswith("ONFERR_")}
        return f"{kind}, {onf.get(error.exp_type, error.exp_type)}"
    return f"{kind}, {ofp.ofp_error_code_to_str(error.type, error.code)}"


def _group_mod(datapath: Datapath, group: SelectGroup) -> Message:
    buckets = [
        messages.OFPBucket(
            bucket.weight,
            openflow_port(bucket.port),
            ofp.OFPG_ANY,
            list(map(_action, _bucket_actions(bucket))),
        )
        for bucket in group.buckets
    ]
    return messages.OFPGroupMod(datapath, ofp.OFPGC_ADD, ofp.OFPGT_SELECT, group.number, buckets)


def _bucket_actions(bucket: Bucket) -> Iterator[Action]:
    if bucket.eth_dst:
        yield SetEthDst(bucket.eth_dst)
    yield Output(bucket.port)


def _flow_mod(datapath: Datapath, command: int, rule: FlowRule) -> Message:
    actions = [_action(action) for action in rule.actions]
    return messages.OFPFlowMod(
        datapath,
        command=command,
        priority=rule.priority,
        out_port=ofp.OFPP_ANY,
        out_group=ofp.OFPG_ANY,
        match=messages.OFPMatch(**_match(rule.match)),
        instructions=[messages.OFPInstructionActions(ofp.OFPIT_APPLY_ACTIONS, actions)] if actions else [],
    )


def _match(match: Match) -> dict[str, object]:
    fields = {
        "in_port": None if match.in_port is None else openflow_port(match.in_port),
        "eth_type": match.eth_type,
        "ipv4_dst": match.ipv4_dst and tuple(match.ipv4_dst.with_netmask.split("/")),
        "ipv4_src": match.ipv4_src and tuple(match.ipv4_src.with_netmask.split("/")),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _action(action: Action) -> Message:
    match action:
        case SetEthDst(mac):
            return messages.OFPActionSetField(eth_dst=mac)
        case Output(port):
            return messages.OFPActionOutput(openflow_port(port))
        case ToGroup(group):
            return messages.OFPActionGroup(group)


def flow_rule(stats: Message) -> FlowRule:
    """Return the rule that a switch describes, or that a message adds; the inverse of `_flow_mod`."""
    in_port = stats.match.get("in_port")
    match = Match(
        in_port=None if in_port is None else in_port - 1,
        eth_type=stats.match.get("eth_type"),
        ipv4_dst=_read_prefix(stats.match.get("ipv4_dst")),
        ipv4_src=_read_prefix(stats.match.get("ipv4_src")),
    )
    actions = [action for instruction in stats.instructions for action in instruction.actions]
    return FlowRule(stats.priority, match, tuple(map(_read_action, actions)))


def _read_prefix(prefix: tuple[str, str] | str | None) -> IPv4Network | None:
    if prefix is None:
        return None
    return IPv4Network("/".join(prefix) if isinstance(prefix, tuple) else prefix)


def _read_action(action: Message) -> Action:
    if action.type == ofp.OFPAT_OUTPUT:
        return Output(action.port - 1)
    if action.type == ofp.OFPAT_GROUP:
        return ToGroup(action.group_id)
    return SetEthDst(action.value)
