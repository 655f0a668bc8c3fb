"""What an audit finds, and what it has to know beside the tables, the job and the fabric."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from topologies.fabric import Port
from traffic.faults import AS_IT_WAS, Fault, Revisions

Found = tuple[str, str, int]
"""What cannot be, the table whose row proves it, and which row: as of `Finding`."""


@dataclass(frozen=True)
class Finding:
    """Something in a run's tables that cannot be."""

    check: str
    """Which check found it (`testbed.audit.audit.CHECKS`)."""
    sentence: str
    """What cannot be, and why."""
    table: str
    """The table whose row proves it."""
    row: int
    """Which row, counted from 0; -1 where a row is missing."""

    def __str__(self) -> str:
        place = f"row {self.row} of {self.table}" if self.row >= 0 else f"no row in {self.table}"
        return f"{self.sentence} ({self.check}: {place})"


@dataclass(frozen=True)
class Wire:
    """At which scale ports counted what a run sent."""

    volume: float
    """Emulated bytes over real bytes."""
    mtu: int
    """Of every interface [bytes]."""
    resent: float
    """Packets that were sent again, at all NICs together."""
    on_the_way: int = 0
    """The most that a lane, or a message that chooses, had on its way when asked [real bytes]. As a path
    changes, that goes by the one before, and counts as carried by the one after."""


@dataclass(frozen=True)
class Circumstances:
    """What decides whether the tables of a run can be, beside its job and its fabric."""

    lent_bytes: Mapping[Port, float] = field(default_factory=dict)
    """What the token bucket at a port lets through at once after a pause, in real bytes; 0 where absent."""
    live: bool = False
    """Whether it was emulated: then rates, and times of light, are those of a machine."""
    faults: tuple[Fault, ...] = ()
    """What fails."""
    revisions: Revisions = AS_IT_WAS
    """What becomes of the job then."""
    estimates: bool = False
    """Whether what a message sent over each of several lanes is an estimate: where it chose, in the model."""
    pipelined: bool = False
    """Whether the stages of gathered all-to-alls overlap."""
    late_light_ps: int = 0
    """How much earlier than it was noted light may have come, and how much later it, or a link, may have gone
    [ps]."""
    wire: Wire | None = None
    """How to read the table of the wire; None where it is not held against the legs."""


@dataclass(frozen=True)
class Audit:
    """What came of the audit of a run."""

    findings: tuple[Finding, ...] = ()
    """The first of each check; a run without any is sound."""
    conserved_only: tuple[str, ...] = ()
    """The patterns of a user's own, of which nobody else says what they owe: of these was only checked
    that each message's bytes arrived."""

    share: float = 1.0
    """How many of the nodes were looked at row by row, 0..1: all, but of very large runs."""

    @property
    def limits(self) -> tuple[str, ...]:
        """What was not looked at, in words; nothing as a rule."""
        own = (
            f"of {', '.join(self.conserved_only)} only that every byte arrived" if self.conserved_only else ""
        )
        part = f"{self.share:.1%} of the nodes row by row" if self.share < 1 else ""
        return tuple(filter(None, (own, part)))
