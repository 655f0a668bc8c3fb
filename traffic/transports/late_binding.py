"""The feeder of reactive policies: a chunk is bound to a queue pair when that can send it, not before.

As an RDMA NIC pulls work from its queue pairs, a NIC here takes the next chunk when it has sent
nearly all that it was given; the messages that may use it take turns, and the policy says which of
its queue pairs each goes to. So a choice is made on what is known then, NICs hold no queue, and
what waits does so where the fabric is congested: a queue pair takes no more than its transport lets
it have on the way.

Where dilation makes chunks smaller than a packet of the emulation, a decision covers the chunks
that begin within one packet: it is they that meet the same queues, and a packet each would cost the
switch far more. What a NIC still has to send is reckoned from its rate, since TCP does not say.

A policy sees the fabric, chunks, backlogs and times at real scale, so that what it decides does not depend on
the emulation's. The smoothed round-trip time is that of a queue pair's chunks: in TCP's own are delayed
acknowledgements, whose delay is the kernel's and is not dilated.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from math import ceil, inf
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from topologies.fabric import Nic
from traffic.messages import Chunks
from traffic.scheme import Choice
from traffic.spraying.checks import choice as lane_chosen
from traffic.spraying.policy import Lanes, LaneState, QueuePair, each_of
from traffic.spraying.states import States
from traffic.transports.round_trips import Crossing, RoundTrips
from traffic.transports.transport import LEAST_PACKET_S, PACKET_BYTES, packet_s

DEPTH_PACKETS = 2
"""A NIC takes more while it holds less than so many packets."""
TICK_PACKETS = 0.5
"""In how many packets' time of the fastest NIC they are looked at once."""
SMOOTHING = 1 / 8
"""How much the last round trip weighs in the smoothed one."""
SWEEP_PACKETS = 50
"""After how many packets' time messages that wait are asked again though nothing arrived: policies may wait
for time."""


class Carrier(Protocol):
    """What a feeder sees of the engine; it calls queue pairs and messages by the engine's numbers."""

    def put(self, number: int, size: int, message: int) -> None:
        """Put bytes of a message behind what a queue pair carries already."""

    def posted(self, number: int) -> int:
        """Return how many bytes were posted on a queue pair."""

    def counted(self, number: int) -> int:
        """Return how many bytes of a queue pair were counted at its receiver."""

    def takes(self, number: int) -> bool:
        """Return whether what is put on a queue pair now may leave."""


