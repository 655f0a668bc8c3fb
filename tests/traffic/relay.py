"""Servers on loopback whose packets pass a relay, which loses, delays, copies or swaps them as a test says.

Time is the test's: engine, relay and credits see it pass in steps, however busy the machine is.
"""

import heapq
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count

import numpy as np
import pytest

from topologies.fabric import Nic
from traffic.spraying.policy import QueuePair
from traffic.transports.datagram_engine import DatagramEngine
from traffic.transports.datagram_lane import Crossed
from traffic.transports.datagram_sockets import (
    CONTROL,
    HEADER,
    PROBE,
    RECEIVE_BUFFER_BYTES,
    Address,
    DatagramEndpoints,
    enlarge,
)
from traffic.transports.loop import Arrival, PacketCounts
from traffic.transports.registry import algorithm_named
from traffic.transports.transport import HEADER_BYTES, NicRate

PACKET = 1000
"""Payload of a packet [bytes]."""
PACKET_S = 0.001
"""What a NIC needs for one [s]."""
RATE_BPS = 8 * (PACKET + HEADER_BYTES) / PACKET_S
STEP_S = PACKET_S / 4
HOST, EVERY = "127.0.0.1", "0.0.0.0"
ACK = -1
"""The number of a packet that is an acknowledgement, an announcement or a grant; its lane is then a line."""
ADDRESS = struct.Struct("=I4s4s")
"""Of a packet that arrived (struct in_pktinfo, ip(7)): the interface, and to which address it was sent."""
IP_PKTINFO = 8
MOST_S = 120.0
"""When a test has failed that waits for something [s, of its own time]."""


def taken_back(packets: PacketCounts) -> int:
    """Return how many packets were taken back while they were on their way, or still are there."""
    return packets.sent - packets.arrived - packets.anew


_monotonic = time.monotonic
"""The real one, which `net` replaces."""


