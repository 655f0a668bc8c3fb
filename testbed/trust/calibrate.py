"""Calibration: how much this machine carries, and the scale at which an experiment fits it.

Two things limit an emulation: the engine's work per packet, and the switches' per packet and hop. Both are
measured by all-to-alls of datagrams whose NICs are too fast for the machine: over paths of one hop, on which
the engine has most to do, and over a fat-tree. A share of that is then chosen at which traffic is on time: an
all-to-all at half as much again takes the time known for it, and keeps no event waiting for long. All takes
some 25 seconds, beside other work a minute, so it is kept per machine, kernel, engine, Open vSwitch and
datapath (`testbed.trust.kept`). One that a known-answer control contradicts is taken anew.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated

import numpy as np
from pydantic import Field

from testbed.experiment.dilation import Dilation
from testbed.experiment.experiment import Experiment
from testbed.live.emulate import emulate
from testbed.machine.datapath import Datapath
from testbed.machine.stalls import cpu_s
from testbed.network.network import Network
from testbed.trust.control import Control
from testbed.trust.fidelity import CONTROL, LATE, PRESSED
from testbed.trust.kept import KeptMeasurements, Measured, machine_name
from testbed.trust.outcome import bound_s
from topologies.errors import MachineError
from topologies.fabric import Fabric
from topologies.fat_tree import fat_tree_fabric
from topologies.rail import rail_fabric
from traffic.metrics import communication_s, path_bytes
from traffic.packets import DEFAULT_MTU, packet_bytes
from traffic.steps import single
from traffic.tables import Tables
from traffic.workloads.synthetic import uniform

FORMAT_VERSION = 5
OVERLOAD_BPS, OVERLOAD_PACKETS = 400e6, 25_000
"""Of a NIC, and how many packets all send: a second of a machine that carries few, half a one of another."""
TRIAL_S = 1.0
TRIALS = 3
LEAST_FURTHER, MOST_FURTHER = 0.25, 1.0
"""Of what a packet over one hop costs, what each further hop does at least and at most. Overloaded switches
find many packets at a time, so that a hop costs a tenth; sprayed ones come one by one."""
SAFE_SHARES = (0.52, 0.45, 0.39, 0.34, 0.29, 0.25, 0.21, 0.18, 0.15, 0.12, 0.1)
"""Shares of what the machine carries at most, of which the first is taken that holds (`safe_share`)."""
HEADROOM = 1.5
"""A share holds if so many times as much does: other demands cost the engine up to 1.4 times as much."""
HELD, HELD_TRIES = 1.04, 2
"""How many times the known time each try may take."""
HELD_PACKETS = 400
"""Packets that a NIC sends in a try at least: the first one's grant and path take as long as some 3."""
EMULATED_CCT_S = 1.2
"""How long the lower bound of a point takes at emulated scale: long against start-up, short for a user."""
EMULATED_STEP_S = 0.08
"""The same for each step of a collective of many."""
CONTRADICTED_SHARE = 0.5
"""Below this share of what the machine carries at most, traffic takes the time that is known for it."""
OWN_CPU = 0.8
"""The share of a CPU that the engine or Open vSwitch has at least when nothing else uses the CPUs:
overloaded, the slower of them needs one."""
SLOWEST_NIC_BPS = 1e6
FASTEST_NIC_BPS = 1e9


@dataclass(frozen=True)
class CarriedLoad:
    """The load that an experiment puts on a machine, in a second."""

    sent_bps: float
    """Payload that NICs send [bit/s]."""
    hop_bps: float
    """Payload times switch hops [bit/s]."""

    def __mul__(self, factor: float) -> "CarriedLoad":
        """Return the load at so many times its rate."""
        return CarriedLoad(self.sent_bps * factor, self.hop_bps * factor)


