"""The states of lanes that a policy is shown, each made when it is looked at: there may be hundreds."""

from collections.abc import Callable, Sequence
from typing import overload

from traffic.spraying.policy import LaneState


class States(Sequence[LaneState]):
    """Those of so many lanes.

    Parameters
    ----------
    count
        How many.
    state
        Returns that of a lane, which counts from 0.

    Examples
    --------
    >>> states = States(3, lambda lane: LaneState(lane, 0.0, True))
    >>> states[-1].backlog_bytes, [each.backlog_bytes for each in states[:2]]
    (2, [0, 1])
    """

    def __init__(self, count: int, state: Callable[[int], LaneState]) -> None:
        self._lanes, self._state = range(count), state

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._lanes)

    @overload
    def __getitem__(self, lane: int) -> LaneState: ...
    @overload
    def __getitem__(self, lane: slice) -> list[LaneState]: ...
    def __getitem__(self, lane: int | slice) -> LaneState | list[LaneState]:
        """Return the state of a lane; from the end too, and IndexError beyond it, as of a list."""
        if isinstance(lane, slice):
            return [self._state(each) for each in self._lanes[lane]]
        return self._state(self._lanes[lane])
