"""What a failed NIC leaves over of a delegated all-to-all crosses a slow NVLink on the wire's clock too."""

from dataclasses import replace

import numpy as np
import pytest

from testbed.experiment.dilation import Dilation
from testbed.experiment.experiment import Experiment
from testbed.network.network import Network
from testbed.trust.trial import tried
from tests.emulation.box import Box
from tests.emulation.machine import Machine
from topologies.fabric import Nic
from topologies.mfabric import mfabric_fabric
from traffic.delegated import DelegatedSetup
from traffic.demand import Demand
from traffic.faults import cut
from traffic.steps import single
from traffic.transports.host_settings import TransportSetup

pytestmark = [pytest.mark.emulation, pytest.mark.real_cpus]

RATE_BPS = 10e6
SIZE = 2_500_000
"""Owed by GPU 0 to GPU 0 of the other server; half of it takes a second over each of two NICs."""


@pytest.mark.parametrize("server", [0, 1], ids=["source", "destination"])
def test_what_is_left_crosses_nvlink_as_predicted(sandbox: Box | None, machine: Machine, server: int) -> None:
    """Packet NICs 0 and 2 are those of GPUs 0 and 1, and NVLink is no faster than they are."""
    fabric = mfabric_fabric(
        2, gpus=2, nics=4, packet_nics=2, rate_bps=RATE_BPS, nvlink_bps=RATE_BPS, one_packet_switch=True
    )
    owed = np.zeros((4, 4), dtype=np.int64)
    owed[0, 2] = SIZE
    gather_s = 8 * SIZE / 2 / RATE_BPS
    nic = fabric.nic_port(Nic(server, 2 * server))
    fault = cut("nic", (nic,), after_s=1.5 * gather_s, detect_s=0.02)
    healthy = Experiment(
        fabric,
        single(Demand("one", owed)),
        DelegatedSetup(),
        Dilation(1.0, 1.0),
        transport=TransportSetup("credit"),
    )
    with Network(fabric, 1.0, host=healthy.host) as network:
        found = tried(replace(healthy, faults=(fault,)), network)
    assert found.run.messages["end_s"].notna().all()
    left_s = gather_s / 2  # of each lane, over a NIC or NVLink
    # Both rests go over one NIC. From NIC 2 half of one arrives at GPU 1 too; to NIC 0 both go to GPU 0.
    scatter_s = gather_s + left_s / 2 if server == 0 else gather_s - left_s
    assert found.predicted_s == pytest.approx(1.5 * gather_s + 2 * left_s + scatter_s, rel=0.02)
    assert machine.busy or 0.97 < found.over_predicted < 1.05, found.over_predicted
