"""The engine over circuits: sends on a NIC only while its circuit is lit and points at a destination.

It shares the loop of the engine for TCP, and takes its turns every millisecond. What is lit comes as news
from the network; when it will go dark comes with it. How senders meet the dark is a policy:

- *drain*: stop a guard time before, so that what is on its way lands. Nothing is lost.
- *pause*: stop when it goes dark. What is on its way is lost.
- *cut*: take no notice, and send until other circuits are lit. All that was sent into the dark is lost.

A NIC's queue is modelled here (when will what was handed to it have left?), so that it never holds
more than `AHEAD_S`, and nothing is handed to it that could not leave in time. What was lost is sent
again in the next slot between NICs that the message may use. Who drains loses nothing by choice, so that
what has not arrived `LANDED_S` after it left is lost, and goes at once where there is light: in what is left
of its slot, or over another OCS.
"""

import socket
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from topologies.fabric import Nic
from traffic.packets import DEFAULT_MTU, MOST_MTU
from traffic.transports.datagram_sockets import enlarge
from traffic.transports.datagrams import HEADER, OVERHEAD_BYTES, Datagrams, Ends, payload_bytes
from traffic.transports.loop import Arrival, Loop

Meeting = Literal["drain", "pause", "cut"]
"""How senders meet the dark."""
PORT = 5001
GUARD_S, START_S = 0.003, 0.004
"""The least of `Margins` [s]."""
AHEAD_S = 0.006
LANDED_S = 0.02
"""How long after it has left a NIC a datagram arrives at the latest: some turns of a busy switch [s]."""
TURN_S = 0.001
SOCKET_BUFFER_BYTES = 4 << 20
PAYLOAD = bytes(MOST_MTU)


@dataclass(frozen=True)
class Margins:
    """What a slot is longer for than its bytes need, at emulated scale; on a slow machine it is more."""

    guard_s: float = GUARD_S
    """How long before the dark *drain* stops: a NIC's queue and the switch's work [s]."""
    start_s: float = START_S
    """What a slot loses besides: late news, a round of the engine, a datagram that no longer fits [s]."""

    def slot_s(self, meeting: Meeting) -> float:
        """Return how much longer a slot is lit [s]."""
        return self.start_s + (self.guard_s if meeting == "drain" else 0.0)


LEAST_MARGINS = Margins()
"""Those of a machine that is not slow."""


@dataclass(frozen=True)
class LitInterval:
    """Light that an OCS shows from now on, until a time: news from the network."""

    ocs: str
    outputs: Mapping[Nic, Nic]
    """The NIC that each NIC's light reaches."""
    until_s: float | None
    """When some of it goes dark [s, monotonic]; None between two slots, while it is dark."""
    ended: bool = False
    """Whether nothing more is to come."""


@dataclass(slots=True)
class SlotRecord:
    """Record of one OCS while it showed one permutation; times are those of `time.monotonic`."""

    ocs: str
    lit_s: float
    until_s: float
    circuits: int
    sent_bytes: int = 0
    delivered_bytes: int = 0
    lost_bytes: int = 0
    """Sent, and not delivered by the time other circuits were lit."""


@dataclass(slots=True)
class _Sender:
    """One NIC's sending side."""

    byte_s: float
    """How long it takes to send a byte."""
    towards: Nic | None = None
    close_s: float = 0.0
    free_s: float = 0.0
    """When what was handed to the NIC will have left."""
    flight: list[tuple[Datagrams, int]] = field(default_factory=list)
    slot: SlotRecord | None = None


