"""Similitude: the dimensionless numbers of an experiment, at real and at emulated scale.

Two systems behave alike where these numbers agree, as a model in a wind tunnel and an aeroplane do
(Buckingham, "On physically similar systems", Physical Review 4, 1914). Dilation alone keeps ratios of
dilated times, such as a reconfiguration delay over the CCT. Packets, port buffers and timeouts are not
dilated, and what depends on them is kept only where rate, volume, MTU and buffer are chosen so.

A round trip is that of a full packet and its acknowledgement over the longest path, with empty queues:
the links' delays there and back, and the time that every NIC and packet switch takes to send the packet
and the acknowledgement. A real link has a delay of its own, whether or not the emulation gives its links
one; where those have none, the emulation's round trip is the time to send alone. It is the same whether the
kernel delays packets (netem) or the engine of datagrams does (`traffic.transports.propagation`). Light passes
an OCS unstored.
The emulation's shapers lend a burst after a pause; the numbers are of links that are busy.

How like the two scales are is one word (`likeness`):

- *alike*: every number is kept;
- *partly*: those are kept that decide what a collective meets (`DECISIVE`), as far as it has them: the
  bandwidth-delay product and the port buffer over it, by which windows and queues act, and the
  reconfiguration delay over the CCT, by which schedules win or lose; another is not;
- *unlike*: one of those is not kept.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from testbed.core.run import Run
from testbed.experiment.dilation import UNSCALED, Dilation
from testbed.experiment.experiment import Experiment
from topologies.fabric import Fabric, Path
from traffic.metrics import communication_s, path_bytes
from traffic.packets import ETHERNET_HEADER_BYTES, TCP_HEADER_BYTES, frame_bytes, packet_bytes
from traffic.transports.slots import SLOT_HEADER_BYTES, slot_packet_bytes

KEPT_WITHIN = 2.0
"""A number counts as kept where the two scales differ by no more than this factor."""
ROCE_PAYLOAD_BYTES = 4096
"""RoCE's largest path MTU, which is payload alone."""
ROCE_HEADER_BYTES = 14 + 20 + 8 + 12 + 4
"""Ethernet, IP, UDP, the base transport header and the invariant CRC."""
ROCE_ACK_BYTES = ROCE_HEADER_BYTES + 4
REAL_BUFFER_S = 42e6 * 8 / 6.4e12
"""A port's share of a switch's buffer, as time at its rate [s]: 42 MB for 6.4 Tbit/s (Tomahawk 2)."""
REAL_LINK_DELAY_S = 1.5e-6
"""What a link of a real network delays, one way, with the switch or the NIC at its end [s]: over four links
12 us there and back."""
REAL_TIMEOUT_S = 4.096e-6 * 2**18
"""NCCL's (2.19, ``NCCL_IB_TIMEOUT`` of 18) [s]."""


@dataclass(frozen=True)
class Medium:
    """What carries bytes at one scale."""

    payload_bytes: float
    """Of a full packet."""
    frame_bytes: float
    """What a full packet takes of a link."""
    ack_bytes: float
    """What an acknowledgement takes of a link."""
    buffer_bytes: float
    """What a switch port holds before it drops."""
    least_timeout_s: float
    """After how long without an acknowledgement a packet is sent again, at least [s]."""
    link_delay_s: float | None = None
    """What each link delays, one way, at real scale; None for what the fabric's links do [s]."""


@dataclass(frozen=True, eq=False)
class Facts:
    """What the numbers are made of, at real scale."""

    sizes: NDArray[np.int64]
    """Of the messages that cross the network, shape (messages,), at least one [bytes]."""
    cct_s: float
    """The predicted CCT [s]."""
    rates_bps: tuple[float, ...] = ()
    """Of the links on the longest path that a packet is sent onto, stored before [bit/s]; empty where
    datagrams go one way, over circuits alone."""
    delay_s: float = 0.0
    """Of all its links together, one way [s]."""
    links: int = 0
    """How many links it has."""
    reconfiguration_s: float | None = None
    """The OCSes' mean reconfiguration delay; None without a schedule [s]."""


@dataclass(frozen=True)
class Number:
    """A dimensionless number at both scales."""

    name: str
    real: float
    emulated: float
    kept: bool
    """Whether the two are within `KEPT_WITHIN` of each other."""
    words: str
    """``kept``, or by how much it is not and what follows."""


