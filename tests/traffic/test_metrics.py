"""Metrics against numbers worked out by hand."""

import math
from dataclasses import astuple

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from tests.testbed.runs import run_of
from tests.traffic.cases import uneven_fabric
from topologies.fabric import Port
from topologies.rail import rail_fabric
from traffic.collectives.all_to_all import AllToAll
from traffic.collectives.point_to_point import PointToPoint
from traffic.collectives.ring import Ring
from traffic.demand import Demand
from traffic.job import Collective, Job
from traffic.metrics import (
    bus_bytes,
    busbw_gbytes_s,
    cct,
    collective_times_s,
    communication_s,
    kinds_busbw_gbytes_s,
    link_bytes,
    load_mse,
    nic_received_bytes,
    nic_sent_bytes,
    size_bytes,
    uplink_bytes,
)
from traffic.records import COLUMNS
from traffic.steps import Step, job_of_steps, single
from traffic.tables import Tables
from traffic.workloads.placement import placed

DIRECT = "30@h0:0,leaf0:1"
SPLIT = "8@h0:0,leaf0:1 12@h0:1,leaf1:2,spine0:0,leaf0:1"
BACK = "40@h1:1,leaf1:0"


def tables(*rows: tuple[int, int, int, int, float, float, str]) -> Tables:
    """Return the tables of messages (step, source, destination, bytes, start_s, end_s, path)."""
    messages = (
        pd.DataFrame(list(rows), columns=list(COLUMNS)).astype(COLUMNS).rename(columns={"step": "node"})
    )
    nothing = pd.DataFrame({"node": [], "gpu": [], "start_s": [], "end_s": []})
    return run_of(
        messages.astype({"node": "str"}), nothing, pd.DataFrame({"at_s": [], "what": [], "which": []})
    ).tables


def example() -> Tables:
    """Two servers of two NICs each; GPUs 0 and 1 are in h0."""
    return tables(
        (0, 0, 2, 30, 0.0, 3.0, DIRECT),
        (0, 0, 3, 20, 1.0, 4.0, SPLIT),
        (0, 2, 1, 40, 0.0, 2.0, BACK),
        (0, 0, 1, 50, 0.0, 5.0, "nvlink"),
    )


def test_percentiles_are_over_the_network_and_the_last_is_over_all() -> None:
    # of 2, 3 and 4 s: p80 lies 0.6 of the way from the second to the third, and so on
    assert astuple(cct(example())) == pytest.approx((3.0, 3.6, 3.9, 3.98, 5.0))


def test_times_count_from_the_start_of_each_step() -> None:
    two = tables((0, 0, 2, 8, 0.0, 2.0, DIRECT), (1, 0, 2, 8, 10.0, 14.0, DIRECT))
    assert (cct(two).mean_s, cct(two).last_s) == (3.0, 4.0)


def test_nothing_sent_takes_no_time() -> None:
    nothing = single(Demand("nothing", np.zeros((4, 4), dtype=np.int64)))
    assert astuple(cct(tables())) == pytest.approx((*[math.nan] * 4, 0.0), nan_ok=True)
    assert busbw_gbytes_s(nothing, collective_times_s(tables())) == 0.0
    assert link_bytes(tables()) == {}
    assert math.isnan(load_mse(nic_sent_bytes({}, rail_fabric(2, 2)))), "no load, so neither even nor uneven"


def test_messages_inside_servers_alone_have_no_percentiles() -> None:
    times = cct(tables((0, 0, 1, 8, 0.0, 2.0, "nvlink")))
    assert astuple(times) == pytest.approx((*[math.nan] * 4, 2.0), nan_ok=True)


def test_busbw_is_that_of_the_busiest_gpu() -> None:
    matrix = np.array([[10, 50, 30, 20], [0, 0, 0, 0], [0, 40, 0, 0], [0, 0, 0, 0]]) * 10**9
    # GPU 0 sends 100 GB to others, and keeps 10; the most received is 90 GB. 5 s pass.
    assert busbw_gbytes_s(single(Demand("skewed", matrix)), {"step 0": 5.0}) == 20.0


def test_the_busiest_gpu_may_be_a_receiver() -> None:
    matrix = np.array([[0, 50], [0, 50]]) * 10**9
    assert busbw_gbytes_s(single(Demand("incast", matrix)), {"step 0": 5.0}) == 10.0


def test_the_steps_of_a_job_add_up() -> None:
    first, second = np.array([[0, 6], [2, 0]]), np.array([[0, 1], [4, 0]])
    steps = Step(Demand("first", first * 10**9)), Step(Demand("second", second * 10**9))
    assert busbw_gbytes_s(job_of_steps("two", steps), {"step 0": 4.0, "step 1": 1.0}) == 2.0


@given(st.integers(2, 16), st.integers(1, 1 << 40), st.integers(0, 3), st.data())
def test_busbw_of_an_even_all_to_all_is_that_of_nccl_tests_whatever_ranks_keep_and_whoever_idles(
    n: int, count: int, idle: int, data: st.DataObject
) -> None:
    matrix = np.zeros((n + idle, n + idle), dtype=np.int64)
    matrix[:n, :n] = count
    np.fill_diagonal(
        matrix, data.draw(st.lists(st.integers(0, 1 << 40), min_size=n + idle, max_size=n + idle))
    )
    pattern = AllToAll(Demand("even", matrix))
    assert size_bytes(pattern) == pytest.approx(n * count)
    assert bus_bytes(pattern) == pytest.approx(n * count * (n - 1) / n)


