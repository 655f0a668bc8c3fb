"""A queue pair of datagrams: what it carries, what of that is to be sent, on its way, or delivered.

A message has parcels on queue pairs; a packet carries pieces of parcels of one queue pair, so that small ones
share it, but a burst, which goes by an entropy of its own, has its packets to itself. Paths keep the order of
packets, and what is not back after some round trips is lost.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from math import inf
from typing import NamedTuple

from topologies.fabric import Nic
from traffic.congestion.control import (
    Acknowledged,
    CongestionControl,
    Granted,
    Lost,
    Pipe,
    ReceiverControl,
    Sent,
)
from traffic.transports.datagram_sockets import Address
from traffic.transports.loop import QueuePairState
from traffic.transports.marking import UNMARKED, MarkCurve
from traffic.transports.nic_sender import NicSender
from traffic.transports.order import MessageOrder
from traffic.transports.packet_feeder import Burst, NicGroup, PacketFeeder
from traffic.transports.transport import packet_s

NOT_NUMBERED = -1
"""The number of a piece that was never sent."""


# What is made for each packet is no dataclass: compiled, one takes 0.2 us to make, and these 0.02.


class Parcel:
    """Bytes of a message that were posted together on a queue pair, or fed to it.

    Parameters
    ----------
    message
        Of which message.
    size
        How many have not arrived.
    source
        Who may send them.
    order
        In which the packets of the message arrive.
    burst, feeder
        What they are if they were fed, and by whom.
    """

    def __init__(
        self,
        message: int,
        size: int,
        source: "Source",
        order: MessageOrder,
        burst: Burst | None = None,
        feeder: PacketFeeder | None = None,
    ) -> None:
        self.message, self.size, self.source, self.order = message, size, source, order
        self.burst, self.feeder = burst, feeder
        self.gone = False
        """Whether it was taken back."""


class Piece:
    """Bytes of a parcel that go by one packet, the so many-th of its message, or are to be cut."""

    def __init__(self, parcel: Parcel, size: int, number: int = NOT_NUMBERED) -> None:
        self.parcel, self.size, self.number = parcel, size, number


class Packet:
    """A packet under way.

    Parameters
    ----------
    path
        By which it goes.
    number
        Of its lane's packets.
    source
        Who sent it.
    pieces
        What it carries.
    size
        How much that is [bytes].
    left_at
        When it leaves its NIC [s].
    """

    def __init__(
        self,
        path: "PacketPath",
        number: int,
        source: "Source",
        pieces: list[Piece],
        size: int,
        left_at: float,
    ) -> None:
        self.path, self.number, self.source = path, number, source
        self.pieces, self.size, self.left_at = pieces, size, left_at
        self.over = False
        """True once it was received, counts as lost, or was taken back."""
        self.dropped = False
        """True once it was taken back."""
        self.awaited = True
        """True while its receiver waits for it."""
        self.marked = False
        """True if a switch marked it."""

    @property
    def lane(self) -> "DatagramLane":
        """That by which it goes."""
        return self.path.lane


class PacketPath:
    """A lane and an entropy: packets that go by it keep their order.

    Parameters
    ----------
    lane, entropy
        Of its packets.
    to
        To which address these are sent.
    """

    def __init__(self, lane: "DatagramLane", entropy: int, to: Address) -> None:
        self.lane, self.entropy, self.to = lane, entropy, to
        self.under_way = deque[Packet]()
        """Those that left, in that order, up to the last that arrived."""
        self._sent = Sent(0, entropy)

    def sent(self, size: int) -> Sent:
        """Return the news of a packet that is sent, for its congestion control: mostly the same as before."""
        if self._sent.bytes != size:
            self._sent = Sent(size, self.entropy)
        return self._sent


@dataclass(frozen=True)
class Crossed:
    """The path of a queue pair, at emulated scale."""

    slowest_bytes_s: float
    """The rate of its slowest link [bytes/s]."""
    delay_s: float = 0.0
    """How long its links take, one way [s]."""
    forwarding_s: float = 0.0
    """How long servers on it take to pass a packet on, there and back [s]."""
    links: int = 2
    lossy: bool = False
    """Whether its links lose packets."""
    returns: bool = True
    """Whether acknowledgements that are packets can come back by it: not over circuits, which may be dark."""

    @property
    def propagation_s(self) -> float:
        """How long a packet and its acknowledgement take, but for the packet's own time [s]."""
        return 2 * self.delay_s + self.forwarding_s

    def pipe(self, rate_bytes_s: float, packet_bytes: int) -> Pipe:
        """Return the pipe of a source over it; the rate is that of its NICs."""
        time_s = packet_s(8 * min(self.slowest_bytes_s, rate_bytes_s), packet_bytes)
        propagation_s = self.propagation_s
        return Pipe(rate_bytes_s, propagation_s + time_s, packet_bytes, self.links, propagation_s)


