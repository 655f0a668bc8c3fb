"""Nodes of a K-hop ring die on the wire: the AllReduce is whole on the ring that is left."""

from collections import Counter
from dataclasses import replace

import pytest

from controller.circuits.ring_faults import Mode
from scenarios._infinitehbd.dying_report import dying_table, ring_table
from scenarios._infinitehbd.dying_ring import Dying, dying_ring
from testbed.network.network import Network
from testbed.run.dilation import Dilation
from testbed.run.experiment import Experiment
from testbed.run.runner import Run
from testbed.run.trial import tried
from tests.emulation.box import Box
from topologies.khop_ring import KHopRing
from traffic.packets import packet_bytes
from traffic.transports.host_settings import TransportSetup

pytestmark = [pytest.mark.emulation, pytest.mark.real_cpus]

SIZE, GPU_BPS, RATE = 100_000_000, 6.4e12, 5e-6
"""A half-bundle is shaped to 16 Mbit/s."""
PACKETS = 24
"""Of a step of the ring before a fault."""


def asked(mode: Mode) -> Experiment:
    """Return AllReduces over three nodes of two GPUs, of which the middle one dies."""
    experiment = dying_ring(
        KHopRing(5, 2, 2), 6, SIZE, Dying((1,), mode, share=0.4, known_s=1e-5), gpu_bps=GPU_BPS
    )
    volume = PACKETS * packet_bytes(9000) * 12 / SIZE
    return replace(experiment, dilation=Dilation(RATE, volume), transport=TransportSetup("credit"))


def decisions(run: Run) -> Counter[tuple[str, str]]:
    """Return what happened to circuits and by faults, without times."""
    return Counter(zip(run.events["what"], run.events["which"], strict=True))


def test_an_allreduce_is_whole_on_the_ring_that_is_left(sandbox: Box | None) -> None:
    shrink, replaced = asked("shrink"), asked("replace")
    with Network(shrink.fabric, RATE, host=shrink.host) as network:
        for experiment in (shrink, replaced):  # the second begins with circuits that the first left behind
            outcome = tried(experiment, network)
            run, predicted = outcome.run, outcome.predicted
            assert decisions(run) == decisions(predicted)
            assert run.messages.loc[run.messages["node"] != "hit 1", "end_s"].notna().all()
            shares = ring_table(experiment, run)["share"]
            assert shares.between(0.85, 1.0).all(), shares
            assert shares.max() < 1.06 * shares.min()
            (fault,) = dying_table(experiment, run).to_dict("records")
            assert 70e-6 <= fault["switched_s"] - fault["known_s"] < 200e-6
            assert fault["first_byte_s"] >= fault["switched_s"] - 1e-6
            assert "unknown: the links' rates (none was sampled)" not in outcome.verdict.reasons
