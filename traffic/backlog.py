"""A backlog: parcels of messages that one queue pair, or several together, have yet to deliver, in order."""

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from itertools import accumulate


class Backlog:
    """Bytes posted and bytes delivered, counted from the first; made for one queue pair or pool.

    Bytes may be fractions (fluids) or whole (sockets).
    """

    __slots__ = ("_marks", "_parcels", "posted")

    def __init__(self) -> None:
        self.posted: float = 0
        """The bytes that were ever posted and not withdrawn."""
        self._parcels: deque[tuple[float, float, int]] = deque()
        """The count at the end of each parcel, its size and its message."""
        self._marks: deque[tuple[float, int]] = deque()
        """The count at which the last byte of each message is delivered, of those posted together."""

    @property
    def next_end(self) -> float:
        """The count at which the next message is delivered; infinite if there is none."""
        return self._marks[0][0] if self._marks else float("inf")

    @property
    def messages(self) -> set[int]:
        """The messages that are not delivered."""
        return {message for _, message in self._marks}

    def post(self, sizes: Sequence[float], messages: Sequence[int]) -> None:
        """Put parcels behind those that are there; a message may have several among them."""
        _, *ends = accumulate(sizes, initial=self.posted)
        self._parcels.extend(zip(ends, sizes, messages, strict=True))
        last = dict(zip(messages, ends, strict=True))
        self._marks.extend(sorted((end, message) for message, end in last.items()))
        if ends:
            self.posted = ends[-1]

    def deliver(self, count: float) -> list[int]:
        """Return the messages whose last byte is among the first ``count``, and was not before."""
        delivered = []
        while self._marks and self._marks[0][0] <= count:
            delivered.append(self._marks.popleft()[1])
        if not self._marks:
            self._parcels.clear()
        return delivered

    def left(self, count: float) -> dict[int, float]:
        """Return how many bytes of each message are not among the first ``count``."""
        left: dict[int, float] = {}
        for end, size, message in self._parcels:
            if end > count:
                left[message] = left.get(message, 0) + min(size, end - count)
        return left

    def withdraw(self, count: float) -> list[tuple[int, float]]:
        """Take back all but the first ``count`` bytes.

        Returns
        -------
        list of tuples of message and bytes
            One for all parcels of a message that were posted together, unless they were delivered; 0 bytes if
            that is still to be said.
        """
        left = dict.fromkeys(self._marks, 0.0)
        for mark, end, size in self._undelivered(count):
            left[mark] += min(size, end - count)
        self._parcels.clear()
        self._marks.clear()
        self.posted = count
        return [(message, size) for (_, message), size in left.items()]

    def retract(self, count: float, delivered: float) -> list[tuple[int, float, bool]]:
        """Take back all but the first ``count`` bytes; what stays and is not delivered still will be.

        Returns
        -------
        list of tuples of message, bytes and whether none stays
            One for all parcels of a message that were posted together, if bytes of them are taken back.
        """
        back, stays = dict.fromkeys(self._marks, 0.0), dict[tuple[float, int], float]()
        for mark, end, size in self._undelivered(delivered):
            back[mark] += max(min(size, end - count), 0.0)
            if max(end - size, delivered) < count:
                stays[mark] = min(end, count)
        self._parcels = deque(
            (min(end, count), size - max(end - count, 0.0), message)
            for end, size, message in self._parcels
            if end - size < count
        )
        kept = [mark for mark in self._marks if mark[0] <= count]
        kept += [(stays[mark], mark[1]) for mark in stays if mark[0] > count]
        self._marks = deque(sorted(kept))
        self.posted = count
        return [(mark[1], size, mark not in stays) for mark, size in back.items() if size]

    def _undelivered(self, count: float) -> Iterator[tuple[tuple[float, int], float, float]]:
        """Yield the parcels that the first ``count`` bytes do not deliver: mark, count at the end, size."""
        ends: dict[int, deque[float]] = defaultdict(deque)
        for end, message in self._marks:
            ends[message].append(end)
        for end, size, message in self._parcels:
            if end > count:
                while ends[message][0] < end:
                    ends[message].popleft()
                yield (ends[message][0], message), end, size
