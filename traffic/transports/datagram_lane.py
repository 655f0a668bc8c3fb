"""A queue pair of datagrams: what it carries, what of that is to be sent, on its way, or delivered.

A message has parcels on queue pairs; a packet carries pieces of parcels of one queue pair, so that small ones
share it, but a burst, which goes by an entropy of its own, has its packets to itself. Paths keep the order of
packets, and what is not back after some round trips is lost.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import NamedTuple

from topologies.fabric import Nic
from traffic.transports.datagram_sockets import Address
from traffic.transports.loop import QueuePairState
from traffic.transports.nic_sender import NicSender
from traffic.transports.packet_feeder import Burst, Group, PacketFeeder

NOT_NUMBERED = -1
"""The number of a piece that was never sent."""


@dataclass(slots=True, eq=False)
class Parcel:
    """Bytes of a message that were posted together on a queue pair, or fed to it."""

    message: int
    size: int
    """What has not arrived."""
    account: "Account"
    """What it is granted by."""
    burst: Burst | None = None
    feeder: PacketFeeder | None = None
    gone: bool = False
    """Whether it was taken back."""


@dataclass(slots=True, eq=False)
class Piece:
    """Bytes of a parcel that go by one packet, or are to be cut."""

    parcel: Parcel
    size: int
    number: int = NOT_NUMBERED
    """Which packet of its message it is."""


@dataclass(slots=True, eq=False)
class Packet:
    """A packet under way."""

    lane: "DatagramLane"
    number: int
    account: "Account"
    pieces: list[Piece]
    path: tuple[int, int]
    """Equal for packets that keep their order: its lane, and its entropy."""
    size: int
    sent_at: float
    over: bool = False
    """Whether it has arrived, or counts as lost or was taken back."""


@dataclass(slots=True, eq=False)
class Account:
    """What is granted together: a queue pair's bytes, or a group's."""

    source: int
    """Its number among the sources of credits."""
    nic: Nic
    """The NIC that grants."""
    lane: "DatagramLane"
    """The queue pair; the first of a group."""
    key: Group | None = None
    """The group, unless it is a queue pair's."""
    order: tuple[int, ...] = ()
    """Accounts announce in this order."""
    sent: int = 0
    """All that was sent of it, what was lost included."""
    wants: int = 0
    """What is to be sent."""
    credit: int = 0
    """What of that may be sent now."""
    held: bool = False
    rtt_s: float = 0.0
    """The smoothed round trip of its packets; 0 before the first."""
    waiting: deque[tuple["DatagramLane", int]] = field(default_factory=deque)
    """What of a group is bound to queue pairs, and not granted."""

    @property
    def offers(self) -> int:
        """What it has to send now."""
        return 0 if self.held else self.wants

    @property
    def round_trip_s(self) -> float:
        """How long the links of its path take there and back [s]."""
        return self.lane.round_trip_s


