"""Calibration: how much this machine forwards, and the scale at which an experiment fits it.

Two things limit an emulation: the switch daemon's work per packet and hop, and the engine's per
packet. The first is measured as payload bits times switch hops per second, in an all-to-all of TCP whose
NICs are too fast for the machine. A share of it is then chosen at which both work together: an all-to-all
of datagrams at half as much again takes the time known for it. That is of paths of one hop, on which the
engine has most to do beside the switches. All takes some twenty seconds, so it is kept per machine, kernel,
Open vSwitch and datapath (`testbed.trust.kept`). One that a known-answer control contradicts is taken anew.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
from testbed.trust.fidelity import CONTROL, PRESSED
from testbed.trust.kept import KeptMeasurements, Measured, machine_name
from testbed.trust.outcome import bound_s
from topologies.errors import MachineError
from topologies.fabric import Fabric
from topologies.rail import rail_fabric
from traffic.demand import Demand
from traffic.metrics import communication_s, path_bytes
from traffic.packets import DEFAULT_MTU, packet_bytes
from traffic.steps import single
from traffic.tables import Tables
from traffic.transports.host_settings import TransportSetup

FORMAT_VERSION = 4
OVERLOAD_BPS = 200e6
TRIAL_S = 1.0
TRIALS = 3
STUCK_S = 60.0
"""Five timeouts of TCP in a row: a slow machine, overloaded as an ordinary user, loses that many."""
SAFE_SHARES = (0.42, 0.36, 0.31, 0.27, 0.23, 0.2, 0.17, 0.14, 0.12, 0.1)
"""Shares of what the machine forwards at most, of which the first is taken that holds (`safe_share`). None
is above 0.42: overloaded, the daemon works in batches, at paced rates a packet costs it more. A uniform
all-to-all under RailS took 1.03 times its bound at 0.32, 0.39 and 0.48 of the most, 1.04 to 1.19 at 0.61."""
HEADROOM = 1.5
"""A share holds if so many times as much does. Other demands cost the engine up to 1.4 times a uniform one:
at one rate it used 0.71 of a CPU for that, and 1.00 for another, which took 1.06 times its prediction."""
HELD, HELD_TRIES = 1.04, 2
"""How many times the known time each try may take."""
HELD_CPU = 0.85
"""Of a CPU the engine may use in each try: it has one thread."""
HELD_PACKETS = 400
"""Packets that a NIC sends in a try at least: the first one's grant and path take as long as some 3."""
EMULATED_CCT_S = 1.5
"""How long the lower bound of a point takes at emulated scale: long against start-up, short for a user."""
EMULATED_STEP_S = 0.08
"""The same for each step of a collective of many."""
CONTRADICTED_SHARE = 0.5
"""Below this share of what the machine forwards at most, traffic takes the time that is known for it."""
OWN_CPU = 0.8
"""What of a CPU Open vSwitch has at least when nothing else uses the CPUs; overloaded, it needs one."""
SLOWEST_NIC_BPS = 1e6
FASTEST_NIC_BPS = 1e9


@dataclass(frozen=True)
class Calibration(Measured):
    """What a machine forwards; it was alone if Open vSwitch had a CPU to itself."""

    hop_packets_s: Annotated[float, Field(gt=0, strict=True)]
    """Packets of the default MTU, times switch hops, that were forwarded in a second at most [1/s]."""
    safe_share: Annotated[float, Field(gt=0, le=1, strict=True)]
    """The share of that at which switches and engine take the time that is known for traffic."""

    @property
    def safe_packets_s(self) -> float:
        """Packets times switch hops that an emulation may forward in a second [1/s]."""
        return self.safe_share * self.hop_packets_s

    def most_bps(self, mtu: int) -> float:
        """Return the payload times switch hops that it forwards in packets of an MTU [bit/s].

        A small packet is taken to cost as much as a large one.
        """
        return 8 * packet_bytes(mtu) * self.hop_packets_s

    def sentence(self, now: datetime) -> str:
        """Return how old it is, and what to do about it."""
        return f"this machine was calibrated {self.age(now)}; --calibrate does so anew"

    def contradiction(self, control: Control, mtu: int) -> str:
        """Return what a control shows that cannot be if this is right, a sentence; "" if nothing.

        What is far below the most that the machine forwards takes the time that is known for it, unless
        something else uses the CPUs, which says nothing of the calibration.
        """
        share = control.hop_bps / self.most_bps(mtu)
        alone = control.cpu_pressure <= PRESSED.strained
        if not (alone and share < CONTRADICTED_SHARE and control.error > CONTROL.void):
            return ""
        return (
            f"traffic took {control.error:.0%} longer than is known for it, at {share:.0%} of what this "
            "machine forwards by its calibration"
        )


class ContradictedError(MachineError):
    """A known-answer control contradicts the calibration by which a run was scaled."""