@dataclass(eq=False)
class Source:
    """The bytes that one congestion control decides about: a queue pair's, or a group's."""

    number: int
    nic: Nic
    """The NIC that receives."""
    lane: "DatagramLane"
    """The queue pair; the first of a group."""
    key: NicGroup | None = None
    """The group, unless it is a queue pair's."""
    order: int = 0
    """Sources are asked in the order of this."""
    lanes: tuple["DatagramLane", ...] = ()
    """All queue pairs that its bytes may go by."""
    control: CongestionControl | None = None
    """Made when it has something to send: by then its path is known."""
    granted: Granted[object, object] | None = None
    """The same, where receivers grant."""
    receiver: ReceiverControl[object, object] | None = None
    """Its receiver's, where that grants."""
    pipe: Pipe | None = None
    half_s: float = 0.0
    """How long an announcement or a grant takes [s]."""
    sent: int = 0
    """All that was sent of it, what was lost included."""
    wants: int = 0
    """Its bytes that are to be sent."""
    on_the_way: int = 0
    """Those that were sent and are neither acknowledged nor known to be lost."""
    delivered: int = 0
    """Those that arrived, each once."""
    allowed: int = 0
    """The bytes that may be sent now, by its congestion control."""
    has_window: bool = False
    """Whether its congestion control has a window."""
    window_bytes: float = inf
    """That when it was asked last."""
    over_window: float = -inf
    """The most that was on the way above the window when a packet left; -inf without one [bytes]."""
    acknowledged: int = 0
    marked: int = 0
    resent: int = 0
    """How many of its packets were acknowledged, marked, and sent again."""
    queued_s: float = 0.0
    queued: int = 0
    """The queue delays of packets since they were last looked at, and how many these were."""
    held: bool = False
    rtt_s: float = 0.0
    """The smoothed round trip of its packets; 0 before the first."""
    news_sent: list[Sent] = field(default_factory=list)
    news_acknowledged: list[Acknowledged] = field(default_factory=list)
    news_lost: list[Lost] = field(default_factory=list)
    """The news that its congestion control has yet to hear."""
    waiting: dict["DatagramLane", None] = field(default_factory=dict)
    """The queue pairs with bytes of it that may not be sent yet."""

    @property
    def offers(self) -> int:
        """The bytes that it has to send now."""
        return 0 if self.held else self.wants


