"""The engine: moves the bytes of a collective over its queue pairs, and times their arrival.

One process and one epoll loop hold the sockets of all servers, so that one clock times all
messages. A queue pair is a byte stream that carries chunks in the order in which a feeder
posts them. Bytes are counted at the receiver.

It is the ideal transport: a queue pair has a window, what it may have on its way at once, and a pace,
by what all senders still owe each destination (`traffic.sharing`), which no NIC knows. Queues in the
fabric therefore stay short, nothing is lost, and queue pairs that meet at a bottleneck share it by what
they have left, which is what the fluid model computes. A feeder that binds late (`traffic.late_binding`)
limits its queue pairs by windows of its own; they are neither paced nor windowed here. TCP below
only carries the bytes, and repairs losses. Measured as emulated over predicted time, uniform all-to-all:
TCP's own windows behind 2 MiB queues 1.15; windows of 50 ms without pace 1.25 at 40 Mbit/s a NIC; both,
as here, 1.04.

All times of a delivery count from one instant, at which all messages start.
"""

import select
import socket
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from topologies.errors import StuckError
from topologies.fabric import Nic
from traffic.connections import Connection
from traffic.feeders import Feeder
from traffic.sharing import PACKET_BYTES, NicShares
from traffic.spraying.policy import QueuePair
from traffic.transfers import Curve, curve_of

SHARE_S = 0.02
PACE_STEP = 0.05
UNLIMITED = 1 << 62
SO_MAX_PACING_RATE = 47
MAX_PACE_BYTES_S = (1 << 31) - 1
STUCK_S = 15.0
TICK_S = 0.5
EVENTS = 512
BUFFER_BYTES = 256 << 10
ZEROS = memoryview(bytes(BUFFER_BYTES))
TCP_INFO_BYTES = 200
RTT_OFFSET, RETRANSMITS_OFFSET = 68, 100


@dataclass(frozen=True, eq=False)
class Delivery:
    """What the engine saw; its curves are measured counts, which jump (`traffic.transfers`)."""

    chunk_qp: NDArray[np.int64]
    """Index of each chunk's queue pair, shape (chunks,)."""
    order: NDArray[np.int64]
    """The chunks in the order in which they were posted."""
    sent_curves: list[Curve]
    """For each queue pair the times [s] and the bytes handed to its socket until then."""
    curves: list[Curve]
    """For each queue pair the times [s] and the bytes counted at the receiver until then."""
    retransmits: int
    """Packets that TCP sent again, over all queue pairs."""
    lateness_s: float
    """How long a round of the loop kept the next events waiting [s], 99th percentile."""


@dataclass(slots=True)
class _Stream:
    """One queue pair's byte stream."""

    connection: Connection
    posted: int = 0
    sent: int = 0
    counted: int = 0
    window: int = PACKET_BYTES
    pace: float = 0.0
    first_pace: float = 0.0
    blocked: bool = False
    moved_at: float = 0.0
    sent_at: list[float] = field(default_factory=list)
    sent_counts: list[int] = field(default_factory=list)
    counted_at: list[float] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)


