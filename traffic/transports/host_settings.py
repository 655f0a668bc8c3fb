"""What a transport has the hosts' TCP set to, at emulated scale.

Where bytes go as datagrams, TCP carries none of them, and is set as Linux has it.

Under `tcp` the settings stand to the emulated network as usual ones do to a real network:

- *Initial window*: ten packets, as RFC 6928 and Linux have it, but no more than the shortest path between
  two servers holds unloaded, and 2 at least. At 100 Gbit/s and 12 us a path holds 17 packets of 9000
  bytes; emulated without link delay it holds as many as it has links, and ten are too many from
  the start: RailS' uniform all-to-all took 1.13 to 1.21 times its bound with ten, 1.10 with two.
- *Least timeout*: twice the round trip through one full port, so that no timeout is spurious: a queue of
  2 MiB takes 0.46 s at 36 Mbit/s, and with 0.05 s TCP sent up to 25 % again although nothing was lost.
- *Port buffers*: a fabric's own (`Fabric.buffer_bytes`), which hold as many packets as the real ones would,
  as packets are real.
- *Marks* (ECN), for what controls congestion by them: behind as much as the longest path holds unloaded, and
  no less than ten packets, which may come at once from one sender; but half a buffer at most. DCTCP's
  authors mark behind 20 packets at 1 Gbit/s and 65 at 10, about what their paths hold (SIGCOMM 2010, 3.5).

Datagrams are marked by their engine, from the queue that each met, or by switch ports where that is asked
for: by the same curve (`traffic.congestion.control.Red`), for one BDP, that of the longest path.
"""

from dataclasses import dataclass, replace
from math import ceil, inf
from typing import Literal

from topologies.addresses import ENTROPIES
from topologies.errors import ScenarioError
from topologies.fabric import Fabric
from traffic.packets import DEFAULT_MTU, burst_bytes, frame_bytes, packet_bytes
from traffic.transports.marking import USUAL
from traffic.transports.registry import algorithm_named, congestion_control, sends_datagrams
from traffic.transports.transport import packet_s

USUAL_WINDOW_PACKETS, LEAST_WINDOW_PACKETS = 10, 2
USUAL_TIMEOUT_S = 0.2
"""Linux's least timeout (TCP_RTO_MIN)."""
NEED_MARKS = ("dctcp",)
"""What controls congestion by marks."""
Marks = Literal["engine", "switches"]
"""Marker of datagrams."""


@dataclass(frozen=True)
class TransportSetup:
    """A transport and what its user wants of the hosts.

    Raises
    ------
    ScenarioError
        If there are no such entropies, window or timeout, or packets are to be acknowledged by packets that
        are TCP's.
    """

    name: str = "credit"
    """`traffic.transports.registry`."""
    initial_window_packets: int | None = None
    """TCP's initial window; None for the rule above."""
    least_timeout_s: float | None = None
    """TCP's least retransmission timeout, at emulated scale [s]; None for the rule above."""
    entropies: int = ENTROPIES
    """How many entropies a NIC's packets have, where they are datagrams."""
    marks: Marks = "engine"
    """The marker of packets that are datagrams; switches need a kernel with RED, and mark by each queue of a
    path alone."""
    ack_packets: bool = False
    """Whether acknowledgements, announcements and grants of datagrams are packets."""

    def __post_init__(self) -> None:
        """Check the numbers."""
        if self.initial_window_packets is not None and self.initial_window_packets < 1:
            raise ScenarioError(
                f"an initial window of {self.initial_window_packets} packets", "give 1 or more"
            )
        if self.least_timeout_s is not None and not 0 < self.least_timeout_s < inf:
            raise ScenarioError(f"a least timeout of {self.least_timeout_s:g} s", "give one above 0")
        if not 1 <= self.entropies <= ENTROPIES:
            raise ScenarioError(f"{self.entropies} entropies of a NIC", f"give 1 to {ENTROPIES}")
        if self.ack_packets and self.sprays is None:
            raise ScenarioError(
                f"--ack-packets is for datagrams, and {self.name} acknowledges by packets of its own",
                "leave it out, or give a --transport of datagrams, such as credit",
            )

    @property
    def sprays(self) -> int | None:
        """How many entropies each packet may choose from; None over connections, which have one each."""
        return self.entropies if sends_datagrams(self.name) else None

    @property
    def marked_for(self) -> str | None:
        """Reason for switch ports to mark packets, as it was asked for; None if they do not."""
        if (control := congestion_control(self.name)) in NEED_MARKS:
            return f"tcp:{control}"
        return "--marks switches" if control is None and self.marks == "switches" else None