@dataclass(slots=True, eq=False, kw_only=True)
class DatagramLane(QueuePairState):
    """A queue pair: of one entropy, or one by which packets of any go."""

    nic: NicSender
    addresses: list[Address]
    """Where its packets go, by entropy; the one of a queue pair with one."""
    packets: int = 0
    """How many were numbered."""
    unsent: deque[Piece] = field(default_factory=deque)
    parcels: dict[Parcel, None] = field(default_factory=dict)
    """Those that have not arrived, in the order in which they were posted."""
    flying: dict[int, Packet] = field(default_factory=dict)
    """The packets under way, by number."""
    account: Account | None = None
    """What it is granted by, if it has one entropy; else each burst has that of its group."""
    round_trip_s: float = 0.0
    """How long the links of its path take there and back [s]."""
    lossy: bool = False
    """Whether they lose packets."""

    def put(self, parcels: Iterable[Parcel]) -> None:
        """Carry parcels behind those that it carries already."""
        for parcel in parcels:
            self.parcels[parcel] = None
            self.posted += parcel.size

    def cut(self, most: int, number: Callable[[int], int]) -> list[Piece]:
        """Take what its next packet carries off what is to be sent; a burst has packets of its own.

        ``number`` gives a piece of a message that is sent for the first time its number.
        """
        pieces = list[Piece]()
        while most > 0 and self.unsent:
            piece = self.unsent[0]
            if pieces and piece.parcel.burst:
                break
            if piece.size <= most:
                self.unsent.popleft()
            else:
                self.unsent[0] = Piece(piece.parcel, piece.size - most)
                piece = Piece(piece.parcel, most, piece.number)
            if piece.number == NOT_NUMBERED:
                piece.number = number(piece.parcel.message)
            pieces.append(piece)
            most -= piece.size
            if piece.parcel.burst:
                break
        return pieces

    def send_again(self, piece: Piece) -> None:
        """Have a piece sent before what never was, behind what is to be sent again already."""
        again = sum(1 for _ in takewhile(lambda each: each.number != NOT_NUMBERED, self.unsent))
        self.unsent.insert(again, piece)

    def lessen(self, parcel: Parcel, size: int) -> None:
        """Have bytes of a parcel taken off it: they go elsewhere."""
        parcel.size -= size
        self.posted -= size
        self._look_at(parcel)

    def deliver(self, parcel: Parcel, size: int) -> None:
        """Count bytes of a parcel that arrived."""
        parcel.size -= size
        self.counted += size
        self._look_at(parcel)

    def _look_at(self, parcel: Parcel) -> None:
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
        unsent, on_the_way = Counter[Account](), Counter[Account]()
        for piece in pieces:
            unsent[piece.parcel.account] += piece.size
        self.unsent = deque(piece for piece in self.unsent if not piece.parcel.gone)
        for packet in list(self.flying.values()):
            pieces += [piece for piece in packet.pieces if piece.parcel.gone]
            if all(piece.parcel.gone for piece in packet.pieces):
                packet.over = True
                del self.flying[packet.number]
                on_the_way[packet.account] += packet.size
        return Dropped(left, pieces, unsent, on_the_way)


class Dropped(NamedTuple):
    """What a queue pair gave back."""

    left: list[tuple[int, int]]
    """What it did not deliver: of each parcel its message, and its bytes."""
    pieces: list[Piece]
    """The pieces that nobody waits for any more."""
    unsent: Mapping[Account, int]
    """What of it was not sent, by what would have granted it [bytes]."""
    on_the_way: Mapping[Account, int]
    """What packets carry that count no longer [bytes]."""


class UnderWay:
    """The packets under way, by path and by when they left."""

    def __init__(self) -> None:
        self._of_path: dict[tuple[int, int], deque[Packet]] = defaultdict(deque)
        """Those of each path, in the order in which they left."""
        self._oldest: deque[Packet] = deque()
        """All, in that order."""

    def left(self, packet: Packet) -> None:
        """Follow a packet that leaves now."""
        self._of_path[packet.path].append(packet)
        self._oldest.append(packet)

    def overtaken_by(self, packet: Packet) -> list[Packet]:
        """Return what left before a packet that arrived, by the same path, and has not: it is lost."""
        in_order, lost = self._of_path[packet.path], list[Packet]()
        while in_order and in_order[0] is not packet:
            before = in_order.popleft()
            if not before.over:
                lost.append(before)
        if in_order:
            in_order.popleft()
        if not in_order:
            del self._of_path[packet.path]
        return lost

    def missing(self, now: float, patience_s: Callable[[Packet], float]) -> list[Packet]:
        """Return what left longer ago than one has patience for it [s], and is not back: it is lost."""
        lost = list[Packet]()
        while self._oldest:
            packet = self._oldest[0]
            if not packet.over:
                if now - packet.sent_at < patience_s(packet):
                    break
                lost.append(packet)
            self._oldest.popleft()
        return lost
