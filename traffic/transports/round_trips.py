"""Round trips of chunks, one by one, and which of them met a queue: what an ECN mark would say.

A chunk's round trip counts from when it is handed to its socket until its last byte is counted at the
receiver, and the links' delay back on top. Its base is what it takes through empty queues: what its NIC
was given before, its own bytes at the rate of the path's slowest link, and the links' delay both ways. The
shapers' token buckets are full where nothing queues, so that switches pass packets on at once.

What a chunk takes beyond its base, it queued for. It is marked if that is more than a switch's ECN threshold
would let wait: `MARK_PACKETS` at the slowest link. That is above what full token buckets let through at once,
which is two packets of each flow that meets there, and below a window of REPS' chunks.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from topologies.fabric import Nic
from traffic.packets import ETHERNET_HEADER_BYTES, TCP_HEADER_BYTES
from traffic.transports.transport import PACKET_BYTES, packet_s

MARK_PACKETS = 8
ACKNOWLEDGED_BYTES = 2 * (ETHERNET_HEADER_BYTES + TCP_HEADER_BYTES)
"""What a link carries beside each packet's payload: its headers, and an acknowledgement of the other
direction."""


@dataclass(frozen=True, slots=True)
class Crossing:
    """The path of a queue pair, at emulated scale."""

    nic: Nic
    """The NIC that sends."""
    nic_bps: float
    """Its rate [bit/s]."""
    slowest_bps: float
    """The rate of the path's slowest link [bit/s]."""
    round_trip_s: float = 0.0
    """How long its links take there and back [s]."""


class RoundTrip(NamedTuple):
    """How a chunk fared."""

    rtt_s: float
    """How long it and its acknowledgement took [s]."""
    marked: bool
    """Whether it queued for longer than a switch lets pass unmarked."""


class InFlight(NamedTuple):
    """A chunk under way."""

    at_s: float
    """When it was handed over [s]."""
    arrives_s: float
    """When it would arrive through empty queues [s]."""


class RoundTrips:
    """Times the chunks of some queue pairs."""

    def __init__(self, crossings: Sequence[Crossing], packet_bytes: int = PACKET_BYTES) -> None:
        self._at_first, self._packet_bytes = crossings, packet_bytes
        self._take(crossings)
        self._share = packet_bytes / (packet_bytes + ACKNOWLEDGED_BYTES)
        self._under_way: list[deque[InFlight]] = [deque() for _ in crossings]
        """The chunks on each that delivers in order."""
        self._sent_s: dict[Nic, float] = {}
        """When each NIC will have sent what it was given [s]."""

    def _take(self, crossings: Sequence[Crossing]) -> None:
        self._crossings = crossings
        self._marks_s = [MARK_PACKETS * packet_s(each.slowest_bps, self._packet_bytes) for each in crossings]
        """How long a chunk on each may queue unmarked [s]."""

    def rates_changed(self, nics_bps: Sequence[tuple[float, float]]) -> None:
        """Reckon with other rates of each queue pair's NICs, the one that sends and the one that receives."""
        self._take(
            [
                replace(each, nic_bps=sends_bps, slowest_bps=min(each.slowest_bps, sends_bps, receives_bps))
                for each, (sends_bps, receives_bps) in zip(self._at_first, nics_bps, strict=True)
            ]
        )

    def begun(self, qp: int, size: int, now: float) -> InFlight:
        """Return when a chunk [bytes] that is handed over now would arrive through empty queues."""
        crossing = self._crossings[qp]
        begins_s = max(self._sent_s.get(crossing.nic, now), now)
        self._sent_s[crossing.nic] = begins_s + 8 * size / crossing.nic_bps / self._share
        arrives_s = begins_s + 8 * size / crossing.slowest_bps / self._share + crossing.round_trip_s / 2
        return InFlight(now, arrives_s)

    def ended(self, qp: int, begun: InFlight, now: float) -> RoundTrip:
        """Return the round trip of a chunk whose last byte was counted now."""
        rtt_s = now - begun.at_s + self._crossings[qp].round_trip_s / 2
        return RoundTrip(rtt_s, now - begun.arrives_s > self._marks_s[qp])

    def handed_over(self, qp: int, size: int, now: float) -> None:
        """Note that a queue pair's socket, which delivers in order, was handed a chunk [bytes]."""
        self._under_way[qp].append(self.begun(qp, size, now))

    def arrived(self, qp: int, now: float) -> RoundTrip:
        """Return the round trip of a queue pair's oldest chunk, whose last byte was counted now."""
        return self.ended(qp, self._under_way[qp].popleft(), now)


def shares_of(counted: Sequence[Mapping[str, tuple[int, int]]]) -> dict[str, float]:
    """Return the share of each kind of event, over all that were counted: how many, of how many.

    Examples
    --------
    >>> shares_of([{"marked": (1, 4)}, {"marked": (3, 4), "recycled": (0, 0)}])
    {'marked': 0.5}
    """
    names = dict.fromkeys(name for each in counted for name in each)
    part, whole = ({n: sum(each.get(n, (0, 0))[i] for each in counted) for n in names} for i in (0, 1))
    return {name: part[name] / whole[name] for name in names if whole[name]}
