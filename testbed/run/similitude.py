"""Similitude: the dimensionless numbers of an experiment, at real and at emulated scale.

Two systems behave alike where these numbers agree, as a model in a wind tunnel and an aeroplane do
(Buckingham, "On physically similar systems", Physical Review 4, 1914). Dilation alone keeps ratios of
dilated times, such as a reconfiguration delay over the CCT. Packets, port buffers and timeouts are not
dilated, and what depends on them is kept only where rate, volume, MTU and buffer are chosen so.

A round trip is that of a full packet and its acknowledgement over the longest path, with empty queues:
the links' delays there and back, and the time that every NIC and packet switch takes to send the packet
and the acknowledgement. Where links have no delay it is this time alone. Light passes an OCS unstored.
The emulation's shapers lend a burst after a pause; the numbers are of links that are busy.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from testbed.run.dilation import Dilation
from testbed.run.experiment import Experiment
from testbed.run.run import Run
from topologies.fabric import Fabric, Path
from traffic.metrics import communication_s, path_bytes
from traffic.packets import ETHERNET_HEADER_BYTES, TCP_HEADER_BYTES, frame_bytes, packet_bytes
from traffic.transports.datagrams import OVERHEAD_BYTES, payload_bytes

KEPT_WITHIN = 2.0
"""A number counts as kept where the two scales differ by no more than this factor."""
UNSCALED = Dilation(1.0, 1.0)
ROCE_PAYLOAD_BYTES = 4096
"""RoCE's largest path MTU, which is payload alone."""
ROCE_HEADER_BYTES = 14 + 20 + 8 + 12 + 4
"""Ethernet, IP, UDP, the base transport header and the invariant CRC."""
ROCE_ACK_BYTES = ROCE_HEADER_BYTES + 4
REAL_BUFFER_S = 42e6 * 8 / 6.4e12
"""A port's share of a switch's buffer, as time at its rate [s]: 42 MB for 6.4 Tbit/s (Tomahawk 2)."""
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


FOLLOWS = {
    "bandwidth-delay product (BDP) [packets]": (
        "more packets on their way, so windows act more finely",
        "fewer packets on their way, so windows act more coarsely",
    ),
    "port buffer / BDP": (
        "queues last more round trips, and overflow later",
        "queues overflow sooner",
    ),
    "packets per message, median": (
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
    "reconfiguration delay / CCT": ("the dark weighs more in the CCT", "the dark weighs less in the CCT"),
}
"""The numbers by name, and what follows where the emulation's is larger, and where it is smaller."""


def similitude(experiment: Experiment, facts: Facts, least_timeout_s: float) -> tuple[Number, ...]:
    """Return the numbers of an experiment; none where no byte crosses the network.

    Parameters
    ----------
    experiment
        At the scale at which it is emulated.
    facts
        What they are made of: `facts_of` its run as predicted.
    least_timeout_s
        Of the emulation's senders [s].
    """
    if not len(facts.sizes):
        return ()
    rate_bps = min(facts.rates_bps, default=1.0)
    return compared(
        facts, experiment.dilation, real_medium(rate_bps), emulated_medium(experiment, least_timeout_s)
    )


def compared(facts: Facts, dilation: Dilation, real: Medium, emulated: Medium) -> tuple[Number, ...]:
    """Return the numbers of the same facts at both scales."""
    there, here = numbers(facts, UNSCALED, real), numbers(facts, dilation, emulated)
    return tuple(_number(name, there[name], here[name]) for name in there)


def numbers(facts: Facts, scale: Dilation, medium: Medium) -> dict[str, float]:
    """Return the dimensionless numbers at one scale, by name."""
    packets = np.ceil(np.maximum(facts.sizes * scale.volume, 1.0) / medium.payload_bytes)
    median, least = "packets per message, median", "packets per message, least"
    found = {median: float(np.median(packets)), least: float(packets.min())}
    cct_s = scale.emulated_s(facts.cct_s)
    if facts.rates_bps:
        round_trip_s = _round_trip_s(facts, scale, medium)
        product_bytes = min(facts.rates_bps) * scale.rate / 8 * round_trip_s
        found |= {
            "bandwidth-delay product (BDP) [packets]": product_bytes / medium.frame_bytes,
            "port buffer / BDP": medium.buffer_bytes / product_bytes,
            "round trip / CCT": round_trip_s / cct_s,
            "least timeout / round trip": medium.least_timeout_s / round_trip_s,
        }
    if facts.reconfiguration_s is not None:
        found["reconfiguration delay / CCT"] = scale.emulated_s(facts.reconfiguration_s) / cct_s
    return {name: found[name] for name in FOLLOWS if name in found}


def facts_of(experiment: Experiment, predicted: Run) -> Facts:
    """Return what the numbers of an experiment are made of."""
    messages, fabric = predicted.tables.messages, experiment.fabric
    crossing = messages[messages["crosses"] & ~messages["given_up"]]
    one_way = experiment.ocs is not None
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
        reconfiguration_s=next((delay.mean_s for delay in experiment.ocs_delays.values()), None),
    )


def real_medium(rate_bps: float) -> Medium:
    """Return what RDMA over Ethernet has on links of a rate [bit/s]."""
    return Medium(
        payload_bytes=ROCE_PAYLOAD_BYTES,
        frame_bytes=ROCE_PAYLOAD_BYTES + ROCE_HEADER_BYTES,
        ack_bytes=ROCE_ACK_BYTES,
        buffer_bytes=rate_bps / 8 * REAL_BUFFER_S,
        least_timeout_s=REAL_TIMEOUT_S,
    )


def emulated_medium(experiment: Experiment, least_timeout_s: float) -> Medium:
    """Return what the emulation has: TCP, or over a schedule's circuits datagrams."""
    frame, payload = frame_bytes(experiment.mtu), packet_bytes(experiment.mtu)
    if experiment.ocs:
        payload = payload_bytes(experiment.plan.emulated_rate_bps, experiment.mtu)
        frame = payload + OVERHEAD_BYTES
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
    return scale.emulated_s(2 * facts.delay_s) + sending_s


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
