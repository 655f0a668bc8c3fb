"""Fault traces: their states over time, their nodes of half a server, and the real trace's figures."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.schedulers.infinitehbd_waste import ARCHITECTURES
from tests.traffic.trace_files import written
from topologies.errors import TraceError
from traffic.fault_trace import (
    READINGS,
    FaultTrace,
    half_nodes,
    stand_in_trace,
    timeline,
    uniform_faults,
    weighted_quantile,
)
from traffic.readers.infinitehbd import read_fault_trace
from traffic.workloads.datasets import FAULT_TRACE, dataset_path

WINDOW_DAYS = 10.0


def trace_of(faults: list[tuple[int, float, float]], nodes: int = 4) -> FaultTrace:
    """Return a trace from its faults: node, start and end."""
    node, start, end = (np.array([fault[column] for fault in faults]) for column in range(3))
    return FaultTrace("drawn", nodes, WINDOW_DAYS, node.astype(np.int64), start * 1.0, end * 1.0)


def events(*rows: tuple[str, float, str]) -> str:
    """Return a file of events: node, time, and whether it starts or ends."""
    return json.dumps(
        [
            {
                "node_id": node,
                "event_time": time,
                "event_type": f"fault_{kind}",
                "fault_type": {"Class": "GPU"},
            }
            for node, time, kind in rows
        ]
    )


def test_reader_numbers_servers_and_pairs_starts_with_ends(tmp_path: Path) -> None:
    text = events(
        ("b", 0.5, "start"), ("a", 1, "start"), ("b", 1.5, "start"), ("b", 2, "end"), ("c", 3, "start"),
        ("b", 4, "end"), ("a", 5.25, "end"), ("a", 9.9, "start"), ("a", 9.9, "end"),
    )  # fmt: skip
    trace = read_fault_trace(written(tmp_path, text, "faults.json"), servers=5)
    assert (trace.name, trace.nodes, trace.window_days, trace.synthetic) == (
        "trace faults.json",
        5,
        9.0,
        False,
    )
    rows = sorted(zip(trace.node.tolist(), trace.start_days.tolist(), trace.end_days.tolist(), strict=True))
    assert rows == [(0, 1.0, 5.25), (0, 9.9, 9.9), (1, 0.5, 4.0), (1, 1.5, 2.0), (2, 3.0, 9.0)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("[{]", "line 1: Expecting property name"),
        ("{}", "found an object, expected a list"),
        ("[]", "expected a list of 1 or more"),
        ("[" * 100_000, "too deep or too long"),
        ("[1]", "[0]: found 1, expected an object; give events with node_id"),
        (events(("a", 1, "paused")), "[0].event_type: found 'fault_paused', expected 'fault_start' or"),
        (events(("a", True, "start")), "[0].event_time: found true, expected a number"),
        (events(("a", -1, "start")), "[0].event_time: found -1, expected 0 or more"),
        (events(("a", float("nan"), "start")), "[0].event_time: found NaN, expected less than 1000000"),
        (events(("a", 2, "start"), ("b", 1, "start")), "event 1: time 1 after 2"),
        (events(("a", 1, "start"), ("b", 2, "end")), "event 1: the end of a fault of 'b' that has not"),
        (events(("a", 0, "start"), ("a", 0.5, "end")), "covers 0.5 days"),
        (events(("a", 1, "start"), ("b", 1, "start"), ("c", 1, "start")), "names 3 servers"),
    ],
)
def test_a_malformed_trace_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(TraceError) as error:
        read_fault_trace(written(tmp_path, text), servers=2)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


quarters = st.integers(0, 60).map(lambda quarter: quarter / 4)
fault_lists = st.lists(
    st.tuples(st.integers(0, 3), quarters, quarters).map(lambda f: (f[0], min(f[1:]), max(f[1:]))), max_size=8
)


@given(fault_lists, st.integers(0, 159).map(lambda eighth: (2 * eighth + 1) / 16))
def test_timeline_has_at_every_moment_the_faults_that_hold(
    faults: list[tuple[int, float, float]], moment: float
) -> None:
    trace = trace_of(faults) if faults else trace_of([(0, 0, 0)])
    lengths, states = timeline(trace)
    assert lengths.sum() == WINDOW_DAYS
    assert (lengths > 0).all()
    if moment < WINDOW_DAYS:
        now = states[int(np.searchsorted(np.cumsum(lengths), moment, side="right"))]
        assert set(np.flatnonzero(now)) == {node for node, start, end in faults if start <= moment < end}


@pytest.mark.parametrize("reading", READINGS)
def test_halves_are_of_the_faults_that_were_kept(reading: str) -> None:
    trace = stand_in_trace(np.random.default_rng(1))
    for seed in range(5):
        halves = half_nodes(trace, 360, np.random.default_rng(seed), reading)  # type: ignore[arg-type]
        assert halves.nodes == 720
        known = set(zip(trace.start_days.tolist(), trace.end_days.tolist(), strict=True))
        drawn = list(zip(halves.start_days.tolist(), halves.end_days.tolist(), strict=True))
        assert set(drawn) <= known
        if reading == "joint":
            # Each fault of a kept server has one half or both, on the same server.
            server = dict(zip(drawn, (halves.node // 2).tolist(), strict=True))
            assert all(server[fault] == node // 2 for fault, node in zip(drawn, halves.node, strict=True))
            assert len(server) <= len(drawn) <= 1.03 * len(server)


def test_readings_have_the_papers_share_of_faulty_nodes() -> None:
    faults = 200_000
    node = np.arange(faults, dtype=np.int64)
    trace = FaultTrace("many", faults, 1.0, node, np.zeros(faults), np.ones(faults))
    both_or_one = {}
    for reading in READINGS:
        halves = half_nodes(trace, faults, np.random.default_rng(0), reading)
        both_or_one[reading] = np.bincount(np.bincount(halves.node // 2, minlength=faults), minlength=3)
        share = len(halves.node) / (2 * faults)
        assert share == pytest.approx(0.5021 if reading != "joint" else 0.5029, abs=0.003)
    assert both_or_one["joint"][0] == 0
    assert both_or_one["joint"][2] / faults == pytest.approx(0.00589, abs=0.0006)
    assert both_or_one["independent"][2] / faults == pytest.approx(0.5021**2, abs=0.004)


def test_halves_cannot_be_of_more_servers_than_there_are() -> None:
    trace = trace_of([(0, 1, 2)])
    with pytest.raises(TraceError, match="5 servers of a trace with 4"):
        half_nodes(trace, 5, np.random.default_rng(0))
    with pytest.raises(TraceError, match="unknown reading 'both'"):
        half_nodes(trace, 4, np.random.default_rng(0), "both")  # type: ignore[arg-type]


@pytest.mark.parametrize("fault", [(4, 1.0, 2.0), (-1, 1.0, 2.0), (0, 2.0, 1.0)])
def test_faults_that_cannot_be_are_refused(fault: tuple[int, float, float]) -> None:
    with pytest.raises(TraceError):
        trace_of([fault])


@given(st.integers(1, 60), st.integers(0, 1000))
def test_uniform_faults_have_their_counts_and_are_nested(nodes: int, seed: int) -> None:
    counts = np.arange(nodes + 1)
    states = uniform_faults(nodes, counts, np.random.default_rng(seed))
    assert states.sum(axis=1).tolist() == counts.tolist()
    assert (states[:-1] <= states[1:]).all()


def test_every_node_is_drawn_as_often() -> None:
    rng = np.random.default_rng(0)
    drawn = sum(uniform_faults(10, np.array([3]), rng)[0].astype(int) for _ in range(5000))
    assert np.abs(drawn - 1500).max() < 150  # 4.6 standard deviations


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 20)), min_size=1, max_size=12), st.integers(1, 100)
)
def test_weighted_quantile_is_that_of_values_repeated(pairs: list[tuple[int, int]], percent: int) -> None:
    values = np.array([value for value, _ in pairs], dtype=float)
    weights = np.array([weight for _, weight in pairs], dtype=float)
    repeated = sorted(value for value, weight in pairs for _ in range(weight))
    expected = repeated[-(-percent * len(repeated) // 100) - 1]
    assert weighted_quantile(values, weights, percent / 100) == expected


def test_stand_in_has_the_statistics_of_the_trace() -> None:
    faults, failing, shares = [], [], []
    for seed in range(20):
        trace = stand_in_trace(np.random.default_rng(seed))
        assert trace.synthetic
        assert "synthetic" in trace.name
        lengths, states = timeline(trace)
        faults.append(len(trace.node))
        failing.append(len(set(trace.node.tolist())))
        shares.append(np.average(states.mean(axis=1), weights=lengths))
    assert np.mean(faults) == pytest.approx(583, abs=20)
    assert np.mean(failing) == pytest.approx(231, abs=10)
    assert np.mean(shares) == pytest.approx(0.023, abs=0.002)


def test_fixed_repair_replaces_every_end() -> None:
    trace = trace_of([(0, 1, 2), (1, 3, 6)])
    assert trace.mean_repair_days == 2.0
    assert trace.with_repair(2.0).end_days.tolist() == [3.0, 5.0]


def real() -> FaultTrace:
    """Return the real trace, or skip."""
    try:
        return read_fault_trace(dataset_path(FAULT_TRACE))
    except TraceError as error:
        pytest.skip(str(error))


def test_real_trace_has_the_figures_of_its_appendix() -> None:
    trace = real()
    repair = trace.end_days - trace.start_days
    assert (len(trace.node), trace.nodes, len(set(trace.node.tolist()))) == (584, 400, 231)
    assert (trace.window_days, trace.start_days.min(), trace.end_days.max()) == (348.0, 3.8955, 348.9798)
    assert (repair == 0).sum() == 14
    assert trace.mean_repair_days == pytest.approx(5.5350, abs=5e-5)
    assert np.median(repair) == pytest.approx(0.8496, abs=1e-4)
    assert repair.max() == pytest.approx(130.96, abs=0.005)
    counts = np.bincount(np.bincount(trace.node, minlength=400))
    assert counts[[1, 2, 3, 4, 5, 6, 7, 8, 14]].tolist() == [96, 50, 31, 21, 10, 12, 5, 5, 1]
    lengths, states = timeline(trace)
    share = 100 * states.mean(axis=1)
    assert len(lengths) == 1006
    assert np.average(share, weights=lengths) == pytest.approx(2.31992, abs=5e-6)
    assert [weighted_quantile(share, lengths, q) for q in (0.5, 0.99, 1.0)] == pytest.approx(
        [1.75, 7.75, 8.75]
    )


@pytest.mark.parametrize(
    ("name", "percent"),
    [
        ("InfiniteHBD K=2", 0.41592),
        ("InfiniteHBD K=3", 0.31923),
        ("big switch", 0.31923),
        ("SiP-Ring", 6.32773),
    ],
)
def test_waste_on_the_real_trace_without_draws_is_exact(name: str, percent: float) -> None:
    lengths, states = timeline(real())
    waste = 100 * ARCHITECTURES[name](states, 8, 32) / 3200
    assert np.average(waste, weights=lengths) == pytest.approx(percent, abs=5e-6)
    if name == "SiP-Ring":
        assert weighted_quantile(waste, lengths, 0.99) == 18.0