@dataclass(frozen=True)
class HostSettings:
    """What the TCP of all servers is set to, and what it needs of switches."""

    congestion_control: str
    initial_window_packets: int
    least_timeout_s: float
    """TCP's least retransmission timeout, at emulated scale [s]."""
    mark_bytes: int = 0
    """Behind how much that waits a switch's ports mark packets (ECN) [bytes]; 0 for none."""
    mark_rise_bytes: int = 0
    """Over how much more the share of packets that are marked rises to all [bytes]."""
    delays: bool = True
    """Whether links delay packets, as TCP needs it; else the engine of datagrams does
    (`traffic.transports.propagation`)."""
    acks_first: bool = False
    """Whether ports send acknowledgements before data, where the kernel can."""

    @property
    def marked_for(self) -> str | None:
        """Reason for switch ports to mark packets, as of `TransportSetup`."""
        if not self.mark_bytes:
            return None
        return f"tcp:{self.congestion_control}" if self.delays else "--marks switches"


OF_DATAGRAMS = HostSettings("cubic", USUAL_WINDOW_PACKETS, USUAL_TIMEOUT_S, delays=False)
"""Where no bytes go by TCP."""
CREDIT = TransportSetup()
"""What moves bytes unless something else is asked for: no NIC knows what one could not know."""


def host_settings(
    setup: TransportSetup, fabric: Fabric, rate_factor: float, time_factor: float, mtu: int = DEFAULT_MTU
) -> HostSettings:
    """Return what a transport has hosts set to, by the rule or as its user wants it.

    Parameters
    ----------
    setup
        The transport.
    fabric
        What is emulated.
    rate_factor, time_factor
        Emulated over real rate, and over real time.
    mtu
        Of the emulation's links [bytes].
    """
    controlled = congestion_control(setup.name)
    if controlled is None:
        settings = _of_datagrams(setup, fabric, rate_factor, time_factor, mtu)
    else:
        settings = _of_tcp(controlled, fabric, rate_factor, time_factor, mtu)
    return replace(
        settings,
        initial_window_packets=setup.initial_window_packets or settings.initial_window_packets,
        least_timeout_s=setup.least_timeout_s or settings.least_timeout_s,
    )


def _of_datagrams(
    setup: TransportSetup, fabric: Fabric, rate_factor: float, time_factor: float, mtu: int
) -> HostSettings:
    settings = replace(OF_DATAGRAMS, acks_first=setup.ack_packets)
    if setup.marks == "engine":
        return settings
    slowest_bps = min(link.rate_bps for link in fabric.links) * rate_factor
    time_s = packet_s(slowest_bps, packet_bytes(mtu))
    delay_s = _most_links(fabric) * max(link.delay_s for link in fabric.links) * time_factor
    a_packet = slowest_bps / 8 * time_s
    lent_packets = burst_bytes(slowest_bps, mtu) / a_packet
    red = algorithm_named(setup.name).marks or USUAL
    least, most = (a_packet * each for each in red.lengths(2 * delay_s / time_s + 1, lent_packets))
    return replace(settings, mark_bytes=round(least), mark_rise_bytes=round(most - least))


def _most_links(fabric: Fabric) -> int:
    """Return how many links the longest path has, up and down again."""
    return 2 * (1 + max((switch.tier for switch in fabric.switches), default=0))


def _of_tcp(
    controlled: str, fabric: Fabric, rate_factor: float, time_factor: float, mtu: int
) -> HostSettings:
    slowest_bps = min(link.rate_bps for link in fabric.links) * rate_factor
    sending_s = 8 * frame_bytes(mtu) / slowest_bps
    link_s = sending_s + 2 * time_factor * max(link.delay_s for link in fabric.links)
    """Of a link, there and back: an acknowledgement is short."""
    window = min(USUAL_WINDOW_PACKETS, max(LEAST_WINDOW_PACKETS, round(2 * link_s / sending_s)))
    most_links = _most_links(fabric)
    full_s = 8 * fabric.buffer_bytes / slowest_bps
    timeout_s = 2 * (full_s + most_links * link_s)
    if controlled not in NEED_MARKS:
        return HostSettings(controlled, window, timeout_s)
    held_packets = max(USUAL_WINDOW_PACKETS, ceil(most_links * link_s / sending_s))
    mark_bytes = min(held_packets * frame_bytes(mtu), fabric.buffer_bytes // 2)
    return HostSettings(controlled, window, timeout_s, mark_bytes)
