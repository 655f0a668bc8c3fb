"""The transports by name; a user's own is named ``module:Class``.

``tcp`` is the kernel's TCP with cubic; ``tcp:bbr``, ``tcp:reno`` and so on name what controls its congestion.
All others are congestion controls over datagrams (`traffic.congestion`).
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from inspect import isclass, signature
from numbers import Real
from typing import cast

from topologies.errors import ScenarioError
from topologies.own import own_object
from traffic.congestion.control import AllSources, CongestionControl, ReceiverControl, Red
from traffic.congestion.credit import Credit
from traffic.congestion.dctcp import Dctcp
from traffic.congestion.ideal import Ideal
from traffic.congestion.nscc import Nscc
from traffic.congestion.own_control import (
    GRANTED_PARTS,
    PARTS,
    RECEIVER_PARTS,
    checked,
    checked_overview,
    checked_receiver,
)
from traffic.congestion.swift import Swift

DATAGRAMS = "datagrams"
"""The transport of a schedule's circuits, whichever is asked for: datagrams without congestion control."""
USUAL_CONTROL = "cubic"
CONTROLS = re.compile(r"[A-Za-z0-9_.-]{1,15}")
"""The names that Linux has room for."""
MADE_WITH = "pipe", "rng"
"""The arguments of a congestion control."""
CLAIRVOYANT_WITH = *MADE_WITH, "overview", "number"
"""Those of one with an overview."""
PAGE = "docs/howto/own_transport.md"


@dataclass(frozen=True)
class Algorithm:
    """A congestion control over datagrams, by what its class says of itself."""

    name: str
    make: Callable[..., CongestionControl]
    """Makes the congestion control of a source from its `Pipe` and a random generator, and what `AllSources`
    says besides."""
    marks: Red | None = None
    """By which queues packets are marked; None for the usual ones."""
    receiver: Callable[[float, int], ReceiverControl[object, object]] | None = None
    """Makes the receiver's side from a NIC's rate [bytes/s] and a packet's payload, where receivers grant."""
    overview: Callable[[AllSources, int], object] | None = None
    """Makes, once for a run, what sees all sources: from their view, and a packet's payload."""
    by_bytes: bool = False
    """Whether queue pairs that meet share by what each has left, instead of evenly: for the prediction."""
    in_packets: Mapping[str, float] = field(default_factory=dict)
    in_round_trips: Mapping[str, float] = field(default_factory=dict)
    in_packet_times: Mapping[str, float] = field(default_factory=dict)
    """Its constants (`traffic.congestion.control.CongestionControl`)."""

    @property
    def clairvoyant(self) -> bool:
        """Whether it sees what no NIC can: all sources."""
        return self.overview is not None


NAMED: dict[str, Callable[..., CongestionControl]] = {
    "credit": Credit,
    "nscc": Nscc,
    "dctcp": Dctcp,
    "swift": Swift,
    "ideal": Ideal,
}
"""Those that come with lightrail."""


def sends_datagrams(name: str) -> bool:
    """Return whether a transport moves datagrams, each of an entropy of its own, over packet switches."""
    return congestion_control(name) is None


def check_transport(name: str) -> None:
    """Raise ScenarioError if no transport has a name, or what has it is not a transport."""
    control = congestion_control(name)
    if control is None:
        algorithm_named(name)
    elif not CONTROLS.fullmatch(control):  # before it is a word of a command
        raise ScenarioError(f"{control!r} controls no congestion", "name it as Linux does: tcp:reno")


@cache
def algorithm_named(name: str) -> Algorithm:
    """Return the congestion control over datagrams that a transport's name stands for.

    Raises
    ------
    ScenarioError
        If there is none of that name, or what has it is not one.
    """
    if ":" in name:
        return _of(name, _own(name))
    if name not in NAMED:
        raise ScenarioError(
            f"there is no transport named {name!r}",
            f"choose among {', '.join(NAMED)}, tcp, tcp:reno and the like, or your own as module:Class",
        )
    return _of(name, NAMED[name])


def congestion_control(name: str) -> str | None:
    """Return what controls the congestion of a transport that is the kernel's TCP; None for another.

    Examples
    --------
    >>> congestion_control("tcp"), congestion_control("tcp:bbr"), congestion_control("credit")
    ('cubic', 'bbr', None)
    """
    kernel, _, control = name.partition(":")
    return (control or USUAL_CONTROL) if kernel == "tcp" else None