@dataclass(frozen=True)
class Calibration(Measured):
    """The load that a machine carries; it was alone if the engine or Open vSwitch had a CPU to itself."""

    packets_s: Annotated[float, Field(gt=0, strict=True)]
    """Packets of the default MTU that engine and switches carry in a second over one hop at most [1/s]."""
    further_hop: Annotated[float, Field(gt=0, le=MOST_FURTHER, strict=True)]
    """The cost of each further hop, as a share of that of a packet over one hop."""
    safe_share: Annotated[float, Field(gt=0, le=1, strict=True)]
    """The share of the most at which engine and switches take the time that is known for traffic."""

    @property
    def safe_packets_s(self) -> float:
        """Packets over one hop that an emulation may have carried in a second [1/s]."""
        return self.safe_share * self.packets_s

    def share(self, load: CarriedLoad, mtu: int) -> float:
        """Return a load in packets of an MTU as a share of the most that the machine carries.

        A small packet is taken to cost as much as a large one.
        """
        as_one_hop_bps = load.sent_bps + self.further_hop * max(load.hop_bps - load.sent_bps, 0.0)
        return as_one_hop_bps / (8 * packet_bytes(mtu) * self.packets_s)

    def sentence(self, now: datetime) -> str:
        """Return how old it is, and what to do about it."""
        return f"this machine was calibrated {self.age(now)}; --calibrate does so anew"

    def contradiction(self, control: Control, share: float) -> str:
        """Return what a control shows that cannot be if this is right, a sentence; "" if nothing.

        What is far below the most that the machine carries takes the time that is known for it, unless
        something else uses the CPUs, which says nothing of the calibration.

        Parameters
        ----------
        control
            Traffic of a known duration.
        share
            Which share of the most it was, at most (`share`).
        """
        alone = control.cpu_pressure <= PRESSED.strained
        if not (alone and share < CONTRADICTED_SHARE and control.error > CONTROL.void):
            return ""
        return (
            f"traffic took {control.error:.0%} longer than is known for it, at {share:.0%} of what this "
            "machine carries by its calibration"
        )


class ContradictedError(MachineError):
    """A known-answer control contradicts the calibration by which a run was scaled."""


def measure(datapath: Datapath) -> Calibration:
    """Overload this machine with all-to-alls, over one hop and over many, and return what it carries."""
    one, near_cpu = _most(rail_fabric(8, 4, 0), "rails", datapath)
    many, _ = _most(fat_tree_fabric(4), "ecmp", datapath)
    packets_s = one.sent_bps / 8 / packet_bytes(DEFAULT_MTU)
    share = safe_share(lambda share: _holds(share * one.sent_bps, datapath))
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return Calibration(
        machine_name(datapath), now, not near_cpu < OWN_CPU, packets_s, further_hop(one, many), share
    )


def further_hop(one: CarriedLoad, many: CarriedLoad) -> float:
    """Return the cost of a further hop over that of a packet over one, by the most over one and over many."""
    further = (one.sent_bps / many.sent_bps - 1) / (many.hop_bps / many.sent_bps - 1)
    return float(np.clip(further, LEAST_FURTHER, MOST_FURTHER))


def _most(fabric: Fabric, scheme: str, datapath: Datapath) -> tuple[CarriedLoad, float]:
    """Return the most that is carried over a fabric, and the CPU of the busier of engine and Open vSwitch."""
    experiment = _all_to_all(fabric, scheme, OVERLOAD_BPS, OVERLOAD_PACKETS / len(fabric.nics))
    with Network(fabric, experiment.dilation.rate, datapath, experiment.host) as network:
        return max((_trial(experiment, network) for _ in range(TRIALS)), key=lambda each: each[0].sent_bps)


def _all_to_all(fabric: Fabric, scheme: str, nic_bps: float, packets: float) -> Experiment:
    """Return a uniform all-to-all by which a NIC that is shaped to a rate sends so many packets.

    Its real messages are as large as those of workloads, so that they are split over NICs as these are.
    """
    full = Experiment(fabric, single(uniform(fabric.gpus)), scheme, Dilation(1.0, 1.0))
    real_bps = fabric.nic_rate_bps(fabric.nics[0])
    volume = 8 * packets * packet_bytes(DEFAULT_MTU) / (real_bps * bound_s(full))
    return replace(full, dilation=Dilation(nic_bps / real_bps, volume))


def _trial(experiment: Experiment, network: Network) -> tuple[CarriedLoad, float]:
    """Return the load that was carried, and the CPU that the busier of engine and Open vSwitch had, 0..1."""
    began_at, before_s = time.monotonic(), _cpu_s(network)
    tables = emulate(experiment, network).run.tables
    took_s, after_s = time.monotonic() - began_at, _cpu_s(network)
    load = carried(tables, communication_s(tables)) * experiment.dilation.rate
    return load, max(after - before for before, after in zip(before_s, after_s, strict=True)) / took_s


def _cpu_s(network: Network) -> tuple[float, float]:
    """Return the CPU time of the engine so far, and Open vSwitch's, 0 where that is the machine's own [s]."""
    pid = network.openvswitch.pid
    return time.process_time(), cpu_s(pid) if pid else 0.0


def safe_share(holds: Callable[[float], bool]) -> float:
    """Return the first of `SAFE_SHARES` at `HEADROOM` times which the machine holds, or the last of them."""
    return next((share for share in SAFE_SHARES if holds(HEADROOM * share)), SAFE_SHARES[-1])