class CircuitEngine:
    """Moves messages over circuits as they are lit; made for one run.

    Parameters
    ----------
    ocs_of
        The OCS that each NIC is on.
    rate_bps
        The rate of each NIC at emulated scale [bit/s]; datagrams suit the slowest.
    meeting
        How senders meet the dark.
    mtu
        Largest packet [bytes].
    guard_s
        How long before the dark senders that drain stop [s].
    """

    def __init__(
        self,
        ocs_of: Mapping[Nic, str],
        rate_bps: Mapping[Nic, float],
        meeting: Meeting = "drain",
        mtu: int = DEFAULT_MTU,
        guard_s: float = GUARD_S,
    ) -> None:
        self.slots: list[SlotRecord] = []
        self._ocs_of, self._meeting = ocs_of, meeting
        self._guard_s = guard_s if meeting == "drain" else 0.0
        self._payload = payload_bytes(min(rate_bps.values(), default=1.0), mtu)
        self._sockets: dict[Nic, socket.socket] = {}
        self._addresses: dict[Nic, tuple[str, int]] = {}
        self._nic_at: dict[tuple[str, int], Nic] = {}
        self._messages: dict[int, Datagrams] = {}
        self._owed: dict[Ends, list[Datagrams]] = defaultdict(list)
        """What may go from each NIC to each other, in the order in which it was posted."""
        self._senders = {nic: _Sender(8 / rate_bps[nic]) for nic in ocs_of}
        self._current: dict[str, SlotRecord] = {}
        self._arrived: list[Arrival] = []
        self._buffer = bytearray(MOST_MTU)

    def attach(self, loop: Loop, nic: Nic, endpoint: socket.socket) -> None:
        """Take the UDP socket of a NIC, bound to its address and `PORT`, and read it in a loop."""
        self._sockets[nic], self._addresses[nic] = endpoint, endpoint.getsockname()
        self._nic_at[endpoint.getsockname()] = nic
        loop.watch(endpoint.fileno(), partial(self._receive, nic))

    @property
    def attached(self) -> bool:
        """Whether it has its sockets."""
        return bool(self._sockets)

    @property
    def missing_bytes(self) -> int:
        """What has not arrived of all messages."""
        return sum(datagrams.missing_bytes for datagrams in self._messages.values())

    @property
    def size_bytes(self) -> int:
        """What all messages are together."""
        return sum(datagrams.size for datagrams in self._messages.values())

    @property
    def datagrams(self) -> int:
        """Of how many datagrams all messages consist."""
        return sum(-(-each.size // each.payload) for each in self._messages.values())

    def owe(self, message: int, size: int, ends: Sequence[Ends]) -> None:
        """Post a message, which may go between some NICs."""
        datagrams = self._messages[message] = Datagrams(message, size, self._payload)
        for each in ends:
            owed = [other for other in self._owed[each] if other.missing_bytes]
            self._owed[each] = [*owed, datagrams]

    def missing(self, message: int) -> int:
        """Return the bytes of a message that have not arrived."""
        return self._messages[message].missing_bytes

    def lacking(self, message: int) -> int:
        """Return the bytes of a message that have to be sent again, whole datagrams."""
        missing = self.missing(message)
        return missing + self._payload if missing else 0

    def carried(self, message: int) -> dict[Ends, int]:
        """Return how many bytes of a message arrived from each NIC at each other."""
        return self._messages[message].by_ends

    def withdraw(self, message: int) -> None:
        """Send no more of a message; it is then as large as what has arrived."""
        self._messages[message].cut()

    def lit(self, light: LitInterval, now: float) -> None:
        """Point the NICs of an OCS where their light goes."""
        dark = light.until_s is None
        if self._meeting == "cut" and dark and not light.ended:
            return
        if light.until_s is not None:
            self._current[light.ocs] = SlotRecord(light.ocs, now, light.until_s, len(light.outputs))
            self.slots.append(self._current[light.ocs])
        elif light.ended and light.ocs in self._current:
            slot = self._current[light.ocs]
            slot.until_s = min(slot.until_s, now)
        for nic, sender in self._senders.items():
            if self._ocs_of[nic] == light.ocs:
                self._point(sender, light.outputs.get(nic), light)

    def _point(self, sender: _Sender, towards: Nic | None, light: LitInterval) -> None:
        dark = light.until_s is None
        if dark and not light.ended:
            # A circuit that is kept carries on; what others have on its way is looked for in the next light.
            sender.close_s = float("inf") if towards and towards == sender.towards else 0.0
            return
        if towards != sender.towards or self._meeting == "cut":
            _reclaim(sender)
        sender.towards, sender.slot = towards, self._current.get(light.ocs)
        until_s = 0.0 if light.until_s is None else light.until_s
        sender.close_s = until_s - self._guard_s if self._meeting != "cut" or light.ended else float("inf")

    def turn(self) -> list[Arrival]:
        """Hand every lit NIC what can leave soon, and before it closes; return the messages that arrived."""
        now = time.monotonic()
        if self._meeting == "drain":
            self._look_for_lost(now)
        for nic, sender in self._senders.items():
            if sender.towards is not None and sender.close_s > now:
                for datagrams in self._owed[nic, sender.towards]:
                    if datagrams.todo and not self._fill(nic, sender, datagrams, now):
                        break
        arrived, self._arrived = self._arrived, []
        return arrived

    @property
    def busy(self) -> bool:
        """Whether something is on its way, or waits for a circuit that is lit."""
        now = time.monotonic()
        return any(
            any(number not in datagrams.delivered for datagrams, number in sender.flight)
            or (
                sender.towards is not None
                and sender.close_s > now
                and any(datagrams.todo for datagrams in self._owed[nic, sender.towards])
            )
            for nic, sender in self._senders.items()
        )

    def _look_for_lost(self, now: float) -> None:
        """Queue again what left long ago and has not arrived, of NICs that have nothing else on their way."""
        for sender in self._senders.values():
            if sender.flight and now > sender.free_s + LANDED_S:
                _reclaim(sender)

    def end(self) -> None:
        """Count as lost what is on its way."""
        for sender in self._senders.values():
            _reclaim(sender)

    def _fill(self, nic: Nic, sender: _Sender, datagrams: Datagrams, now: float) -> bool:
        """Send what there is of a message; return whether there was room for all of it."""
        assert sender.towards is not None
        while datagrams.todo:
            start_s, size = max(sender.free_s, now), datagrams.bytes_of(datagrams.todo[0])
            done_s = start_s + (size + OVERHEAD_BYTES) * sender.byte_s
            if start_s - now > AHEAD_S or done_s > sender.close_s:
                return False
            header = HEADER.pack(datagrams.message, datagrams.todo[0])
            try:
                self._sockets[nic].sendto(
                    header + PAYLOAD[: size - HEADER.size], self._addresses[sender.towards]
                )
            except BlockingIOError:
                return False
            sender.free_s = done_s
            sender.flight.append((datagrams, datagrams.todo.popleft()))
            if sender.slot:
                sender.slot.sent_bytes += size
        return True

    def _receive(self, nic: Nic, _event: int) -> None:
        """Count what arrived at a NIC."""
        while True:
            try:
                size, sender = self._sockets[nic].recvfrom_into(self._buffer)
            except BlockingIOError:
                return
            if size < HEADER.size:
                continue
            message, number = HEADER.unpack_from(self._buffer)
            datagrams = self._messages[message]
            fresh = datagrams.arrived(number, (self._nic_at[sender], nic))
            if self._ocs_of[nic] in self._current:
                self._current[self._ocs_of[nic]].delivered_bytes += fresh
            if fresh and not datagrams.missing_bytes:
                self._arrived.append(Arrival(message, time.monotonic()))


def bind_udp(endpoint: socket.socket, address: str) -> None:
    """Give a UDP socket large buffers, and bind it to an address and `PORT`."""
    endpoint.setblocking(False)
    enlarge(endpoint, send_bytes=SOCKET_BUFFER_BYTES, receive_bytes=SOCKET_BUFFER_BYTES)
    endpoint.bind((address, PORT))


def _reclaim(sender: _Sender) -> None:
    """Queue again what a NIC sent and nobody received."""
    lost = [(datagrams, number) for datagrams, number in sender.flight if number not in datagrams.delivered]
    for datagrams, number in reversed(lost):
        datagrams.todo.appendleft(number)
    if sender.slot:
        sender.slot.lost_bytes += sum(datagrams.bytes_of(number) for datagrams, number in lost)
    sender.flight.clear()
