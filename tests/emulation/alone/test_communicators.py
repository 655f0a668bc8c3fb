"""Communicators over a booted network: a short ring takes its share of NICs, and paths are as computed."""

from dataclasses import replace

import numpy as np
import pytest

from testbed.core.packet_paths import paths_over
from testbed.experiment.dilation import Dilation
from testbed.experiment.experiment import Experiment
from testbed.live.emulate import EmulatedRun, emulate
from testbed.network.network import Network
from tests.emulation.box import Box
from tests.emulation.machine import Machine
from topologies.leaf_spine import leaf_spine_fabric
from topologies.rail import rail_fabric
from traffic.collectives.all_to_all import AllToAll
from traffic.collectives.point_to_point import PointToPoint
from traffic.collectives.ring import Ring
from traffic.demand import Demand
from traffic.job import Collective, Job
from traffic.transports.connections import PORT_SETS, ports
from traffic.transports.host_settings import TransportSetup

pytestmark = pytest.mark.emulation

DILATION = Dilation(rate=2e-4, volume=0.2)
"""100 Gbit/s is 20 Mbit/s here, and a millisecond a second."""
SERVERS = 4
RING_BYTES = 14_000_000
"""Seventy-eight packets a step; its last one waits behind the all-to-all's in the switch, up to 50 ms."""


def emulated(experiment: Experiment) -> EmulatedRun:
    with Network(experiment.fabric, DILATION.rate, host=experiment.host, mtu=experiment.mtu) as network:
        return emulate(experiment, network)


@pytest.mark.parametrize("transport", ["credit", "ideal"])
def test_a_short_ring_beside_a_long_all_to_all_takes_its_share(
    sandbox: Box | None, machine: Machine, transport: str
) -> None:
    """Its queue pair is one of four at a NIC; on shared ones it ends after the all-to-all."""
    fabric = rail_fabric(SERVERS, 1)
    matrix = np.full((SERVERS, SERVERS), 24_000_000)
    np.fill_diagonal(matrix, 0)
    nodes = (
        Collective("long", AllToAll(Demand("long", matrix))),
        Collective("ring", Ring((tuple(range(SERVERS)),), RING_BYTES)),
    )
    job = Job("beside", SERVERS, nodes)
    found = emulated(Experiment(fabric, job, "rails", DILATION, transport=TransportSetup(transport)))
    tasks = found.run.tasks.set_index("node")
    step_s = 8 * RING_BYTES / SERVERS / (fabric.links[0].rate_bps / SERVERS)
    ratio = tasks["end_s"]["ring"] / (2 * (SERVERS - 1) * step_s)
    assert machine.busy or 0.9 < ratio < 1.15, ratio
    assert tasks["end_s"]["ring"] < tasks["end_s"]["long"]


def test_queue_pairs_of_every_communicator_take_the_paths_that_are_computed(sandbox: Box | None) -> None:
    """More communicators than there are source ports for: the last ones have another service port."""
    fabric = leaf_spine_fabric(4, 2, 4)
    first = Collective("0", PointToPoint(((0, 3, 100_000), (1, 2, 100_000))))
    nodes = [replace(first, name=f"{number}", communicator=f"{number}") for number in range(PORT_SETS + 2)]
    found = emulated(Experiment(fabric, Job("many", fabric.gpus, tuple(nodes)), "ecmp", DILATION))
    assert len(found.paths) == 2 * len(nodes)
    assert len({ports(pair)[1] for pair in found.paths}) == 2
    own = paths_over(fabric, datagrams=True)
    assert all(path == own[queue_pair] for queue_pair, path in found.paths.items())
    assert len(set(found.paths.values())) > 2
