"""Events: frozen values, the only thing in the queue; each names what happened, and nothing of what follows.

Reports of a backend (`testbed.core.backend`) and news for the rule for circuits (`topologies.events`) are
events too. The reactions to each are in one table (`testbed.core.reactions`).
"""

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from itertools import count

from testbed.core.backend import Arrived, Drained, Happening, LightChanged, NowProvisioned
from testbed.core.ops import Parcels
from topologies import events as heard
from topologies.events import TimerFired
from traffic.clock import NEVER, checked
from traffic.faults import Fault, Moves


class Phase(IntEnum):
    """The order in which events of one time are done."""

    EFFECT = 0
    """A fault begins, is known, or is over."""
    LIGHT = 1
    """Light has changed, or should have by now."""
    ARRIVAL = 2
    """Bytes have arrived."""
    COMPUTE = 3
    """A GPU has ended a task."""
    TIMER = 4
    """A timer that was set runs out."""
    START = 5
    """Nodes start that wait for nothing any more."""


OF_THE_JOB = (Phase.ARRIVAL, Phase.COMPUTE, Phase.START)
"""The phases of the job itself. Time that a live clock takes between two of their events decides nothing."""


# Nodes and operations


@dataclass(frozen=True, slots=True)
class JobBegan:
    """The clock begins."""


@dataclass(frozen=True, slots=True)
class NodeReady:
    """All nodes that a node waits for have ended, and its own time has come."""

    node: str
    rank: int
    """Its place among those that are ready at the same time."""


@dataclass(frozen=True, slots=True)
class TaskReady:
    """A node has tasks for GPUs."""

    node: str
    gpus: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TaskBegan:
    """A GPU begins a task of a node."""

    node: str


@dataclass(frozen=True, slots=True)
class Computed:
    """GPUs have ended tasks of a node, together."""

    node: str
    gpus: tuple[int, ...]
    start_ps: int
    end_ps: int


@dataclass(frozen=True, slots=True)
class PiecesDone:
    """Pieces of a node are done: GPUs have computed, or operations have ended."""

    node: str
    pieces: int = 1


@dataclass(frozen=True, slots=True)
class BytesLeft:
    """Bytes of operations are on no lane, and are to be placed."""

    parcels: Parcels


# Lanes and light


@dataclass(frozen=True, slots=True)
class LanesOpened:
    """Lanes over circuits are in use from now on."""

    lanes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RoutesChanged:
    """Circuits have changed, and with them routes of lanes over circuits."""

    everywhere: bool = False
    """True if rules of packet switches have changed too, so that any lane may have another path."""


@dataclass(frozen=True, slots=True)
class RoutesLedAnew:
    """Faults have become known or are over: lanes may get routes through circuits that are to end."""


@dataclass(frozen=True, slots=True)
class LanesCut:
    """Lanes did not drain in time: the bytes that they have not delivered are to wait for light."""

    lanes: frozenset[int]


@dataclass(frozen=True, slots=True)
class LanesGoOn:
    """A change of light is over: the lanes that stood for it go on."""

    lanes: frozenset[int]


@dataclass(frozen=True, slots=True)
class Released:
    """A collective waits for OCSes no more, and may send."""

    node: str


@dataclass(frozen=True, slots=True)
class HoldExpired:
    """A collective has waited for OCSes for as long as it may."""

    node: str


@dataclass(frozen=True, slots=True)
class DrainExpired:
    """A change of light has drained for as long as it may."""

    change: int


@dataclass(frozen=True, slots=True)
class RestOrdered:
    """The bytes that circuits leave over are to go over packets."""


@dataclass(frozen=True, slots=True)
class Ordered:
    """A rule for circuits orders something."""

    order: heard.Order


# Faults


@dataclass(frozen=True, slots=True)
class FaultBegan:
    """A fault begins: parts fail."""

    fault: Fault


@dataclass(frozen=True, slots=True)
class FaultKnown:
    """A fault is known."""

    fault: Fault