class ReactiveFeeder:
    """Posts chunk by chunk what a reactive policy chooses, messages taking turns at every NIC.

    Parameters
    ----------
    choice
        The scheme, the messages' chunks, and the lanes that each may use.
    chunk_bytes
        Size of each chunk at emulated scale [bytes], shape (chunks,).
    nic_rate_bps
        The rate of a NIC at emulated scale [bit/s].
    lanes
        What the carrier calls the queue pairs that each message may use.
    names
        What the carrier calls the messages.
    began_at
        When it began, on the carrier's clock [s].
    real_s
        Returns what the policy calls a time on the carrier's clock [s]; by default that since it began.
    packet
        Payload of a packet [bytes].
    crossing
        Returns the path of a queue pair; by default no link is slower than its NIC, or delays.
    volume, time
        Emulated over real bytes, and over real time: the policy sees real ones.
    """

    def __init__(
        self,
        choice: Choice,
        chunk_bytes: NDArray[np.int64],
        nic_rate_bps: Callable[[Nic], float],
        *,
        lanes: Sequence[tuple[int, ...]],
        names: Sequence[int],
        began_at: float = 0.0,
        real_s: Callable[[float], float] | None = None,
        packet: int = PACKET_BYTES,
        crossing: Callable[[QueuePair], Crossing] | None = None,
        volume: float = 1.0,
        time: float = 1.0,
    ) -> None:
        self._names, self.began_at = names, began_at
        self._policy, self._first = choice.policy, choice.first
        self._real_s = real_s or (lambda at: (at - began_at) / time)
        pair_of = _pairs(choice.lanes, lanes)
        self.numbers = list(pair_of)
        """What the carrier calls its queue pairs."""
        self._pairs = pairs = list(pair_of.values())
        self._qp_of = {number: qp for qp, number in enumerate(self.numbers)}
        sets = {among: tuple(self._qp_of[number] for number in among) for among in dict.fromkeys(lanes)}
        of_message = self._of_message = [sets[among] for among in lanes]
        lane_of = {qps: {qp: lane for lane, qp in enumerate(qps)} for qps in sets.values()}
        self._lane_of = [lane_of[qps] for qps in of_message]
        """What the policy calls each queue pair that each message may use."""
        self._choices = np.array([qp for qps in of_message for qp in qps], dtype=np.int64)
        """The queue pairs that message 0 may use, those of message 1, and so on."""
        self._choices_of = np.repeat(np.arange(len(of_message)), [len(qps) for qps in of_message])
        """Whose each of these is."""
        self.among = _mean_choices(of_message, len(pairs))
        """Among how many queue pairs the messages of each may choose, in the mean; shape (queue pairs,)."""
        first: dict[tuple[int, Nic, int], int] = {}
        ends = [(qp.source.server, qp.destination, qp.communicator) for qp in pairs]
        self.group = np.array(
            [first.setdefault(each, number) for each, number in zip(ends, self.numbers, strict=True)]
        )
        """The carrier's number of the communicator's first one from the same server to the same NIC."""
        self._message_of = {name: message for message, name in enumerate(names)}
        chunks = choice.chunks
        self._real_bytes: list[int] = (
            np.bincount(chunks.message, chunks.bytes, len(names)).astype(np.int64).tolist()
        )
        self._bursts = _bursts(chunks, chunk_bytes, packet)
        self._to_come = [len(bursts) for bursts in self._bursts]
        self._unbound = np.array([sum(size for _, size in bursts) for bursts in self._bursts], dtype=np.int64)
        """What of each message is on no queue pair yet [bytes]."""
        self._carried: list[dict[int, int]] = [{} for _ in names]
        self._nic_rate_bps, self._packet = nic_rate_bps, packet
        self._round_trips = RoundTrips(list(map(crossing or self._unhindered, pairs)), packet)
        self._round_trips.rates_changed(self._ends_bps())
        sources = dict.fromkeys(qp.source for qp in self._pairs)
        nics = {nic: _Nic(nic_rate_bps(nic) / 8, packet) for nic in sources}
        self._nics = list(nics.values())
        self._packet_s = self._fastest_packet_s()
        self._nic_of = [nics[qp.source] for qp in self._pairs]
        self._time = time
        self._queues = _Queues(self._nic_of, self.numbers, volume)
        states = {qps: self._queues.states(qps) for qps in lane_of}
        self._states = [states[qps] for qps in of_message]
        self._sharing: list[list[int]] = [[] for _ in pairs]
        for message in self._staggered():
            for qp in of_message[message]:
                self._sharing[qp].append(message)
            for nic in dict.fromkeys(self._nic_of[qp] for qp in of_message[message]):
                nic.ready.append(message)
        self._parked: dict[int, list[_Nic]] = {}
        self._open = sum(map(bool, self._to_come))
        self._next_s = self._sweep_s = 0.0

    @property
    def tick_s(self) -> float:
        """How often it asks for a turn [s]."""
        return TICK_PACKETS * self._packet_s

    @property
    def done(self) -> bool:
        """Whether all messages have arrived."""
        return not self._open

    @property
    def waiting_bytes(self) -> NDArray[np.int64]:
        """What is on no queue pair yet and may take each of them, shape (queue pairs,) [bytes]."""
        waiting = self._unbound[self._choices_of]
        return np.bincount(self._choices, waiting, len(self.numbers)).astype(np.int64)

    def carried(self, name: int) -> dict[int, int]:
        """Return how many real bytes of a message each queue pair carried or carries."""
        return self._carried[self._message_of[name]]

    def real_bytes(self, name: int) -> int:
        """Return the size of a message [real bytes]."""
        return self._real_bytes[self._message_of[name]]

    def lacks(self, name: int) -> bool:
        """Return whether a message has not arrived."""
        return self._to_come[self._message_of[name]] > 0

    def sharing(self, names: Iterable[int]) -> tuple[list[int], list[int]]:
        """Return the messages under way that may use the queue pairs of some, and these queue pairs' numbers.

        Those that they may use besides are counted in, and so on.
        """
        messages, qps = {self._message_of[name] for name in names if name in self._message_of}, set[int]()
        while more := {qp for message in messages for qp in self._of_message[message]} - qps:
            qps |= more
            messages |= {message for qp in more for message in self._sharing[qp]}
        left = sorted(message for message in messages if self._to_come[message])
        return [self._names[message] for message in left], [self.numbers[qp] for qp in sorted(qps)]

    def rates_changed(self) -> None:
        """Reckon with the rates that NICs have now."""
        for nic, queue_pair in zip(self._nic_of, self._pairs, strict=True):
            nic.send_at(self._nic_rate_bps(queue_pair.source) / 8)
        self._packet_s = self._fastest_packet_s()
        self._round_trips.rates_changed(self._ends_bps())

    def forget(self, names: Iterable[int]) -> None:
        """Bind no more of some messages that are under way."""
        for message in (self._message_of[name] for name in names):
            self._bursts[message].clear()
            self._to_come[message] = self._unbound[message] = 0
            self._open -= 1

    def turn(self, carrier: Carrier, at: float) -> None:
        """Give the NICs that have sent nearly all of theirs what messages are ready to send."""
        now = at - self.began_at
        if now < self._next_s:
            return
        self._next_s = now + self.tick_s
        self._queues.carrier = carrier
        if now >= self._sweep_s:
            self._sweep_s = now + SWEEP_PACKETS * self._packet_s
            for message in list(self._parked):
                self._wake(message)
        for nic in self._nics:
            nic.sent_until(now)
            while nic.room and nic.ready:
                self._offer(carrier, nic, at)

    def arrived(self, carrier: Carrier, number: int, delivered: Iterable[int], at: float) -> list[int]:
        """Tell the policy what arrived, and let the messages that share the queue pair be asked again.

        Parameters
        ----------
        carrier, number
            Who carries, and the queue pair on which bytes were counted.
        delivered
            For each of what was put on it and has arrived since, the message.
        at
            When [s].

        Returns
        -------
        list of int
            The messages that have arrived whole now.
        """
        qp, done = self._qp_of[number], []
        self._queues.backlog[qp] = carrier.posted(number) - carrier.counted(number)
        now, real_now_s = at - self.began_at, self._real_s(at)
        for message in [self._message_of[name] for name in delivered if name in self._message_of]:
            emulated_s, marked = self._round_trips.arrived(qp, now)
            rtt_s = emulated_s / self._time
            self._queues.measured(qp, rtt_s)
            self._policy.acknowledged(
                message=self._first + message,
                lane=self._lane_of[message][qp],
                rtt_s=rtt_s,
                marked=marked,
                now=real_now_s,
            )
            self._to_come[message] -= 1
            if not self._to_come[message]:
                done.append(self._names[message])
        self._open -= len(done)
        self.opened(number)
        return done

    def opened(self, number: int) -> None:
        """Let the messages that may use a queue pair be asked again: it may take more now."""
        for message in self._sharing[self._qp_of[number]]:
            self._wake(message)

    def _ends_bps(self) -> list[tuple[float, float]]:
        """Return the rates of the NICs at both ends of each queue pair [bit/s]."""
        rate_bps = self._nic_rate_bps
        return [(rate_bps(each.source), rate_bps(each.destination)) for each in self._pairs]

    def _unhindered(self, pair: QueuePair) -> Crossing:
        """Return a path on which no link is slower than the NIC that sends."""
        rate_bps = self._nic_rate_bps(pair.source)
        return Crossing(pair.source, rate_bps, rate_bps)

    def _staggered(self) -> list[int]:
        """Return the messages in the order of their first turn: every server begins with the one after it.

        Else all would send to the same NIC first, and to the same next.
        """

        def distance(message: int) -> tuple[int, int, int]:
            pair = self._pairs[self._of_message[message][0]]
            return (pair.destination.server - pair.source.server) % servers, pair.destination.nic, message

        servers = max((pair.destination.server for pair in self._pairs), default=0) + 1
        return sorted((message for message, qps in enumerate(self._of_message) if qps), key=distance)

    def _fastest_packet_s(self) -> float:
        return min((packet_s(8 * nic.rate_bytes_s, self._packet) for nic in self._nics), default=inf)

    def _wake(self, message: int) -> None:
        for nic in self._parked.pop(message, ()):
            nic.ready.append(message)

    def _offer(self, carrier: Carrier, nic: "_Nic", at: float) -> None:
        """Give the next message its turn at a NIC; it waits for an arrival if it finds no room."""
        message = nic.ready.popleft()
        bursts = self._bursts[message]
        if not bursts:
            return
        qps, states = self._of_message[message], self._states[message]
        lane = lane_chosen(self._policy, self._first + message, len(qps), states, self._real_s(at))
        if lane is None:
            self._parked.setdefault(message, []).append(nic)
            return
        nic.ready.append(message)
        real, size = bursts.popleft()
        qp = qps[lane]
        number = self.numbers[qp]
        self._nic_of[qp].queue += size
        self._queues.backlog[qp] += size
        self._unbound[message] -= size
        self._carried[message][number] = self._carried[message].get(number, 0) + real
        self._round_trips.handed_over(qp, size, at - self.began_at)
        carrier.put(number, size, self._names[message])


