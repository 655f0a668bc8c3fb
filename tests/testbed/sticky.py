"""A user's own reactive scheme in 20 lines: a message stays on its queue pair until that is congested."""

from collections.abc import Sequence

import numpy as np

from topologies.fabric import Fabric
from traffic.messages import Messages
from traffic.spraying.policy import Permitted, QpState
from traffic.spraying.subflows import Between, subflows


class Sticky:
    """Leaves a queue pair for the one of least backlog when a chunk was marked."""

    name = "sticky"
    settles = True

    def __init__(self) -> None:
        self.drawn: Between = {}

    def permit(self, *, fabric: Fabric, messages: Messages, rng: np.random.Generator) -> Permitted:
        """Return a queue pair from every NIC of the source server."""
        self.permitted = subflows(fabric, messages, rng, drawn=self.drawn)
        self.current = [int(rng.choice(qps)) for qps in self.permitted.of_message]
        self.marked = [False] * len(self.current)
        return self.permitted

    def choose(self, *, message: int, states: Sequence[QpState], now: float) -> int | None:
        """Return the queue pair it is on, or the one of least backlog if that was marked."""
        if self.marked[message]:
            qps = self.permitted.of_message[message]
            self.current[message] = min(qps, key=lambda qp: states[qp].backlog_bytes)
            self.marked[message] = False
        return self.current[message] if states[self.current[message]].room else None

    def acknowledged(self, *, message: int, qp: int, rtt_s: float, marked: bool, now: float) -> None:
        """Remember whether the queue pair it is on was congested."""
        self.marked[message] |= marked and qp == self.current[message]


class Restless(Sticky):
    """The same, and does not say that it settles."""

    settles = False
