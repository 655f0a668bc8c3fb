"""The constants of a transport and of a reactive scheme, in what they are of and in seconds of the emulation.

A congestion control's own are in its file (`traffic.congestion`). Sizes in packets, times in round trips and
sizes in bandwidth-delay products are kept at every scale, since packets are real and round trips are dilated.
Times in packets at a NIC's rate are kept too, but where a NIC is so fast that a packet counts as
`LEAST_PACKET_S`: there they are of more packets. What the kernel's TCP times by its own clock no dilation
reaches. Both are named as not kept.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from testbed.experiment.experiment import Experiment
from testbed.trust.similitude import Number
from traffic.packets import BURST_S, MIN_BURST_PACKETS, frame_bytes, packet_bytes
from traffic.spraying.policy import ReactivePolicy
from traffic.spraying.registry import policy_named
from traffic.spraying.reps import Reps
from traffic.transports import datagram_engine, feeder, late_binding, nic_sender, round_trips
from traffic.transports.datagram_engine import LOST_ROUND_TRIPS
from traffic.transports.marking import USUAL
from traffic.transports.registry import Algorithm, algorithm_named, congestion_control
from traffic.transports.transport import packet_s

OF_DATAGRAMS = {
    "between looks at congestion controls and NICs": datagram_engine.TICK_PACKETS,
    "held by a NIC before it takes another packet": nic_sender.DEPTH_PACKETS,
    "missing before it counts as lost, at least": datagram_engine.LOST_PACKETS,
}
"""Those of the engine of datagrams, whatever the congestion control, in packets at a NIC's rate."""
OF_CHOICES = {
    "held by a NIC before it takes another chunk": late_binding.DEPTH_PACKETS,
    "between looks at NICs": late_binding.TICK_PACKETS,
    "between looks at what waits": feeder.SWEEP_PACKETS,
    "queued unmarked": round_trips.MARK_PACKETS,
}
"""Those of what carries reactive schemes over connections."""
UNMARKED, MARKED = "queued unmarked", "queued and marked always"
"""The lengths of queues between which packets are marked at random, in bandwidth-delay products."""
OF_THE_KERNEL_S = {
    "delayed acknowledgement, at least": 0.04,
}
"""What TCP times by the kernel's clock, whatever controls its congestion (TCP_DELACK_MIN) [s]."""
OF_CONTROLS_S = {
    "cubic": {"growth to the window before a loss, of 20 packets": (20 * 0.3 / 0.4) ** (1 / 3)},
    "bbr": {"look for the least round trip": 0.2, "between such looks": 10.0},
}
"""And what a congestion control does (RFC 9438, 4.2: K; tcp_bbr.c) [s]."""
Unit = Literal["packets", "round trips"]


@dataclass(frozen=True)
class Constant:
    """One constant of what moves bytes."""

    name: str
    unit: Unit
    value: float
    """As it is meant, in its unit."""
    emulated: float
    """As it is in this emulation, in its unit."""
    emulated_s: float | None
    """The same in the emulation's time [s]; None of sizes, and of round trips, which paths differ in."""
    kept: bool
    """Whether it is as it is meant."""


def constants(experiment: Experiment) -> tuple[Constant, ...]:
    """Return the constants of an experiment's transport and scheme; none where circuits alone carry it."""
    nics = experiment.fabric.nics
    if (experiment.has_slots and not experiment.spraying) or not nics:
        return ()
    rate_bps = max(map(experiment.fabric.nic_rate_bps, nics)) * experiment.dilation.rate
    sending_s = 8 * frame_bytes(experiment.mtu) / rate_bps
    turn_s = packet_s(rate_bps, packet_bytes(experiment.mtu))

    def in_packets(name: str, packets: float) -> Constant:
        here = packets * turn_s / sending_s
        return Constant(name, "packets", packets, here, packets * turn_s, turn_s <= sending_s * (1 + 1e-9))

    name, control = experiment.transport.name, congestion_control(experiment.transport.name)
    sprays = experiment.transport.sprays
    found = _of_control(algorithm_named(name), in_packets) if sprays else []
    bucket = max(BURST_S / sending_s, MIN_BURST_PACKETS)
    found.append(_against_clock("shapers: what they lend", MIN_BURST_PACKETS, bucket, sending_s))
    if control is not None:
        clocks = OF_THE_KERNEL_S | OF_CONTROLS_S.get(control, {})
        found += [
            _against_clock(f"{name}: {what}", 0.0, s / sending_s, sending_s) for what, s in clocks.items()
        ]
    policy = policy_named(experiment.spraying, sprays) if experiment.spraying else None
    if isinstance(policy, ReactivePolicy) and not sprays:
        found += [in_packets(f"reactive schemes: {what}", value) for what, value in OF_CHOICES.items()]
    if isinstance(policy, Reps):
        found.append(
            _kept("reps: silent before it counts as failed", "round trips", policy.silent_round_trips)
        )
        found.append(_kept("reps: frozen", "round trips", policy.freeze_round_trips))
    return tuple(found)


def _of_control(algorithm: Algorithm, in_packets: Callable[[str, float], Constant]) -> list[Constant]:
    """Return the constants of a congestion control over datagrams, of its marks, and of the engine."""
    name, red = algorithm.name, algorithm.marks or USUAL
    times = dict(algorithm.in_packet_times) | _positive({"queued unmarked, at least": red.least_packets})
    trips = dict(algorithm.in_round_trips) | _positive({UNMARKED: red.least, MARKED: red.most})
    return [
        *(in_packets(f"{name}: {what}", value) for what, value in times.items()),
        *(_kept(f"{name}: {what}", "packets", value) for what, value in algorithm.in_packets.items()),
        *(_kept(f"{name}: {what}", "round trips", value) for what, value in trips.items()),
        *(in_packets(f"datagrams: {what}", value) for what, value in OF_DATAGRAMS.items()),
        _kept("datagrams: missing before it counts as lost", "round trips", LOST_ROUND_TRIPS),
    ]


def constant_numbers(experiment: Experiment) -> tuple[Number, ...]:
    """Return the constants as numbers of the table of similitude: meant, and in this emulation."""
    return tuple(
        Number(f"{each.name} [{each.unit}]", each.value, each.emulated, each.kept, _words(each))
        for each in constants(experiment)
    )


def _kept(name: str, unit: Unit, value: float) -> Constant:
    return Constant(name, unit, value, value, None, True)


def _positive(values: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in values.items() if value > 0}


def _against_clock(name: str, packets: float, here: float, sending_s: float) -> Constant:
    """Return what the kernel has in seconds, against so many packets that it is to be; 0 for none."""
    return Constant(name, "packets", packets, here, here * sending_s, here <= packets * (1 + 1e-9))


def _words(constant: Constant) -> str:
    here = "" if constant.emulated_s is None else f", {1000 * constant.emulated_s:.3g} ms here"
    if constant.kept:
        return f"kept{here}"
    if constant.value:
        return f"more packets than at a lower rate{here}: nothing here acts as fast"
    return f"not dilated{here}, by the kernel's clock: fewer packets where NICs are emulated slower"