def test_busbw_of_rings_is_that_of_nccl_tests() -> None:
    rings = ((0, 1, 2, 3), (3, 2, 1, 0))
    job = Job("ring", 4, (Collective("a", Ring(rings, 8 * 10**9)),))
    assert busbw_gbytes_s(job, {"a": 2.0}) == pytest.approx(8 / 2.0 * 2 * 3 / 4)


@given(st.lists(st.tuples(st.integers(1, 9), st.floats(0.1, 10.0)), min_size=1, max_size=5))
def test_several_of_a_kind_have_a_mean_and_no_sum(pairs: list[tuple[int, float]]) -> None:
    nodes = tuple(
        Collective(f"{k}", PointToPoint(((2 * k, 2 * k + 1, size * 10**9),)))
        for k, (size, _) in enumerate(pairs)
    )
    job, took_s = Job("pairs", 2 * len(pairs), nodes), {f"{k}": lasts for k, (_, lasts) in enumerate(pairs)}
    each = [size / lasts for size, lasts in pairs]
    found = busbw_gbytes_s(job, took_s)
    assert min(each) * (1 - 1e-9) <= found <= max(each) * (1 + 1e-9)
    assert found * sum(took_s.values()) == pytest.approx(sum(size for size, _ in pairs))


def test_several_kinds_have_a_busbw_each() -> None:
    ring, send = Ring(((0, 1),), 4 * 10**9), PointToPoint(((2, 3, 6 * 10**9),))
    nodes = Collective("a", ring), Collective("b", send), Collective("c", send), Collective("d", send)
    job, took_s = Job("kinds", 4, nodes), {"a": 2.0, "b": 1.0, "c": 5.0}
    assert kinds_busbw_gbytes_s(job, took_s) == {"ring all-reduce": 2.0, "point to point": 2.0}
    assert math.isnan(busbw_gbytes_s(job, took_s))


def test_a_collective_takes_from_its_first_release_to_its_last_byte() -> None:
    two = tables(
        (0, 0, 2, 8, 1.0, 2.0, DIRECT), (0, 0, 2, 8, 1.5, 3.0, DIRECT), (1, 0, 2, 8, 2.0, 6.0, DIRECT)
    )
    assert collective_times_s(two) == {"0": 2.0, "1": 4.0}


def test_what_overlaps_is_under_way_once() -> None:
    row = (0, 2, 8)
    steps = tables((0, *row, 0.0, 2.0, DIRECT), (1, *row, 1.0, 1.5, DIRECT), (2, *row, 1.5, 3.0, DIRECT),
                    (3, *row, 5.0, 6.0, DIRECT))  # fmt: skip
    assert communication_s(steps) == 4.0
    assert communication_s(tables()) == 0.0


def test_gpus_that_idle_are_no_ranks() -> None:
    trace = single(Demand("trace", np.array([[5, 5], [5, 5]]) * 10**9))
    for job in (trace, placed(trace, rail_fabric(4, 2))):
        assert busbw_gbytes_s(job, {"step 0": 5.0}) == 1.0


def test_nics_are_charged_for_what_passes_them() -> None:
    fabric = rail_fabric(2, 2)
    assert nic_sent_bytes(link_bytes(example()), fabric).tolist() == [[38.0, 12.0], [0.0, 40.0]]
    assert nic_received_bytes(link_bytes(example()), fabric).tolist() == [[0.0, 40.0], [50.0, 0.0]]


def test_a_nic_that_is_not_there_has_no_number() -> None:
    carried = link_bytes(tables((0, 0, 2, 30, 0.0, 3.0, DIRECT)))
    sent = nic_sent_bytes(carried, uneven_fabric(2, 1))
    np.testing.assert_equal(sent, [[30.0, 0.0], [0.0, np.nan]])
    assert load_mse(sent) == 1.0


def test_links_are_charged_for_what_passes_them() -> None:
    assert link_bytes(example()) == {
        Port("h0", 0): 38,
        Port("leaf0", 1): 50,
        Port("h0", 1): 12,
        Port("leaf1", 2): 12,
        Port("spine0", 0): 12,
        Port("h1", 1): 40,
        Port("leaf1", 0): 40,
    }


def test_uplinks_are_a_table_of_leaves_and_spines() -> None:
    table = uplink_bytes(link_bytes(example()), rail_fabric(2, 2))
    assert table.to_dict("split") == {
        "index": ["leaf0", "leaf1"],
        "columns": ["spine0", "spine1"],
        "data": [[0.0, 0.0], [12.0, 0.0]],
    }


@pytest.mark.parametrize(
    ("load", "mse"),
    [
        ([[5, 5, 5, 5]], 0.0),
        ([[8, 0, 0, 0]], 1.0),
        ([[6, 2]], 0.25),  # (4 / 1) / ((1 / 4) * 64)
        ([[4, 4, 0, 0]], 1 / 3),  # half the NICs idle: (4) / ((3 / 16) * 64)
        ([[8, 0], [1, 1], [0, 0]], 0.5),  # the third server has no load and does not count
        ([[7]], 0.0),
    ],
)
def test_load_mse_by_hand(load: list[list[int]], mse: float) -> None:
    assert load_mse(np.array(load, dtype=float)) == pytest.approx(mse)


@given(
    load=arrays(float, (3, 4), elements=st.integers(0, 1000).map(float)).filter(np.any),
    scale=st.floats(0.5, 1e9),
)
def test_load_mse_is_between_0_and_1_whatever_the_scale(load: NDArray[np.float64], scale: float) -> None:
    assert 0.0 <= load_mse(load) <= 1.0 + 1e-12
    assert load_mse(load * scale) == pytest.approx(load_mse(load))
