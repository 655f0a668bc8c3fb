"""PLB: a message stays on its path until that is congested for some rounds, then moves to another.

The rule of Linux' tcp_plb.c: a round is one round-trip time, it is congested if at least
``congested_share`` of what was acknowledged in it was marked; after ``idle_rounds`` congested
rounds in a row the path is changed as soon as nothing is in flight, after ``rounds`` at once.

A path is an entropy of the flow, as a flow label of IPv6 is in Linux. No switch here marks, so a chunk counts
as marked if it queued for longer than a switch would let pass unmarked (`traffic.transports.round_trips`).

What TCP queue pairs change. A connection cannot change what the fabric hashes, so a path is a
queue pair of its own and ``paths`` of them are opened beforehand. A path is changed between two chunks, never
inside one; what the old queue pair still carries arrives behind. Linux' pause after a timeout
(suspend_rto_sec) is left out: timeouts are TCP's own and not seen here.

Over datagrams a path costs nothing and may change before each packet. Linux takes a new path after each
timeout; the pause and this are left out there too, so what a dead path loses is sent on it again until it is
known to have failed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np
from mypy_extensions import mypyc_attr

from topologies.fabric import Fabric
from traffic.spraying.policy import ENTROPIES, Lanes, LaneState, Message
from traffic.spraying.subflows import Subflows

_Flow = tuple[int, int, int]
"""What stays on its path from one collective to the next: its GPUs, and which of those between them it is."""


@dataclass(eq=False)
class _Path:
    """Where a message is, and what it saw there."""

    lane: int
    congested_rounds: int = 0
    acknowledged: int = 0
    marked: int = 0
    round_ends_s: float | None = None
    """None before the first acknowledgement, which starts the first round."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Plb:
    """Protective load balancing between the NICs beside a message's GPUs.

    Parameters
    ----------
    paths
        How many entropies a flow may move between.
    congested_share
        From which share of marked chunks on a round is congested (tcp_plb_cong_thresh, 128 / 256).
    idle_rounds
        After how many congested rounds to move once idle (tcp_plb_idle_rehash_rounds).
    rounds
        After how many congested rounds to move at once (tcp_plb_rehash_rounds).
    entropies
        How many entropies a NIC has if lanes are of datagrams; None if each is a TCP connection.

    References
    ----------
    M. A. Qureshi et al., "PLB: congestion signals are simple and effective for network load
    balancing", SIGCOMM 2022; Linux net/ipv4/tcp_plb.c. RailS, section VI-A.
    """

    name = "plb"
    settles = True
    steady = True
    per_packet = True

    def __init__(
        self,
        *,
        paths: int = 4,
        congested_share: float = 0.5,
        idle_rounds: int = 3,
        rounds: int = 12,
        entropies: int | None = None,
    ) -> None:
        self.paths = paths
        self.entropies = entropies
        self.congested_share = congested_share
        self.idle_rounds = idle_rounds
        self.rounds = rounds
        self._under_way: dict[int, _UnderWay] = {}
        self._flows: set[_Flow] = set()
        """Those that are under way."""
        self._kept: dict[_Flow, int] = {}
        """Which of its paths each is on, for the run."""
        self._most_decisions = 0
        self._chosen = self._moved = self._acknowledged = self._marked = 0

    def open(self, *, fabric: Fabric, rng: np.random.Generator) -> None:
        """Begin without a path."""
        self._fabric = fabric
        self._subflows = Subflows(fabric, rng, self.paths, self.entropies or ENTROPIES)
        # Paths are taken by numbers of their own: which connections follow depends on no timing.
        self._rng = rng.spawn(1)[0]

    def admit(self, *, message: Message) -> Lanes:
        """Return ``paths`` lanes between the NICs of a message, one if there is one way.

        Messages of one pair of NICs, where GPUs outnumber NICs, share them.
        """
        ends = message.source, message.destination
        lanes = self._subflows.between(*map(self._fabric.pinned_nic, ends))
        flow = next((*ends, turn) for turn in count() if (*ends, turn) not in self._flows)
        self._flows.add(flow)
        if flow not in self._kept:
            self._kept[flow] = int(self._rng.integers(len(lanes)))
        self._under_way[message.number] = _UnderWay(flow, _Path(self._kept[flow]))
        return (lanes,)

    def choose(self, *, message: int, states: Sequence[LaneState], now: float) -> int | None:
        """Return the message's lane if it has room, after moving it where that is due."""
        mine = self._under_way[message]
        path = mine.path
        rounds = path.congested_rounds
        if rounds >= self.rounds or (rounds >= self.idle_rounds and not states[path.lane].backlog_bytes):
            before, path = path.lane, _Path(self._other(path.lane, len(states)))
            mine.path, self._kept[mine.flow] = path, path.lane
            self._moved += path.lane != before
        has_room = states[path.lane].room
        self._chosen += has_room
        mine.decisions += has_room
        self._most_decisions = max(self._most_decisions, mine.decisions)
        return path.lane if has_room else None

    def acknowledged(self, *, message: int, lane: int, rtt_s: float, marked: bool, now: float) -> None:
        """Count a chunk into its path's round, and judge the round when it is over."""
        self._acknowledged += 1
        self._marked += marked
        path = self._under_way[message].path
        if lane != path.lane:
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

    def withdraw(self, *, message: int) -> None:
        """Forget a message; the next between its GPUs goes on where it was."""
        self._flows.remove(self._under_way.pop(message).flow)

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

    def _other(self, lane: int, lanes: int) -> int:
        """Return a random lane of so many but one, or that one if there is no other."""
        if lanes == 1:
            return lane
        other = int(self._rng.integers(lanes - 1))
        return other + (other >= lane)


@dataclass(eq=False)
class _UnderWay:
    """A message that has not arrived."""

    flow: _Flow
    path: _Path
    decisions: int = 0
