"""The engine over circuits: sends on a NIC only while its circuit is lit and points at a destination.

One process and one epoll loop hold the sockets of all servers, as in `traffic.engine`. What is lit
comes as news from the network; when it will go dark comes with it. How senders meet the dark is a
policy:

- *drain*: stop a guard time before, so that what is on its way lands. Nothing is lost.
- *pause*: stop when it goes dark. What is on its way is lost.
- *cut*: take no notice, and send until other circuits are lit. All that was sent into the dark is lost.

A NIC's queue is modelled here (when will what was handed to it have left?), so that it never holds
more than `AHEAD_S`, and nothing is handed to it that could not leave in time. What was lost is sent
again in the next slot between the same servers.
"""

import select
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from topologies.errors import StuckError
from topologies.fabric import Nic
from traffic.datagrams import HEADER, OVERHEAD_BYTES, Pair

Meeting = Literal["drain", "pause", "cut"]
"""How senders meet the dark."""
PORT = 5001
AHEAD_S = 0.006
TICK_S = 0.001
LINGER_S = 0.01
"""How long after the last program what is on its way may still land."""
CHECK_S = 0.5
SILENCE_S = 30.0
"""After so long without news of light, past the last end that was announced, it has come to a stop."""
SOCKET_BUFFER_BYTES = 4 << 20
PAYLOAD = bytes(9000)


@dataclass(frozen=True)
class Light:
    """News: what an OCS shows from now on."""

    ocs: int
    """Which; NIC k of each server is on OCS k."""
    outputs: Mapping[int, int]
    """The server that each server's light reaches."""
    until_s: float | None
    """When some of it goes dark [s, monotonic]; None in the dark between two slots."""
    ended: bool = False
    """Whether nothing more is to come."""


class LightSource(Protocol):
    """Where news of light comes from."""

    def fileno(self) -> int:
        """Return the descriptor to wait on."""

    def read(self) -> list[Light]:
        """Return what is new."""


@dataclass(slots=True)
class Slot:
    """What one OCS did while it showed one permutation."""

    ocs: int
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

    pair: Pair | None = None
    close_s: float = 0.0
    free_s: float = 0.0
    """When what was handed to the NIC will have left."""
    flight: list[int] = field(default_factory=list)
    slot: Slot | None = None


