"""The states of lanes that a policy is shown, each made when it is looked at: there may be hundreds."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import index
from typing import SupportsIndex, overload


@dataclass(init=False)
class LaneState:
    """What a sender knows of one of its lanes, at real scale."""

    backlog_bytes: int
    """Posted and not yet acknowledged [bytes]."""
    rtt_s: float
    """Smoothed round-trip time of its chunks [s]; 0 before the first measurement."""
    room: bool
    """Whether the lane takes another chunk now."""

    def __init__(
        self, backlog_bytes: int, rtt_s: float, room: bool
    ) -> None:  # compiled, unlike a dataclass's
        self.backlog_bytes, self.rtt_s, self.room = backlog_bytes, rtt_s, room

    def __reduce__(self) -> tuple[type["LaneState"], tuple[int, float, bool]]:
        """Return a copy's class and arguments: compiled, the usual one would be made without arguments."""
        return LaneState, (self.backlog_bytes, self.rtt_s, self.room)


class States(Sequence[LaneState]):
    """Those of so many lanes.

    Parameters
    ----------
    count
        How many.
    state
        Returns that of a lane, which counts from 0.
    room
        Returns whether a lane has room, in less time.

    Examples
    --------
    >>> states = States(3, lambda lane: LaneState(lane, 0.0, True))
    >>> states[-1].backlog_bytes, [each.backlog_bytes for each in states[:2]]
    (2, [0, 1])
    """

    def __init__(
        self, count: int, state: Callable[[int], LaneState], room: Callable[[int], bool] | None = None
    ) -> None:
        self._count, self._state, self._room = count, state, room

    def room(self, lane: int) -> bool:
        """Return whether a lane has room."""
        return self._room(lane) if self._room else self._state(lane).room

    def __len__(self) -> int:
        """Return how many there are."""
        return self._count

    def __iter__(self) -> Iterator[LaneState]:
        """Yield them in order."""
        return map(self._state, range(self._count))

    @overload
    def __getitem__(self, lane: SupportsIndex) -> LaneState: ...
    @overload
    def __getitem__(self, lane: slice) -> list[LaneState]: ...
    def __getitem__(self, lane: SupportsIndex | slice) -> LaneState | list[LaneState]:
        """Return the state of a lane; from the end too, and IndexError beyond it, as of a list.

        A lane that numpy drew is one too, which compiled code would not take for an `int`.
        """
        if isinstance(lane, slice):
            return [self._state(each) for each in range(self._count)[lane]]
        number = lane if isinstance(lane, int) else index(lane)
        return self._state(number if 0 <= number < self._count else range(self._count)[number])


def has_room(states: Sequence[LaneState], lane: int) -> bool:
    """Return whether a lane has room, by no more than is needed to tell."""
    return states.room(lane) if isinstance(states, States) else states[lane].room
