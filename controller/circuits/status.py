"""What the controller reports of itself and its switches: the answers of its northbound."""

from dataclasses import dataclass


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
    unproved: tuple[str, ...]
    """Why rules that a switch has confirmed are not proved to be on the wire yet: a sentence each."""
    errors: tuple[str, ...]
    """What switches refused, and where the controller itself failed: a sentence each."""


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
    """A rule that a switch reports; ports count from 0."""

    priority: int
    match: str
    actions: str
    packets: int
    bytes: int


@dataclass(frozen=True, slots=True)
class PortCounters:
    """What went through a port, as its switch counts."""

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


@dataclass(frozen=True, slots=True)
class OcsStatus:
    """An OCS."""

    name: str
    ports: int
    phase: str
    """``lit`` (with circuits or without), ``darkening``, ``dark`` or ``lighting``."""
    circuits: tuple[tuple[int, int], ...]
    """What is lit on the wire, input and output port."""
    busy: bool
    """Whether a reconfiguration or a program is under way."""
    queued: int
    """How many commands wait."""
    number: int
    """The newest reconfiguration in the log."""
    error: str
    """What ended the newest command before its time, or put out its light: a refusal, a failed proof, a lost
    connection; empty if nothing."""
    device: str
    """What it stands for; ``ideal`` has no delay."""
    delay_s: float
    """How long ports that change stay dark [s], as below."""
    delay_p99_s: float | None
    """99th percentile of that, if it varies."""
    nic_s: float
    """How long NICs need after that."""
    nic_p99_s: float | None
    """99th percentile of that, if it varies."""
    flip_s: float = 0.0
    """How long a flip takes [s]."""
    shadow: tuple[tuple[int, int], ...] | None = None
    """What the idle side shows, or will once it is ready; None if that is unknown."""
    shadow_ready_s: float | None = None
    """When the idle side is ready, on the machine's monotonic clock [s]."""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One reconfiguration of an OCS; times are on the machine's monotonic clock [s]."""

    number: int
    circuits: tuple[tuple[int, int], ...]
    """What was asked for."""
    partial: bool
    """Whether circuits that stayed the same kept carrying."""
    darkened: int
    """How many circuits went dark."""
    delay_s: float
    """How long the device needed this time; the flip time of a flip."""
    command_s: float
    """When the command came."""
    dark_s: float | None = None
    """When what changed was dark on the wire."""
    lit_s: float | None = None
    """From when on all were lit on the wire, the time of a command that changes nothing; None while they are
    not, and where none are to be."""
    replaced: bool = False
    """Whether another command took its place before it was lit."""
    error: str = ""
    """What ended it before its time: a refusal, a failed proof, a lost connection; empty if nothing."""


@dataclass(frozen=True, slots=True)
class OcsRecord:
    """All of an OCS that a controller needs to take over from another one."""

    status: OcsStatus
    log: tuple[LogEntry, ...]
