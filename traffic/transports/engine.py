"""The engine: byte streams over TCP that come and go, one per queue pair, and when their bytes arrive.

One process and one epoll loop hold the sockets of all servers, so that one clock times all messages.
A queue pair carries parcels of messages in the order in which they are posted, or chunks as a feeder
binds them (`traffic.transports.late_binding`). Bytes are counted at the receiver.

The kernel decides what is on its way, and when: by its congestion control, as hosts are set
(`traffic.transports.host_settings`). A queue pair's bytes are handed to its socket as there is room in it.

All times here are those of `time.monotonic`, all sizes those of the emulation.
"""

import select
import socket
import struct
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, pairwise

import numpy as np
from numpy.typing import NDArray

from topologies.errors import NetworkError, StuckError
from traffic.backlog import Backlog
from traffic.spraying.policy import QueuePair
from traffic.transports import connections
from traffic.transports.connections import DIAL_PAUSE_S, DIALS, Endpoints
from traffic.transports.late_binding import ReactiveFeeder
from traffic.transports.loop import STUCK_S, TICK_S, Arrival, Health, QueuePairs, QueuePairState

SLICE = 256
"""As many queue pairs begin to send at once: events must not wait for thousands."""
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
    blocked: bool = True
    """Whether it waits for room in its socket, or to be connected."""
    resent_before: int = 0
    backlog: Backlog = field(default_factory=Backlog)
    feeders: list[ReactiveFeeder] = field(default_factory=list)


class Engine(QueuePairs[_Stream, ReactiveFeeder]):
    """Moves bytes over queue pairs, which it calls by numbers; a context manager, made for one run.

    Parameters
    ----------
    endpoints
        How sockets are made.
    check, stuck_s, excused
        As of `QueuePairs`.
    """

    fed = "chunks", "a scheme must choose a queue pair that has room"

    def __init__(
        self,
        endpoints: Endpoints,
        *,
        check: Callable[[], None] = lambda: None,
        stuck_s: float = STUCK_S,
        excused: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(check, stuck_s, excused)
        self._endpoints = endpoints
        self._listeners: dict[tuple[int, int], socket.socket] = {}
        """The socket that listens at a port of a server."""
        self._expected: dict[connections.Ends, int] = {}
        self._to_send: dict[_Stream, None] = {}
        """Those that were given something since they last sent, or resumed."""
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
            self._to_send[self._pairs[which]] = None

    def feed(self, feeder: ReactiveFeeder) -> None:
        """Have a feeder bind chunks to queue pairs as they go."""
        self._begins()
        for number in feeder.numbers:
            stream = self._pairs[number]
            stream.feeders.append(feeder)
            if stream.sender:
                connections.keep_none_waiting(stream.sender)
        self._feeders.append(feeder)

    def forget(self, feeder: ReactiveFeeder, messages: Collection[int]) -> None:
        """Have a feeder bind no more of some messages; it ends if it has no others."""
        feeder.forget(messages)
        if feeder.done:
            self._end(feeder)

    def put(self, number: int, size: int, message: int) -> None:
        """Put bytes of a message behind what a queue pair carries, and send."""
        stream = self._pairs[number]
        self._put(stream, [size], [message])
        self._send(stream)

    def _put(self, stream: _Stream, sizes: Sequence[int], messages: Sequence[int]) -> None:
        if not stream.left:
            self._open += 1
            stream.moved_at = time.monotonic()
        stream.backlog.post(sizes, messages)
        stream.posted = int(stream.backlog.posted)

    def takes(self, number: int) -> bool:
        """Return whether what a feeder puts on a queue pair now would begin to leave, as far as is known."""
        stream = self._pairs[number]
        return not (stream.blocked or stream.held)

    def carried(self, number: int) -> set[int]:
        """Return the messages whose bytes a queue pair still carries."""
        return self._pairs[number].backlog.messages

    def left(self, number: int) -> dict[int, int]:
        """Return how many bytes of each message a queue pair has yet to deliver."""
        stream = self._pairs[number]
        return {message: int(size) for message, size in stream.backlog.left(stream.counted).items()}

    def _set_held(self, pair: _Stream, *, is_held: bool) -> None:
        super()._set_held(pair, is_held=is_held)
        if not is_held:
            self._to_send[pair] = None

    def rates_changed(self) -> None:
        """Have what chooses as it goes ask anew how fast NICs are."""
        for feeder in self._feeders:
            feeder.rates_changed()

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
        stream.posted = int(stream.backlog.posted)
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
        stream.posted = int(stream.backlog.posted)
        self._open -= was_open and not stream.left
        return [(message, int(size), whole) for message, size, whole in back]

    # The loop

    def serve(self, timeout_s: float) -> list[Arrival]:
        """Wait until something happens, and serve it; return the messages that arrived."""
        self.loop.begins_round(counts=not self.quiet)
        for stream in list(islice(self._to_send, SLICE)):
            del self._to_send[stream]
            self._use_room(stream)
        tick_s = min([TICK_S, *(feeder.tick_s for feeder in self._feeders)])
        waits_s = 0.0 if self._to_send else max(min(timeout_s, tick_s), 0.0)
        self.loop.serve(waits_s, counts=not self.quiet)
        now = time.monotonic()
        for feeder in self._feeders:
            feeder.turn(self, now)
        return self._ended_round(now)

    def _sendable(self, stream: _Stream, event: int) -> None:
        assert stream.sender is not None
        if event & BROKEN:
            error = stream.sender.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            raise _broken(stream, OSError(error, "the connection is gone"))
        self._use_room(stream)

    def _use_room(self, stream: _Stream) -> None:
        """Send what a queue pair was given, and let its feeders give it more."""
        self._send(stream)
        for feeder in stream.feeders:
            feeder.opened(stream.number)

    def _send(self, stream: _Stream) -> None:
        """Hand a queue pair's socket what it has room for."""
        if not stream.sender:
            return
        try:
            while stream.sent < stream.posted and not stream.held:
                stream.sent += stream.sender.send(ZEROS[: stream.posted - stream.sent])
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
        """Count what arrived."""
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
        delivered = stream.backlog.deliver(stream.counted)
        self._open -= not stream.left
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