class _Nic:
    """What a source NIC was given and has not sent, and the messages that could send more by it."""

    def __init__(self, rate_bytes_s: float, packet: int) -> None:
        self._packet = packet
        self.send_at(rate_bytes_s)
        self.queue = self.at = 0.0
        self.ready: deque[int] = deque()

    def send_at(self, rate_bytes_s: float) -> None:
        """Reckon with another rate from now on."""
        self.rate_bytes_s = rate_bytes_s
        self.depth = DEPTH_PACKETS * max(self._packet, LEAST_PACKET_S * rate_bytes_s)

    @property
    def room(self) -> bool:
        """Whether it takes another chunk."""
        return self.queue < self.depth

    def sent_until(self, now: float) -> None:
        """Take off what it has sent since the last time."""
        self.queue = max(0.0, self.queue - self.rate_bytes_s * (now - self.at))
        self.at = now


class _Queues:
    """What is known of all queue pairs."""

    carrier: Carrier
    """Who carries; known from the first turn on."""

    def __init__(self, nics: list[_Nic], numbers: Sequence[int], volume: float) -> None:
        self.backlog = [0] * len(nics)
        """At emulated scale [bytes]."""
        self._rtt_s = [0.0] * len(nics)
        self._nics, self._numbers, self._volume = nics, numbers, volume

    def measured(self, qp: int, rtt_s: float) -> None:
        """Smooth a queue pair's round-trip time as TCP does (RFC 6298, 2.2 and 2.3)."""
        before_s = self._rtt_s[qp]
        self._rtt_s[qp] = before_s + SMOOTHING * (rtt_s - before_s) if before_s else rtt_s

    def states(self, qps: tuple[int, ...]) -> States:
        """Return what a policy may know of some."""
        return States(len(qps), lambda lane: self.state(qps[lane]))

    def state(self, qp: int) -> LaneState:
        """Return what a policy may know of one."""
        room = self._nics[qp].room and self.carrier.takes(self._numbers[qp])
        return LaneState(ceil(self.backlog[qp] / self._volume), self._rtt_s[qp], room)


