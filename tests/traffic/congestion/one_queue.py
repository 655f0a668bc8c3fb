"""One queue in front of one NIC, and sources that send through it: algorithms without a network.

Each source has a NIC of its own, as fast as the queue, and hands it a packet as soon as the NIC is free and
the algorithm lets it. A packet leaves the NIC, arrives at the queue and waits; as it leaves, it is marked by
what it leaves behind (as in uet-htsim). What links take there and back is spent on the way to the queue and
on the way from it to the source that hears the acknowledgement, half of it each. Nothing is ever lost.
"""

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np

from traffic.congestion.control import Acknowledged, CongestionControl, Pipe, Red, Sent

Make = Callable[[Pipe, np.random.Generator], CongestionControl]


@dataclass(frozen=True)
class Flow:
    """Bytes that a source sends."""

    bytes: int
    start_s: float = 0.0


@dataclass
class Passed:
    """A run's figures."""

    took_s: list[float]
    """From each flow's start until its last acknowledgement [s]."""
    marked: list[bool] = field(default_factory=list)
    """By packet, as they left the queue."""
    queues: list[float] = field(default_factory=list)
    """Queue that each packet left behind [packets]."""


class OneQueue:
    """A run of some flows under one algorithm."""

    def __init__(self, make: Make, flows: Sequence[Flow], pipe: Pipe, marks: Red | None, seed: int) -> None:
        self._flows, self._pipe, self._marks = flows, pipe, marks
        self._rng = np.random.default_rng(seed)
        self._half_s = (pipe.round_trip_s - pipe.packet_bytes / pipe.rate_bytes_s) / 2
        self._controls = [make(pipe, self._rng) for _ in flows]
        self._to_send, self._to_hear = [each.bytes for each in flows], [each.bytes for each in flows]
        self._free_s = [each.start_s for each in flows]
        """When each source's NIC has sent what it was given."""
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._tickets = 0
        self._queue: deque[tuple[int, int, float]] = deque()
        """Of each packet that waits or is being sent: its source, its bytes, and when it left its NIC."""
        self._queued = 0
        self._passed = Passed([inf] * len(flows))

    def passed(self) -> Passed:
        """Run until every byte is acknowledged, and return the figures."""
        for number, flow in enumerate(self._flows):
            self._at(flow.start_s, self._sender(number))
        while self._events:
            now_s, _, happen = heapq.heappop(self._events)
            happen(now_s)
        return self._passed

    def _at(self, time_s: float, happen: Callable[[float], None]) -> None:
        self._tickets += 1
        heapq.heappush(self._events, (time_s, self._tickets, happen))

    def _sender(self, number: int) -> Callable[[float], None]:
        return lambda now_s: self._send(number, now_s)

    def _send(self, number: int, now_s: float) -> None:
        """Hand a source's NIC a packet, if it is free and the algorithm lets it."""
        size = min(self._to_send[number], self._pipe.packet_bytes)
        if not size or now_s < self._free_s[number]:
            return
        control = self._controls[number]
        if control.may_send(now_s) < size:
            asks_s = control.next_s(now_s)
            if asks_s < inf:
                self._at(asks_s, self._sender(number))
            return
        self._to_send[number] -= size
        self._free_s[number] = left_s = now_s + size / self._pipe.rate_bytes_s
        control.on_events([Sent(size, 0)], (), (), now_s)
        self._at(left_s + self._half_s, lambda now_s: self._arrive((number, size, left_s), now_s))
        self._at(left_s, self._sender(number))

    def _arrive(self, packet: tuple[int, int, float], now_s: float) -> None:
        self._queue.append(packet)
        self._queued += packet[1]
        if len(self._queue) == 1:
            self._serve(now_s)

    def _serve(self, now_s: float) -> None:
        self._at(now_s + self._queue[0][1] / self._pipe.rate_bytes_s, self._leave)

    def _leave(self, now_s: float) -> None:
        number, size, left_s = self._queue.popleft()
        self._queued -= size
        marked = self._marks is not None and self._is_marked(self._marks)
        self._passed.marked.append(marked)
        self._passed.queues.append(self._queued / self._pipe.packet_bytes)
        heard_s = now_s + self._half_s
        acknowledged = Acknowledged(size, heard_s - left_s, marked, 0)
        self._at(heard_s, lambda now_s: self._hear(number, acknowledged, now_s))
        if self._queue:
            self._serve(now_s)

    def _is_marked(self, marks: Red) -> bool:
        queue = self._queued / self._pipe.bdp_bytes
        if queue >= marks.most:
            return True
        return bool(queue > marks.least + self._rng.random() * (marks.most - marks.least))

    def _hear(self, number: int, acknowledged: Acknowledged, now_s: float) -> None:
        self._controls[number].on_events((), [acknowledged], (), now_s)
        self._to_hear[number] -= acknowledged.bytes
        if not self._to_hear[number]:
            self._passed.took_s[number] = now_s - self._flows[number].start_s
        self._send(number, now_s)
