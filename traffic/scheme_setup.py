"""Schemes as experiments have them: by name, or as a value with settings, written down by its word."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from topologies.errors import ScenarioError
from topologies.own_value import Kind
from traffic.scheme import OnceLit, OverCircuits, Routed, Scheme
from traffic.transports.slots import LEAST_MARGINS, Margins, Meeting

ONCE_LIT, ROUTED = "once lit", "routed"
BY_LIGHT: Mapping[str, Callable[[], Scheme]] = {ONCE_LIT: OnceLit, ROUTED: Routed}
"""The schemes of messages that circuits alone carry, by name: directly, or through servers that forward."""
SETUPS = {
    "while lit": "traffic.scheme_setup:WhileLitSetup",
    "delegated": "traffic.delegated:DelegatedSetup",
}
"""Every scheme with settings; imported when it is asked for, so that none is needed for another."""
SCHEME: "Kind[SchemeSetup]" = Kind(
    "scheme",
    "traffic/scheme_setup.py",
    methods=("scheme",),
    values=("name", "words", "rest", "by_bytes"),
    parts="name, words, rest, by_bytes and scheme",
    error=ScenarioError,
    word="scheme",
    built_in=SETUPS,
)
"""One with settings, as `topologies.own_value` writes it to JSON and reads it back."""


@runtime_checkable
class SchemeSetup(Protocol):
    """A scheme with settings: a frozen value.

    What a scheme gathers inside servers crosses once all of it is gathered, and is scattered once all has
    crossed. One whose stages overlap instead says so by an attribute ``pipelined = True``; one whose
    collectives cannot go on without one of their GPUs, by ``needs_all_gpus = True``.
    """

    @property
    def name(self) -> str:
        """What tables call it."""
        ...

    @property
    def words(self) -> list[str]:
        """What of it is not as usual, as tables name it."""
        ...

    @property
    def rest(self) -> str:
        """The spraying policy that carries some messages over packets; empty if none does."""
        ...

    @property
    def by_bytes(self) -> bool:
        """Whether queue pairs that it places itself may share links by what each has left."""
        ...

    def scheme(self, rest: Scheme | None, *, over_circuits: bool) -> Scheme:
        """Return the scheme for one run.

        Parameters
        ----------
        rest
            What sprays by the policy `rest`; None without one.
        over_circuits
            Whether circuits alone carry all.
        """
        ...


def pipelined(scheme: object) -> bool:
    """Return whether the stages of a scheme's collectives overlap."""
    return bool(getattr(scheme, "pipelined", False))


def needs_all_gpus(scheme: object) -> bool:
    """Return whether a scheme's collectives need all of their GPUs, whatever has failed."""
    return bool(getattr(scheme, "needs_all_gpus", False))


@dataclass(frozen=True)
class WhileLitSetup:
    """Messages as datagrams over whichever circuits are lit (`OverCircuits`), as schedules need."""

    meeting: Meeting = "drain"
    """What senders do before circuits go dark."""
    margins: Margins = LEAST_MARGINS
    """What slots are longer for in the emulation (`testbed.trust.dark_excess`)."""
    rest: str = ""
    """The spraying policy that sends over packet switches what circuits leave over; where there is none, it
    goes into clean-up rounds."""
    name = "while lit"
    by_bytes = False

    @property
    def words(self) -> list[str]:
        """What of it is not as usual, as tables name it."""
        return [self.meeting] * (self.meeting != "drain") + [self.rest] * bool(self.rest)

    def scheme(self, rest: Scheme | None, *, over_circuits: bool) -> Scheme:
        """Return the scheme for one run."""
        return OverCircuits(rest)


WHILE_LIT = WhileLitSetup()


def check_over_circuits(scheme: str | SchemeSetup, carries: str) -> None:
    """Refuse a scheme that does not go with how a rule's circuits carry messages.

    Parameters
    ----------
    scheme
        Of an experiment.
    carries
        As of `controller.circuits.rule.Rule`; empty without circuits.

    Raises
    ------
    ScenarioError
        If it does not.
    """
    name = scheme if isinstance(scheme, str) else scheme.name
    if carries == "while lit":
        fits, hint = isinstance(scheme, WhileLitSetup), "take WHILE_LIT, or a WhileLitSetup with a rest"
    elif carries == "once lit":
        fits = name in BY_LIGHT or not isinstance(scheme, str | WhileLitSetup)
        hint = f"take {ONCE_LIT!r}, {ROUTED!r} or a scheme with settings that places bytes on circuits"
    else:
        fits, hint = name not in BY_LIGHT and not isinstance(scheme, WhileLitSetup), "give circuits that do"
    if not fits:
        beside = f"circuits that carry messages {carries}" if carries else "no circuits"
        raise ScenarioError(f"the scheme {name!r}, and {beside}", hint)
