"""The seam of congestion control: what an algorithm hears of its packets, and what it answers.

The engine (`traffic.transports.datagram_engine`) owns sockets, numbers, losses, order, marks, counters and
the clock. An algorithm decides how many bytes a source may send, and when. A *source* is what is sent from
one NIC to another by one entropy, or all that a communicator sends from the NICs of a server to one NIC where
packets choose their entropies.

An algorithm is a class, made for each source with its `Pipe` and a random generator. It is called once in a
tick of the engine, with all that happened since: sequences of tuples, since a tick has about one packet of a
source. A window with an average of the delay took 0.7 us a packet so, 2.6 us with numpy's columns, and 13 us
where it was written for arrays; with 32 packets in a tick 0.37, 0.38 and 0.56 us.

All sizes are bytes and all times seconds of the emulation. Constants that are times are multiples of
`Pipe.round_trip_s`, sizes of `Pipe.packet_bytes` or `Pipe.bdp_bytes`: an algorithm is then the same at every
emulated rate.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np

from topologies.fabric import Nic
from traffic.transports.transport import UNLIMITED_BYTES


@dataclass(frozen=True, slots=True)
class Pipe:
    """The unloaded path of a source, as a real NIC knows it by its configuration."""

    rate_bytes_s: float
    """B, the rate at which it can send: that of its NICs, or the destination's if that is lower [bytes/s]."""
    round_trip_s: float
    """R, the base round trip: propagation there and back, and a packet's time [s]."""
    packet_bytes: int
    """m, the payload of a packet [bytes]."""
    links: int = 2
    """How many links the path has."""
    propagation_s: float = 0.0
    """How long the links alone take there and back [s]."""

    @property
    def bdp_bytes(self) -> float:
        """B R, the bandwidth-delay product [bytes]."""
        return self.rate_bytes_s * self.round_trip_s


class Sent(NamedTuple):
    """A packet that was handed to its NIC."""

    bytes: int
    entropy: int


class Acknowledged(NamedTuple):
    """A packet whose acknowledgement came back."""

    bytes: int
    rtt_s: float
    """From leaving its NIC until the acknowledgement [s]; where paths of a source differ in length, as if the
    packet had gone by the longest, which its pipe is of."""
    marked: bool
    """True if it met a queue, by the marks of the algorithm."""
    entropy: int


LostHow = Literal["overtaken", "silent", "taken back"]
OVERTAKEN: LostHow = "overtaken"
SILENT: LostHow = "silent"
TAKEN_BACK: LostHow = "taken back"


class Lost(NamedTuple):
    """A packet that is no longer on its way, and has not arrived."""

    bytes: int
    entropy: int
    how: LostHow
    """A later packet of its path arrived; no news of it came for long; or its message was taken back, which
    says nothing of the network."""


class CongestionControl(Protocol):
    """Decides how much a source sends; made with the source's `Pipe` and a `numpy.random.Generator`.

    A class may have attributes: ``marks`` (`Red`), by which packets are marked; ``receiver``, a class of
    `ReceiverControl`, where receivers grant; ``overview``, a class that sees `AllSources`;
    ``by_bytes = True`` if queue pairs that meet share by what each has left, for the prediction;
    ``window_bytes``, which the tables and the audit read; and, for the table of constants, its constants by
    name: ``in_packets``, sizes; ``in_round_trips``, times in R and sizes in BDP; ``in_packet_times``, times
    in that of a packet at its NIC (`traffic.transports.transport.packet_s`).
    """

    def on_events(
        self,
        sent: Sequence[Sent],
        acknowledged: Sequence[Acknowledged],
        lost: Sequence[Lost],
        now_s: float,
    ) -> None:
        """Hear what happened since the last time, each in its order."""
        ...

    def may_send(self, now_s: float) -> int:
        """Return how many bytes may leave now: a packet leaves if it fits.

        It is asked after `on_events`; what is sent until the next time is taken off its answer.
        """
        ...

    def next_s(self, now_s: float) -> float:
        """Return when to ask again though nothing happened [s]; infinity if never."""
        ...

    def rates_changed(self, pipe: Pipe) -> None:
        """Go on with another path or another rate."""
        ...


