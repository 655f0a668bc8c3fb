"""What an OCS' state machine (`reconfiguration`) orders; `controller.app.ocs` carries it out."""

from dataclasses import dataclass

from controller.circuits.circuits import Circuits, Pair


@dataclass(frozen=True)
class Darken:
    """Take circuits away and report `confirmed` when they are dark on the wire."""

    number: int
    pairs: tuple[Pair, ...]


@dataclass(frozen=True)
class Prepare:
    """Bring circuits to the switch, not yet in force."""

    number: int
    pairs: tuple[Pair, ...]


@dataclass(frozen=True)
class Wait:
    """Report `woken` at a time."""

    number: int
    until_s: float


@dataclass(frozen=True)
class Connect:
    """Put what was prepared in force and report `confirmed` when it is lit on the wire."""

    number: int


@dataclass(frozen=True)
class Notify:
    """Notify the subscriber of the circuits that are lit from now on."""

    circuits: Circuits
    """What is known to be lit; nothing while the switch is not connected."""
    now: float
    until_s: float | None
    """When some of it goes dark, if a program has said so; far off after a flip."""
    ended: bool = False
    """Whether the program is over."""
    error: str = ""
    """Why the program ended before its time: a refusal or a failed proof; empty if it did not."""


Order = Darken | Prepare | Wait | Connect | Notify
