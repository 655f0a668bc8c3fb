"""PLB: a message stays on its path until that is congested for some rounds, then moves to another.

The rule of Linux' tcp_plb.c: a round is one round-trip time, it is congested if at least
``congested_share`` of what was acknowledged in it was marked; after ``idle_rounds`` congested
rounds in a row the path is changed as soon as nothing is in flight, after ``rounds`` at once.

What TCP queue pairs change. A connection cannot change what the fabric hashes, so a path is a
queue pair of its own and ``paths`` of them are opened beforehand. No switch here
marks, so a chunk counts as marked if it queued for longer than a switch would let pass unmarked
(`traffic.transports.round_trips`). A path is changed between two chunks, never inside one; what the old queue
pair still carries arrives behind. Linux' pause after a timeout (suspend_rto_sec) is left out:
timeouts are TCP's own and not seen here.
"""

from collections import Counter
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass

import numpy as np

from topologies.fabric import Fabric, Nic
from traffic.messages import Messages
from traffic.spraying.policy import Permitted, QpState, QueuePair
from traffic.spraying.subflows import Between, entropies

_Flow = tuple[int, int, int]
"""What stays on its path from one collective to the next: its GPUs, and which of those between them it is."""


@dataclass(slots=True)
class _Path:
    """Where a message is, and what it saw there."""

    qp: int
    congested_rounds: int = 0
    acknowledged: int = 0
    marked: int = 0
    round_ends_s: float | None = None
    """None before the first acknowledgement, which starts the first round."""


class Plb:
    """Protective load balancing between the NICs beside a message's GPUs.

    Parameters
    ----------
    paths
        How many entropies a message may move between.
    congested_share
        From which share of marked chunks on a round is congested (tcp_plb_cong_thresh, 128 / 256).
    idle_rounds
        After how many congested rounds to move once idle (tcp_plb_idle_rehash_rounds).
    rounds
        After how many congested rounds to move at once (tcp_plb_rehash_rounds).

    References
    ----------
    M. A. Qureshi et al., "PLB: congestion signals are simple and effective for network load
    balancing", SIGCOMM 2022; Linux net/ipv4/tcp_plb.c. RailS, section VI-A.
    """

    name = "plb"
    settles = True
    steady = True

    def __init__(
        self,
        *,
        paths: int = 4,
        congested_share: float = 0.5,
        idle_rounds: int = 3,
        rounds: int = 12,
    ) -> None:
        self.paths = paths
        self.congested_share = congested_share
        self.idle_rounds = idle_rounds
        self.rounds = rounds
        self._permitted = Permitted((), ())
        self._path: list[_Path] = []
        self._flows: list[_Flow] = []
        """The one of each message."""
        self._drawn: Between = {}
        self._kept: dict[_Flow, int] = {}
        """Which of its paths each is on, for the run."""
        self._decisions: list[int] = []
        self._most_decisions = 0
        self._chosen = self._moved = self._acknowledged = self._marked = 0
        self._rng: np.random.Generator | None = None

    def permit(self, *, fabric: Fabric, messages: Messages, rng: np.random.Generator) -> Permitted:
        """Return ``paths`` queue pairs between the NICs of each message, one if there is one way.

        Messages of one pair of NICs, where GPUs outnumber NICs, share them.
        """
        queue_pairs: list[QueuePair] = []
        shared: dict[tuple[Nic, Nic], tuple[int, ...]] = {}
        of_message = []
        for source, destination in zip(messages.source.tolist(), messages.destination.tolist(), strict=True):
            ends = fabric.pinned_nic(source), fabric.pinned_nic(destination)
            if ends not in shared:
                first = len(queue_pairs)
                queue_pairs += entropies(fabric, *ends, rng, self.paths, self._drawn)
                shared[ends] = tuple(range(first, len(queue_pairs)))
            of_message.append(shared[ends])
        self._permitted = Permitted(tuple(queue_pairs), tuple(of_message))
        self._flows = _flows(messages)
        for flow, qps in zip(self._flows, of_message, strict=True):
            if flow not in self._kept:
                self._kept[flow] = int(rng.integers(len(qps)))
        self._path = [_Path(qps[self._kept[flow]]) for flow, qps in zip(self._flows, of_message, strict=True)]
        # Moves draw from numbers of their own: which connections follow depends on no timing.
        self._rng = self._rng or deepcopy(rng)
        self._decisions = [0] * len(of_message)
        return self._permitted

    def choose(self, *, message: int, states: Sequence[QpState], now: float) -> int | None:
        """Return the message's queue pair if it has room, after moving it where that is due."""
        path = self._path[message]
        rounds = path.congested_rounds
        if rounds >= self.rounds or (rounds >= self.idle_rounds and not states[path.qp].backlog_bytes):
            before, path = path.qp, _Path(self._other(message, path.qp))
            self._path[message] = path
            self._kept[self._flows[message]] = self._permitted.of_message[message].index(path.qp)
            self._moved += path.qp != before
        has_room = states[path.qp].room
        self._chosen += has_room
        self._decisions[message] += has_room
        self._most_decisions = max(self._most_decisions, self._decisions[message])
        return path.qp if has_room else None

    def acknowledged(self, *, message: int, qp: int, rtt_s: float, marked: bool, now: float) -> None:
        """Count a chunk into its path's round, and judge the round when it is over."""
        self._acknowledged += 1
        self._marked += marked
        path = self._path[message]
        if qp != path.qp:
            return  # a late chunk of the path before says nothing about this one
        path.acknowledged += 1
        path.marked += marked
        if path.round_ends_s is None:
            path.round_ends_s = now + rtt_s
        if now < path.round_ends_s:
            return
        congested = path.marked >= self.congested_share * path.acknowledged
        path.congested_rounds = path.congested_rounds + 1 if congested else 0
        path.acknowledged = path.marked = 0
        path.round_ends_s = now + rtt_s

    @property
    def counts(self) -> dict[str, tuple[int, int]]:
        """How many chunks met congestion, and before how many the path was changed."""
        return {
            "marked": (self._marked, self._acknowledged),
            "moved": (self._moved, self._chosen),
        }

    @property
    def inert(self) -> dict[str, tuple[int, int]]:
        """Which of its numbers of rounds no message could have.

        An acknowledgement ends a round at most, the first begins one, and a chunk has to follow the last.
        """
        kinds = {"once idle": self.idle_rounds, "at once": self.rounds}
        return {
            f"PLB's move {kind} after {rounds} congested rounds": (self._most_decisions, rounds + 2)
            for kind, rounds in kinds.items()
            if 0 < self._most_decisions < rounds + 2
        }

    def _other(self, message: int, qp: int) -> int:
        others = [other for other in self._permitted.of_message[message] if other != qp]
        if not others:
            return qp
        assert self._rng is not None  # it has permitted the message
        return others[int(self._rng.integers(len(others)))]


def _flows(messages: Messages) -> list[_Flow]:
    """Return the flow of each message: its GPUs, and how many between them are before it."""
    turns, flows = Counter[tuple[int, int]](), list[_Flow]()
    for ends in zip(messages.source.tolist(), messages.destination.tolist(), strict=True):
        flows.append((*ends, turns[ends]))
        turns[ends] += 1
    return flows