PRODUCT, BUFFER = "bandwidth-delay product (BDP) [packets]", "port buffer / BDP"
MEDIAN_PACKETS = "packets per message, median"
DARK = "reconfiguration delay / CCT"
DECISIVE = (PRODUCT, BUFFER, DARK)
"""The numbers without which nothing else is alike."""
FEW_PACKETS = 16
"""A median message of fewer is a start and an end: no window grows and no spraying evens out."""
Likeness = Literal["alike", "partly", "unlike"]
FOLLOWS = {
    PRODUCT: (
        "more packets on their way, so windows act more finely",
        "fewer packets on their way, so windows act more coarsely",
    ),
    BUFFER: (
        "queues last more round trips, and overflow later",
        "queues overflow sooner",
    ),
    MEDIAN_PACKETS: (
        "a start and a last packet weigh less",
        "a start and a last packet weigh more",
    ),
    "packets per message, least": (
        "the shortest messages are finer",
        "the shortest messages are coarser",
    ),
    "round trip / CCT": (
        "what takes a round trip weighs more in the CCT",
        "what takes a round trip weighs less in the CCT",
    ),
    "least timeout / round trip": (
        "a timeout costs more round trips",
        "a timeout costs fewer round trips, and may come for a packet that only waits",
    ),
    DARK: ("the dark weighs more in the CCT", "the dark weighs less in the CCT"),
}
"""The numbers by name, and what follows where the emulation's is larger, and where it is smaller."""


def similitude(
    experiment: Experiment,
    facts: Facts,
    least_timeout_s: float,
    real_link_delay_s: float = REAL_LINK_DELAY_S,
) -> tuple[Number, ...]:
    """Return the numbers of an experiment; none where no byte crosses the network, or in no time.

    Parameters
    ----------
    experiment
        At the scale at which it is emulated.
    facts
        What they are made of: `facts_of` its run as predicted.
    least_timeout_s
        Of the emulation's senders [s].
    real_link_delay_s
        Of a link of the real network, one way [s].
    """
    if not len(facts.sizes) or not facts.cct_s:  # a byte may take less than the clock's picosecond
        return ()
    rate_bps = min(facts.rates_bps, default=1.0)
    real = real_medium(rate_bps, real_link_delay_s)
    return compared(facts, experiment.dilation, real, emulated_medium(experiment, least_timeout_s))


def likeness(found: Sequence[Number]) -> Likeness | None:
    """Return how like the two scales are by the numbers of `FOLLOWS`, as a word; None without any."""
    judged = [number for number in found if number.name in FOLLOWS]
    if not judged:
        return None
    if all(number.kept for number in judged):
        return "alike"
    return "partly" if all(number.kept for number in judged if number.name in DECISIVE) else "unlike"


def message_packets(found: Sequence[Number]) -> float:
    """Return of how many packets the median message is in the emulation; NaN if nothing crosses it."""
    return next((number.emulated for number in found if number.name == MEDIAN_PACKETS), math.nan)


def few_packets_text(packets: Mapping[str, float]) -> str:
    """Return the warning that the median message of some workloads has few packets; nothing of others."""
    few = [f"{name} ({count:.0f})" for name, count in packets.items() if count < FEW_PACKETS]
    if not few:
        return ""
    return f"Warning: under {FEW_PACKETS} packets a message, median of {'; '.join(few)}; give more --volume."


def compared(facts: Facts, dilation: Dilation, real: Medium, emulated: Medium) -> tuple[Number, ...]:
    """Return the numbers of the same facts at both scales."""
    there, here = numbers(facts, UNSCALED, real), numbers(facts, dilation, emulated)
    return tuple(_number(name, there[name], here[name]) for name in there)


def numbers(facts: Facts, scale: Dilation, medium: Medium) -> dict[str, float]:
    """Return the dimensionless numbers at one scale, by name."""
    packets = np.ceil(np.maximum(facts.sizes * scale.volume, 1.0) / medium.payload_bytes)
    median, least = MEDIAN_PACKETS, "packets per message, least"
    found = {median: float(np.median(packets)), least: float(packets.min())}
    cct_s = scale.emulated_s(facts.cct_s)
    if facts.rates_bps:
        round_trip_s = _round_trip_s(facts, scale, medium)
        product_bytes = min(facts.rates_bps) * scale.rate / 8 * round_trip_s
        found |= {
            PRODUCT: product_bytes / medium.frame_bytes,
            BUFFER: medium.buffer_bytes / product_bytes,
            "round trip / CCT": round_trip_s / cct_s,
            "least timeout / round trip": medium.least_timeout_s / round_trip_s,
        }
    if facts.reconfiguration_s is not None:
        found[DARK] = scale.emulated_s(facts.reconfiguration_s) / cct_s
    return {name: found[name] for name in FOLLOWS if name in found}