@dataclass(kw_only=True, eq=False)
class DatagramLane(QueuePairState):
    """A queue pair: of one entropy, or one by which packets of any go."""

    nic: NicSender
    addresses: list[Address]
    """Where its packets go, by entropy; the one of a queue pair with one."""
    paths: dict[int, PacketPath] = field(default_factory=dict)
    """Those that packets took, by entropy; 0 of a queue pair with one."""
    packets: int = 0
    """How many were numbered."""
    sent: int = 0
    """The bytes that its NIC was given, what was sent again included."""
    lost: int = 0
    """Those of them that were lost."""
    open_until_s: float = inf
    """When it closes, if it is not held [s]."""
    unsent: deque[Piece] = field(default_factory=deque)
    parcels: dict[Parcel, None] = field(default_factory=dict)
    """Those that have not arrived, in the order in which they were posted."""
    flying: dict[int, Packet] = field(default_factory=dict)
    """The packets that have neither arrived nor are known to be lost, by number."""
    source: Source | None = None
    """That of its bytes, if it has one entropy; else each burst has that of its group."""
    lined_up: bool = False
    """True while it waits for its turn at its NIC."""
    crossed: Crossed
    curve: MarkCurve = UNMARKED
    """From which queue delays on its packets are marked."""
    leads: list[Source] = field(default_factory=list)
    """The sources that reckon with its path: its own, or those of the groups that it is of."""

    def is_open(self, size: int, now_s: float) -> bool:
        """Return whether a packet that its NIC is given now leaves before it closes."""
        return self.nic.sends_by(size, now_s, self.open_until_s)

    def path(self, entropy: int) -> PacketPath:
        """Return the path of one of its entropies."""
        if (path := self.paths.get(entropy)) is None:
            path = self.paths[entropy] = PacketPath(self, entropy, self.addresses[entropy])
        return path

    def put(self, parcels: Iterable[Parcel]) -> None:
        """Carry parcels behind those that it carries already."""
        for parcel in parcels:
            self.parcels[parcel] = None
            self.posted += parcel.size

    def cut(self, most: int) -> list[Piece]:
        """Take what its next packet carries off what is to be sent; a burst has packets of its own."""
        first = self.unsent[0]
        if first.size > most and first.number == NOT_NUMBERED:  # as most are, where messages are large
            first.size -= most
            return [Piece(first.parcel, most, first.parcel.order.number())]
        pieces = list[Piece]()
        while most > 0 and self.unsent:
            piece = self.unsent[0]
            if pieces and piece.parcel.burst:
                break
            if piece.size <= most:
                self.unsent.popleft()
            else:
                rest, piece = piece, Piece(piece.parcel, most, piece.number)
                rest.size, rest.number = rest.size - most, NOT_NUMBERED
            if piece.number == NOT_NUMBERED:
                piece.number = piece.parcel.order.number()
            pieces.append(piece)
            most -= piece.size
            if piece.parcel.burst:
                break
        return pieces

    def next_bytes(self, most: int) -> int:
        """Return how many bytes its next packet would carry, of so many at most."""
        if self.unsent and self.unsent[0].size >= most:
            return most
        size = 0
        for piece in self.unsent:
            if size and piece.parcel.burst:
                break
            size += piece.size
            if size >= most or piece.parcel.burst:
                break
        return min(size, most)

    def send_again(self, piece: Piece) -> None:
        """Have a piece sent before what never was, behind what is to be sent again already."""
        again = sum(1 for _ in takewhile(lambda each: each.number != NOT_NUMBERED, self.unsent))
        self.unsent.insert(again, piece)

    def lessen(self, parcel: Parcel, size: int) -> None:
        """Have bytes of a parcel taken off it: they go elsewhere."""
        parcel.size -= size
        self.posted -= size
        if not parcel.size:
            del self.parcels[parcel]

    def deliver(self, parcel: Parcel, size: int) -> None:
        """Count bytes of a parcel that arrived."""
        parcel.size -= size
        self.counted += size
        if not parcel.size:
            del self.parcels[parcel]

    def drop(self, which: Callable[[Parcel], bool]) -> "Dropped":
        """Take back all of some parcels, what is on its way included."""
        dropped = [parcel for parcel in self.parcels if which(parcel)]
        left = [(parcel.message, parcel.size) for parcel in dropped]
        for parcel in dropped:
            parcel.gone = True
            self.lessen(parcel, parcel.size)
        pieces = [piece for piece in self.unsent if piece.parcel.gone]
        unsent, packets = Counter[Source](), list[Packet]()
        for piece in pieces:
            unsent[piece.parcel.source] += piece.size
        self.unsent = deque(piece for piece in self.unsent if not piece.parcel.gone)
        for packet in list(self.flying.values()):
            pieces += [piece for piece in packet.pieces if piece.parcel.gone]
            if all(piece.parcel.gone for piece in packet.pieces):
                packet.over = packet.dropped = True
                del self.flying[packet.number]
                packets.append(packet)
        return Dropped(left, pieces, unsent, packets)


class Moved(NamedTuple):
    """The bytes that a queue pair has moved until now: given to its NIC, delivered, and lost."""

    sent: int
    delivered: int
    lost: int


class Dropped(NamedTuple):
    """What a queue pair gave back."""

    left: list[tuple[int, int]]
    """What it did not deliver: of each parcel its message, and its bytes."""
    pieces: list[Piece]
    """The pieces that nobody waits for any more."""
    unsent: Mapping[Source, int]
    """The bytes of it that were not sent, by source."""
    packets: list[Packet]
    """The packets that count no longer."""


class UnderWay:
    """The packets under way, by when they left."""

    def __init__(self) -> None:
        self._oldest: dict[NicSender | None, deque[Packet]] = defaultdict(deque)
        """All, in that order, or those of each NIC."""

    def left(self, packet: Packet, nic: NicSender | None = None) -> None:
        """Follow a packet that leaves now; of a NIC, if one has patience with each NIC's own."""
        packet.path.under_way.append(packet)
        self._oldest[nic].append(packet)

    def overtaken_by(self, packet: Packet) -> list[Packet]:
        """Return what left before a packet that arrived, by the same path, and has not: it is lost."""
        in_order = packet.path.under_way
        lost: list[Packet] = []  # `list[Packet]()` takes fifteen times as long
        while in_order and (before := in_order.popleft()) is not packet:
            if not before.over:
                before.over = True
                lost.append(before)
        return lost

    def missing(self, now: float, patience_s: Callable[[Packet], float]) -> list[Packet]:
        """Return what left longer ago than one has patience for it [s], and is not back: it is lost."""
        lost = list[Packet]()
        for oldest in self._oldest.values():
            while oldest:
                packet = oldest[0]
                if not packet.over:
                    if now - packet.left_at < patience_s(packet):
                        break
                    packet.over = True
                    lost.append(packet)
                oldest.popleft()
        return lost
