"""The backend: what moves the bytes of operations, on a clock of its own, and has the devices.

Reactions (`testbed.core.reactions`) have it start flows; it lets time pass, and reports what comes of it. It
is physics: it decides nothing. All times are real picoseconds since the start (`traffic.clock`),
all sizes real bytes, whatever the backend's own scale.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from testbed.core.packet_paths import PacketPaths
from topologies.events import Provision, Show
from topologies.fabric import Nic, Port
from topologies.light import Circuit, Configuration
from topologies.routes import Routes
from traffic.clock import NEVER
from traffic.effects import Daemon, DaemonState, LinkState
from traffic.scheme import Choice, WhileLit
from traffic.spraying.policy import QueuePair

NOTHING_COMES = "nothing is on its way, and the job has not ended"
InFlight = Literal["keep", "drop"]
"""The fate of bytes that were sent and have not arrived."""
NVLINK = -1
"""The lane of bytes that move inside a server."""

# What moves


@dataclass(frozen=True, eq=False)
class Flows:
    """Bytes that start to move, each on its lane; parallel arrays, in the order in which they are posted."""

    op: NDArray[np.int64]
    """The operation of each."""
    bytes: NDArray[np.int64]
    """The size of each [bytes]."""
    lane: NDArray[np.int64]
    """The number of the queue pair; `NVLINK` inside a server."""
    source: NDArray[np.int64]
    destination: NDArray[np.int64]
    """The GPUs of those that move inside a server."""
    together: bool = False
    """Whether all move in proportion to their bytes and end together: each operation arrives once."""
    inside: bool = False
    """Whether all move inside servers."""


@dataclass(frozen=True, eq=False)
class Chosen:
    """Operations whose bytes choose lanes as they go, or take whichever are lit; parallel arrays."""

    op: NDArray[np.int64]
    bytes: NDArray[np.int64]
    lanes: Sequence[tuple[int, ...]]
    """The numbers of those that each may use, or of the pairs of NICs between which it may; many share
    theirs."""
    among: Choice | WhileLit
    """The answer of the scheme."""


class Left(NamedTuple):
    """Bytes of an operation that a lane has carried, or has yet to deliver, or that are on no lane."""

    op: int
    lane: int
    """-1 of bytes that are on no lane yet."""
    carried: int = 0
    """Of an operation that chooses: the bytes that the lane delivered since the last report. 0 of others: all
    that was started on their lane was delivered, but for what is left."""
    left: int = 0
    """Bytes that it has yet to deliver, or gave back; 0 of a piece that arrived and was not reported yet."""
    on_the_way: bool = False
    """True if bytes were sent and have not arrived; they still are delivered, unless they are dropped."""
    entropy: int | None = None
    """By which entropy the lane carried it; None of a lane that has one."""


# What is done to a network


@dataclass(frozen=True)
class SetCircuits:
    """OCSes are to carry circuits, and to report `LightChanged` when each does."""

    circuits: Configuration
    first: bool = False
    """True of the circuits of the start: the clock stands until they are lit, and nothing is reported."""
    flips: bool = False
    """Whether they are what the OCSes provisioned."""


@dataclass(frozen=True)
class SetLink:
    """The link at a port does what a state says, from now on."""

    port: Port
    state: LinkState


@dataclass(frozen=True)
class SetDaemon:
    """A process of the network is killed, or started again."""

    daemon: Daemon
    state: DaemonState


@dataclass(frozen=True)
class Expect:
    """Something that is away will be back, so that bytes may make no progress until then; or nothing will."""

    back: bool


@dataclass(frozen=True)
class KnowRates:
    """These NICs, and no others, are known to have a share of their rate only."""

    shares: Mapping[Nic, float]


@dataclass(frozen=True)
class Lead:
    """Lanes over circuits, and servers that forward, take routes; a lane without one stands."""

    routes: Routes
    """Over what is known to be lit and not to have failed."""
    nics: Collection[Nic] | None = None
    """Those whose lanes may have others than before; None for all."""
    failed: frozenset[Port] | None = None
    """All ports that are known to have failed, around which packets are led; None if as before."""


NetworkOrder = SetCircuits | Provision | Show | Lead | SetLink | SetDaemon | Expect | KnowRates
"""`Provision` is reported by `NowProvisioned`, `Show` by `LightChanged` for each slot and between two."""

# What is reported


@dataclass(frozen=True)
class Arrived:
    """The last byte arrived of what was started together of an operation on a lane."""

    op: int
    at_ps: int
    lane: int | None = None
    """`NVLINK`, or the number of the queue pair; None of what chose lanes, or moved together."""


@dataclass(frozen=True)
class LightChanged:
    """The circuits that an OCS carries from now on, as the device has them."""

    ocs: str
    circuits: tuple[Circuit, ...]
    at_ps: int
    until_ps: int | None = NEVER
    """When that changes, as far as it is planned; None while the device moves on in a program."""


@dataclass(frozen=True)
class NowProvisioned:
    """An OCS has set circuits beside those that it shows."""

    ocs: str
    circuits: tuple[Circuit, ...]
    at_ps: int


@dataclass(frozen=True)
class Drained:
    """Nothing is on its way any more over the queue pairs that stand for a change of light."""

    change: int
    at_ps: int


Happening = Arrived | Drained | LightChanged | NowProvisioned


class Backend(Protocol):
    """Physics: it owns time, the lanes, NVLink, and the devices of the network."""

    packet_paths: PacketPaths
    """The paths of its queue pairs over packet switches."""

    def start(self, flows: Sequence[Flows | Chosen], *, first: bool = False) -> None:
        """Have bytes move from now on, behind what their lanes carry.

        With ``first`` a collective begins with them: shapers lend what they have saved, if nothing else is on
        its way.
        """
        ...

    def advance(self, to_ps: int) -> Sequence[Happening]:
        """Let time pass until something happens, at most until ``to_ps``; return what did."""
        ...

    @property
    def now_ps(self) -> int:
        """Time since the start [ps]."""
        ...

    def open(self, queue_pairs: Sequence[QueuePair]) -> list[int]:
        """Return the number of each queue pair; those that are not open are opened."""
        ...

    def stop(
        self,
        lanes: Sequence[int] = (),
        ops: Sequence[int] = (),
        *,
        in_flight: InFlight = "drop",
    ) -> list[Left]:
        """Take back the bytes that lanes, or operations that choose theirs, have not delivered.

        Parameters
        ----------
        lanes
            They are closed if what is in flight is dropped; else they deliver it.
        ops
            Those of them that lack bytes, and with one that chooses all that choose from lanes of its: all
            that they put on lanes is dropped. Those that have arrived are forgotten.
        """
        ...

    def under_way(self, lanes: Sequence[int] = (), ops: Sequence[int] = ()) -> list[Left]:
        """Report the bytes that lanes have yet to deliver, and that operations lack which choose.

        Those that take what is lit count as choosing. Operations that go together are left out.
        """
        ...

    def carried(self, ops: Sequence[int]) -> list[Left]:
        """Report the bytes that lanes carried, since the last report, of operations that choose."""
        ...

    def owed(self, lanes: Sequence[int]) -> int:
        """Return the bytes that lanes have yet to deliver, but for operations that choose or go together."""
        ...

    def pause(self, lanes: Collection[int], change: int | None = None) -> None:
        """Have lanes stand until they are resumed; report `Drained` once nothing of theirs is on its way."""
        ...

    def resume(self, lanes: Collection[int]) -> None:
        """Let lanes send again that have a route."""
        ...

    def carry_out(self, order: NetworkOrder) -> None:
        """Carry out an order to the network."""
        ...
