"""What feeders of reactive policies have in common: messages take turns at NICs, and a policy chooses lanes.

As an RDMA NIC pulls work from its queue pairs, a NIC here takes what is next when it has sent nearly all that
it was given; the messages that may use it take turns, and the policy says by which of its lanes each goes: a
chunk by a connection (`traffic.transports.late_binding`), or a packet by an entropy (`packet_feeder`).

A policy sees the fabric, chunks, backlogs and times at real scale, so that what it decides does not depend on
the emulation's.
"""

from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from topologies.fabric import Nic
from traffic.messages import Chunks
from traffic.spraying.checks import choice as lane_chosen
from traffic.spraying.policy import Chooser, Lanes, QueuePair
from traffic.spraying.states import States
from traffic.transports.transport import packet_s

SMOOTHING = 1 / 8
"""How much the last round trip weighs in the smoothed one."""
SWEEP_PACKETS = 50
"""After how many packets' time messages that wait are asked again though nothing arrived: policies may wait
for time."""


class LaneUse:
    """The use of a lane, whichever messages go by it, and how long it takes.

    Parameters
    ----------
    number
        The carrier's of its queue pair, or of its two NICs.
    entropy
        That by which its packets go, if they choose one.
    """

    def __init__(self, number: int, entropy: int | None) -> None:  # compiled, unlike a dataclass's
        self.number, self.entropy = number, entropy
        self.backlog = 0
        """The bytes bound to it that are neither acknowledged nor lost [emulated bytes]."""
        self.rtt_s = 0.0
        """Its smoothed round trip at real scale; 0 before the first [s]."""

    def took(self, rtt_s: float) -> None:
        """Smooth the round trip as TCP does (RFC 6298, 2.2 and 2.3)."""
        self.rtt_s += SMOOTHING * (rtt_s - self.rtt_s) if self.rtt_s else rtt_s


@dataclass(eq=False)
class NicTurns:
    """The messages that wait for their turn at a NIC, by number."""

    nic: Nic
    waiting: deque[int] = field(default_factory=deque)


@dataclass(eq=False)
class Fed:
    """A message under way."""

    name: int
    """As the carrier calls it."""
    states: States
    """What the policy may know of its lanes."""
    lines: tuple[NicTurns, ...]
    """Those of the NICs by which it may leave."""
    by: tuple[Hashable, ...]
    """What makes room for it when something of it arrives, or is granted."""
    bursts: deque[tuple[int, ...]]
    """What is on no lane yet: real and emulated bytes of what is bound at once, and what the feeder adds."""
    left: int
    """What has not arrived, as the feeder counts it."""
    carried: dict[LaneUse, int] = field(default_factory=dict)
    """Its real bytes by what carried them."""
    forgotten: bool = False
    """Whether the policy does not know it any more."""
    blocked: bool = False
    """Whether nothing of it may leave, at whichever NIC's turn, until it is woken."""
    real: int = field(init=False)
    """All its real bytes."""

    def __post_init__(self) -> None:
        """Count the real bytes."""
        self.real = sum(real for real, *_ in self.bursts)


class Offer(Protocol):
    """Messages that choose among lanes as they go, such as a `traffic.scheme.Choice`."""

    @property
    def policy(self) -> Chooser | None:
        """Return who chooses; None where messages take the first lane that has room."""
        ...

    @property
    def first(self) -> int:
        """Return the policy's number of the first message, from which the others' count on."""
        ...

    @property
    def lanes(self) -> tuple[Lanes, ...]:
        """Return the lanes of each message."""
        ...

    @property
    def chunks(self) -> Chunks:
        """Return the chunks of the messages."""
        ...


Message = TypeVar("Message", bound=Fed)


