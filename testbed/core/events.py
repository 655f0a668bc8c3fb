"""Events: frozen values, the only thing in the queue; each names what happened, and nothing of what follows.

What a backend reports (`testbed.core.backend`) and what a rule for circuits hears (`topologies.events`) are
events too. What follows from each is said in one table (`testbed.core.reactions`).
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
    """In which order what comes at one time is done."""

    EFFECT = 0
    """Something fails, is known to, or is back."""
    LIGHT = 1
    """Light has changed, or should have by now."""
    ARRIVAL = 2
    """Bytes have arrived."""
    COMPUTE = 3
    """A GPU has computed something."""
    TIMER = 4
    """A timer that was set runs out."""
    START = 5
    """Nodes start that wait for nothing any more."""


OF_THE_JOB = (Phase.ARRIVAL, Phase.COMPUTE, Phase.START)
"""The phases of the job itself, in which time that a live clock takes between two events decides nothing."""


# Nodes and operations


@dataclass(frozen=True, slots=True)
class JobBegan:
    """The clock begins."""


@dataclass(frozen=True, slots=True)
class NodeReady:
    """All that a node waits for has ended."""

    node: str
    rank: int
    """Its place among those that are ready at the same time."""


@dataclass(frozen=True, slots=True)
class TaskReady:
    """GPUs are to compute what a node has them do."""

    node: str
    gpus: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TaskBegan:
    """A GPU computes something of a node from now on."""

    node: str


@dataclass(frozen=True, slots=True)
class Computed:
    """GPUs have computed something, together."""

    node: str
    gpus: tuple[int, ...]
    start_ps: int
    end_ps: int


@dataclass(frozen=True, slots=True)
class PiecesDone:
    """Something of a node is done: so many GPUs have computed, or operations have ended."""

    node: str
    pieces: int = 1


@dataclass(frozen=True, slots=True)
class BytesLeft:
    """Bytes of operations are on nothing, and are to be placed."""

    parcels: Parcels


# Lanes and light


@dataclass(frozen=True, slots=True)
class LanesOpened:
    """Lanes over circuits are in use from now on."""

    lanes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RoutesChanged:
    """Light leads lanes elsewhere; or rules may, on any."""

    everywhere: bool = False


@dataclass(frozen=True, slots=True)
class LanesCut:
    """Lanes did not drain in time: what they have not delivered waits for light."""

    lanes: frozenset[int]


@dataclass(frozen=True, slots=True)
class LanesGoOn:
    """A change of light is over, for which lanes stood."""

    lanes: frozenset[int]


@dataclass(frozen=True, slots=True)
class Released:
    """A collective that was held for OCSes may send."""

    node: str


@dataclass(frozen=True, slots=True)
class HoldExpired:
    """A collective has waited for OCSes as long as it may."""

    node: str


@dataclass(frozen=True, slots=True)
class DrainExpired:
    """A change of light has drained as long as it may."""

    change: int


@dataclass(frozen=True, slots=True)
class RestOrdered:
    """What circuits leave over is to go over packets."""


# Faults


@dataclass(frozen=True, slots=True)
class FaultBegan:
    """Something fails."""

    fault: Fault


@dataclass(frozen=True, slots=True)
class FaultKnown:
    """It is known to have failed."""

    fault: Fault


@dataclass(frozen=True, slots=True)
class FaultEnded:
    """It is back."""

    fault: Fault


@dataclass(frozen=True, slots=True)
class FaultForgotten:
    """It is known to be back."""

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
    """A collective is to be sent once more, all of it."""

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
    | LanesCut
    | LanesGoOn
    | Released
    | HoldExpired
    | DrainExpired
    | RestOrdered
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
        """Until when all is being done that is due; `NEVER` between two turns."""

    def __iter__(self) -> Iterator[Later]:
        """Yield the events, in no order."""
        return (event for *_, event in self._heap)

    @property
    def next_ps(self) -> int:
        """When the next event comes; `NEVER` if none does."""
        return self._heap[0][0] if self._heap else NEVER

    @property
    def goes_on_by_itself(self) -> bool:
        """Whether something will fail, be back, or have been computed."""
        return any(phase in (Phase.EFFECT, Phase.COMPUTE) for _, phase, *_ in self._heap)

    def put(self, at_ps: int, event: Later, now_ps: int) -> None:
        """Have an event come at a time.

        What a job has done by now belongs to this turn, though a live clock has gone on since that began. A
        rule's timers do not: one that sets them again and again would not let time pass.
        """
        phase = PHASE[type(event)]
        if phase in OF_THE_JOB and self._turn_ps < at_ps <= now_ps:
            at_ps = self._turn_ps
        rank = event.rank if isinstance(event, NodeReady) else 0
        heapq.heappush(self._heap, (checked(at_ps), phase, rank, next(self._tickets), event))

    def due(self, now_ps: int) -> Iterator[Later]:
        """Yield the events that have come by now, those among them that others lead to meanwhile."""
        self._turn_ps = now_ps
        while self._heap and self._heap[0][0] <= now_ps:
            yield heapq.heappop(self._heap)[-1]
        self._turn_ps = NEVER
