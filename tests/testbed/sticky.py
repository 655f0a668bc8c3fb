"""A user's own reactive scheme in 20 lines: a message stays on its queue pair until that is congested."""

from collections.abc import Sequence

import numpy as np

from topologies.fabric import Fabric
from traffic.spraying.policy import Lanes, LaneState, Message
from traffic.spraying.subflows import Subflows


class Sticky:
    """Leaves a lane for the one of least backlog when a chunk was marked."""

    name = "sticky"
    settles = True

    def open(self, *, fabric: Fabric, rng: np.random.Generator) -> None:
        """Begin where nothing is under way."""
        self.subflows, self.rng = Subflows(fabric, rng), np.random.default_rng(0)
        self.current: dict[int, int] = {}
        self.marked: set[int] = set()

    def admit(self, *, message: Message) -> Lanes:
        """Return a lane from every NIC of the source server."""
        lanes = self.subflows.from_server(message.source, message.destination)
        self.current[message.number] = int(self.rng.integers(len(lanes)))
        return lanes

    def choose(self, *, message: int, states: Sequence[LaneState], now: float) -> int | None:
        """Return the lane it is on, or the one of least backlog if that was marked."""
        if message in self.marked:
            self.current[message] = min(range(len(states)), key=lambda lane: states[lane].backlog_bytes)
            self.marked.remove(message)
        return self.current[message] if states[self.current[message]].room else None

    def acknowledged(self, *, message: int, lane: int, rtt_s: float, marked: bool, now: float) -> None:
        """Remember whether the lane it is on was congested."""
        if marked and lane == self.current[message]:
            self.marked.add(message)

    def withdraw(self, *, message: int) -> None:
        """Forget where it was."""
        del self.current[message]
        self.marked.discard(message)


class Restless(Sticky):
    """The same, and does not say that it settles."""

    settles = False
