"""Announcements and grants on their way between sources and receivers.

They wait in no queue and none is lost, as headers with priority: each takes half of what the links of its
path take there and back, and a path keeps their order.
"""

import heapq
from collections import deque
from itertools import count
from math import inf
from typing import Generic, TypeVar

from traffic.transports.datagram_lane import Source

News = TypeVar("News")


class ControlPackets(Generic[News]):
    """The news under way in one direction, each with its source."""

    def __init__(self) -> None:
        self._under_way: list[tuple[float, int, Source, News]] = []
        """By when it comes, and in the order in which it was sent."""
        self._tickets = count()
        self._last_s: dict[Source, float] = {}
        """When the last of each source comes."""
        self._at_once = deque[tuple[Source, News]]()
        """Those that take no time, while nothing else is under way: a heap takes a microsecond for each."""

    def send(self, source: Source, news: News, now_s: float, takes_s: float) -> None:
        """Have news of a source, or for it, come after some time, and after what was sent before."""
        if not takes_s and not self._under_way:
            self._at_once.append((source, news))
            return
        at_s = self._last_s[source] = max(now_s + takes_s, self._last_s.get(source, -inf))
        heapq.heappush(self._under_way, (at_s, next(self._tickets), source, news))

    def come(self, now_s: float) -> list[tuple[Source, News]]:
        """Return the news that has come by now, in order, with its source."""
        came = list(self._at_once)
        self._at_once.clear()
        while self._under_way and self._under_way[0][0] <= now_s:
            _, _, source, news = heapq.heappop(self._under_way)
            came.append((source, news))
        return came