class Feeder(ABC, Generic[Message]):
    """Binds what a reactive policy chooses, messages taking turns at every NIC.

    Parameters
    ----------
    offer
        Who chooses, the messages' chunks, and the lanes that each may use.
    chunk_bytes
        Size of each chunk at emulated scale [bytes], shape (chunks,).
    nic_rate_bps
        The rate of a NIC at emulated scale [bit/s].
    numbers
        What the carrier calls the queue pairs that each message may use, in the order of its lanes.
    names
        What the carrier calls the messages.
    began_at
        When it began, on the carrier's clock [s].
    real_s
        Returns what the policy calls a time on the carrier's clock [s].
    packet
        Payload of a packet [bytes].
    volume, time
        Emulated over real bytes, and over real time: the policy sees real ones.
    """

    def __init__(
        self,
        offer: Offer,
        chunk_bytes: NDArray[np.int64],
        nic_rate_bps: Callable[[Nic], float],
        *,
        numbers: Sequence[tuple[int, ...]],
        names: Sequence[int],
        began_at: float,
        real_s: Callable[[float], float],
        packet: int,
        volume: float = 1.0,
        time: float = 1.0,
    ) -> None:
        self.began_at, self._policy, self._first = began_at, offer.policy, offer.first
        self._real_s, self._nic_rate_bps, self._packet = real_s, nic_rate_bps, packet
        self._volume, self._time = volume, time
        self.pairs: dict[int, QueuePair] = {}
        """The queue pairs that its messages may use, by the carrier's numbers."""
        for lanes, own in dict.fromkeys(zip(offer.lanes, numbers, strict=True)):
            self.pairs.update(zip(own, self.listed(lanes), strict=True))
        self._place = {number: place for place, number in enumerate(self.pairs)}
        self._lines = {
            nic: NicTurns(nic) for nic in dict.fromkeys(each.source for each in self.pairs.values())
        }
        self._parked: dict[int, list[NicTurns]] = {}
        self._sharing: dict[Hashable, list[int]] = defaultdict(list)
        """The messages by what makes room for them."""
        self._sweep_s = 0.0
        self._at = self._at_real_s = -inf
        """When policies were asked last: emulated and real [s]."""
        self._messages = self._cut(offer, chunk_bytes, numbers, names)
        self._message_of = {name: number for number, name in enumerate(names)}
        self._open = sum(bool(message.left) for message in self._messages)
        for number in self._staggered(numbers):
            self._line_up(number)
        self.rates_changed()

    @staticmethod
    @abstractmethod
    def listed(lanes: Lanes) -> list[QueuePair]:
        """Return the queue pairs of some lanes."""

    @abstractmethod
    def _cut(
        self,
        offer: Offer,
        chunk_bytes: NDArray[np.int64],
        numbers: Sequence[tuple[int, ...]],
        names: Sequence[int],
    ) -> list[Message]:
        """Return the messages, cut into what is bound at once."""

    @property
    def done(self) -> bool:
        """Whether all messages have arrived."""
        return not self._open

    def carried(self, name: int) -> dict[tuple[int, int | None], int]:
        """Return how many real bytes of a message each queue pair carried, and by which entropy if by any."""
        carried = self._messages[self._message_of[name]].carried
        return {(use.number, use.entropy): size for use, size in carried.items()}

    def real_bytes(self, name: int) -> int:
        """Return the size of a message [real bytes]."""
        return self._messages[self._message_of[name]].real

    def lacks(self, name: int) -> bool:
        """Return whether a message has not arrived."""
        return self._messages[self._message_of[name]].left > 0

    @property
    def left_bytes(self) -> int:
        """The bytes of its messages that have not arrived, as it counts them."""
        return sum(message.left for message in self._messages)

    def on_the_way(self, name: int) -> int:
        """Return how many real bytes of a message are on a lane and have not arrived."""
        message = self._messages[self._message_of[name]]
        return message.real - sum(message.carried.values()) - sum(real for real, *_ in message.bursts)

    def rates_changed(self) -> None:
        """Reckon with the rates that NICs have now."""
        rates_bps = [self._nic_rate_bps(each.source) for each in self.pairs.values()]
        self._packet_s = min((packet_s(bps, self._packet) for bps in rates_bps), default=inf)
        """A packet's time at the fastest NIC that sends [s]."""

    def forget(self, names: Collection[int]) -> None:
        """Bind no more of some messages; their policy hears of them no more."""
        for message in (self._messages[self._message_of[name]] for name in names):
            message.forgotten = True
            message.bursts.clear()
            self._open -= message.left > 0
            message.left = 0

    def _line_up(self, number: int) -> None:
        """Have a message wait for its first turn at each of its NICs."""
        for line in self._messages[number].lines:
            line.waiting.append(number)
        for each in self._messages[number].by:
            self._sharing[each].append(number)

    def _staggered(self, numbers: Sequence[tuple[int, ...]]) -> list[int]:
        """Return the messages in the order of their first turn: every server begins with the one after it.

        Else all would send to the same NIC first, and to the same next.
        """

        def distance(message: int) -> tuple[int, int, int]:
            pair = self.pairs[numbers[message][0]]
            return (pair.destination.server - pair.source.server) % servers, pair.destination.nic, message

        servers = max((pair.destination.server for pair in self.pairs.values()), default=0) + 1
        return sorted((n for n, message in enumerate(self._messages) if message.left), key=distance)

    # Turns

    def _sweep(self, at: float) -> None:
        """Ask all messages again now and then: policies may wait for time."""
        if at >= self._sweep_s:
            self._sweep_s = at + SWEEP_PACKETS * self._packet_s
            for number in list(self._parked):
                self._wake(number)

    def opened(self, by: Hashable) -> None:
        """Let the messages be asked again that may use what takes more now (`Fed.by`)."""
        for number in self._sharing.get(by, ()):
            self._wake(number)

    def _wake(self, number: int) -> None:
        if number in self._parked:
            self._messages[number].blocked = False
            for line in self._parked.pop(number):
                line.waiting.append(number)

    def _offer(self, line: NicTurns, at: float) -> None:
        """Give the next message its turn at a NIC; it waits until it is woken if it may send nothing."""
        number = line.waiting.popleft()
        message = self._messages[number]
        if not message.bursts:
            return
        lane = None if message.blocked else self._first_with_room(message, line)
        if lane is not None and self._policy:
            lane = lane_chosen(self._policy, self._first + number, message.states, self._policy_s(at))
        if lane is None:
            self._parked.setdefault(number, []).append(line)
            return
        line.waiting.append(number)
        self._bind(number, lane, at)

    def _policy_s(self, at: float) -> float:
        """Return a time at which the policy is asked, or hears, often, on the policy's clock [s]."""
        if at != self._at:
            self._at, self._at_real_s = at, self._real_s(at)
        return self._at_real_s

    def _first_with_room(self, _message: Message, _line: NicTurns) -> int | None:
        """Return the first lane that takes what is next of a message; None if no lane does."""
        return 0

    @abstractmethod
    def _bind(self, number: int, lane: int, at: float) -> None:
        """Have the next burst of a message go by one of its lanes."""

    def _acknowledge(
        self, number: int, lane: int, use: LaneUse, rtt_s: float, marked: bool, at: float
    ) -> None:
        """Tell the policy of what arrived of a message, whose emulated round trip is that of its lane."""
        if self._messages[number].forgotten or not self._policy:
            return
        rtt_s /= self._time
        use.took(rtt_s)
        hear: Callable[..., object] = self._policy.acknowledged  # a user's may return something
        hear(message=self._first + number, lane=lane, rtt_s=rtt_s, marked=marked, now=self._policy_s(at))
