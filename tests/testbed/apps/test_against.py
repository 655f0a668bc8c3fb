"""An application's bytes, carried again: bytes stay bytes, and predictions have pauses and faults."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from testbed.apps.against import AppScale, heaviest, joined, predicted_s, seen_of
from testbed.apps.app_faults import app_faults
from testbed.apps.phases import TrafficPhase
from testbed.experiment.dilation import Dilation
from topologies.errors import ScenarioError
from topologies.rail import rail_fabric
from traffic.transports.host_settings import TransportSetup

FABRIC = rail_fabric(4, 2, rate_bps=100e9)
SCALE = AppScale(FABRIC, Dilation(1e-3, 1.0), TransportSetup("tcp"), 9000, "rails")
"""NICs of 100 Mbit/s."""


def all_to_all(each_bytes: int) -> NDArray[np.int64]:
    """Return as many bytes from each of four servers to each other."""
    return each_bytes * (1 - np.eye(4, dtype=np.int64))


def phase_of(start_s: float, end_s: float, matrix: NDArray[np.int64]) -> TrafficPhase:
    """Return a phase in which hosts sent a matrix."""
    return TrafficPhase(start_s, end_s, matrix, matrix + matrix // 50)


def lasting_s(each_bytes: int, nics: int = 2) -> float:
    """Return how long an all-to-all keeps each of a server's NICs busy, at 100 Mbit/s [s]."""
    return 3 * each_bytes * 8 / nics / 100e6


def test_the_heaviest_phase_has_the_most_bytes() -> None:
    phases = [phase_of(0, 1, all_to_all(5)), phase_of(2, 3, all_to_all(9))]
    assert heaviest(phases) is phases[1]
    with pytest.raises(ScenarioError, match="sent nothing from one host to another"):
        heaviest([phase_of(0, 1, np.diag([5, 5, 5, 5]))])
    with pytest.raises(ScenarioError, match="sent nothing"):
        heaviest([])


def test_a_prediction_has_the_pauses_of_the_application_and_the_models_phases() -> None:
    takes_s = lasting_s(4_000_000)
    phases = [phase_of(0.5, 1.6, all_to_all(4_000_000)), phase_of(3.0, 4.1, all_to_all(4_000_000))]
    found_s = predicted_s(SCALE, phases, 5.0)
    assert found_s == pytest.approx(0.5 + takes_s + (3.0 - 1.6) + takes_s + (5.0 - 4.1), rel=0.03)


def test_an_application_that_sends_nothing_is_not_predicted() -> None:
    assert math.isnan(predicted_s(SCALE, [], 5.0))
    assert math.isnan(predicted_s(SCALE, [phase_of(1, 2, np.zeros((4, 4), dtype=np.int64))], 5.0))


def test_a_rail_that_goes_down_has_the_rest_take_twice_as_long() -> None:
    takes_s = lasting_s(20_000_000)
    faults = app_faults([f"nic:{server}:1@{takes_s / 2 + 1:.3f}s" for server in range(4)], FABRIC)
    phases = [phase_of(1.0, 1.0 + 1.5 * takes_s, all_to_all(20_000_000))]
    found_s = predicted_s(SCALE, phases, 1.0 + 1.5 * takes_s, faults)
    assert found_s == pytest.approx(1.0 + 1.5 * takes_s, rel=0.03)


def test_phases_that_a_fault_parts_are_one() -> None:
    phases = [
        phase_of(0, 2.1, all_to_all(5)),
        phase_of(3, 4, all_to_all(6)),
        phase_of(6, 7, all_to_all(1)),
    ]
    (parted, last) = joined(phases, app_faults(["nic:0:1@2s-6.5s"], FABRIC))
    assert (parted.start_s, parted.end_s, int(parted.payload_bytes[0, 1])) == (0, 4, 11)
    assert last is phases[2]
    assert joined(phases, ()) == phases


@pytest.mark.parametrize("fault", ["nic:0:1@1s-2.5s", "nic:0:1@2.5s", "nic:0:1@1s-2s", "nic:0:1@3.2s"])
def test_a_pause_that_a_fault_cannot_have_made_is_the_applications(fault: str) -> None:
    phases = [phase_of(0, 2.1, all_to_all(5)), phase_of(3, 4, all_to_all(6))]
    assert joined(phases, app_faults([fault], FABRIC)) == phases


@pytest.mark.parametrize("fault", ["server:1@1s", "controller@1s-2s"])
def test_what_an_application_does_without_a_server_is_not_predicted(fault: str) -> None:
    phases = [phase_of(0, 2, all_to_all(5))]
    assert math.isnan(predicted_s(SCALE, phases, 2.0, app_faults([fault], FABRIC)))


def flow_tables() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return flows from server 0 to server 1: three quarters of the bytes by NIC 1, until NIC 1 fails."""
    flows = pd.DataFrame(
        {"flow": [0, 1, 2], "source": [0, 0, 1], "destination": [1, 1, 1], "payload_bytes": [300, 100, 50]}
    )
    paths = pd.DataFrame(
        [
            (0, 0.1, 90, "h0:1 leaf1:1"),
            (0, 2.0, 99, "h0:0 leaf0:1"),
            (1, 0.1, 10, "h0:0 leaf0:1"),
            (1, 0.2, 1, "h0:0"),
            (2, 0.2, 1, "h1:0 leaf0:1"),
        ],
        columns=["flow", "first_s", "packets", "path"],
    )
    return flows, paths


def test_bytes_go_over_the_nics_that_flows_took_before_a_fault() -> None:
    seen = seen_of(*flow_tables(), FABRIC, until_s=1.0)
    assert seen == {(0, 1): {(1, 3): 0.75, (0, 2): 0.25}}
    matrix = all_to_all(1001)
    gpus = replace(SCALE, seen=seen).between_gpus(matrix)
    assert gpus[:2, 2:4].tolist() == [[250, 0], [0, 751]]
    assert (gpus.reshape(4, 2, 4, 2).sum(axis=(1, 3)) == matrix).all()


def test_a_nic_that_no_gpu_is_beside_says_nothing() -> None:
    servers = tuple(replace(each, gpus=1) for each in FABRIC.servers)
    seen = seen_of(*flow_tables(), replace(FABRIC, servers=servers), until_s=1.0)
    assert seen == {(0, 1): {(0, 1): 1.0}}