def measure(datapath: Datapath) -> Calibration:
    """Overload this machine with an all-to-all between 8 servers and return what it forwards."""
    fabric = rail_fabric(8, 4, 0, rate_bps=OVERLOAD_BPS)
    each_bytes = int(OVERLOAD_BPS / 8 * TRIAL_S / fabric.gpus / 3)
    demand = Demand("overload", np.full((fabric.gpus, fabric.gpus), each_bytes))
    # TCP costs this process least: datagrams cost it more than they cost the switches.
    setup = TransportSetup("tcp")
    experiment = Experiment(fabric, single(demand), "rails", Dilation(1.0, 1.0), transport=setup)
    with Network(fabric, 1.0, datapath, experiment.host) as network:
        best, cpu = max(_trial(experiment, network) for _ in range(TRIALS))
    share = safe_share(lambda share: _holds(share * best, datapath))
    packets_s, now = best / 8 / packet_bytes(DEFAULT_MTU), datetime.now(UTC)
    alone = not cpu < OWN_CPU
    return Calibration(machine_name(datapath), now.isoformat(timespec="seconds"), alone, packets_s, share)


def _trial(experiment: Experiment, network: Network) -> tuple[float, float]:
    """Return what the switches forwarded [bit/s], and the CPUs that Open vSwitch had; NaN if unknown.

    Where the kernel forwards its CPU time says nothing.
    """
    pid = network.openvswitch.pid if network.datapath == "netdev" else 0
    before_s = cpu_s(pid) if pid else math.nan
    run = emulate(experiment, network, stuck_s=STUCK_S)
    used_s = cpu_s(pid) - before_s if pid else math.nan
    return 8.0 * run.health.payload_bytes / run.emulated_s, used_s / run.emulated_s


def safe_share(holds: Callable[[float], bool]) -> float:
    """Return the first of `SAFE_SHARES` at `HEADROOM` times which the machine holds, or the last of them."""
    return next((share for share in SAFE_SHARES if holds(HEADROOM * share)), SAFE_SHARES[-1])


def _holds(hop_bps: float, datapath: Datapath) -> bool:
    """Return whether engine and switches together carry a uniform all-to-all in the time known for it.

    That is its lower bound, which RailS' splitting reaches on a rail fabric (RailS, Theorem 3).
    """
    fabric = rail_fabric(8, 4, 0)
    nic_bps = hop_bps / len(fabric.nics)
    sent = max(nic_bps / 8 * TRIAL_S, HELD_PACKETS * packet_bytes(DEFAULT_MTU))
    demand = Demand("known", np.full((fabric.gpus, fabric.gpus), int(sent / fabric.gpus)))
    rate = nic_bps / fabric.nic_rate_bps(fabric.nics[0])
    experiment = Experiment(fabric, single(demand), "rails", Dilation(rate, 1.0))
    known_s = bound_s(experiment)
    with Network(fabric, rate, datapath, experiment.host) as network:
        tries = [_timed(experiment, network) for _ in range(HELD_TRIES)]
    return all(took_s <= HELD * known_s and cpu <= HELD_CPU for took_s, cpu in tries)


def _timed(experiment: Experiment, network: Network) -> tuple[float, float]:
    """Return how long an experiment's bytes were under way [s], and the CPU that this process used."""
    began_s, used_s = time.monotonic(), time.process_time()
    run = emulate(experiment, network, stuck_s=STUCK_S).run
    cpu = (time.process_time() - used_s) / (time.monotonic() - began_s)
    return communication_s(run.tables), cpu


def hop_load_bps(tables: Tables, seconds: float) -> float:
    """Return the payload times switch hops that legs carried in a second [bit/s]."""
    hop_bytes = sum((len(path) - 1) * size for path, size in path_bytes(tables).items())
    return 8.0 * hop_bytes / seconds if seconds else 0.0


def rate_factor(
    fabric: Fabric,
    load_bps: float,
    machine: Calibration,
    emulated_rate_bps: float | None,
    mtu: int = DEFAULT_MTU,
) -> float:
    """Return emulated over real rate: the fastest that the machine carries safely, or the one asked for.

    Parameters
    ----------
    fabric
        Its fastest NIC sets the scale of ``emulated_rate_bps``.
    load_bps
        The most that an experiment forwards at real rates, payload times switch hops [bit/s].
    machine
        What this machine forwards.
    emulated_rate_bps
        What the user wants a NIC to be shaped to [bit/s]; None for automatic.
    mtu
        Of the emulation [bytes].

    Raises
    ------
    MachineError
        If the machine cannot forward it; the hint says what it can.
    """
    nic_bps = max(fabric.nic_rate_bps(nic) for nic in fabric.nics)
    if nic_bps < SLOWEST_NIC_BPS:
        raise MachineError(
            f"the fastest NIC has {nic_bps:g} bit/s, and one of an emulation {SLOWEST_NIC_BPS:g} at least",
            "give rates in bit/s, 100 Gbit/s is 100e9; --model-only predicts slow ones",
        )
    most = machine.most_bps(mtu) / load_bps if load_bps else 1.0
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
"""Those of the machines of a user's home; one is measured in some twenty seconds."""
