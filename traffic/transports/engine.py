"""The engine: byte streams over TCP that come and go, one per queue pair, and when their bytes arrive.

One process and one epoll loop hold the sockets of all servers, so that one clock times all messages.
A queue pair carries parcels of messages in the order in which they are posted, or chunks as a feeder
binds them (`traffic.transports.late_binding`). Bytes are counted at the receiver.

A queue pair may send what its transport lets it (`traffic.transports.transport`): by a window, what it may
have on its way at once, by a pace, or by a count of what it may have sent. Under a transport that sets none
of them TCP decides; under the others TCP only carries the bytes, and repairs losses.

All times here are those of `time.monotonic`, all sizes those of the emulation.
"""

import select
import socket
import struct
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from math import inf, isfinite

import numpy as np
from numpy.typing import NDArray

from topologies.errors import NetworkError, StuckError
from topologies.fabric import Nic
from traffic.backlog import Backlog
from traffic.spraying.policy import QueuePair
from traffic.transports import connections
from traffic.transports.connections import DIAL_PAUSE_S, DIALS, Endpoints
from traffic.transports.counts import Counts
from traffic.transports.datagram_lane import Crossed
from traffic.transports.late_binding import ReactiveFeeder
from traffic.transports.loop import STUCK_S, TICK_S, Arrival, Health, QueuePairs, QueuePairState
from traffic.transports.transport import (
    PACKET_BYTES,
    UNLIMITED_BYTES,
    FollowsRates,
    Limits,
    Transport,
)

PACE_STEP = 0.05
LONGEST_PERIODS = 4
"""A transport is asked again after so many of its periods at most, however long it takes."""
SLICE = 256
"""As many queue pairs hear at once what their transport lets them do."""
SO_MAX_PACING_RATE = 47
MAX_PACE_BYTES_S = (1 << 31) - 1
NO_PACE = -1
"""All bits set: the kernel takes it for no limit."""
BUFFER_BYTES = 256 << 10
ZEROS = memoryview(bytes(BUFFER_BYTES))
TCP_INFO_BYTES = 216
RETRANSMITS_AT = 100
"""Where struct tcp_info (linux/tcp.h) has them, as a number of 32 bits."""
BROKEN = select.EPOLLERR | select.EPOLLHUP


@dataclass(slots=True, eq=False)
class _Stream(QueuePairState):
    """One queue pair's byte stream."""

    sender: socket.socket | None = None
    receiver: socket.socket | None = None
    sent: int = 0
    window: int = PACKET_BYTES
    may_send: int = UNLIMITED_BYTES
    """What it may have sent, of all that it ever sends."""
    pace: float = 0.0
    first_pace: float = 0.0
    blocked: bool = True
    """Whether it waits for room in its socket, or to be connected."""
    resent_before: int = 0
    backlog: Backlog = field(default_factory=Backlog)
    feeders: list[ReactiveFeeder] = field(default_factory=list)
    group: list["_Stream"] = field(default_factory=list)
    """Those that share what they may send, where bytes choose among them."""

    @property
    def room(self) -> int:
        """How many bytes more it may have been given, so that all of them may leave."""
        return min(self.counted + self.window, self.may_send) - self.posted


