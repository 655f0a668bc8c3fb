"""Phases of an application, and the demands that can be replayed."""

import numpy as np
import pandas as pd
import pytest

from testbed.apps import phases as module
from testbed.apps.app_record import TRAFFIC
from testbed.apps.phases import (
    between_gpus,
    between_servers,
    busy_share,
    demand_of,
    job_of_phases,
    traffic_phases,
)
from tests.testbed.apps.records import BIN_S, all_to_all
from topologies.errors import ScenarioError
from topologies.leaf_spine import leaf_spine_fabric
from topologies.rail import rail_fabric
from traffic.collectives.all_to_all import AllToAll
from traffic.demand import Demand
from traffic.job import Compute
from traffic.steps import single
from traffic.tables import empty

SERVERS = 3
FABRIC = rail_fabric(SERVERS, 2)


def test_pauses_divide_phases() -> None:
    traffic = all_to_all(SERVERS, [0.2, 1.0], 0.5, 1_000_000)
    found = traffic_phases(traffic, SERVERS, BIN_S)
    assert [each.start_s for each in found] == pytest.approx([0.2, 1.0])
    assert [each.end_s for each in found] == pytest.approx([0.7, 1.5])
    assert all((each.payload_bytes == 1_000_000 * (1 - np.eye(SERVERS))).all() for each in found)
    assert busy_share(found, 2.0) == pytest.approx(0.5)
    assert busy_share(found, 0.8) == pytest.approx(0.5 / 0.8)


def test_short_gaps_and_a_trickle_divide_nothing_and_make_no_phase() -> None:
    traffic = all_to_all(SERVERS, [0.2, 0.73], 0.5, 1_000_000)
    trickle = pd.DataFrame([(3.0, 0, 1, 1, 60, 8)], columns=list(TRAFFIC)).astype(TRAFFIC)
    (found,) = traffic_phases(pd.concat([traffic, trickle]), SERVERS, BIN_S)
    assert (found.start_s, found.end_s) == pytest.approx((0.2, 1.23))


def test_without_traffic_there_is_no_phase() -> None:
    assert traffic_phases(empty(TRAFFIC), SERVERS, BIN_S) == []
    assert busy_share([], 1.0) == busy_share([], 0.0) == 0.0
    assert job_of_phases([], FABRIC, "nothing", 0) is None


def test_payload_and_packets_are_told_apart() -> None:
    payload, wire = demand_of(all_to_all(SERVERS, [0.0], 0.1, 100_000), SERVERS)
    assert payload[0, 1] == 100_000
    assert wire[0, 1] == 100_000 + 10 * 10 * 52


@pytest.mark.parametrize("fabric", [FABRIC, leaf_spine_fabric(3, 1, nics=2, gpus=3), leaf_spine_fabric(3, 1)])
def test_bytes_of_servers_are_spread_over_their_gpus(fabric: object) -> None:
    matrix = np.array([[0, 1_000_003, 7], [0, 0, 5], [1, 0, 0]])
    spread = between_gpus(matrix, fabric)  # type: ignore[arg-type]
    gpus = len(spread) // SERVERS
    blocks = spread.reshape(SERVERS, gpus, SERVERS, gpus)
    assert (blocks.sum(axis=(1, 3)) == matrix).all()
    assert (blocks.max(axis=(1, 3)) - blocks.min(axis=(1, 3)) <= 1).all()


def test_a_demand_between_gpus_or_servers_is_one_between_servers() -> None:
    matrix = np.array([[0, 10, 20], [30, 0, 40], [50, 60, 0]])
    of_gpus = single(Demand("gpus", between_gpus(matrix, FABRIC) + np.eye(FABRIC.gpus, dtype=np.int64)))
    assert (between_servers(of_gpus, FABRIC) == matrix).all()
    assert (between_servers(single(Demand("servers", matrix)), FABRIC) == matrix).all()
    with pytest.raises(ScenarioError, match="between 4, the fabric has 3 servers and 6 GPUs"):
        between_servers(single(Demand("four", np.ones((4, 4), dtype=np.int64))), FABRIC)


def test_phases_are_a_job_with_their_pauses() -> None:
    found = traffic_phases(all_to_all(SERVERS, [0.2, 1.0], 0.5, 1_000_000), SERVERS, BIN_S)
    job = job_of_phases(found, FABRIC, "app", 12_000_000)
    assert job is not None
    assert [node.name for node in job.nodes] == ["phase 1", "pause 1", "phase 2"]
    assert [node.duration_s for node in job.nodes if isinstance(node, Compute)] == pytest.approx([0.3])
    patterns = [node.pattern for node in job.collectives]
    assert all(isinstance(each, AllToAll) and each.demand.total_bytes == 6_000_000 for each in patterns)
    assert job.note == "captured from the wire: 2 of 2 phases, 100.0% of all payload"


def test_of_too_many_cells_the_heaviest_phases_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_CELLS", 2 * FABRIC.gpus**2)
    parts = [
        all_to_all(SERVERS, [float(at)], 0.5, size)
        for at, size in enumerate((3_000_000, 1_000_000, 2_000_000))
    ]
    found = traffic_phases(pd.concat(parts), SERVERS, BIN_S)
    job = job_of_phases(found, FABRIC, "app", 36_000_000)
    assert job is not None
    assert [node.name for node in job.nodes] == ["phase 1", "pause 1", "phase 3"]
    assert "2 of 3 phases, 83.3%" in job.note