def _pairs(lanes: Sequence[Lanes], numbers: Sequence[tuple[int, ...]]) -> dict[int, QueuePair]:
    """Return the queue pairs that messages may use by what the carrier calls them."""
    found = dict[int, QueuePair]()
    for among, own in dict.fromkeys(zip(lanes, numbers, strict=True)):
        found.update(zip(own, each_of(among), strict=True))
    return found


def _bursts(chunks: Chunks, chunk_bytes: NDArray[np.int64], packet: int) -> list[deque[tuple[int, int]]]:
    """Return for each message what each decision covers: its real and its emulated bytes."""
    messages = int(chunks.message.max(initial=-1)) + 1
    bursts: list[deque[tuple[int, int]]] = [deque() for _ in range(messages)]
    if not len(chunks):
        return bursts
    starts = np.cumsum(chunk_bytes) - chunk_bytes
    within = starts - starts[np.searchsorted(chunks.message, chunks.message)]
    change = (np.diff(chunks.message, prepend=-1) != 0) | (np.diff(within // packet, prepend=-1) != 0)
    firsts = np.flatnonzero(change)
    real, emulated = (np.add.reduceat(sizes, firsts).tolist() for sizes in (chunks.bytes, chunk_bytes))
    for message, *sizes in zip(chunks.message[firsts].tolist(), real, emulated, strict=True):
        bursts[message].append((sizes[0], sizes[1]))
    return bursts


def _mean_choices(of_message: Sequence[tuple[int, ...]], queue_pairs: int) -> NDArray[np.float64]:
    """Return among how many queue pairs the messages of each choose, in the mean; 1 where there are none."""
    total, messages = np.zeros(queue_pairs), np.zeros(queue_pairs)
    for qps in of_message:
        total[list(qps)] += len(qps)
        messages[list(qps)] += 1
    return np.asarray(np.where(messages, total / np.maximum(messages, 1), 1.0))
