"""What happens in a run, what can be seen then, and what may be ordered: values for any backend."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from topologies.fabric import Fabric, Nic, Port
from topologies.light import Circuit, Configuration
from topologies.routes import Routes
from topologies.routing import Routing


@dataclass(frozen=True)
class NodeStarted:
    """A node of the job began."""

    node: str


@dataclass(frozen=True)
class NodeDone:
    """A node of the job ended."""

    node: str


@dataclass(frozen=True)
class Lit:
    """OCSes that were reconfigured together carry what was ordered of them."""

    ocses: tuple[str, ...]
    """In the order of their names."""


@dataclass(frozen=True)
class Refused:
    """OCSes stay as they were: what crosses circuits that were to end did not drain in time."""

    ocses: tuple[str, ...]
    """In the order of their names."""


@dataclass(frozen=True)
class Provisioned:
    """An OCS has set the circuits that were provisioned, beside those that it shows."""

    ocs: str


@dataclass(frozen=True)
class FaultDetected:
    """A part of the fabric is known to have failed."""

    fault: str
    """Its name."""


@dataclass(frozen=True)
class FaultOver:
    """What had failed is known to be back."""

    fault: str
    """Its name."""


@dataclass(frozen=True)
class TimerFired:
    """A timer that was set ran out."""

    name: str


@dataclass(frozen=True)
class ProgramsEnded:
    """All OCSes have shown what `Show` gave them, and are dark."""

    left: tuple[tuple[int, int, int], ...]
    """What messages over circuits lack: source and destination GPU, and bytes."""


Event = (
    NodeStarted
    | NodeDone
    | Lit
    | Refused
    | Provisioned
    | FaultDetected
    | FaultOver
    | TimerFired
    | ProgramsEnded
)
AtDeadline = Literal["cut", "refuse"]
"""What happens where lanes have not drained in time: they are closed, and what they lack is sent again when
there is light; or nothing is changed."""


@dataclass(frozen=True)
class Reconfigure:
    """Drain what changes its route, and have OCSes make other circuits, all at once; `Lit` follows.

    Lanes whose route changes stand until all of these OCSes are lit.
    """

    circuits: Configuration
    """All that each OCS has afterwards; a circuit that it has already stays lit."""
    deadline_s: float | None = None
    """How long draining may take [s]; None for as long as it takes."""
    at_deadline: AtDeadline = "cut"


@dataclass(frozen=True)
class Provision:
    """Have an OCS set circuits beside those that it shows, which stay lit; `Provisioned` follows.

    That takes its reconfiguration delay. An OCS has one such configuration at a time.

    References
    ----------
    TopoOpt, appendix C: the look-ahead panel.
    """

    ocs: str
    circuits: tuple[Circuit, ...]


@dataclass(frozen=True)
class Flip:
    """Have OCSes show what was provisioned, all at once, as `Reconfigure` does; `Lit` follows.

    It waits until all have provisioned their circuits, and each is dark for the time of its flip. What they
    showed until then is provisioned afterwards.
    """

    ocses: tuple[str, ...]
    deadline_s: float | None = None
    """How long draining may take [s]; None for as long as it takes."""
    at_deadline: AtDeadline = "cut"


@dataclass(frozen=True)
class TimedCircuits:
    """Circuits, and how long they are lit."""

    circuits: tuple[Circuit, ...]
    lit_s: float
    """[s], positive."""


@dataclass(frozen=True)
class Show:
    """Have OCSes show circuits one after the other, each at its own pace; `ProgramsEnded` follows.

    Nothing is drained: senders know when their circuits end, and what is lost is sent again. Each OCS is dark
    for its reconfiguration delay before circuits that it did not have, and after its last.
    """

    programs: tuple[tuple[str, tuple[TimedCircuits, ...]], ...]
    """Each OCS, and what it shows; all begin together."""
    partial: bool = False
    """Whether circuits that follow each other stay lit between; if not, all go dark."""
    exact: bool = False
    """Whether a backend lights the last circuits no longer than that, as `SendRest` follows; else it may, so
    that what is late needs no round of its own."""


@dataclass(frozen=True)
class SetTimer:
    """Have `TimerFired` follow."""

    name: str
    after_s: float
    """How much later [s]."""


@dataclass(frozen=True)
class SendRest:
    """Send over packets what messages over circuits lack, and those that start until the next `Show`."""


@dataclass(frozen=True)
class Hold:
    """Have a collective that begins now send only once OCSes show all that they were ordered."""

    node: str
    ocses: tuple[str, ...]
    deadline_s: float | None = None
    """How long it waits at most [s]; None for as long as it takes."""


Order = Reconfigure | Provision | Flip | Show | SetTimer | SendRest | Hold


@dataclass(frozen=True)
class View:
    """What decisions are made from."""

    now_s: float
    fabric: Fabric
    lit: Configuration
    """The circuits of each OCS that carry."""
    failed: frozenset[Port]
    """The ports that are known to have failed."""
    communicator: int = 0
    """That of messages which are to be placed."""
    backlog_bytes: Callable[[Nic], int] = field(default=lambda _nic: 0, compare=False)
    """What its queue pairs from a NIC have yet to deliver [bytes]."""
    light_is_coming: bool = False
    """Whether OCSes do not yet show what was ordered."""
    ordered: Configuration = field(default_factory=dict)
    """The circuits of each OCS once all is carried out that was ordered."""
    held: tuple[str, ...] = ()
    """The collectives that are held until OCSes show what was ordered."""
    rates: Mapping[Nic, float] = field(default_factory=dict)
    """The shares of their rate that NICs are known to have, where that is not all of it."""
    gone: frozenset[int] = frozenset()
    """The GPUs that are known to be gone."""
    routing: Routing | None = None
    """By which NIC servers send on; None by the shortest path."""
    owed: Callable[[], NDArray[np.int64]] = field(
        default=lambda: np.zeros((0, 0), dtype=np.int64), compare=False
    )
    """Returns what has to be lit for: the bytes that each server owes each other one and may send now, shape
    (servers, servers), but for what goes over packets."""

    known: Routes | None = field(default=None, compare=False, repr=False)
    """Routes that were found, which may be those over what is lit."""

    def routes(self) -> Routes:
        """Return the routes over what is lit, around what is known to have failed."""
        if self.known and self.known.are_for(self.fabric, self.lit, self.failed, self.routing):
            return self.known
        return Routes(self.fabric, self.lit, self.failed, self.routing)