def by_bytes(name: str) -> bool:
    """Return whether queue pairs that meet share by what each has left under a transport."""
    return sends_datagrams(name) and algorithm_named(name).by_bytes


def waits_for_grants(name: str) -> bool:
    """Return whether bytes wait for a grant of their receiver under a transport, for the prediction."""
    return sends_datagrams(name) and algorithm_named(name).receiver is not None


def is_clairvoyant(name: str) -> bool:
    """Return whether a transport sees what no NIC can."""
    return name != DATAGRAMS and sends_datagrams(name) and algorithm_named(name).clairvoyant


def _of(name: str, control: Callable[..., CongestionControl]) -> Algorithm:
    receiver, overview = (getattr(control, each, None) for each in ("receiver", "overview"))
    is_own = ":" in name
    return Algorithm(
        name,
        checked(name, control) if is_own else control,
        getattr(control, "marks", None),
        checked_receiver(name, receiver) if is_own and receiver else receiver,
        checked_overview(name, overview) if is_own and overview else overview,
        getattr(control, "by_bytes", False),
        *(_constants(name, control, kind) for kind in ("in_packets", "in_round_trips", "in_packet_times")),
    )


def _constants(name: str, control: Callable[..., CongestionControl], kind: str) -> Mapping[str, float]:
    """Return the constants of a kind; ScenarioError if a user's own are not numbers by name."""
    found = getattr(control, kind, {})
    if isinstance(found, Mapping) and all(isinstance(value, Real) for value in found.values()):
        return {str(what): float(value) for what, value in found.items()}
    raise ScenarioError(
        f"{kind} of the transport {name!r} is {found!r}", "give names and numbers, as {'a': 8}"
    )


def _own(name: str) -> Callable[..., CongestionControl]:
    own = own_object("transport", name)
    hint = f"give a class with the methods {', '.join(PARTS)}, see {PAGE}"
    if not isclass(own):
        raise ScenarioError(
            f"{name!r} is not a transport: it is a {type(own).__name__} and not a class", hint
        )
    if lacking := [part for part in PARTS if not hasattr(own, part)]:
        raise ScenarioError(f"{name!r} is not a transport: it lacks {', '.join(lacking)}", hint)
    _check_attributes(name, own)
    made_with = CLAIRVOYANT_WITH if getattr(own, "overview", None) else MADE_WITH
    try:
        signature(own).bind(*made_with)
    except (TypeError, ValueError) as error:  # a ValueError: it is written in C and has no signature
        raise ScenarioError(
            f"the transport {name!r} cannot be made with {', '.join(made_with)}: {error}",
            f"write it as: def __init__(self, {', '.join(made_with)}), see {PAGE}",
        ) from error
    return cast(Callable[..., CongestionControl], own)


def _check_attributes(name: str, own: type) -> None:
    """Raise ScenarioError if an attribute of a user's own class is not what it has to be."""
    marks, by_bytes = getattr(own, "marks", None), getattr(own, "by_bytes", False)
    receiver, overview = (getattr(own, each, None) for each in ("receiver", "overview"))
    if marks is not None and not _is_red(marks):
        raise ScenarioError(
            f"marks of the transport {name!r} is {marks!r}",
            "give lr.Red(least, most), shares of the BDP, both 0 or more",
        )
    if not isinstance(by_bytes, bool):
        raise ScenarioError(f"by_bytes of the transport {name!r} is {by_bytes!r}", "give True or False")
    if overview is not None and not isclass(overview):
        raise ScenarioError(f"overview of the transport {name!r} is {overview!r}", "give a class")
    if receiver is None:
        return
    lacking = [part for part in GRANTED_PARTS if not hasattr(own, part)]
    lacking += [f"receiver.{part}" for part in RECEIVER_PARTS if not hasattr(receiver, part)]
    if lacking:
        raise ScenarioError(
            f"{name!r} has receivers that cannot grant: it lacks {', '.join(lacking)}",
            f"give a class as lr.ReceiverControl is, and the methods of lr.Granted, see {PAGE}",
        )


def _is_red(marks: object) -> bool:
    """Return whether marks are a curve of lengths."""
    if not isinstance(marks, Red):
        return False
    lengths = marks.least, marks.most, marks.least_packets
    return all(isinstance(each, Real) and each >= 0 for each in lengths)
