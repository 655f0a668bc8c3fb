"""What ports counted of a run, against its legs: all payload, headers, and what was sent again."""

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from testbed.core.run import Run
from testbed.experiment.dilation import Dilation
from testbed.experiment.experiment import Experiment
from testbed.live.emulate import EmulatedRun, emulate
from testbed.model.predict import predict
from testbed.network.network import Network
from testbed.trust.evidence import Watch
from tests.emulation.conftest import Booted
from tests.testbed.ocs_cases import experiment_of
from tests.testbed.tables import check_tables
from topologies.leaf_spine import leaf_spine_fabric
from topologies.rail import rail_fabric
from traffic.metrics import link_bytes
from traffic.packets import DEFAULT_MTU
from traffic.records import path_text
from traffic.steps import single
from traffic.transports.datagram_sockets import HEADER
from traffic.transports.host_settings import TransportSetup
from traffic.transports.slots import SLOT_HEADER_BYTES
from traffic.workloads.synthetic import sparse

pytestmark = [pytest.mark.emulation, pytest.mark.early]

DILATION = Dilation(rate=2e-4, volume=0.2)
LEAST, MOST = 14 + 20 + 20, 14 + 20 + 60
"""Ethernet, IP and TCP before a packet's payload, with none and all of TCP's options [bytes]."""


def watched(experiment: Experiment, network: Network) -> tuple[EmulatedRun, Run]:
    """Return an emulation, and its run with what ports counted."""
    with Watch(network) as watch:
        emulation = emulate(experiment, network)
    run = watch.wired(emulation.run)
    check_tables(run.tables)
    return emulation, run


def carried(run: Run) -> pd.DataFrame:
    """Return what each lane carried of which message, over which path, without times."""
    tables = run.tables
    columns = ["node", "message", "op", "hop", "medium", "from_gpu", "to_gpu", "bytes", "slot", "group"]
    lanes = [str(tables.lanes[lane]) if lane >= 0 else "" for lane in tables.legs["lane"]]
    paths = [path_text(tables.paths[path]) if path >= 0 else "" for path in tables.legs["path"]]
    return tables.legs[columns].assign(lane=lanes, path=paths)


def on_ports(run: Run, volume: float) -> NDArray[np.float64]:
    """Return a row for each port of the wire: bytes and packets that it sent, and what its legs sent."""
    assert len(run.tables.wire) == len(set(run.tables.wire["port"]))
    sent = link_bytes(run.tables)
    assert set(sent) <= {run.tables.ports[port] for port in run.tables.wire["port"]}
    return np.array(
        [
            (size, packets, sent.get(run.tables.ports[port], 0) * volume)
            for port, size, packets, _ in run.tables.wire.itertuples(index=False, name=None)
        ]
    )


@pytest.mark.parametrize("transport", ["credit", "tcp", "ideal"])
@pytest.mark.parametrize("scheme", ["ecmp", "reps"])
def test_every_port_sent_its_legs_and_headers(booted: Booted, transport: str, scheme: str) -> None:
    fabric = rail_fabric(3, 2, 2) if scheme == "reps" else leaf_spine_fabric(4, 2, 3)
    demand = sparse(fabric.gpus, 0.4, tokens=512, seed=1)
    asked = Experiment(
        fabric, single(demand), scheme, DILATION, 1, 1 << 18, transport=TransportSetup(transport)
    )
    with booted(fabric, DILATION.rate) as net:
        net.network.set_hosts(asked.host)
        emulation, run = watched(asked, net.network)
    if scheme != "reps":  # which chooses as it sees the wire
        pd.testing.assert_frame_equal(carried(run), carried(predict(asked, emulation.paths)))
    size, packets, payload = on_ports(run, DILATION.volume).T
    rounded = len(run.tables.messages)
    resent = emulation.health.retransmits * DEFAULT_MTU
    assert payload.sum() > 0
    assert (payload <= size - packets * LEAST + rounded).all()
    assert (size - packets * MOST <= payload + resent + rounded).all()
    assert not run.tables.wire["drops"].any() or emulation.health.retransmits


def test_every_port_of_circuits_sent_their_datagrams(booted: Booted) -> None:
    asked = experiment_of("spectra")
    with booted(asked.fabric, asked.dilation.rate) as net:
        emulation, run = watched(asked, net.network)
    size, packets, payload = on_ports(run, asked.dilation.volume).T
    assert emulation.light is not None
    lost = emulation.light.lost_bytes
    header = SLOT_HEADER_BYTES + HEADER.size
    assert payload.sum() > 0
    rounded = len(run.tables.messages) + packets * HEADER.size
    assert (payload <= size - packets * SLOT_HEADER_BYTES + rounded).all()
    assert (size - packets * header <= payload + lost + rounded).all()