def _holds(sent_bps: float, datapath: Datapath) -> bool:
    """Return whether engine and switches together carry a uniform all-to-all in the time known for it.

    That is its lower bound, which RailS' splitting reaches on a rail fabric (RailS, Theorem 3).
    """
    fabric = rail_fabric(8, 4, 0)
    nic_bps = sent_bps / len(fabric.nics)
    packets = max(nic_bps / 8 / packet_bytes(DEFAULT_MTU) * TRIAL_S, HELD_PACKETS)
    experiment = _all_to_all(fabric, "rails", nic_bps, packets)
    known_s = bound_s(experiment)
    with Network(fabric, experiment.dilation.rate, datapath, experiment.host) as network:
        runs = [emulate(experiment, network) for _ in range(HELD_TRIES)]
    return all(
        communication_s(each.run.tables) <= HELD * known_s and each.health.lateness_s <= LATE.strained
        for each in runs
    )


def carried(tables: Tables, seconds: float) -> CarriedLoad:
    """Return the load of legs on a machine, on average over a time [s]."""
    size_of = path_bytes(tables)
    hop_bytes = sum((len(path) - 1) * size for path, size in size_of.items())
    return CarriedLoad(sum(size_of.values()), hop_bytes) * (8.0 / seconds if seconds else 0.0)


def rate_factor(
    fabric: Fabric,
    load: CarriedLoad,
    machine: Calibration,
    emulated_rate_bps: float | None,
    mtu: int = DEFAULT_MTU,
) -> float:
    """Return emulated over real rate: the fastest that the machine carries safely, or the one asked for.

    Parameters
    ----------
    fabric
        Its fastest NIC sets the scale of ``emulated_rate_bps``.
    load
        The most that an experiment has a machine carry, at real rates.
    machine
        What this machine carries.
    emulated_rate_bps
        What the user wants a NIC to be shaped to [bit/s]; None for automatic.
    mtu
        Of the emulation [bytes].

    Raises
    ------
    MachineError
        If the machine cannot carry it; the hint says what it can.
    """
    nic_bps = max(fabric.nic_rate_bps(nic) for nic in fabric.nics)
    if nic_bps < SLOWEST_NIC_BPS:
        raise MachineError(
            f"the fastest NIC has {nic_bps:g} bit/s, and one of an emulation {SLOWEST_NIC_BPS:g} at least",
            "give rates in bit/s, 100 Gbit/s is 100e9; --model-only predicts slow ones",
        )
    share = machine.share(load, mtu)
    most = 1.0 / share if share else 1.0
    safe_bps = _rounded(min(machine.safe_share * most * nic_bps, FASTEST_NIC_BPS, nic_bps))
    if safe_bps < SLOWEST_NIC_BPS:
        raise MachineError(
            f"this machine would have to emulate {len(fabric.nics)} NICs at {safe_bps / 1e6:.2f} Mbit/s each",
            "make the fabric smaller" if mtu == DEFAULT_MTU else "make the fabric smaller, or --mtu larger",
        )
    if emulated_rate_bps is None:
        return safe_bps / nic_bps
    if not SLOWEST_NIC_BPS <= emulated_rate_bps <= min(most * nic_bps, FASTEST_NIC_BPS):
        raise MachineError(
            f"this machine cannot emulate {len(fabric.nics)} NICs at {emulated_rate_bps / 1e6:g} Mbit/s each",
            f"give --emulated-rate up to {safe_bps / 1e6:g} Mbit/s, or leave it out",
        )
    return emulated_rate_bps / nic_bps


def volume_factor(rate: float, bounds_s: Sequence[float], steps: int = 1) -> float:
    """Return emulated over real bytes, so that a workload takes long enough to be measured, and no longer.

    Parameters
    ----------
    rate
        Emulated over real rate.
    bounds_s
        The lower bound of each of the workload's points [s]; the shortest decides.
    steps
        How many all-to-alls it consists of.
    """
    shortest = min((bound for bound in bounds_s if bound > 0), default=1.0)
    return min(max(EMULATED_CCT_S, EMULATED_STEP_S * steps) * rate / shortest, 1.0)


def _rounded(bps: float) -> float:
    """Return a rate rounded down to two digits, so that runs of one machine have the same scale."""
    digit = 10.0 ** (np.floor(np.log10(bps)) - 1)
    return float(np.floor(bps / digit) * digit)


CALIBRATIONS = KeptMeasurements("calibration", FORMAT_VERSION, Calibration, measure)
"""Those of the machines of a user's home; one is measured in some 25 seconds."""
