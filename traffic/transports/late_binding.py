"""The feeder of reactive policies: a chunk is bound to a queue pair when that can send it, not before.

So a choice is made on what is known then, NICs hold no queue (`traffic.transports.feeder`), and what waits
does so where the fabric is congested: a queue pair takes more once TCP has sent what it was given.

Where dilation makes chunks smaller than a packet of the emulation, a decision covers the chunks
that begin within one packet: it is they that meet the same queues, and a packet each would cost the
switch far more. What a NIC still has to send is reckoned from its rate, since TCP does not say.

The smoothed round-trip time is that of a queue pair's chunks: in TCP's own are delayed acknowledgements,
whose delay is the kernel's and is not dilated.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import ceil
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from topologies.fabric import Nic
from traffic.messages import Chunks
from traffic.spraying.policy import Lanes, LaneState, QueuePair, each_of
from traffic.spraying.states import States
from traffic.transports.feeder import Fed, Feeder, LaneUse, Offer
from traffic.transports.round_trips import Crossing, RoundTrips
from traffic.transports.transport import LEAST_PACKET_S

DEPTH_PACKETS = 2
"""A NIC takes more while it holds less than so many packets."""
TICK_PACKETS = 0.5
"""In how many packets' time of the fastest NIC they are looked at once."""


class QueuePairCarrier(Protocol):
    """What a feeder sees of the engine; it calls queue pairs and messages by the engine's numbers."""

    def put(self, number: int, size: int, message: int) -> None:
        """Put bytes of a message behind what a queue pair carries already."""

    def owed(self, number: int) -> int:
        """Return how many bytes of a queue pair have not arrived."""

    def takes(self, number: int) -> bool:
        """Return whether what is put on a queue pair now may leave."""


