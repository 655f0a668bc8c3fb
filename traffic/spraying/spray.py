"""Oblivious spraying: each packet takes the next entropy, whatever became of those before it.

As Ultra Ethernet's oblivious mode: round robin over a permuted set of entropies, with another permutation for
each cycle, so that senders do not walk over the paths in step. Marks, losses and round trips change nothing.
A connection is all that a server sends to a NIC. Each NIC of the server has a cycle of its own, and NICs that
have room take turns.

The reference permutes by an exclusive or with a number that it draws for each cycle, and needs a power of
two. Here any order may be drawn, so any number of entropies will do.

What TCP queue pairs change. An entropy is a connection with a window of its own, so there are fewer of them,
and one without room is passed over until the next cycle.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from mypy_extensions import mypyc_attr

from topologies.fabric import Fabric, Nic
from traffic.spraying.policy import ENTROPIES, Lanes, LaneState, Message
from traffic.spraying.subflows import Subflows, by_nic


@mypyc_attr(allow_interpreted_subclasses=True)
class Spray:
    """All entropies in turn over every NIC of the source server, to the NIC beside the destination.

    Parameters
    ----------
    per_nic
        Entropies from each NIC of the source server to each destination NIC.
    entropies
        How many entropies a NIC has if lanes are of datagrams, which have room if their NIC has; None if
        each is a TCP connection.

    References
    ----------
    Ultra Ethernet Specification 1.0; uet-htsim, uec_mp.cpp, ``UecMpOblivious``.
    """

    name = "spray"
    oblivious = True
    steady = True
    per_packet = True

    def __init__(self, per_nic: int = 64, *, entropies: int | None = 64) -> None:
        self.per_nic = per_nic
        self.entropies = entropies
        self._connections: dict[tuple[int, Nic], _Connection] = {}
        """That of each server to each NIC, for the run."""
        self._of: dict[int, _Connection] = {}
        """That of each message under way."""

    def open(self, *, fabric: Fabric, rng: np.random.Generator) -> None:
        """Begin without a connection."""
        self._fabric = fabric
        self._subflows = Subflows(fabric, rng, self.per_nic, self.entropies or ENTROPIES)
        # Orders are drawn by numbers of their own: which entropies follow depends on no timing.
        self._rng = rng.spawn(1)[0]

    def admit(self, *, message: Message) -> Lanes:
        """Return ``per_nic`` lanes from every NIC of the source server to the destination's."""
        ends = self._fabric.gpu_servers[message.source], self._fabric.pinned_nic(message.destination)
        lanes = self._subflows.from_server(message.source, message.destination)
        if ends not in self._connections:
            self._connections[ends] = _Connection([_Cycle(each, self._rng) for each in by_nic(lanes)])
        self._of[message.number] = self._connections[ends]
        return lanes

    def choose(self, *, message: int, states: Sequence[LaneState], now: float) -> int | None:
        """Return the next entropy of the next NIC that has room."""
        connection = self._of[message]
        nics = len(connection.cycles)
        for nic in range(connection.turn, connection.turn + nics):
            lane = self._next(connection.cycles[nic % nics], states)
            if lane is not None:
                connection.turn = (nic + 1) % nics
                return lane
        return None

    def acknowledged(self, *, message: int, lane: int, rtt_s: float, marked: bool, now: float) -> None:
        """Learn nothing."""

    def withdraw(self, *, message: int) -> None:
        """Forget a message; its connection goes on where it was."""
        del self._of[message]

    def _next(self, cycle: "_Cycle", states: Sequence[LaneState]) -> int | None:
        """Return the next entropy from a NIC that has room, None if there is none."""
        if self.entropies:  # with datagrams one look says it of all lanes of the NIC
            return cycle.take() if states[cycle.next].room else None
        for _ in cycle.lanes:
            has_room, lane = states[cycle.next].room, cycle.take()
            if has_room:
                return lane
        return None


@dataclass(eq=False)
class _Cycle:
    """The lanes of a connection that leave by one NIC, each once in a random order, then in another."""

    lanes: range
    rng: np.random.Generator
    left: list[int] = field(default_factory=list)
    """What is left of the order, the next one last."""

    @property
    def next(self) -> int:
        """The lane that is next."""
        if not self.left:
            self.left = [self.lanes[index] for index in self.rng.permutation(len(self.lanes)).tolist()]
        return self.left[-1]

    def take(self) -> int:
        """Return the next one, and go on to the one behind it."""
        lane = self.next
        self.left.pop()
        return lane


@dataclass(eq=False)
class _Connection:
    """All messages from one server to one NIC."""

    cycles: list[_Cycle]
    """Of each NIC of the server."""
    turn: int = 0
    """Which NIC is next."""