class Clock:
    """Time as the test has it [s]."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        """Return it."""
        return self.now


class WallClock(Clock):
    """Time as it is, for what waits by itself."""

    def monotonic(self) -> float:
        """Return it."""
        self.now = _monotonic()
        return self.now


@dataclass(frozen=True)
class Seen:
    """A packet at the relay."""

    lane: int
    number: int
    """On its lane; `PROBE` if it carries nothing, `ACK` if it is an acknowledgement or the like."""
    message: int
    order: int
    """Which packet of its message it is."""
    entropy: int
    """That of the address to which it was sent."""
    size: int
    """Its payload [bytes]."""
    data: bytes = field(repr=False)
    server: int


Passed = Sequence[tuple[float, Seen]]
Fate = Callable[[Seen], Passed]
"""Returns what goes on now that a packet has come, and after how long each [s]."""


def passes(seen: Seen) -> Passed:
    """Pass a packet on."""
    return [(0.0, seen)]


@dataclass
class Relay:
    """Stands between NICs and servers."""

    fate: Fate
    clock: Clock
    stack: ExitStack
    seen: list[Seen] = field(default_factory=list)
    """What came, but for probes and acknowledgements."""
    passed: list[Seen] = field(default_factory=list)
    """What went on."""
    acks: list[Seen] = field(default_factory=list)
    """The acknowledgements, announcements and grants that came."""

    def __post_init__(self) -> None:
        """Start without servers."""
        self._doors: dict[int, socket.socket] = {}
        self._servers: dict[int, socket.socket] = {}
        self._later: list[tuple[float, int, Seen]] = []
        self._tickets = count()

    def address(self, nic: Nic, entropy: int) -> Address:
        """Return where packets for a NIC are to be sent: an address of its own for each entropy."""
        if nic.server not in self._doors:
            door = self._doors[nic.server] = self.stack.enter_context(udp(EVERY))
            door.setsockopt(socket.IPPROTO_IP, IP_PKTINFO, 1)
            door.setblocking(False)
            enlarge(door, receive_bytes=RECEIVE_BUFFER_BYTES)
        return f"127.0.0.{1 + entropy}", self._doors[nic.server].getsockname()[1]

    def open_receiver(self, server: int) -> socket.socket:
        """Return the socket of a server, to which packets go on."""
        self._servers[server] = udp(HOST)
        return self._servers[server]

    def receiver(self, server: int) -> socket.socket:
        """Return the socket that a server receives with."""
        return self._servers[server]

    def turn(self) -> None:
        """Take what has come, and pass on what is due."""
        for server, door in self._doors.items():
            for seen in arrivals(server, door):
                if seen.number != PROBE:
                    (self.acks if seen.number == ACK else self.seen).append(seen)
                for after_s, each in self.fate(seen):
                    heapq.heappush(self._later, (self.clock.now + after_s, next(self._tickets), each))
        while self._later and self._later[0][0] <= self.clock.now:
            seen = heapq.heappop(self._later)[2]
            if seen.number not in (PROBE, ACK):
                self.passed.append(seen)
            self._servers[seen.server].sendto(seen.data, self._servers[seen.server].getsockname())

    def join(self, engine: DatagramEngine) -> None:
        """Take what comes whenever an engine serves its sockets."""
        for door in self._doors.values():
            engine.loop.watch(door.fileno(), lambda _event: self.turn())

    @property
    def under_way(self) -> int:
        """How many packets wait to go on."""
        return len(self._later)


def udp(host: str) -> socket.socket:
    """Return a UDP socket at a free port."""
    endpoint = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    endpoint.bind((host, 0))
    return endpoint


def arrivals(server: int, door: socket.socket) -> Iterator[Seen]:
    """Yield what waits in a socket."""
    while True:
        try:
            data, (ancillary, *_), *_ = door.recvmsg(1 << 16, socket.CMSG_SPACE(ADDRESS.size))
        except BlockingIOError:
            return
        _, _, address = ADDRESS.unpack(ancillary[2])
        if len(data) == CONTROL.size:
            _, line, sent, again = CONTROL.unpack(data)
            yield Seen(line, ACK, sent, again, address[3] - 1, 0, data, server)
            continue
        _, lane, number, message, order = HEADER.unpack_from(data)
        yield Seen(lane, number, message, order, address[3] - 1, len(data) - HEADER.size, data, server)


class Sender(socket.socket):
    """The socket of a NIC, which may have no room."""

    is_full = False

    def sendto(self, data: bytes, to: Address) -> int:  # type: ignore[override]  # of this form only
        """Send a packet, if there is room."""
        if self.is_full:
            raise BlockingIOError
        return super().sendto(data, to)


@dataclass
class Net:
    """An engine, the relay that its packets pass, and their clock."""

    engine: DatagramEngine
    relay: Relay
    clock: Clock
    senders: dict[Nic, Sender]
    round_trip_s: float = 0.0
    """The longest of its paths."""

    def lanes(self, *queue_pairs: QueuePair, lossy: bool = False, round_trip_s: float = 0.0) -> list[int]:
        """Return the numbers of new queue pairs."""
        numbers = [self.engine.add(queue_pair) for queue_pair in queue_pairs]
        self.round_trip_s = max(self.round_trip_s, round_trip_s)
        for number in numbers:
            self.engine.crosses(number, Crossed(RATE_BPS / 8, round_trip_s / 2, lossy=lossy))
        return numbers

    def post(self, *parcels: tuple[int, int, int]) -> None:
        """Post parcels: the queue pair, size and message of each."""
        self.engine.post(*np.array(parcels, dtype=np.int64).reshape(-1, 3).T)

    def step(self, seconds: float = STEP_S) -> list[Arrival]:
        """Let a little time pass; return what arrived."""
        self.clock.now += seconds
        self.relay.turn()
        return self.engine.serve(0.0)

    def run(self, until: Callable[[], bool]) -> list[Arrival]:
        """Let time pass until something is so; return what arrived."""
        arrived, ends_s = list[Arrival](), self.clock.now + MOST_S
        while not until():
            assert self.clock.now < ends_s, "it takes too long"
            arrived += self.step()
        return arrived

    def go_on(self, seconds: float) -> list[Arrival]:
        """Let so much time pass; return what arrived."""
        return [arrival for _ in range(round(seconds / STEP_S)) for arrival in self.step()]

    def finish(self) -> list[Arrival]:
        """Let all arrive, and what is still on its way, which counts no more; return what arrived."""
        arrived = self.run(lambda: self.engine.quiet)
        late = self.run(lambda: not self.relay.under_way)
        late += self.go_on(self.round_trip_s + 2 * STEP_S)
        assert not late, "something arrived after all had"
        return arrived

    def times(self, arrived: Sequence[Arrival]) -> Counter[tuple[int, int]]:
        """Return how often each message arrived by each queue pair."""
        return Counter((message, number) for message, _, number in arrived)


@contextmanager
def net(
    fate: Fate = passes,
    *,
    control: str = "credit",
    rate_bps: NicRate = lambda _: RATE_BPS,
    check: Callable[[], None] = lambda: None,
    stuck_s: float = MOST_S,
    excused: Callable[[], bool] = lambda: False,
    clock: Clock | None = None,
    ack_packets: bool = False,
) -> Iterator[Net]:
    """Yield an engine whose packets pass a relay; its clock stands between steps, unless another is given."""
    clock = clock or Clock()
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setattr(time, "monotonic", clock.monotonic)
        relay = Relay(fate, clock, stack)
        senders = dict[Nic, Sender]()

        def open_sender(nic: Nic) -> Sender:
            senders[nic] = Sender(socket.AF_INET, socket.SOCK_DGRAM)
            senders[nic].bind((HOST, 0))
            return senders[nic]

        endpoints = DatagramEndpoints(open_sender, relay.open_receiver, relay.address, lambda _nic: udp(HOST))
        engine = DatagramEngine(
            endpoints,
            rate_bps,
            algorithm=algorithm_named(control),
            packet_bytes=PACKET,
            check=check,
            stuck_s=stuck_s,
            excused=excused,
            ack_packets=ack_packets,
        )
        with engine:
            yield Net(engine, relay, clock, senders)
