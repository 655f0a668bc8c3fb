"""The engine: moves the bytes of a collective over its queue pairs, and times their arrival.

One process and one epoll loop hold the sockets of all servers, so that one clock times all
messages. A queue pair is a byte stream that carries chunks in the order they were posted.
Bytes are counted at the receiver. What is posted differs by policy:

* proactive: everything, before the start;
* reactive: a chunk whenever its message's turn comes and the policy finds a queue pair with
  room; room is ``window_bytes`` posted and not yet counted at the receiver.

All times are in seconds since the start, which is one instant for all messages.
"""

import select
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from topologies.errors import StuckError
from topologies.fabric import Nic
from traffic.connections import Connection, pace
from traffic.spraying.policy import Assignment, Permitted, QpState, QueuePair, ReactivePolicy

RECEIVE_BYTES = 256 << 10
STUCK_S = 15.0
TICK_S = 0.5
PACE_S = 0.02
HEADROOM = 1.1
MIN_SHARE = 0.01
TCP_INFO_BYTES = 200
RTT_OFFSET, RETRANSMITS_OFFSET = 68, 100
ZEROS = memoryview(bytes(RECEIVE_BYTES))

Curve = tuple[NDArray[np.float64], NDArray[np.float64]]


@dataclass(frozen=True, eq=False)
class Delivery:
    """What the engine saw."""

    chunk_qp: NDArray[np.int64]
    """Index of each chunk's queue pair, shape (chunks,)."""
    order: NDArray[np.int64]
    """The chunks in the order in which they were posted."""
    curves: list[Curve]
    """For each queue pair the times [s] and the bytes counted at the receiver until then."""
    retransmits: int
    """Packets that TCP sent again, over all queue pairs."""
    lateness_s: float
    """The longest that the loop kept an event waiting [s], 99th percentile of its rounds."""


@dataclass(slots=True)
class _Stream:
    """One queue pair's byte stream."""

    connection: Connection
    posted: int = 0
    sent: int = 0
    counted: int = 0
    writable: bool = False
    moved_at: float = 0.0
    times: list[float] = field(default_factory=lambda: [0.0])
    counts: list[int] = field(default_factory=lambda: [0])


class Feeder:
    """Decides what a queue pair carries next: here, what a proactive policy assigned up front."""

    def __init__(self, assignment: Assignment, chunk_bytes: NDArray[np.int64]) -> None:
        self.chunk_qp, self.order = assignment.chunk_qp, assignment.order
        self._load = np.bincount(
            self.chunk_qp, weights=chunk_bytes, minlength=len(assignment.queue_pairs)
        ).astype(np.int64)

    def start(self, engine: "Engine") -> None:
        """Post everything."""
        for qp, load in enumerate(self._load.tolist()):
            engine.post(qp, load)

    def counted(self, engine: "Engine", qp: int, now: float) -> None:
        """Nothing is decided later."""


class ReactiveFeeder:
    """Posts chunk by chunk what a reactive policy chooses, message after message in turn."""

    def __init__(
        self,
        policy: ReactivePolicy,
        permitted: Permitted,
        chunk_message: NDArray[np.int64],
        chunk_bytes: NDArray[np.int64],
        window_bytes: int,
    ) -> None:
        self._policy = policy
        self._window = window_bytes
        self._bytes = chunk_bytes.tolist()
        self._message = chunk_message.tolist()
        self._states = [QpState(0, 0.0, True) for _ in permitted.queue_pairs]
        self._flying: list[deque[tuple[int, int]]] = [deque() for _ in permitted.queue_pairs]
        self._left: dict[int, deque[int]] = {}
        for chunk, message in enumerate(self._message):
            self._left.setdefault(message, deque()).append(chunk)
        self._turns: deque[int] = deque(self._left)
        self.chunk_qp = np.full(len(chunk_bytes), -1, dtype=np.int64)
        self._order: list[int] = []

    @property
    def order(self) -> NDArray[np.int64]:
        """The chunks in the order in which they were posted."""
        return np.array(self._order, dtype=np.int64)

    def start(self, engine: "Engine") -> None:
        """Fill the queue pairs' windows."""
        self._fill(engine, 0.0)

    def counted(self, engine: "Engine", qp: int, now: float) -> None:
        """Tell the policy which chunks arrived, and use the room they leave."""
        flying, state, counted = self._flying[qp], self._states[qp], engine.counted(qp)
        state.backlog_bytes = engine.posted(qp) - counted
        state.room = state.backlog_bytes < self._window
        if not flying or flying[0][0] > counted:
            return
        state.rtt_s = engine.rtt_s(qp)
        while flying and flying[0][0] <= counted:
            _, chunk = flying.popleft()
            self._policy.acknowledged(message=self._message[chunk], qp=qp, rtt_s=state.rtt_s, now=now)
        self._fill(engine, now)

    def _fill(self, engine: "Engine", now: float) -> None:
        """Give each message a turn until none finds a queue pair with room."""
        waiting = 0
        while self._turns and waiting < len(self._turns):
            message = self._turns.popleft()
            qp = self._policy.choose(message=message, states=self._states, now=now)
            if qp is None:
                self._turns.append(message)
                waiting += 1
                continue
            waiting = 0
            self._post(engine, qp, self._left[message].popleft())
            if self._left[message]:
                self._turns.append(message)

    def _post(self, engine: "Engine", qp: int, chunk: int) -> None:
        engine.post(qp, self._bytes[chunk])
        state = self._states[qp]
        state.backlog_bytes += self._bytes[chunk]
        state.room = state.backlog_bytes < self._window
        self._flying[qp].append((engine.posted(qp), chunk))
        self.chunk_qp[chunk] = qp
        self._order.append(chunk)


