"""A switch that speaks just enough OpenFlow 1.3, written from the specification and not from the library.

It refuses what a real one refuses: a rule for a group that does not exist, a group added twice, a
bundle put in force that was never opened.
"""

import struct
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from socket import AF_UNIX, SHUT_RDWR, socket
from threading import Event, Thread

VERSION = 4
(HELLO, ERROR, ECHO_REQUEST, ECHO_REPLY, EXPERIMENTER, FEATURES_REQUEST, FEATURES_REPLY) = (
    0,
    1,
    2,
    3,
    4,
    5,
    6,
)
(PORT_STATUS, FLOW_MOD, GROUP_MOD, STATS_REQUEST, STATS_REPLY) = (12, 14, 15, 18, 19)
(BARRIER_REQUEST, BARRIER_REPLY) = (20, 21)
(AGGREGATE, PORT_STATS, GROUP_DESC, PORT_DESC) = (2, 4, 7, 13)
(ADD, DELETE_GROUP, DELETE_FLOWS) = (0, 2, 3)
(BUNDLE_CONTROL, BUNDLE_ADD, OPEN, COMMIT, DISCARD) = (2300, 2301, 0, 4, 6)
LINK_DOWN = 1
ALL_GROUPS = 0xFFFFFFFC


@dataclass(eq=False)
class FakeSwitch:
    """A switch with a connection to the controller, served by a thread; a context manager."""

    controller: Path
    """The socket that it connects to."""
    datapath_id: int
    ports: Iterable[int]
    """OpenFlow's numbers of its ports."""
    answers_barriers: bool = True
    refuses_groups: bool = False
    refuses_bundles: bool = False
    """Whether its table is full when a bundle is put in force."""
    told: list[str] = field(default_factory=list)
    """What it was told and did, in order: ``clear``, ``group``, ``flow``, ``barrier``."""
    groups: set[int] = field(default_factory=set)
    flows: dict[tuple[int, bytes], int] = field(default_factory=dict)
    """The cookie of each rule, by its priority and match."""
    ended: Event = field(default_factory=Event)
    """Set when the connection is closed."""
    _held_barriers: list[int] = field(default_factory=list)
    _bundles: dict[int, list[bytes]] = field(default_factory=dict)

    def __enter__(self) -> "FakeSwitch":
        self._socket = socket(AF_UNIX)
        self._socket.settimeout(20)
        self._socket.connect(str(self.controller))
        self._send(HELLO, 1)
        self._thread = Thread(target=self._serve, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._socket.shutdown(SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    def answer_barriers(self) -> None:
        """Answer what was held back, and from now on at once."""
        self.answers_barriers = True
        for transaction in self._held_barriers:
            self._send(BARRIER_REPLY, transaction)

    def set_link(self, port: int, up: bool) -> None:
        """Tell that a port's link has gone down or come up."""
        self._send(PORT_STATUS, 0, struct.pack("!B7x", 2) + _description(port, up))

    def _serve(self) -> None:
        with suppress(OSError), self._socket.makefile("rb") as stream:
            while header := stream.read(8):
                _, kind, length, transaction = struct.unpack("!BBHI", header)
                self._take(kind, transaction, stream.read(length - 8))
        self.ended.set()

    def _take(self, kind: int, transaction: int, body: bytes) -> None:
        reactions: dict[int, Callable[[int, bytes], None]] = {
            FLOW_MOD: self._take_flow,
            GROUP_MOD: self._take_group,
            EXPERIMENTER: self._take_bundle,
            STATS_REQUEST: self._take_question,
            BARRIER_REQUEST: self._take_barrier,
            ECHO_REQUEST: lambda transaction, body: self._send(ECHO_REPLY, transaction, body),
            FEATURES_REQUEST: lambda transaction, _: self._send(
                FEATURES_REPLY, transaction, struct.pack("!QIBB2xII", self.datapath_id, 0, 254, 0, 0x4F, 0)
            ),
        }
        if kind in reactions:
            reactions[kind](transaction, body)

    def _take_flow(self, transaction: int, body: bytes) -> None:
        cookie, mask, command, priority = struct.unpack("!QQxB4xH", body[:24])
        (match_length,) = struct.unpack("!H", body[42:44])
        flow = priority, body[40 : 40 + match_length]
        # An instruction whose last action is "group" ends with type 22, length 8, the group's number.
        kind, length, group = struct.unpack("!HHI", body[-8:])
        if command == ADD and (kind, length) == (22, 8) and group not in self.groups:
            self._refuse(transaction, 2, 9, body)  # a bad action: there is no such group
        elif command == ADD:
            self.told.append("flow")
            self.flows[flow] = cookie
        elif command == DELETE_FLOWS:
            self.told.append("clear")
            self.flows = {kept: its for kept, its in self.flows.items() if (its ^ cookie) & mask}
        else:
            self.told.append("unflow")
            self.flows.pop(flow, None)  # none to delete is no error

    def _take_group(self, transaction: int, body: bytes) -> None:
        command, number = struct.unpack("!HxxI", body[:8])
        if self.refuses_groups and command != DELETE_GROUP:
            self._refuse(transaction, 6, 3, body)  # out of groups
        elif command == DELETE_GROUP:
            self.told.append("clear" if number == ALL_GROUPS else "ungroup")
            self.groups -= set(self.groups) if number == ALL_GROUPS else {number}
        elif (number in self.groups) == (command == ADD):
            self._refuse(transaction, 6, 0 if command == ADD else 8, body)  # exists, or does not
        else:
            self.told.append("group")
            self.groups.add(number)

    def _take_bundle(self, transaction: int, body: bytes) -> None:
        kind, bundle, control = struct.unpack("!4xIIH", body[:14])
        if kind == BUNDLE_ADD:
            self._bundles[bundle].append(body[24:])  # a flow mod, after its own header
        elif control == OPEN:
            self._bundles[bundle] = []
        elif (rules := self._bundles.pop(bundle, None)) is None:
            self._send(
                ERROR, transaction, struct.pack("!HHI", 0xFFFF, 2302, 0x4F4E4600) + body[:64]
            )  # which?
        elif control == COMMIT and self.refuses_bundles:
            self._refuse(transaction, 5, 1, rules[-1])  # the table is full; and so the bundle failed
            self._send(ERROR, transaction, struct.pack("!HHI", 0xFFFF, 2313, 0x4F4E4600) + body[:64])
        elif control == COMMIT:
            for rule in rules:
                self._take_flow(transaction, rule)

    def _take_barrier(self, transaction: int, _: bytes) -> None:
        self.told.append("barrier")
        if self.answers_barriers:
            self._send(BARRIER_REPLY, transaction)
        else:
            self._held_barriers.append(transaction)

    def _take_question(self, transaction: int, body: bytes) -> None:
        (kind,) = struct.unpack("!H", body[:2])
        answers = {
            PORT_DESC: b"".join(_description(port, up=True) for port in self.ports),
            AGGREGATE: struct.pack("!QQI4x", 0, 0, len(self.flows)),
            GROUP_DESC: b"".join(struct.pack("!HBxI", 8, 1, group) for group in self.groups),
            PORT_STATS: b"".join(
                struct.pack("!I4x12QII", port, *range(1, 13), 0, 0) for port in (*self.ports, 0xFFFFFFFE)
            ),
        }
        self._send(STATS_REPLY, transaction, struct.pack("!HH4x", kind, 0) + answers.get(kind, b""))

    def _refuse(self, transaction: int, kind: int, code: int, body: bytes) -> None:
        self._send(ERROR, transaction, struct.pack("!HH", kind, code) + body[:64])

    def send(self, data: bytes) -> None:
        """Send any bytes."""
        with suppress(OSError):  # the controller may have closed
            self._socket.sendall(data)

    def _send(self, kind: int, transaction: int, body: bytes = b"") -> None:
        self.send(struct.pack("!BBHI", VERSION, kind, 8 + len(body), transaction) + body)


def _description(port: int, up: bool) -> bytes:
    name = f"port{port}".encode()
    state = 0 if up else LINK_DOWN
    return struct.pack("!I4x6s2x16sII6I", port, bytes(6), name, 0, state, *[0] * 6)
