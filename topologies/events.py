"""What happens in a run, what can be seen then, and what may be ordered: values for any backend."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from topologies.fabric import Fabric, Nic, Port
from topologies.light import Circuit


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
    """An OCS carries what was ordered last."""

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


Event = NodeStarted | NodeDone | Lit | FaultDetected | FaultOver | TimerFired | ProgramsEnded


@dataclass(frozen=True)
class Reconfigure:
    """Drain what crosses circuits that end, and have an OCS make others; `Lit` follows."""

    ocs: str
    circuits: tuple[Circuit, ...]
    """All that it has afterwards; a circuit that it has already stays lit."""


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
    """Have a collective that begins now send only once an OCS shows all that it was ordered."""

    node: str
    ocs: str


Order = Reconfigure | Show | SetTimer | SendRest | Hold


def _none(_nic: Nic) -> int:
    return 0


@dataclass(frozen=True)
class View:
    """What decisions are made from."""

    now_s: float
    fabric: Fabric
    lit: Mapping[str, tuple[Circuit, ...]]
    """The circuits of each OCS that carry."""
    failed: frozenset[Port]
    """The ports that are known to have failed."""
    communicator: int = 0
    """That of messages which are to be placed."""
    backlog_bytes: Callable[[Nic], int] = field(default=_none, compare=False)
    """What its queue pairs from a NIC have yet to deliver [bytes]."""