class Engine(QueuePairs[_Stream, ReactiveFeeder]):
    """Moves bytes over queue pairs, which it calls by numbers; a context manager, made for one run.

    Parameters
    ----------
    endpoints
        How sockets are made.
    transport
        Says what queue pairs may have on their way, and how fast they send.
    check, stuck_s, excused
        As of `QueuePairs`.
    """

    fed = "chunks", "a scheme must choose a queue pair that has room, and a transport make room"

    def __init__(
        self,
        endpoints: Endpoints,
        *,
        transport: Transport,
        check: Callable[[], None] = lambda: None,
        stuck_s: float = STUCK_S,
        excused: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(check, stuck_s, excused)
        self._endpoints, self._transport = endpoints, transport
        self._listeners: dict[tuple[int, int], socket.socket] = {}
        """The socket that listens at a port of a server."""
        self._expected: dict[connections.Ends, int] = {}
        self._groups: dict[tuple[int, Nic, int], list[_Stream]] = defaultdict(list)
        """The queue pairs of a communicator, from a server to a NIC, among which bytes choose, or chose."""
        self._known = 0
        """How many queue pairs the transport knows of."""
        self._counts = Counts()
        """What the transport decides from."""
        self._limits = Limits.none(0)
        """What the transport said last."""
        self._waiting = np.zeros(0, dtype=np.bool_)
        """Which queue pairs chunks may choose that are on none yet."""
        self._to_limit: list[int] = []
        """The queue pairs that have not heard of it."""
        self._first = False
        """Whether something was posted before it."""
        self._share_at = 0.0
        self._anew = False
        """Whether something was posted, or resumed, since the transport was last asked."""
        self._resent = 0
        self._buffer = bytearray(BUFFER_BYTES)

    @property
    def health(self) -> Health:
        """How all went until now."""
        resent, counted = self._resent + sum(map(_resent, self._pairs)), (s.counted for s in self._pairs)
        return Health(resent, self.loop.lateness_s, sum(counted), self.loop.stall_s)

    # Queue pairs

    def add(self, queue_pair: QueuePair) -> int:
        """Return the number of a new queue pair, which is not connected yet."""
        self._pairs.append(_Stream(len(self._pairs), queue_pair))
        self._counts.reserve(len(self._pairs))
        return len(self._pairs) - 1

    def dial(self, number: int) -> None:
        """Begin to connect a queue pair."""
        stream = self._pairs[number]
        self._listen(stream.queue_pair)
        self._expected[connections.ends(stream.queue_pair, self._endpoints)] = number
        sender = stream.sender = connections.dial(self.loop.stack, self._endpoints, stream.queue_pair)
        self.loop.watch(sender.fileno(), partial(self._sendable, stream), select.EPOLLOUT)

    def dialled(self, number: int) -> bool:
        """Return whether a queue pair is connected or about to be."""
        return self._pairs[number].sender is not None

    def connect(self, numbers: Sequence[int]) -> None:
        """Connect queue pairs, and wait for it.

        Raises
        ------
        MachineError
            If this user may not have so many sockets.
        NetworkError
            If one cannot be connected within `connections.CONNECT_S`; it is named.
        """
        connections.check_descriptors(len(numbers), len(self._unheard(numbers)))
        for count, number in enumerate(numbers, start=1):
            self.dial(number)
            if count % DIALS == 0:
                time.sleep(DIAL_PAUSE_S)
        deadline = time.monotonic() + connections.CONNECT_S
        while missing := [n for n in numbers if not self._pairs[n].receiver or self._pairs[n].blocked]:
            self.serve(deadline - time.monotonic())
            if time.monotonic() > deadline:
                raise NetworkError(
                    f"queue pair {self._pairs[missing[0]].queue_pair} did not connect within "
                    f"{connections.CONNECT_S:g} s ({len(missing)} of {len(numbers)} did not)",
                    "look at the links and rules with --cli",
                )
        for number in numbers:
            self._pairs[number].resent_before += _resent(self._pairs[number])

    def crosses(self, number: int, crossed: Crossed) -> None:
        """Note the path that a queue pair takes."""
        self._counts.round_trip_s[number] = 2 * crossed.delay_s + crossed.forwarding_s
        self._counts.lossy[number] = crossed.lossy

    def _unheard(self, numbers: Sequence[int]) -> set[tuple[int, int]]:
        """Return the servers' ports at which none listens yet, of those that queue pairs connect to."""
        return {_listener(self._pairs[number].queue_pair) for number in numbers} - self._listeners.keys()

    def _listen(self, queue_pair: QueuePair) -> None:
        server, port = _listener(queue_pair)
        if (server, port) not in self._listeners:
            listener = connections.listening(self.loop.stack, self._endpoints, server, port)
            self._listeners[server, port] = listener
            self.loop.watch(listener.fileno(), lambda _event: self._accept(listener))

    def _accept(self, listener: socket.socket) -> None:
        """Take a connection as a queue pair's receiving end.

        The first of its ends may be an old one, reset before it was accepted: then a second follows.
        """
        receiver, between = connections.accept(self.loop.stack, listener)
        number = self._expected.get(between)
        if number is not None:
            stream = self._pairs[number]
            self._drop(stream.receiver)
            stream.receiver = receiver
            self.loop.watch(receiver.fileno(), lambda _event: self._receive(stream))

    def _drop(self, endpoint: socket.socket | None) -> None:
        """Close a socket of a queue pair, if there is one."""
        if endpoint:
            self.loop.forget(endpoint.fileno())
            endpoint.close()

    # Bytes

    def post(self, number: NDArray[np.int64], size: NDArray[np.int64], message: NDArray[np.int64]) -> None:
        """Put parcels behind what queue pairs carry: the queue pair, size and message of each, in order."""
        self._begins()
        by_stream = np.argsort(number, kind="stable")
        used, first = np.unique(number[by_stream], return_index=True)
        edges = [*first.tolist(), len(number)]
        sizes, messages = size[by_stream].tolist(), message[by_stream].tolist()
        for which, (begin, end) in zip(used.tolist(), pairwise(edges), strict=True):
            self._put(self._pairs[which], sizes[begin:end], messages[begin:end])
        self._share_at, self._anew = 0.0, True

    def feed(self, feeder: ReactiveFeeder) -> None:
        """Have a feeder bind chunks to queue pairs as they go."""
        self._begins()
        for number in feeder.numbers:
            stream = self._pairs[number]
            stream.feeders.append(feeder)
            stream.first_pace = 0.0
            pair = stream.queue_pair
            stream.group = self._groups[pair.source.server, pair.destination, pair.communicator]
            if stream not in stream.group:
                stream.group.append(stream)
            if stream.sender:
                connections.keep_none_waiting(stream.sender)
        self._feeders.append(feeder)
        self._share_at, self._anew = 0.0, True

    def forget(self, feeder: ReactiveFeeder, messages: Collection[int]) -> None:
        """Have a feeder bind no more of some messages; it ends if it has no others."""
        feeder.forget(messages)
        if feeder.done:
            self._end(feeder)

    def put(self, number: int, size: int, message: int) -> None:
        """Put bytes of a message behind what a queue pair carries, and send."""
        stream = self._pairs[number]
        self._put(stream, [size], [message])
        if stream.may_send != UNLIMITED_BYTES:
            for other in stream.group:
                if other is not stream:
                    other.may_send -= size
                    self._limits.sent_bytes[other.number] -= size
        self._send(stream)

    def _put(self, stream: _Stream, sizes: Sequence[int], messages: Sequence[int]) -> None:
        if not stream.left:
            self._open += 1
            stream.moved_at = time.monotonic()
            if not stream.feeders:
                stream.first_pace = 0.0
        stream.backlog.post(sizes, messages)
        self._set_posted(stream)

    def _set_posted(self, stream: _Stream) -> None:
        stream.posted = self._counts.posted[stream.number] = int(stream.backlog.posted)

    def takes(self, number: int) -> bool:
        """Return whether what a feeder puts on a queue pair now would begin to leave, as far as is known."""
        stream = self._pairs[number]
        return stream.room > 0 and not (stream.blocked or stream.held)

    def carried(self, number: int) -> set[int]:
        """Return the messages whose bytes a queue pair still carries."""
        return self._pairs[number].backlog.messages

    def left(self, number: int) -> dict[int, int]:
        """Return how many bytes of each message a queue pair has yet to deliver."""
        stream = self._pairs[number]
        return {message: int(size) for message, size in stream.backlog.left(stream.counted).items()}

    def _set_held(self, pair: _Stream, *, is_held: bool) -> None:
        super()._set_held(pair, is_held=is_held)
        self._counts.held[pair.number] = is_held
        if not is_held:
            self._share_at, self._anew = 0.0, True

    def rates_changed(self) -> None:
        """Have the transport, and what chooses as it goes, ask anew how fast NICs are."""
        if isinstance(self._transport, FollowsRates):
            self._transport.rates_changed()
        for feeder in self._feeders:
            feeder.rates_changed()
        self._share_at, self._anew = 0.0, True

    def on_the_way(self, number: int) -> int:
        """Return how many bytes a queue pair has sent that have not arrived."""
        return int(self._pairs[number].sent - self._pairs[number].counted)

    def drained(self, number: int) -> bool:
        """Return whether all that a queue pair has sent has arrived."""
        return self._pairs[number].sent == self._pairs[number].counted

    def withdraw(self, number: int) -> list[tuple[int, int]]:
        """Reset a queue pair; return what it did not deliver, a message and its bytes each."""
        stream = self._pairs[number]
        self._open -= bool(stream.left)
        self._resent += _resent(stream)
        left = stream.backlog.withdraw(stream.counted)
        stream.sent = stream.counted
        self._counts.sent[number] = stream.sent
        self._set_posted(stream)
        self._drop(stream.sender)
        self._drop(stream.receiver)
        self._expected.pop(connections.ends(stream.queue_pair, self._endpoints), None)
        stream.sender = stream.receiver = None
        return [(message, int(size)) for message, size in left]

    def retract(self, number: int) -> list[tuple[int, int, bool]]:
        """Take back what a queue pair has not handed to TCP, which delivers the rest.

        Returns
        -------
        list of tuples of message, bytes and whether none stays
            As of `Backlog.retract`.
        """
        stream = self._pairs[number]
        was_open = bool(stream.left)
        back = stream.backlog.retract(stream.sent, stream.counted)
        self._set_posted(stream)
        self._open -= was_open and not stream.left
        self._share_at, self._anew = 0.0, True
        return [(message, int(size), whole) for message, size, whole in back]

    # The loop

    def serve(self, timeout_s: float) -> list[Arrival]:
        """Wait until something happens, and serve it; return the messages that arrived."""
        self.loop.begins_round(counts=not self.quiet)
        if time.monotonic() >= self._share_at:
            self._share()
        self._limit_some()
        tick_s = min([TICK_S, *(feeder.tick_s for feeder in self._feeders)])
        waits_s = min(timeout_s, tick_s, self._share_at - time.monotonic())
        self.loop.serve(0.0 if self._to_limit else max(waits_s, 0.0), counts=not self.quiet)
        now = time.monotonic()
        for feeder in self._feeders:
            feeder.turn(self, now)
        return self._ended_round(now)

    def _share(self) -> None:
        """Ask the transport what queue pairs may do, and let them."""
        began, worked_s = time.monotonic(), time.thread_time()
        anew, self._anew = self._anew, False
        offered = self._counts.offered(self._feeders, began, anew)
        outstanding = offered.left_bytes + offered.waiting_bytes > 0
        if not outstanding.any():
            self._share_at = inf
            return
        if self._known < len(self._pairs):
            self._transport.know([stream.queue_pair for stream in self._pairs])
            self._known = len(self._pairs)
        limits = self._transport.limits(offered)
        self._waiting = offered.waiting_bytes > 0
        worked_s = time.thread_time() - worked_s
        changed = _changed(self._limits, limits) | anew
        changed[self._to_limit] = True  # of those before they have not heard
        self._first = anew or (self._first and bool(self._to_limit))
        self._limits = _kept(self._limits, limits, changed)
        self._to_limit = np.flatnonzero(changed & outstanding).tolist()
        # With thousands of queue pairs it takes longer: a tenth of the time, but a few periods apart at most,
        # as receivers that grant save up five. What it waited for a CPU does not count.
        period_s = self._transport.period_s
        self._share_at = began + max(period_s, min(10 * worked_s, LONGEST_PERIODS * period_s))

    def _limit_some(self) -> None:
        """Let some queue pairs do what the transport has said: events must not wait for thousands."""
        some, self._to_limit = self._to_limit[:SLICE], self._to_limit[SLICE:]
        for number in some:
            self._limit(self._pairs[number], self._limits, self._first)

    def _limit(self, stream: _Stream, limits: Limits, anew: bool) -> None:
        """Let a queue pair do what the transport has said, and send what that makes room for."""
        number = stream.number
        stream.window, stream.may_send = int(limits.window_bytes[number]), int(limits.sent_bytes[number])
        pace = float(limits.pace_bytes_s[number])
        # What TCP was handed whole keeps the pace that it was left with; see `_send`.
        more = stream.sent < stream.posted or self._waiting[number]
        if stream.sender and more and (anew or _differ(stream.pace, pace)):
            _pace(stream, pace)
        if anew:
            stream.first_pace = stream.first_pace or stream.pace
        for feeder in stream.feeders:
            feeder.opened(number)
        self._send(stream)

    def _sendable(self, stream: _Stream, event: int) -> None:
        assert stream.sender is not None
        if event & BROKEN:
            error = stream.sender.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            raise _broken(stream, OSError(error, "the connection is gone"))
        self._send(stream)
        for feeder in stream.feeders:
            feeder.opened(stream.number)

    def _send(self, stream: _Stream) -> None:
        """Hand a queue pair's socket what its window has room for."""
        if not stream.sender:
            return
        # A window was looked at before a feeder put a chunk: a part of one would be a small packet.
        window_ends = UNLIMITED_BYTES if stream.feeders else stream.counted + stream.window
        room = min(stream.posted, window_ends, stream.may_send) - stream.sent
        try:
            while room > 0 and not stream.held:
                size = stream.sender.send(ZEROS[:room])
                stream.sent += size
                self._counts.sent[stream.number] = stream.sent
                room -= size
                if stream.sent == stream.posted and stream.pace < stream.first_pace:
                    # TCP raises its pace only when something is acknowledged. At the last one's, the next
                    # step's first packet would hold up its second: by up to a second, as measured. Not
                    # faster than the first one's: uniform all-to-all ended 2 % later without any pace.
                    _pace(stream, stream.first_pace)
        except BlockingIOError:
            if not stream.blocked:
                self.loop.modify(stream.sender.fileno(), select.EPOLLOUT)
            stream.blocked = True
            return
        except OSError as error:
            raise _broken(stream, error) from error
        if stream.blocked:
            self.loop.modify(stream.sender.fileno(), 0)
            stream.blocked = False

    def _receive(self, stream: _Stream) -> None:
        """Count what arrived, and use the room that it leaves."""
        assert stream.receiver is not None
        try:
            size = stream.receiver.recv_into(self._buffer)
        except BlockingIOError:
            return
        except OSError as error:
            if isinstance(error, ConnectionResetError) and not stream.counted:
                self._drop(stream.receiver)  # an old one of its ends, see `_accept`
                stream.receiver = None
                return
            raise _broken(stream, error) from error
        if not size:
            raise StuckError(f"queue pair {stream.queue_pair} was closed before all had arrived")
        now = stream.moved_at = time.monotonic()
        stream.counted += size
        self._counts.arrived[stream.number] = stream.counted
        delivered = stream.backlog.deliver(stream.counted)
        if not stream.left:
            self._open -= 1
        elif stream.sent < stream.posted:
            self._send(stream)
        if stream.feeders:
            self._fed(stream, delivered, now)
        else:
            self._arrived += [Arrival(message, now, stream.number) for message in delivered]

    def _fed(self, stream: _Stream, delivered: Sequence[int], now: float) -> None:
        """Report what arrived to the feeders, and forget those that are done."""
        for feeder in list(stream.feeders):
            done = feeder.arrived(self, stream.number, delivered, now)
            self._arrived += [Arrival(message, now) for message in done]
            if feeder.done:
                self._end(feeder)

    def _end(self, feeder: ReactiveFeeder) -> None:
        self._feeders.remove(feeder)
        for number in feeder.numbers:
            self._pairs[number].feeders.remove(feeder)


def _pace(stream: _Stream, bytes_s: float) -> None:
    """Have a queue pair's socket send no faster than a pace; with an infinite one TCP decides again.

    A socket that never had a pace is left alone: TCP begins to pace by itself at the first.
    """
    assert stream.sender is not None
    before, stream.pace = stream.pace, bytes_s
    if isfinite(bytes_s):
        most = max(min(int(bytes_s), MAX_PACE_BYTES_S), 1)
    elif before and isfinite(before):
        most = NO_PACE
    else:
        return
    stream.sender.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, most)


