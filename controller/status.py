"""What the controller tells about itself and its switches: the answers of its northbound."""

from dataclasses import dataclass

from topologies.fabric import Link


@dataclass(frozen=True, slots=True)
class Status:
    """Whether the network forwards as it should."""

    ready: bool
    """Every switch has confirmed all rules that follow from the fabric and the failed links."""
    missing: tuple[str, ...]
    """Switches without a connection."""
    waiting: tuple[str, ...]
    """Switches that are connected and have not confirmed their rules."""
    failed_links: tuple[str, ...]
    """Links that a switch calls down, as ``leaf0:3 - spine1:0``; also one whose port does not exist."""
    errors: tuple[str, ...]
    """What switches refused: one sentence each."""


@dataclass(frozen=True, slots=True)
class SwitchStatus:
    """A switch."""

    name: str
    connected: bool
    ready: bool
    """It has confirmed its rules."""
    flows: int | None
    """How many rules it has, counted by itself; None without a connection."""
    groups: int | None
    """How many groups it has, counted by itself."""


@dataclass(frozen=True, slots=True)
class FlowStatus:
    """A rule that a switch has, told by itself; ports count from 0."""

    priority: int
    match: str
    actions: str
    packets: int
    bytes: int


@dataclass(frozen=True, slots=True)
class PortCounters:
    """What went through a port, told by its switch."""

    port: int
    """The port's number, counted from 0."""
    rx_packets: int
    tx_packets: int
    rx_bytes: int
    tx_bytes: int
    rx_dropped: int
    tx_dropped: int


@dataclass(frozen=True, slots=True)
class PortStatus:
    """The counters of a switch."""

    ports: tuple[PortCounters, ...]
    table_miss_packets: int
    """Packets that no rule took: they were dropped."""


def link_name(link: Link) -> str:
    """Return a link's name in `Status.failed_links`."""
    return f"{link.a} - {link.b}"
