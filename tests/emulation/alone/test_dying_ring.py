"""Nodes of a K-hop ring die on the wire: the AllReduce is whole on the ring that is left."""

from collections import Counter
from dataclasses import replace

import pytest

from controller.circuits.foreseen import Foreseen
from controller.circuits.ring_faults import Mode
from scenarios._infinitehbd.ring.dying import Dying, dying_ring
from scenarios._infinitehbd.ring.report import dying_table, ring_table
from testbed.cli.faults_by_hand import FaultsByHand
from testbed.core.run import Run
from testbed.experiment.dilation import Dilation
from testbed.experiment.experiment import Experiment
from testbed.network.network import Network
from testbed.trust.trial import tried
from tests.emulation.box import Box
from tests.emulation.conftest import Booted
from tests.emulation.machine import Machine
from topologies.khop_ring import KHopRing
from topologies.light import Circuit
from topologies.routes import Routes
from traffic.packets import packet_bytes
from traffic.spraying.policy import QueuePair
from traffic.transports.host_settings import TransportSetup

pytestmark = [pytest.mark.emulation, pytest.mark.real_cpus]

SIZE, GPU_BPS, RATE = 100_000_000, 6.4e12, 5e-6
"""A half-bundle is shaped to 16 Mbit/s."""
PACKETS = 24
"""Of a step of the ring before a fault."""


def asked(mode: Mode) -> Experiment:
    """Return AllReduces over three nodes of two GPUs, of which the middle one dies."""
    experiment = dying_ring(
        KHopRing(5, 2, 2), 6, SIZE, Dying((1,), mode, share=0.4, known_s=1e-5, steadies=3), gpu_bps=GPU_BPS
    )
    volume = PACKETS * packet_bytes(9000) * 12 / SIZE
    return replace(experiment, dilation=Dilation(RATE, volume), transport=TransportSetup("credit"))


def decisions(run: Run) -> Counter[tuple[str, str]]:
    """Return what happened to circuits and by faults, without times."""
    return Counter(zip(run.events["what"], run.events["which"], strict=True))


def test_an_allreduce_is_whole_on_the_ring_that_is_left(sandbox: Box | None, machine: Machine) -> None:
    shrink, replaced = asked("shrink"), asked("replace")
    with Network(shrink.fabric, RATE, host=shrink.host) as network:
        for experiment in (shrink, replaced):  # the second begins with circuits that the first left behind
            outcome = tried(experiment, network)
            run, predicted = outcome.run, outcome.predicted
            assert decisions(run) == decisions(predicted)
            assert run.messages.loc[run.messages["node"] != "hit 1", "end_s"].notna().all()
            shares = ring_table(experiment, run)["share"]
            # Four GPUs or more send 3/4 of the bytes or more over each half-bundle, whose shaper lends some.
            most = 1.0 + max(outcome.lent_bytes.values()) / (SIZE * 3 / 4)
            assert machine.busy or shares.between(0.85, most).all(), shares
            assert machine.busy or shares.max() < 1.06 * shares.min(), ring_table(experiment, run).to_string()
            (fault,) = dying_table(experiment, run, outcome.lent_bytes).to_dict("records")
            assert fault["switched_s"] - fault["known_s"] >= 70e-6
            assert machine.busy or fault["switched_s"] - fault["known_s"] < 200e-6
            assert fault["first_byte_s"] >= fault["switched_s"] - 1e-6
            assert "unknown: the links' rates (none was sampled)" not in outcome.verdict.reasons
        by_hand = FaultsByHand(network, shrink)
        by_hand.begin()  # the runs' programs, which never end, do not hold it up
        assert network.northbound.ocs("n0b1").circuits == by_hand_foreseen(shrink).first[1][1]


def test_by_hand_light_leads_around_a_dead_node_and_back(booted: Booted) -> None:
    experiment = asked("shrink")
    with booted(experiment.fabric) as net:
        by_hand = FaultsByHand(net.network, experiment)
        by_hand.begin()
        lit = dict(by_hand_foreseen(experiment).first)
        around = lit | dict(by_hand_foreseen(experiment).changes[0].circuits)

        def joined(circuits: dict[str, tuple[Circuit, ...]], *nodes: int) -> set[QueuePair]:
            """Return the queue pairs that light joins between the GPUs of two nodes."""
            routes = Routes(experiment.fabric, circuits)
            ends = ((nic, routes.next_nic(nic)) for nic in experiment.fabric.nics)
            pairs = {QueuePair(nic, to) for nic, to in ends if to}
            return {
                pair for pair in pairs if {pair.source.server // 2, pair.destination.server // 2} == {*nodes}
            }

        through, over = joined(lit, 0, 1) | joined(lit, 1, 2), joined(around, 0, 2)
        assert (len(through), len(over)) == (8, 4)

        def hear(reached: set[QueuePair], silent: set[QueuePair]) -> bool:
            """Return who hears back, a set after the other: both have queue pairs of the same ports."""
            return net.answered(reached) == reached and not net.answered(silent, within_s=0.5)

        assert hear(through, over)
        assert by_hand.fail("node 1") == ["n0b1", "n2b0"]
        assert hear(over, through)
        by_hand.begin()
        assert hear(through, over)


def by_hand_foreseen(experiment: Experiment) -> Foreseen:
    """Return what is foreseen in an experiment."""
    assert isinstance(experiment.circuits, Foreseen)
    return experiment.circuits
