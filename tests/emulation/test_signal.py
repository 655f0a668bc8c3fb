"""What REPS and PLB make of congestion on a live network: two spines, one of which may be throttled."""

import subprocess

import numpy as np
import pytest

from testbed.experiment.dilation import Dilation
from testbed.experiment.experiment import Experiment
from testbed.live.emulate import EmulatedRun, emulate
from tests.emulation.conftest import Booted
from tests.emulation.machine import Machine
from topologies.addresses import interface
from topologies.leaf_spine import leaf_spine_fabric
from traffic.demand import Demand
from traffic.packets import DEFAULT_MTU, frame_bytes
from traffic.records import legs_of
from traffic.spraying.plb import Plb
from traffic.spraying.reps import Reps
from traffic.steps import single
from traffic.transports.host_settings import TransportSetup
from traffic.transports.transport import PACKET_BYTES

pytestmark = [pytest.mark.emulation, pytest.mark.real_cpus]

RATE_BPS, SLOWER = 20e6, 8
PACKETS = 400
"""More than a second at full rate."""
FABRIC = leaf_spine_fabric(2, 2, 2, rate_bps=RATE_BPS)


class Sprays(Reps):
    """REPS with entropies enough for both spines."""

    def __init__(self) -> None:
        super().__init__(per_nic=8)


class Stays(Plb):
    """PLB with paths enough for both spines."""

    def __init__(self) -> None:
        super().__init__(paths=8)


def emulated(booted: Booted, scheme: type, seeds: range, throttled: str = "") -> list[EmulatedRun]:
    """Return what came of a message between two servers, once per seed; a spine may be throttled."""
    owed = np.zeros((2, 2), dtype=np.int64)
    owed[0, 1] = PACKETS * PACKET_BYTES
    job, scale = single(Demand("one", owed)), Dilation(1.0, 1.0)
    name = f"{__name__}:{scheme.__name__}"
    # Marks are to shorten what waits behind the throttled port: PLB counts round trips, and with windows of
    # 25 packets, as ideal and credit have them, one takes 0.7 s there, and a flow moves after 12 of them.
    dctcp = TransportSetup("dctcp")
    asked = [Experiment(FABRIC, job, name, scale, seed, PACKET_BYTES, transport=dctcp) for seed in seeds]
    with booted(FABRIC, scale.rate) as net:
        for port in FABRIC.used_ports(throttled) if throttled else ():
            throttle(interface(FABRIC, FABRIC.peer(port)))
        return [emulate(each, net.network) for each in asked]


def throttle(device: str) -> None:
    """Shape a leaf's port to a part of its rate, behind the controller's back."""
    shaper = f"tbf rate {RATE_BPS / SLOWER:.0f} burst {2 * frame_bytes(DEFAULT_MTU)} limit 2m"
    subprocess.run(["tc", "qdisc", "replace", "dev", device, "root", *shaper.split()], check=True)


def share_over(run: EmulatedRun, spine: str) -> float:
    """Return the share of the bytes that crossed a spine."""
    legs = legs_of(run.run.records)
    crossed = legs["path"].str.contains(spine)
    return float(legs.loc[crossed, "bytes"].sum() / legs["bytes"].sum())


def test_reps_leaves_a_congested_path(booted: Booted, machine: Machine) -> None:
    runs = emulated(booted, Sprays, range(3), throttled="spine0")
    assert any(share_over(run, "spine0") and run.shares["marked"] for run in runs), "no entropy led there"
    for run in runs:
        assert machine.busy or share_over(run, "spine0") < 0.25
        assert machine.busy or run.shares["marked"] < 0.2
        assert machine.busy or run.shares["recycled"] > 0.7


def test_plb_stays_on_a_free_path(booted: Booted, machine: Machine) -> None:
    for run in emulated(booted, Stays, range(2)):
        assert machine.busy or run.shares == {"marked": pytest.approx(0, abs=0.05), "moved": 0.0}
        assert machine.busy or share_over(run, "spine0") in (0.0, 1.0)


def test_plb_leaves_a_congested_path(booted: Booted, machine: Machine) -> None:
    runs = emulated(booted, Stays, range(4), throttled="spine0")
    assert any(run.shares["moved"] for run in runs), "none began on the congested path"
    assert machine.busy or all(share_over(run, "spine0") < 0.4 for run in runs)