class Engine:
    """Moves one collective's bytes; made for one run.

    Parameters
    ----------
    queue_pairs
        The queue pairs, for names in errors.
    connections
        Their connections, in the same order.
    feeder
        What decides which bytes a queue pair carries.
    nic_rate_bps
        Rate of a NIC, by NIC, at emulated scale.
    check
        Called now and then; raises if the network has died.
    stuck_s
        A queue pair with bytes to deliver that makes no progress for so long is an error [s].
    """

    def __init__(
        self,
        queue_pairs: Sequence[QueuePair],
        connections: Sequence[Connection],
        feeder: Feeder | ReactiveFeeder,
        *,
        nic_rate_bps: Callable[[Nic], float],
        check: Callable[[], None] = lambda: None,
        stuck_s: float = STUCK_S,
    ) -> None:
        self._queue_pairs = queue_pairs
        self._streams = [_Stream(connection) for connection in connections]
        self._feeder = feeder
        self._check = check
        self._stuck_s = stuck_s
        self._open = 0
        self._buffer = bytearray(RECEIVE_BYTES)
        self._poller = select.epoll()
        self._receivers: dict[int, int] = {}
        self._senders: dict[int, int] = {}
        for qp, stream in enumerate(self._streams):
            self._receivers[stream.connection.receiver.fileno()] = qp
            self._senders[stream.connection.sender.fileno()] = qp
        nics = sorted({queue_pair.source for queue_pair in queue_pairs})
        self._nic = np.array([nics.index(queue_pair.source) for queue_pair in queue_pairs])
        self._nic_rate = np.array([nic_rate_bps(nic) for nic in nics])
        self._paced = np.zeros(len(queue_pairs))

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
        if stream.posted > stream.sent and not stream.writable:
            stream.writable = True
            self._poller.modify(stream.connection.sender.fileno(), select.EPOLLOUT)

    def run(self) -> Delivery:
        """Move all bytes and return when each arrived; StuckError if some do not."""
        with self._poller:
            for descriptor in self._senders:
                self._poller.register(descriptor, 0)
            for descriptor in self._receivers:
                self._poller.register(descriptor, select.EPOLLIN)
            rounds = self._loop()
        return Delivery(
            self._feeder.chunk_qp,
            self._feeder.order,
            [(np.array(s.times), np.array(s.counts, dtype=float)) for s in self._streams],
            sum(_tcp_info(s.connection.sender, RETRANSMITS_OFFSET) for s in self._streams),
            float(np.percentile(rounds, 99)) if rounds else 0.0,
        )

    def _loop(self) -> list[float]:
        rounds: list[float] = []
        start = now = time.monotonic()
        looked = paced = start
        self._feeder.start(self)
        self._pace()
        while self._open:
            events = self._poller.poll(TICK_S, 512)
            began = time.monotonic()
            for descriptor, _ in events:
                receiving = self._receivers.get(descriptor)
                if receiving is None:
                    self._send(self._senders[descriptor])
                else:
                    self._receive(receiving, start)
            now = time.monotonic()
            rounds.append(now - began)
            if now - paced > PACE_S:
                self._pace()
                paced = now
            if now - looked > TICK_S:
                looked = now
                self._check()
                self._check_progress(now)
        return rounds

    def _pace(self) -> None:
        left = np.array([stream.posted - stream.counted for stream in self._streams], dtype=float)
        total = np.bincount(self._nic, weights=left, minlength=len(self._nic_rate))
        share = left / np.maximum(total, 1.0)[self._nic]
        rate = np.maximum(share * HEADROOM, MIN_SHARE) * self._nic_rate[self._nic]
        for qp in np.flatnonzero((left > 0) & (np.abs(rate - self._paced) > 0.1 * self._paced)).tolist():
            pace(self._streams[qp].connection, rate[qp])
            self._paced[qp] = rate[qp]

    def _send(self, qp: int) -> None:
        stream = self._streams[qp]
        try:
            stream.sent += stream.connection.sender.send(ZEROS[: stream.posted - stream.sent])
        except BlockingIOError:
            return
        except OSError as error:
            raise StuckError(f"queue pair {self._queue_pairs[qp]} broke: {error.strerror}") from error
        if stream.sent == stream.posted:
            stream.writable = False
            self._poller.modify(stream.connection.sender.fileno(), 0)

    def _receive(self, qp: int, start: float) -> None:
        stream = self._streams[qp]
        try:
            size = stream.connection.receiver.recv_into(self._buffer)
        except BlockingIOError:
            return
        except OSError as error:
            raise StuckError(f"queue pair {self._queue_pairs[qp]} broke: {error.strerror}") from error
        now = time.monotonic()
        stream.counted += size
        stream.moved_at = now
        stream.times.append(now - start)
        stream.counts.append(stream.counted)
        if stream.counted == stream.posted:
            self._open -= 1
        self._feeder.counted(self, qp, now - start)

    def _check_progress(self, now: float) -> None:
        stuck = [
            qp
            for qp, stream in enumerate(self._streams)
            if stream.counted < stream.posted and now - stream.moved_at > self._stuck_s
        ]
        if stuck:
            stream = self._streams[stuck[0]]
            raise StuckError(
                f"queue pair {self._queue_pairs[stuck[0]]} made no progress for {self._stuck_s:g} s "
                f"({stream.counted:,} of {stream.posted:,} bytes arrived; {len(stuck)} queue pairs are stuck)",
                "look at the links with --cli, or lower --rate",
            )


def _tcp_info(connection: socket.socket, offset: int) -> int:
    """Return one 32-bit field of the kernel's struct tcp_info (linux/tcp.h)."""
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
    return int(struct.unpack_from("=I", info, offset)[0])