class CircuitEngine:
    """Moves what is owed over circuits as they are lit; made for one run.

    Parameters
    ----------
    pairs
        What is owed.
    sockets
        A UDP socket per NIC, bound to its address and `PORT`.
    address
        Returns a NIC's address.
    light
        News of what is lit.
    rate_bps
        The rate of a NIC at emulated scale [bit/s].
    meeting
        How senders meet the dark.
    guard_s
        How long before the dark *drain* stops [s].
    check
        Called now and then; raises if the network has died.
    """

    def __init__(
        self,
        pairs: Mapping[tuple[int, int], Pair],
        sockets: Mapping[Nic, socket.socket],
        address: Callable[[Nic], str],
        light: LightSource,
        *,
        rate_bps: float,
        meeting: Meeting = "drain",
        guard_s: float = 0.003,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self.slots: list[Slot] = []
        self._pairs, self._sockets, self._light = pairs, sockets, light
        self._addresses = {nic: (address(nic), PORT) for nic in sockets}
        self._bit_s = 8 / rate_bps
        self._meeting, self._guard_s, self._check = meeting, guard_s, check
        self._senders = {nic: _Sender() for nic in sockets}
        self._current: dict[int, Slot] = {}
        self._nic_of = {endpoint.fileno(): nic for nic, endpoint in sockets.items()}
        self._missing = sum(pair.missing_bytes for pair in pairs.values())
        self._buffer = bytearray(9000)

    def run(self, ocses: int) -> None:
        """Send until all has arrived, or until the programs of so many OCSes are over."""
        ended: set[int] = set()
        over_s = looked_s = 0.0
        news_s = time.monotonic()
        with select.epoll() as poller:
            poller.register(self._light.fileno(), select.EPOLLIN)
            for descriptor in self._nic_of:
                poller.register(descriptor, select.EPOLLIN)
            while self._missing and not (len(ended) == ocses and time.monotonic() > over_s + LINGER_S):
                events = poller.poll(TICK_S)
                now = time.monotonic()
                for descriptor, _ in events:
                    if descriptor in self._nic_of:
                        self._receive(self._nic_of[descriptor])
                for light in self._light.read():
                    news_s = max(now, light.until_s or 0.0)
                    self._lit(light, now)
                    if light.ended:
                        ended.add(light.ocs)
                        over_s = now
                self._fill(now)
                if now - looked_s > CHECK_S:
                    self._check()
                    if now - news_s > SILENCE_S:
                        raise StuckError(f"no OCS said what is lit for {SILENCE_S:g} s", "run it again")
                    looked_s = now
        for sender in self._senders.values():
            _reclaim(sender)

    def _lit(self, light: Light, now: float) -> None:
        """Point NICs where their light goes."""
        dark = light.until_s is None
        if self._meeting == "cut" and dark and not light.ended:
            return
        if light.until_s is not None:
            self._current[light.ocs] = Slot(light.ocs, now, light.until_s, len(light.outputs))
            self.slots.append(self._current[light.ocs])
        for nic, sender in self._senders.items():
            if nic.nic == light.ocs:
                pair = self._pairs.get((nic.server, light.outputs.get(nic.server, -1)))
                self._point(sender, pair, light)

    def _point(self, sender: _Sender, pair: Pair | None, light: Light) -> None:
        dark = light.until_s is None
        if dark and not light.ended:
            # A circuit that is kept carries on; what others have on its way is looked for in the next light.
            sender.close_s = float("inf") if pair and pair is sender.pair else 0.0
            return
        if pair is not sender.pair or self._meeting == "cut":
            _reclaim(sender)
        sender.pair, sender.slot = pair, self._current.get(light.ocs)
        guard_s = self._guard_s if self._meeting == "drain" else 0.0
        until_s = 0.0 if light.until_s is None else light.until_s
        sender.close_s = until_s - guard_s if self._meeting != "cut" or light.ended else float("inf")

    def _fill(self, now: float) -> None:
        """Hand every lit NIC what can leave soon, and before it closes."""
        for nic, sender in self._senders.items():
            pair = sender.pair
            if pair is None or not pair.todo or sender.close_s <= now:
                continue
            address = self._addresses[Nic(pair.destination, nic.nic)]
            while pair.todo:
                start_s = max(sender.free_s, now)
                size = pair.bytes_of(pair.todo[0])
                done_s = start_s + (size + OVERHEAD_BYTES) * self._bit_s
                if start_s - now > AHEAD_S or done_s > sender.close_s:
                    break
                if not self._send(nic, pair, size, address):
                    break
                sender.free_s = done_s
                sender.flight.append(pair.todo.popleft())
                pair.start_s = min(pair.start_s, now)
                if sender.slot:
                    sender.slot.sent_bytes += size

    def _send(self, nic: Nic, pair: Pair, size: int, address: tuple[str, int]) -> bool:
        header = HEADER.pack(pair.source, pair.destination, pair.todo[0])
        try:
            self._sockets[nic].sendto(header + PAYLOAD[: size - HEADER.size], address)
        except BlockingIOError:
            return False
        return True

    def _receive(self, nic: Nic) -> None:
        """Count what arrived at a NIC."""
        while True:
            try:
                size = self._sockets[nic].recv_into(self._buffer)
            except BlockingIOError:
                return
            if size < HEADER.size:
                continue
            source, destination, number = HEADER.unpack_from(self._buffer)
            fresh = self._pairs[source, destination].arrived(number, nic.nic, time.monotonic())
            self._missing -= fresh
            if nic.nic in self._current:
                self._current[nic.nic].delivered_bytes += fresh


def _reclaim(sender: _Sender) -> None:
    """Queue again what a NIC sent and nobody received."""
    if sender.pair:
        lost = [number for number in sender.flight if number not in sender.pair.delivered]
        sender.pair.todo.extendleft(reversed(lost))
        if sender.slot:
            sender.slot.lost_bytes += sum(sender.pair.bytes_of(number) for number in lost)
    sender.flight.clear()