class ReactiveFeeder(Feeder[Fed]):
    """Posts chunk by chunk what a reactive policy chooses.

    Parameters
    ----------
    crossing
        Returns the path of a queue pair. The others are as of `Feeder`.
    """

    _carrier: QueuePairCarrier
    """Who carries; known from the first turn on."""

    @staticmethod
    def listed(lanes: Lanes) -> list[QueuePair]:
        """Return a message's queue pairs, all of them."""
        return each_of(lanes)

    def __init__(
        self,
        offer: Offer,
        chunk_bytes: NDArray[np.int64],
        nic_rate_bps: Callable[[Nic], float],
        *,
        crossing: Callable[[QueuePair], Crossing],
        numbers: Sequence[tuple[int, ...]],
        names: Sequence[int],
        began_at: float,
        real_s: Callable[[float], float],
        packet: int,
        volume: float = 1.0,
        time: float = 1.0,
    ) -> None:
        self._crossing = crossing
        super().__init__(
            offer,
            chunk_bytes,
            nic_rate_bps,
            numbers=numbers,
            names=names,
            began_at=began_at,
            real_s=real_s,
            packet=packet,
            volume=volume,
            time=time,
        )

    def _cut(
        self,
        offer: Offer,
        chunk_bytes: NDArray[np.int64],
        numbers: Sequence[tuple[int, ...]],
        names: Sequence[int],
    ) -> list[Fed]:
        self.numbers, pairs = list(self.pairs), list(self.pairs.values())
        """What the carrier calls its queue pairs."""
        self._nics = {nic: _Nic(self._packet) for nic in self._lines}
        self._nic_of = [self._nics[qp.source] for qp in pairs]
        self._round_trips = RoundTrips(list(map(self._crossing, pairs)), self._packet)
        self._next_s, self._uses = 0.0, [LaneUse(number, None) for number in self.numbers]
        sets = {among: tuple(self._place[number] for number in among) for among in dict.fromkeys(numbers)}
        of_message = self._of_message = [sets[among] for among in numbers]
        lane_of = {qps: {qp: lane for lane, qp in enumerate(qps)} for qps in sets.values()}
        self._lane_of = [lane_of[qps] for qps in of_message]
        """What the policy calls each queue pair that each message may use."""
        bursts = _bursts(offer.chunks, chunk_bytes, self._packet)
        states = {qps: States(len(qps), partial(self._state, qps)) for qps in lane_of}
        sources = {qps: dict.fromkeys(pairs[qp].source for qp in qps) for qps in lane_of}
        lines = {qps: tuple(map(self._lines.__getitem__, nics)) for qps, nics in sources.items()}
        rows = zip(names, of_message, numbers, bursts, strict=True)
        return [Fed(name, states[qps], lines[qps], by, own, len(own)) for name, qps, by, own in rows]

    @property
    def tick_s(self) -> float:
        """How often it asks for a turn [s]."""
        return TICK_PACKETS * self._packet_s

    def sharing(self, names: Iterable[int]) -> tuple[list[int], list[int]]:
        """Return the messages under way that may use the queue pairs of some, and these queue pairs' numbers.

        Those that they may use besides are counted in, and so on.
        """
        messages, qps = {self._message_of[name] for name in names if name in self._message_of}, set[int]()
        while more := {qp for message in messages for qp in self._of_message[message]} - qps:
            qps |= more
            messages |= {message for qp in more for message in self._sharing[self.numbers[qp]]}
        left = sorted(message for message in messages if self._messages[message].left)
        return [self._messages[message].name for message in left], [self.numbers[qp] for qp in sorted(qps)]

    def rates_changed(self) -> None:
        """Reckon with the rates that NICs have now."""
        super().rates_changed()
        rate_bps, pairs = self._nic_rate_bps, self.pairs.values()
        self._round_trips.rates_changed([(rate_bps(qp.source), rate_bps(qp.destination)) for qp in pairs])
        for nic, sender in self._nics.items():
            sender.send_at(self._nic_rate_bps(nic) / 8)

    def turn(self, carrier: QueuePairCarrier, at: float) -> None:
        """Give the NICs that have sent nearly all of theirs what messages are ready to send."""
        if at < self._next_s:
            return
        self._next_s, self._carrier = at + self.tick_s, carrier
        self._sweep(at)
        for nic, line in self._lines.items():
            sender = self._nics[nic]
            sender.sent_until(at - self.began_at)
            while sender.room and line.waiting:
                self._offer(line, at)

    def _bind(self, number: int, lane: int, at: float) -> None:
        message, qp = self._messages[number], self._of_message[number][lane]
        real, size = message.bursts.popleft()
        use = self._uses[qp]
        self._nic_of[qp].queue += size
        use.backlog += size
        message.carried[use] = message.carried.get(use, 0) + real
        self._round_trips.handed_over(qp, size, at - self.began_at)
        self._carrier.put(self.numbers[qp], size, message.name)

    def _state(self, qps: tuple[int, ...], lane: int) -> LaneState:
        """Return what a policy may know of one of some queue pairs."""
        qp = qps[lane]
        use, room = self._uses[qp], self._nic_of[qp].room and self._carrier.takes(self.numbers[qp])
        return LaneState(ceil(use.backlog / self._volume), use.rtt_s, room)

    def arrived(
        self, carrier: QueuePairCarrier, number: int, delivered: Iterable[int], at: float
    ) -> list[int]:
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
        qp, done = self._place[number], list[int]()
        use = self._uses[qp]
        use.backlog = carrier.owed(number)
        for which in [self._message_of[name] for name in delivered if name in self._message_of]:
            message, timed = self._messages[which], self._round_trips.arrived(qp, at - self.began_at)
            self._acknowledge(which, self._lane_of[which][qp], use, timed.rtt_s, timed.marked, at)
            message.left -= 1
            if not message.left:
                done.append(message.name)
        self._open -= len(done)
        self.opened(number)
        return done


class _Nic:
    """What a source NIC was given and has not sent."""

    def __init__(self, packet: int) -> None:
        self._packet = packet
        self.queue = self.at = 0.0

    def send_at(self, rate_bytes_s: float) -> None:
        """Reckon with a rate from now on."""
        self._rate_bytes_s = rate_bytes_s
        self._depth = DEPTH_PACKETS * max(self._packet, LEAST_PACKET_S * rate_bytes_s)

    @property
    def room(self) -> bool:
        """Whether it takes another chunk."""
        return self.queue < self._depth

    def sent_until(self, now: float) -> None:
        """Take off what it has sent since the last time."""
        self.queue = max(0.0, self.queue - self._rate_bytes_s * (now - self.at))
        self.at = now


def _bursts(chunks: Chunks, chunk_bytes: NDArray[np.int64], packet: int) -> list[deque[tuple[int, ...]]]:
    """Return for each message what each decision covers: its real and its emulated bytes."""
    messages = int(chunks.message.max(initial=-1)) + 1
    bursts: list[deque[tuple[int, ...]]] = [deque() for _ in range(messages)]
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
