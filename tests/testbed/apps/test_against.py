"""What an application sent, carried again: bytes stay bytes, and predictions have pauses and faults."""

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from testbed.apps.against import AppScale, CarriedPhase, between_gpus, heaviest, joined, predicted_s
from testbed.apps.app_faults import app_faults
from testbed.experiment.dilation import Dilation
from topologies.errors import ScenarioError
from topologies.fabric import equal_servers
from topologies.rail import rail_fabric
from traffic.transports.host_settings import TransportSetup

FABRIC = rail_fabric(4, 2, rate_bps=100e9)
SCALE = AppScale(FABRIC, Dilation(1e-3, 1.0), TransportSetup("tcp"), 9000, "rails")
"""NICs of 100 Mbit/s."""


def all_to_all(each_bytes: int) -> NDArray[np.int64]:
    """Return as many bytes from each of four servers to each other."""
    return each_bytes * (1 - np.eye(4, dtype=np.int64))


def lasting_s(each_bytes: int, nics: int = 2) -> float:
    """Return how long an all-to-all keeps each of a server's NICs busy, at 100 Mbit/s [s]."""
    return 3 * each_bytes * 8 / nics / 100e6


@pytest.mark.parametrize("each_bytes", [1_000_000, 7, 1])
def test_gpus_of_a_server_send_what_it_sent(each_bytes: int) -> None:
    matrix = all_to_all(each_bytes)
    matrix[2, 3] = 0
    gpus = between_gpus(matrix, FABRIC)
    between_servers = gpus.reshape(4, 2, 4, 2).sum(axis=(1, 3))
    assert (between_servers == matrix).all()


def test_a_server_with_fewer_gpus_receives_all() -> None:
    servers = (*equal_servers(1, 2, 2, 1e12), *(replace(each, gpus=1) for each in FABRIC.servers[1:]))
    gpus = between_gpus(all_to_all(10), replace(FABRIC, servers=servers))
    assert gpus[:2].sum(axis=0).tolist() == [0, 0, 10, 10, 10]


def test_the_heaviest_phase_has_the_most_bytes() -> None:
    phases = [CarriedPhase(0, 1, all_to_all(5)), CarriedPhase(2, 3, all_to_all(9))]
    assert heaviest(phases) is phases[1]
    with pytest.raises(ScenarioError, match="sent nothing from one host to another"):
        heaviest([CarriedPhase(0, 1, np.diag([5, 5, 5, 5]))])
    with pytest.raises(ScenarioError, match="sent nothing"):
        heaviest([])


def test_a_prediction_has_the_pauses_of_the_application_and_the_models_phases() -> None:
    takes_s = lasting_s(4_000_000)
    phases = [CarriedPhase(0.5, 1.6, all_to_all(4_000_000)), CarriedPhase(3.0, 4.1, all_to_all(4_000_000))]
    found_s = predicted_s(SCALE, phases, 5.0)
    assert found_s == pytest.approx(0.5 + takes_s + (3.0 - 1.6) + takes_s + (5.0 - 4.1), rel=0.03)


def test_an_application_that_sends_nothing_takes_what_it_takes() -> None:
    assert predicted_s(SCALE, [], 5.0) == 5.0
    assert predicted_s(SCALE, [CarriedPhase(1, 2, np.zeros((4, 4), dtype=np.int64))], 5.0) == 5.0


def test_a_rail_that_goes_down_has_the_rest_take_twice_as_long() -> None:
    takes_s = lasting_s(20_000_000)
    faults = app_faults([f"nic:{server}:1@{takes_s / 2 + 1:.3f}s" for server in range(4)], FABRIC)
    phases = [CarriedPhase(1.0, 1.0 + 1.5 * takes_s, all_to_all(20_000_000))]
    found_s = predicted_s(SCALE, phases, 1.0 + 1.5 * takes_s, faults)
    assert found_s == pytest.approx(1.0 + 1.5 * takes_s, rel=0.03)


def test_phases_that_a_fault_parts_are_one() -> None:
    phases = [
        CarriedPhase(0, 2.1, all_to_all(5)),
        CarriedPhase(3, 4, all_to_all(6)),
        CarriedPhase(6, 7, all_to_all(1)),
    ]
    (parted, last) = joined(phases, app_faults(["nic:0:1@2s-6.5s"], FABRIC))
    assert (parted.begins_s, parted.ends_s, int(parted.matrix[0, 1])) == (0, 4, 11)
    assert last is phases[2]
    assert joined(phases, ()) == phases


@pytest.mark.parametrize("fault", ["server:1@1s", "controller@1s-2s"])
def test_what_an_application_does_without_a_server_is_not_predicted(fault: str) -> None:
    phases = [CarriedPhase(0, 2, all_to_all(5))]
    assert math.isnan(predicted_s(SCALE, phases, 2.0, app_faults([fault], FABRIC)))