class Engine:
    """Moves one collective's bytes; made for one run.

    Parameters
    ----------
    queue_pairs, connections
        The queue pairs, and the connection of each.
    feeder
        What decides which bytes a queue pair carries.
    nic_rate_bps
        The rate of a NIC at emulated scale [bit/s].
    check
        Called now and then; raises if the network has died.
    stuck_s
        A queue pair with bytes to deliver that makes no progress for so long is an error [s].
    round_trip_s
        How long the links of each queue pair's way take there and back, shape (queue pairs,), or of all
        alike [s, emulated]: windows hold as much more.
    least_packets
        What a window holds at least. TCP finds a lost packet by those behind it; with one at a time it
        would wait for a timeout.
    """

    def __init__(
        self,
        queue_pairs: Sequence[QueuePair],
        connections: Sequence[Connection],
        feeder: Feeder,
        *,
        nic_rate_bps: Callable[[Nic], float],
        check: Callable[[], None] = lambda: None,
        stuck_s: float = STUCK_S,
        round_trip_s: NDArray[np.float64] | float = 0.0,
        least_packets: int = 1,
    ) -> None:
        self._queue_pairs = queue_pairs
        self._feeder = feeder
        self._check = check
        self._stuck_s = stuck_s
        self._open = 0
        self._buffer = bytearray(BUFFER_BYTES)
        self._poller = select.epoll()
        window = 0 if feeder.tick_s is None else UNLIMITED
        self._streams = [_Stream(connection, window=window) for connection in connections]
        self._senders = {c.sender.fileno(): qp for qp, c in enumerate(connections)}
        self._receivers = {c.receiver.fileno(): qp for qp, c in enumerate(connections)}
        self._shares = NicShares(queue_pairs, nic_rate_bps)
        self._round_trip_s, self._least_packets = round_trip_s, least_packets

    def posted(self, qp: int) -> int:
        """Return how many bytes were posted on a queue pair."""
        return self._streams[qp].posted

    def counted(self, qp: int) -> int:
        """Return how many bytes of a queue pair were counted at its receiver."""
        return self._streams[qp].counted

    def rtt_s(self, qp: int) -> float:
        """Return TCP's smoothed round-trip time of a queue pair [s]."""
        return _tcp_info(self._streams[qp].connection.sender, RTT_OFFSET) / 1e6

    def post(self, qp: int, size: int) -> None:
        """Put bytes behind what a queue pair carries already."""
        stream = self._streams[qp]
        if size and stream.posted == stream.counted:
            self._open += 1
            stream.moved_at = time.monotonic()
        stream.posted += size
        self._send(qp)

    def run(self) -> Delivery:
        """Move all bytes and return when each arrived.

        Raises
        ------
        StuckError
            If a queue pair breaks, or makes no progress.
        """
        retransmits_before = self._retransmits()
        with self._poller:
            for descriptor in self._senders:
                self._poller.register(descriptor, 0)
            for descriptor in self._receivers:
                self._poller.register(descriptor, select.EPOLLIN)
            rounds_s = self._loop()
        return Delivery(
            self._feeder.chunk_qp,
            self._feeder.order,
            [curve_of(s.sent_at, s.sent_counts, self._start) for s in self._streams],
            [curve_of(s.counted_at, s.counts, self._start) for s in self._streams],
            self._retransmits() - retransmits_before,
            float(np.percentile(rounds_s, 99)) if rounds_s else 0.0,
        )

    def _loop(self) -> list[float]:
        """Serve events until all that was posted was counted; return how long each round took [s]."""
        rounds_s: list[float] = []
        self._start = share_next = looked = time.monotonic()
        self._feeder.start(self)
        posted = np.array([stream.posted for stream in self._streams], dtype=float)
        self._window_s = self._shares.window_s(posted) + self._round_trip_s
        tick_s = self._feeder.tick_s
        if tick_s is None:
            self._share()
        while self._open or self._feeder.waiting:
            events = self._poller.poll(tick_s or TICK_S, EVENTS)
            began = time.monotonic()
            for descriptor, _ in events:
                receiving = self._receivers.get(descriptor)
                if receiving is None:
                    self._send(self._senders[descriptor])
                else:
                    self._receive(receiving)
            now = time.monotonic()
            self._feeder.turn(self, now - self._start)
            if tick_s is None and now > share_next:
                self._share()
                # With thousands of queue pairs it takes longer: never more than a twentieth of the time.
                share_next = time.monotonic() + max(SHARE_S, 20 * (time.monotonic() - now))
            if now - looked > TICK_S:
                self._check()
                self._check_progress(now)
                looked = now
            rounds_s.append(now - began)
        return rounds_s

    def _share(self) -> None:
        """Give each queue pair the pace and the window that what is left entitles it to."""
        left = np.array([stream.posted - stream.counted for stream in self._streams], dtype=float)
        paces = self._shares.paces_bytes_s(left).tolist()
        windows = self._shares.windows_bytes(left, self._window_s, self._least_packets).tolist()
        for qp in np.flatnonzero(left).tolist():
            stream = self._streams[qp]
            if stream.sent == stream.posted:
                continue
            if abs(paces[qp] - stream.pace) > PACE_STEP * stream.pace:
                self._pace(stream, paces[qp])
            stream.window = windows[qp]
            self._send(qp)

    def _pace(self, stream: _Stream, bytes_s: float) -> None:
        stream.pace = bytes_s
        stream.first_pace = stream.first_pace or bytes_s
        most = min(int(bytes_s), MAX_PACE_BYTES_S)
        stream.connection.sender.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, most)

    def _send(self, qp: int) -> None:
        """Hand a queue pair's socket what its window has room for."""
        stream = self._streams[qp]
        room = min(stream.posted, stream.counted + stream.window) - stream.sent
        try:
            while room > 0:
                size = stream.connection.sender.send(ZEROS[:room])
                stream.sent += size
                stream.sent_at.append(time.monotonic())
                stream.sent_counts.append(stream.sent)
                room -= size
                if stream.sent == stream.posted and stream.pace < stream.first_pace:
                    # TCP raises its pace only when something is acknowledged. At the last one's, the next
                    # step's first packet would hold up its second: by up to a second, as measured. Not
                    # faster than the first one's: uniform all-to-all ended 2 % later without any pace.
                    self._pace(stream, stream.first_pace)
        except BlockingIOError:
            if not stream.blocked:
                self._poller.modify(stream.connection.sender.fileno(), select.EPOLLOUT)
            stream.blocked = True
            return
        except OSError as error:
            raise StuckError(f"queue pair {self._queue_pairs[qp]} broke: {error.strerror}") from error
        if stream.blocked:
            self._poller.modify(stream.connection.sender.fileno(), 0)
            stream.blocked = False

    def _receive(self, qp: int) -> None:
        """Count what arrived, and use the room that it leaves."""
        stream = self._streams[qp]
        try:
            size = stream.connection.receiver.recv_into(self._buffer)
        except BlockingIOError:
            return
        except OSError as error:
            raise StuckError(f"queue pair {self._queue_pairs[qp]} broke: {error.strerror}") from error
        if not size:
            raise StuckError(f"queue pair {self._queue_pairs[qp]} was closed before all had arrived")
        stream.moved_at = time.monotonic()
        stream.counted += size
        stream.counted_at.append(stream.moved_at)
        stream.counts.append(stream.counted)
        if stream.counted == stream.posted:
            self._open -= 1
        elif stream.sent < stream.posted:
            self._send(qp)
        self._feeder.arrived(self, qp, stream.moved_at - self._start)

    def _retransmits(self) -> int:
        return sum(_tcp_info(stream.connection.sender, RETRANSMITS_OFFSET) for stream in self._streams)

    def _check_progress(self, now: float) -> None:
        moved_at = max(stream.moved_at for stream in self._streams)
        if self._feeder.waiting and not self._open and now - moved_at > self._stuck_s:
            raise StuckError(
                f"the scheme left chunks waiting for {self._stuck_s:g} s while nothing was on its way",
                "its choose must return a queue pair when one has room",
            )
        stuck = [
            qp
            for qp, stream in enumerate(self._streams)
            if stream.counted < stream.posted and now - stream.moved_at > self._stuck_s
        ]
        if stuck:
            stream = self._streams[stuck[0]]
            raise StuckError(
                f"queue pair {self._queue_pairs[stuck[0]]} made no progress for {self._stuck_s:g} s "
                f"({stream.counted:,} of {stream.posted:,} bytes arrived; {len(stuck)} are stuck)",
                "look at the links with --cli, or lower --rate",
            )


def _tcp_info(connection: socket.socket, offset: int) -> int:
    """Return one 32-bit field of the kernel's struct tcp_info (linux/tcp.h)."""
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
    return int(struct.unpack_from("=I", info, offset)[0])
