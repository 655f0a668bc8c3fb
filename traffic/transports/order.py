"""Order: how far packets overtake each other, and what a receiver would have to hold to put them in order.

A message's packets are numbered as they are first sent. One is *overtaken* if one with a higher number
arrived before it, by as many as the highest number then was higher (RFC 4737, sections 4.2.2 and 4.3). A
receiver that delivers in order *holds* what arrived behind a gap.

References
----------
RFC 4737, "Packet reordering metrics", sections 4 and 5.4 (n-reordering's extent and buffer).
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from traffic.transports.reordering import Reordering


@dataclass
class MessageOrder:
    """The order in which the packets of one message arrive."""

    sent: int = 0
    """How many have numbers."""
    _highest: int = -1
    _next: int = 0
    """All below have arrived."""
    _held: dict[int, int] = field(default_factory=dict)
    """Bytes of those that arrived behind a gap, by number."""
    held_bytes: int = 0
    """What is held behind a gap [bytes]."""

    def number(self) -> int:
        """Return the number of a packet that is sent for the first time."""
        self.sent += 1
        return self.sent - 1

    def is_next(self, number: int) -> bool:
        """Record a packet if it is the next and none is held; return whether it is."""
        if number != self._next or self._held:
            return False
        self._next = number + 1
        self._highest = number
        return True

    def arrived(self, number: int, size: int) -> int:
        """Record a packet; return by how many it was overtaken, 0 if it is in order."""
        overtaken = max(self._highest - number, 0)
        self._highest = max(self._highest, number)
        self._fill(number, size)
        return overtaken

    def skip(self, number: int) -> None:
        """Wait for a packet no longer: what was left of its message is taken back."""
        self._fill(number, 0)

    def _fill(self, number: int, size: int) -> None:
        if number != self._next:
            self._held[number] = size
            self.held_bytes += size
            return
        self._next += 1
        while self._next in self._held:
            self.held_bytes -= self._held.pop(self._next)
            self._next += 1


class Orders:
    """The orders of a run's messages."""

    def __init__(self) -> None:
        self._of = defaultdict[int, MessageOrder](MessageOrder)
        self._extents: Counter[int] = Counter()
        self._in_order = self._held_bytes = 0

    def of(self, message: int) -> MessageOrder:
        """Return the order of a message's packets."""
        return self._of[message]

    def arrived(self, order: MessageOrder, number: int, size: int) -> None:
        """Record a packet of a message."""
        if order.is_next(number):  # most are: a third of the time here
            self._in_order += 1
            return
        self._extents[order.arrived(number, size)] += 1
        if order.held_bytes > self._held_bytes:
            self._held_bytes = order.held_bytes

    @property
    def seen(self) -> Reordering:
        """What was seen until now."""
        in_order = Counter({0: self._in_order} if self._in_order else {})
        return Reordering(dict(self._extents + in_order), self._held_bytes)
