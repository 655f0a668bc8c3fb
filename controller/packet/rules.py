"""What a switch is configured with: rules, groups and the actions in them, as values.

Ports are the fabric's and count from 0; `controller.app.openflow` gives them OpenFlow's numbers.
"""

from dataclasses import asdict, dataclass
from ipaddress import IPv4Network

IPV4 = 0x0800


@dataclass(frozen=True, slots=True)
class Match:
    """Which packets a rule is for; ``None`` takes any."""

    in_port: int | None = None
    """The port by which the packet came in."""
    eth_type: int | None = None
    """The Ethernet type; `IPV4` where an address is matched."""
    ipv4_dst: IPv4Network | None = None
    """The prefix of the destination's address."""
    ipv4_src: IPv4Network | None = None
    """The prefix of the source's address."""

    def __str__(self) -> str:
        eth_type = None if self.eth_type is None else f"{self.eth_type:#06x}"
        fields = asdict(self) | {"eth_type": eth_type}
        return ",".join(f"{name}={value}" for name, value in fields.items() if value is not None)

    def overlaps(self, other: "Match") -> bool:
        """Return whether some packet matches both."""
        prefixes = ((self.ipv4_dst, other.ipv4_dst), (self.ipv4_src, other.ipv4_src))
        if any(mine and theirs and not mine.overlaps(theirs) for mine, theirs in prefixes):
            return False
        pairs = ((self.in_port, other.in_port), (self.eth_type, other.eth_type))
        return all(mine is None or theirs is None or mine == theirs for mine, theirs in pairs)


@dataclass(frozen=True, slots=True)
class SetEthDst:
    """Write the destination MAC address."""

    mac: str

    def __str__(self) -> str:
        return f"set_eth_dst={self.mac}"


@dataclass(frozen=True, slots=True)
class Output:
    """Send the packet out of a port."""

    port: int

    def __str__(self) -> str:
        return f"output={self.port}"


@dataclass(frozen=True, slots=True)
class ToGroup:
    """Let a group choose what happens to the packet."""

    group: int

    def __str__(self) -> str:
        return f"group={self.group}"


Action = SetEthDst | Output | ToGroup


@dataclass(frozen=True, slots=True)
class FlowRule:
    """What happens to the packets that match, unless a rule of higher priority matches too."""

    priority: int
    """The highest priority wins; rules of one priority may not overlap."""
    match: Match
    actions: tuple[Action, ...] = ()
    """In order; none at all drops the packet."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """One of a group's choices: out of a port, while that port's link is up."""

    port: int
    weight: int = 1
    """Its score is its hash times this (`controller.packet.ecmp_hash`), so shares do not follow weights."""
    eth_dst: str | None = None
    """The destination MAC address that it writes; None to leave that of the rule."""


@dataclass(frozen=True, slots=True)
class SelectGroup:
    """A ``select`` group: each connection takes one of the buckets, chosen by its hash."""

    number: int
    buckets: tuple[Bucket, ...]


@dataclass(frozen=True, slots=True)
class RuleSet:
    """All rules and groups of one switch."""

    rules: tuple[FlowRule, ...] = ()
    groups: tuple[SelectGroup, ...] = ()
