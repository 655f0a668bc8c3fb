"""How long a run takes: more of anything takes longer, and points that share a network boot it once."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.experiment.dilation import Dilation
from testbed.experiment.experiment import Experiment
from testbed.experiment.run_time import LONGER, START_BYTES, boots, memory_bytes, run_time
from topologies.rail import rail_fabric
from traffic.demand import Demand
from traffic.steps import single
from traffic.transports.host_settings import TransportSetup

POINT = Experiment(rail_fabric(2, 2), single(Demand("d", np.full((4, 4), 8))), "rails", Dilation(1e-3, 1e-2))


@given(st.lists(st.floats(0, 10), min_size=1, max_size=5), st.floats(0, 10))
def test_bytes_take_dilated_time_and_more_takes_longer(busy_s: list[float], predictions_s: float) -> None:
    found = run_time([POINT] * len(busy_s), busy_s, 12, predictions_s)
    assert found["bytes"] == pytest.approx(LONGER * 10 * sum(busy_s))
    more = run_time([POINT] * (len(busy_s) + 1), [*busy_s, 0], 24, predictions_s)
    assert sum(found.values()) < sum(more.values())


def test_points_share_a_network_whose_fabric_rate_mtu_and_hosts_are_equal() -> None:
    alike = [
        replace(POINT, dilation=Dilation(1e-3, 1e-3)),
        replace(POINT, seed=1),
        replace(POINT, transport=TransportSetup("credit")),
    ]
    other = [
        replace(POINT, mtu=1500),
        replace(POINT, dilation=Dilation(2e-3, 1e-2)),
        replace(POINT, transport=TransportSetup("tcp")),
        replace(POINT, transport=TransportSetup("tcp", initial_window_packets=3)),
    ]
    assert boots([POINT, *alike, *other]) == [[POINT, *alike], *([each] for each in other)]
    once, twice = run_time([POINT] * 2, [0, 0], 0, 0), run_time([POINT, other[0]], [0, 0], 0, 0)
    assert all(twice[part] == 2 * once[part] for part in ("boots", "samples of links"))


@given(st.lists(st.floats(1, 1e6), min_size=1, max_size=5), st.floats(1, 1e6))
def test_memory_grows_with_points_and_most_with_the_largest(messages: list[float], more: float) -> None:
    before = memory_bytes(messages)
    assert START_BYTES < before < memory_bytes([*messages, more])
    assert memory_bytes([*messages, max(messages)]) < 2 * before