@dataclass(frozen=True, slots=True)
class FaultEnded:
    """A fault is over: its parts are back."""

    fault: Fault


@dataclass(frozen=True, slots=True)
class FaultForgotten:
    """A fault is known to be over."""

    fault: Fault


@dataclass(frozen=True, slots=True)
class ControllerChanged:
    """OCSes have a controller from now on, or none."""

    works: bool


@dataclass(frozen=True, slots=True)
class GpusGone:
    """GPUs are known to be gone."""

    gpus: tuple[int, ...]
    moves: Moves
    """Which others take their places."""
    ended: tuple[str, ...]
    """The nodes of operations that are given up, each as often as it has some."""


@dataclass(frozen=True, slots=True)
class SentAgain:
    """All of a collective is to be sent once more."""

    node: str


Event = (
    JobBegan
    | NodeReady
    | TaskReady
    | TaskBegan
    | Computed
    | PiecesDone
    | BytesLeft
    | LanesOpened
    | RoutesChanged
    | RoutesLedAnew
    | LanesCut
    | LanesGoOn
    | Released
    | HoldExpired
    | DrainExpired
    | RestOrdered
    | Ordered
    | FaultBegan
    | FaultKnown
    | FaultEnded
    | FaultForgotten
    | ControllerChanged
    | GpusGone
    | SentAgain
    | Happening
    | heard.Event
)
Later = (
    NodeReady
    | Computed
    | HoldExpired
    | DrainExpired
    | FaultBegan
    | FaultKnown
    | FaultEnded
    | FaultForgotten
    | Happening
    | TimerFired
)
"""Events that wait in the queue."""
PHASE: Mapping[type, Phase] = {
    **dict.fromkeys((FaultBegan, FaultKnown, FaultEnded, FaultForgotten), Phase.EFFECT),
    **dict.fromkeys((Drained, LightChanged, NowProvisioned, HoldExpired, DrainExpired), Phase.LIGHT),
    Arrived: Phase.ARRIVAL,
    Computed: Phase.COMPUTE,
    TimerFired: Phase.TIMER,
    NodeReady: Phase.START,
}


class Queue:
    """The events that are to come, by time [ps], phase, rank and ticket.

    So what comes at one time has an order: what fails does so before what arrives, what starts sees all that
    ended, and nodes start in job order.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, Phase, int, int, Later]] = []
        self._tickets = count()
        self._turn_ps = NEVER
        """The time of the turn: all events until then are being done; `NEVER` between two turns."""

    def __iter__(self) -> Iterator[Later]:
        """Yield the events, in no order."""
        return (event for *_, event in self._heap)

    @property
    def next_ps(self) -> int:
        """When the next event comes; `NEVER` if none does."""
        return self._heap[0][0] if self._heap else NEVER

    def goes_on_by_itself(self, now_ps: int) -> bool:
        """Return whether a fault, its end or the end of a task is to come, or a node's own time."""
        return any(
            phase in (Phase.EFFECT, Phase.COMPUTE) or (phase == Phase.START and at_ps > now_ps)
            for at_ps, phase, *_ in self._heap
        )

    def put(self, at_ps: int, event: Later, now_ps: int) -> None:
        """Have an event come at a time.

        An event of the job that is due by now belongs to this turn, though a live clock has gone on since the
        turn began. A rule's timers do not: one that sets them again and again would not let time pass.
        """
        phase = PHASE[type(event)]
        if phase in OF_THE_JOB and self._turn_ps < at_ps <= now_ps:
            at_ps = self._turn_ps
        rank = event.rank if isinstance(event, NodeReady) else 0
        heapq.heappush(self._heap, (checked(at_ps), phase, rank, next(self._tickets), event))

    def due(self, now_ps: int) -> Iterator[Later]:
        """Yield the events that are due by now, and those due by then that are put meanwhile."""
        self._turn_ps = now_ps
        while self._heap and self._heap[0][0] <= now_ps:
            yield heapq.heappop(self._heap)[-1]
        self._turn_ps = NEVER
