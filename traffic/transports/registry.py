"""The transports by name; a user's own is named ``module:Class``.

``tcp`` is the kernel's TCP with cubic; ``tcp:bbr``, ``tcp:reno`` and so on name what controls its congestion.
"""

import re
from collections.abc import Callable
from dataclasses import fields
from inspect import isclass, signature
from typing import cast

import numpy as np

from topologies.errors import ScenarioError
from topologies.own import own_code, own_object
from traffic.transports.ideal import Ideal
from traffic.transports.tcp import Tcp
from traffic.transports.transport import Limits, NicRate, Offered, Transport

Maker = Callable[[NicRate, int], Transport]
"""Makes a transport from the rates of NICs at emulated scale, and the payload of a packet [bytes]."""
CREDIT = "credit"
"""The transport that moves datagrams by receiver credits (`traffic.transports.datagram_engine`)."""
OVER_TCP: dict[str, Maker] = {"tcp": Tcp, "ideal": Ideal}
"""The others that come with lightrail, besides `tcp` with another congestion control: limits of TCP."""
DATAGRAMS = "datagrams"
"""What carries bytes over circuits, whatever the transport: numbered datagrams, since light is one-way."""
USUAL_CONTROL = "cubic"
CONTROLS = re.compile(r"[A-Za-z0-9_.-]{1,15}")
"""The names that Linux has room for."""
PAGE = "docs/howto/own_transport.md"


def sends_datagrams(name: str) -> bool:
    """Return whether a transport moves datagrams, each of an entropy of its own, over packet switches."""
    return name == CREDIT


def check_transport(name: str) -> None:
    """Raise ScenarioError if no transport has a name, or what has it is not a transport."""
    if not sends_datagrams(name):
        limits_named(name)


def limits_named(name: str) -> Maker:
    """Return what makes the limits of a transport over TCP.

    Raises
    ------
    ScenarioError
        If no such transport has that name, or what has it is not a transport.
    """
    if control := congestion_control(name):
        if not CONTROLS.fullmatch(control):  # before it is a word of a command
            raise ScenarioError(f"{control!r} controls no congestion", "name it as Linux does: tcp:reno")
        return Tcp
    if ":" in name:
        return _own(name)
    if name not in OVER_TCP:
        raise ScenarioError(
            f"there is no transport named {name!r}",
            f"choose among {CREDIT}, {', '.join(OVER_TCP)}, tcp:reno and the like, or your own as"
            " module:Class",
        )
    return OVER_TCP[name]


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
    if congestion_control(name) or sends_datagrams(name):
        return False
    own = OVER_TCP.get(name) or own_object("transport", name)
    return bool(getattr(own, "by_bytes", False))


class OwnTransport:
    """A user's own, whose limits are looked at before they are used.

    Parameters
    ----------
    name
        How it was named: ``module:Class``.
    own
        The transport.
    """

    def __init__(self, name: str, own: Transport) -> None:
        self.by_bytes = by_bytes(name)
        self._name, self._own = name, own
        self.know = own_code("transport", name)(own.know)

    @property
    def period_s(self) -> float:
        """How often it is to be asked now [s]."""
        with own_code("transport", self._name):
            return self._own.period_s

    def limits(self, offered: Offered) -> Limits:
        """Return what it returns; ScenarioError if these are not limits of all queue pairs."""
        size = len(offered.left_bytes)
        with own_code("transport", self._name):
            limits = self._own.limits(offered)
        if not isinstance(limits, Limits):
            raise self._refused(f"an object of type {type(limits).__name__}")
        for name in (field.name for field in fields(Limits)):
            if np.shape(getattr(limits, name)) != (size,):
                raise self._refused(f"{name} of shape {np.shape(getattr(limits, name))}, not ({size},)")
        if not (limits.pace_bytes_s > 0).all():
            raise self._refused("a pace that is not positive")
        return limits

    def _refused(self, what: str) -> ScenarioError:
        return ScenarioError(f"the transport {self._name!r} returned {what}", f"see {PAGE}")


def _own(name: str) -> Maker:
    own = own_object("transport", name)
    lacking = [part for part in ("period_s", "know", "limits") if not hasattr(own, part)]
    if not isclass(own) or lacking:
        raise ScenarioError(
            f"{name!r} is not a transport",
            f"give a class with period_s and the methods know and limits, see {PAGE}",
        )
    try:
        signature(own).bind(None, 0)
    except (TypeError, ValueError) as error:
        raise ScenarioError(
            f"the transport {name!r} cannot be made: {error}",
            f"its class takes the rate of a NIC and the bytes of a packet, see {PAGE}",
        ) from error

    def make(nic_rate_bps: NicRate, packet_bytes: int) -> OwnTransport:
        with own_code("transport", name):
            transport = cast(Maker, own)(nic_rate_bps, packet_bytes)
        return OwnTransport(name, transport)

    return make
