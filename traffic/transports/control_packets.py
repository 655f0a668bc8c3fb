"""Announcements and grants on their way between sources and receivers.

They wait in no queue and none is lost, as headers with priority: each takes half of what the links of its
path take there and back, and a path keeps their order.
"""

import heapq
from itertools import count
from math import inf
from typing import Generic, TypeVar

News = TypeVar("News")


class ControlPackets(Generic[News]):
    """The news under way in one direction, each with the number of its source."""

    def __init__(self) -> None:
        self._under_way: list[tuple[float, int, int, News]] = []
        """By when it comes, and in the order in which it was sent."""
        self._tickets = count()
        self._last_s: dict[int, float] = {}
        """When the last of each source comes."""

    def send(self, source: int, news: News, at_s: float) -> None:
        """Have news of a source, or for it, come at a time, or after what was sent before."""
        at_s = self._last_s[source] = max(at_s, self._last_s.get(source, -inf))
        heapq.heappush(self._under_way, (at_s, next(self._tickets), source, news))

    def come(self, now_s: float) -> list[tuple[int, News]]:
        """Return the news that has come by now, in order, with its source."""
        came = list[tuple[int, News]]()
        while self._under_way and self._under_way[0][0] <= now_s:
            _, _, source, news = heapq.heappop(self._under_way)
            came.append((source, news))
        return came
