"""The transports by name; a user's own is named ``module:Class``.

``tcp`` is the kernel's TCP with cubic; ``tcp:bbr``, ``tcp:reno`` and so on name what controls its congestion.
"""

from collections.abc import Callable
from inspect import isclass
from typing import cast

from topologies.errors import ScenarioError
from topologies.own import own_object
from traffic.transports.credit import Credit
from traffic.transports.ideal import Ideal
from traffic.transports.tcp import Tcp
from traffic.transports.transport import NicRate, Transport

Maker = Callable[[NicRate, int], Transport]
"""Makes a transport from the rates of NICs at emulated scale, and the payload of a packet [bytes]."""
TRANSPORTS: dict[str, Maker] = {"credit": Credit, "tcp": Tcp, "ideal": Ideal}
"""Every transport that comes with lightrail, besides `tcp` with another congestion control."""
DATAGRAMS = "datagrams"
"""What carries bytes over circuits, whatever the transport: numbered datagrams, since light is one-way."""
USUAL_CONTROL = "cubic"
PAGE = "docs/own_transport.md"


def transport_named(name: str) -> Maker:
    """Return what makes a transport.

    Raises
    ------
    ScenarioError
        If no transport has that name, or what has it is none.
    """
    if congestion_control(name):
        return Tcp
    if ":" in name:
        return _own(name)
    if name not in TRANSPORTS:
        raise ScenarioError(
            f"there is no transport named {name!r}",
            f"choose among {', '.join(TRANSPORTS)}, tcp:reno and the like, or your own as module:Class",
        )
    return TRANSPORTS[name]


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
    if congestion_control(name):
        return False
    own = TRANSPORTS.get(name) or own_object("transport", name)
    return bool(getattr(own, "by_bytes", False))


def _own(name: str) -> Maker:
    own = own_object("transport", name)
    lacking = [part for part in ("period_s", "know", "limits") if not hasattr(own, part)]
    if not isclass(own) or lacking:
        raise ScenarioError(
            f"{name!r} is no transport",
            f"give a class with period_s and the methods know and limits, see {PAGE}",
        )

    def made(nic_rate_bps: NicRate, packet_bytes: int) -> Transport:
        try:
            return cast(Maker, own)(nic_rate_bps, packet_bytes)
        except TypeError as error:
            raise ScenarioError(
                f"the transport {name!r} cannot be made: {error}",
                f"its class takes the rate of a NIC and the bytes of a packet, see {PAGE}",
            ) from error

    return made
