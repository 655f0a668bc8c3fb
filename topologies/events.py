"""What happens in a run, what can be seen then, and what may be ordered: values for any backend."""

from collections.abc import Mapping
from dataclasses import dataclass

from topologies.fabric import Fabric, Port
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
class TimerFired:
    """A timer that was set ran out."""

    name: str


Event = NodeStarted | NodeDone | Lit | FaultDetected | TimerFired


@dataclass(frozen=True)
class Reconfigure:
    """Drain what crosses circuits that end, and have an OCS make others; `Lit` follows."""

    ocs: str
    circuits: tuple[Circuit, ...]
    """All that it has afterwards; a circuit that it has already stays lit."""


@dataclass(frozen=True)
class SetTimer:
    """Have `TimerFired` follow."""

    name: str
    after_s: float
    """How much later [s]."""


Order = Reconfigure | SetTimer


@dataclass(frozen=True)
class View:
    """What decisions are made from."""

    now_s: float
    fabric: Fabric
    lit: Mapping[str, tuple[Circuit, ...]]
    """The circuits of each OCS that carry."""
    failed: frozenset[Port]
    """The ports that are known to have failed."""
