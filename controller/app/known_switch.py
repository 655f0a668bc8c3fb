"""What the app knows of a switch."""

from dataclasses import dataclass, field

from controller.app.openflow import Datapath
from controller.packet.rules import RuleSet
from topologies.fabric import Port


@dataclass(eq=False)
class KnownSwitch:
    """A switch of the fabric, connected or not."""

    name: str
    datapath: Datapath = None
    """The connection, None if there is none."""
    down_ports: set[Port] = field(default_factory=set)
    """Linked ports that the switch calls down or does not have, as last reported."""
    rules: RuleSet | None = None
    """What was sent to it, None if nothing yet on this connection."""
    barrier: int | None = None
    """The transaction of the barrier that is not proved to be on the wire yet, None if none is."""
    error: str = ""
    """What it refused on this connection."""
    unproved: str = ""
    """Why its rules are not proved to be on the wire, until they are."""

    @property
    def ready(self) -> bool:
        """Whether all its rules are on the wire."""
        return self.rules is not None and self.barrier is None and not self.error