def _differ(pace: float, other: float) -> bool:
    """Return whether a pace is another by more than a step; of an infinite one no share is a step."""
    if isfinite(pace) and isfinite(other):
        return abs(other - pace) > PACE_STEP * pace
    return pace != other


def _changed(before: Limits, limits: Limits) -> NDArray[np.bool_]:
    """Return for which queue pairs the limits differ from those before, paces by more than a step."""
    known = len(before.window_bytes)
    changed = np.ones(len(limits.window_bytes), dtype=np.bool_)
    pace, old = limits.pace_bytes_s[:known], before.pace_bytes_s
    changed[:known] = (
        (limits.window_bytes[:known] != before.window_bytes)
        | (limits.sent_bytes[:known] != before.sent_bytes)
        | (pace > (1 + PACE_STEP) * old)
        | (pace < (1 - PACE_STEP) * old)
    )
    return changed


def _kept(before: Limits, limits: Limits, changed: NDArray[np.bool_]) -> Limits:
    """Return limits with the paces before where nothing changed: small steps add up until they are one."""
    paces, known = limits.pace_bytes_s.copy(), len(before.pace_bytes_s)
    same = ~changed[:known]
    paces[:known][same] = before.pace_bytes_s[same]
    return replace(limits, pace_bytes_s=paces)


def _broken(stream: _Stream, error: OSError) -> StuckError:
    return StuckError(f"queue pair {stream.queue_pair} broke: {error.strerror}")


def _listener(queue_pair: QueuePair) -> tuple[int, int]:
    """Return the server that listens for a queue pair, and at which port."""
    return queue_pair.destination.server, connections.ports(queue_pair)[1]


def _resent(stream: _Stream) -> int:
    """Return the packets that TCP sent again since the queue pair was connected."""
    if not stream.sender:
        return 0
    info = stream.sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
    return int(struct.unpack_from("=I", info, RETRANSMITS_AT)[0]) - stream.resent_before