class PerPacket:
    """An adapter, for algorithms that are easier to write packet by packet.

    It counts what is on its way, and asks for `window_bytes` of the class that inherits it.

    Parameters
    ----------
    pipe
        The path.
    rng
        Draws what is random in the algorithm.
    """

    window_bytes: float = inf
    """W: what may be on its way [bytes]."""

    def __init__(self, pipe: Pipe, rng: np.random.Generator) -> None:
        self.pipe, self.rng = pipe, rng
        self.on_the_way = 0
        """The bytes sent that neither arrived nor are lost."""

    def on_events(
        self,
        sent: Sequence[Sent],
        acknowledged: Sequence[Acknowledged],
        lost: Sequence[Lost],
        now_s: float,
    ) -> None:
        """Call the methods below, a packet at a time: those that were sent, acknowledged, lost."""
        for packet in sent:
            self.on_the_way += packet.bytes
            self.on_sent(packet, now_s)
        for each in acknowledged:
            self.on_the_way -= each.bytes
            self.on_acknowledged(each, now_s)
        for gone in lost:
            self.on_the_way -= gone.bytes
            if gone.how != TAKEN_BACK:
                self.on_lost(gone, now_s)

    def on_sent(self, packet: Sent, now_s: float) -> None:
        """Hear that a packet was sent."""

    def on_acknowledged(self, packet: Acknowledged, now_s: float) -> None:
        """Hear that a packet was acknowledged."""

    def on_lost(self, packet: Lost, now_s: float) -> None:
        """Hear that a packet was lost."""

    def may_send(self, now_s: float) -> int:
        """Return the room in the window: a packet leaves if the window holds it and what is on the way."""
        return int(max(min(self.window_bytes - self.on_the_way, UNLIMITED_BYTES), 0))

    def next_s(self, now_s: float) -> float:
        """Return infinity: a window opens when something happens."""
        return inf

    def rates_changed(self, pipe: Pipe) -> None:
        """Reckon with another path from now on."""
        self.pipe = pipe


@dataclass(frozen=True, slots=True)
class Red:
    """Marks by the queue that a packet met: none up to a length, all from another on, linearly between.

    Lengths are shares of the bandwidth-delay product; a token bucket's burst is the least, since what a
    bucket lends passes without a delay (`traffic.transports.marking`).

    References
    ----------
    S. Floyd and V. Jacobson, "Random early detection gateways for congestion avoidance", ToN 1(4), 1993; here
    of the queue itself, not of its average, as Ultra Ethernet's and DCTCP's switches mark.
    """

    least: float
    """Up to which share of the BDP no packet is marked."""
    most: float
    """From which share all are."""
    least_packets: float = 0.0
    """The least length at which a packet is marked [packets], if the share is of fewer."""

    def lengths(self, bdp_packets: float, lent_packets: float) -> tuple[float, float]:
        """Return up to which length no packet is marked, and from which on all are [packets].

        Parameters
        ----------
        bdp_packets
            The bandwidth-delay product [packets].
        lent_packets
            What a token bucket lends [packets].
        """
        least = max(self.least * bdp_packets, self.least_packets, lent_packets)
        return least, max(self.most * bdp_packets, least)


# Where all is known


class SourceEnds(NamedTuple):
    """Between which NICs a source's bytes go."""

    sources: tuple[Nic, ...]
    """By any of them, where packets choose."""
    destination: Nic
    communicator: int


class AllSources(Protocol):
    """The view of a clairvoyant congestion control: all sources of a run, by numbers that count from 0.

    No NIC has it. A class with an attribute ``overview`` is clairvoyant: that is a class, made once for a run
    with this view and a packet's payload [bytes]. The congestion control of each source is made with it and
    with the source's number, after its `Pipe` and generator.
    """

    @property
    def ends(self) -> Sequence[SourceEnds]:
        """Return those of each source; some may have come since the last time."""
        ...

    def left_bytes(self, number: int) -> int:
        """Return what a source has to send now, or on its way."""
        ...

    def rate_bytes_s(self, nic: Nic) -> float:
        """Return the rate that a NIC has now [bytes/s]."""
        ...


# Where receivers grant

Announces = TypeVar("Announces", covariant=True)
Grants = TypeVar("Grants", covariant=True)
Announced = TypeVar("Announced", contravariant=True)
Given = TypeVar("Given", contravariant=True)


@runtime_checkable
class Granted(Protocol[Announces, Given]):
    """A congestion control that asks its receiver, and sends what that grants.

    The engine carries announcements and grants, each in half of the path's round trip, and looks at neither.
    """

    def announcement(self, total_bytes: int, sent_bytes: int) -> Announces | None:
        """Return an announcement, now that a source has sent and has to send so much; None for no news.

        What was lost counts once more; less than before means that something was taken back.
        """
        ...

    def on_granted(self, grant: Given) -> None:
        """Hear a grant."""
        ...


class ReceiverControl(Protocol[Announced, Grants]):
    """A NIC that grants; made with its rate [bytes/s] and the payload of a packet [bytes]."""

    def expect(self, source: int) -> None:
        """Record a source whose bytes end here."""
        ...

    def on_announced(self, source: int, announcement: Announced) -> None:
        """Hear what a source has to send."""
        ...

    def on_arrived(self, source: int, size: int) -> None:
        """Hear that bytes of a source are no longer on their way: they arrived, or are known to be lost."""
        ...

    def grants(self, now_s: float) -> Iterable[tuple[int, Grants]]:
        """Return the grants of now, and their sources."""
        ...

    def granted_bytes(self, source: int) -> int:
        """Return all that a source was granted and did not give back unused, for the audit."""
        ...

    def rates_changed(self, rate_bytes_s: float) -> None:
        """Grant at another rate from now on [bytes/s]."""
        ...
