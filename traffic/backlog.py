"""A backlog: parcels of messages that one queue pair, or several together, have yet to deliver, in order."""

from collections import deque
from collections.abc import Sequence
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
        """Take back all but the first ``count`` bytes; return how many of each message that was."""
        left = self.left(count)
        self._parcels.clear()
        self._marks.clear()
        self.posted = count
        return list(left.items())