def facts_of(experiment: Experiment, predicted: Run) -> Facts:
    """Return what the numbers of an experiment are made of."""
    messages, fabric = predicted.tables.messages, experiment.fabric
    crossing = messages[messages["crosses"] & ~messages["given_up"]]
    one_way = experiment.has_slots
    stored = {switch.name for switch in fabric.switches if switch.kind == "packet"} | set(fabric.server_index)
    paths = path_bytes(predicted.tables)
    # A schedule's circuits go one way, its datagrams are acknowledged out of band: no round trip there.
    acknowledged = [path for path in paths if not one_way or all(port.node in stored for port in path)]
    longest = _longest(acknowledged, fabric)
    return Facts(
        sizes=crossing["bytes"].to_numpy(np.int64),
        cct_s=communication_s(predicted.tables),
        rates_bps=tuple(fabric.link_at[port].rate_bps for port in longest if port.node in stored),
        delay_s=sum(fabric.link_at[port].delay_s for port in longest),
        links=len(longest),
        reconfiguration_s=next((delay.mean_s for delay in experiment.ocs_delays.values()), None),
    )


def real_medium(rate_bps: float, link_delay_s: float = REAL_LINK_DELAY_S) -> Medium:
    """Return what RDMA over Ethernet has on links of a rate [bit/s] and of a delay, one way [s]."""
    return Medium(
        payload_bytes=ROCE_PAYLOAD_BYTES,
        frame_bytes=ROCE_PAYLOAD_BYTES + ROCE_HEADER_BYTES,
        ack_bytes=ROCE_ACK_BYTES,
        buffer_bytes=rate_bps / 8 * REAL_BUFFER_S,
        least_timeout_s=REAL_TIMEOUT_S,
        link_delay_s=link_delay_s,
    )


def emulated_medium(experiment: Experiment, least_timeout_s: float) -> Medium:
    """Return what the emulation has: TCP, or over a schedule's circuits datagrams."""
    frame, payload = frame_bytes(experiment.mtu), packet_bytes(experiment.mtu)
    if experiment.has_slots:
        slowest_bps = min(map(experiment.fabric.nic_rate_bps, experiment.fabric.nics))
        payload = slot_packet_bytes(slowest_bps * experiment.dilation.rate, experiment.mtu)
        frame = payload + SLOT_HEADER_BYTES
    return Medium(
        payload_bytes=payload,
        frame_bytes=frame,
        ack_bytes=ETHERNET_HEADER_BYTES + TCP_HEADER_BYTES,
        buffer_bytes=experiment.fabric.buffer_bytes,
        least_timeout_s=least_timeout_s,
    )


def _round_trip_s(facts: Facts, scale: Dilation, medium: Medium) -> float:
    both_bits = 8 * (medium.frame_bytes + medium.ack_bytes)
    sending_s = sum(both_bits / (rate_bps * scale.rate) for rate_bps in facts.rates_bps)
    delay_s = facts.delay_s if medium.link_delay_s is None else facts.links * medium.link_delay_s
    return scale.emulated_s(2 * delay_s) + sending_s


def _longest(paths: Iterable[Path], fabric: Fabric) -> Path:
    """Return the path of the longest delay, and then of the most hops; empty if there is none."""
    return max(
        paths, key=lambda path: (sum(fabric.link_at[port].delay_s for port in path), len(path)), default=()
    )


def _number(name: str, real: float, emulated: float) -> Number:
    ratio = emulated / real if real else (1.0 if emulated == real else math.inf)
    larger, smaller = FOLLOWS[name]
    if 1 / KEPT_WITHIN <= ratio <= KEPT_WITHIN:
        return Number(name, real, emulated, True, "kept")
    if ratio > 1:
        return Number(name, real, emulated, False, f"{_times(ratio)} larger than real: {larger}")
    return Number(name, real, emulated, False, f"{_times(1 / ratio)} smaller than real: {smaller}")


def _times(ratio: float) -> str:
    return f"{ratio:.2g} times" if ratio < 100 else f"{ratio:.0f} times"
