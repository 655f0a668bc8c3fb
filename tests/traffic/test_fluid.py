"""The fluid model: max-min fairness by its definition, closed forms, conservation, and the bound."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.traffic.cases import Work, assigned, flow, rates, ways, works
from topologies.errors import FabricError, ScenarioError
from topologies.fabric import Nic, Port
from traffic.bounds import lower_bound_s
from traffic.fluid import crossings_of, fluid_curves, fluid_transfers
from traffic.maxmin import max_min_rates
from traffic.messages import Chunks
from traffic.spraying.policy import Assignment, QueuePair
from traffic.transfers import Curve, Transfers

CLOSE = 1e-9


@st.composite
def meshes(draw: st.DrawFn) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Draw flows that cross one to four of a few links."""
    links = draw(st.integers(1, 8))
    ways = draw(st.lists(st.sets(st.integers(0, links - 1), min_size=1, max_size=4), min_size=1, max_size=12))
    crossings = np.full((len(ways), max(map(len, ways))), -1, dtype=np.int64)
    for row, way in enumerate(ways):
        crossings[row, : len(way)] = sorted(way)
    rate = st.sampled_from([1.0, 2.0, 3.0, 10.0, 1e11]) | st.floats(0.5, 50)
    return crossings, np.array(draw(st.lists(rate, min_size=links, max_size=links)))


def positive(count: int) -> st.SearchStrategy[NDArray[np.float64]]:
    return st.lists(st.floats(0.1, 20), min_size=count, max_size=count).map(np.array)


def assert_max_min(
    crossings: NDArray[np.int64],
    rate_bps: NDArray[np.float64],
    got: NDArray[np.float64],
    weights: NDArray[np.float64],
    cap_bps: NDArray[np.float64],
) -> None:
    """Check the definition: no link over its rate, and each flow at its cap or at a bottleneck of its own.

    A flow's bottleneck is a full link on which nobody has more for their weight.
    """
    over = [set(row[row >= 0].tolist()) for row in crossings]
    used = [sum(got[f] for f in range(len(got)) if link in over[f]) for link in range(len(rate_bps))]
    assert all(total <= rate * (1 + CLOSE) for total, rate in zip(used, rate_bps, strict=True))
    assert (got <= cap_bps * (1 + CLOSE)).all()
    for mine, way in enumerate(over):
        level = got[mine] / weights[mine] * (1 + CLOSE)
        bottlenecks = [
            link
            for link in way
            if used[link] >= rate_bps[link] * (1 - CLOSE)
            and all(got[f] / weights[f] <= level for f in range(len(got)) if link in over[f])
        ]
        assert bottlenecks or got[mine] >= cap_bps[mine] * (1 - CLOSE)


@given(meshes(), st.data())
def test_rates_are_max_min_fair(
    mesh: tuple[NDArray[np.int64], NDArray[np.float64]], data: st.DataObject
) -> None:
    crossings, rate_bps = mesh
    count = len(crossings)
    weights = data.draw(st.just(np.ones(count)) | positive(count))
    cap_bps = data.draw(st.just(np.full(count, np.inf)) | positive(count))
    got = max_min_rates(crossings, rate_bps, weights=weights, cap_bps=cap_bps)
    assert_max_min(crossings, rate_bps, got, weights, cap_bps)


def test_rates_of_the_parking_lot() -> None:
    crossings = np.array([[0, 1, 2], [0, -1, -1], [1, -1, -1], [1, -1, -1], [2, -1, -1]])
    assert max_min_rates(crossings, np.array([6.0, 6.0, 10.0])).tolist() == [2.0, 4.0, 2.0, 2.0, 8.0]


def test_a_flow_that_crosses_nothing_gets_its_cap() -> None:
    nothing = np.full((2, 1), -1)
    assert max_min_rates(nothing, np.ones(1), cap_bps=np.array([3.0, np.inf])).tolist() == [3.0, np.inf]


def curves_of(work: Work, transfers: Transfers) -> list[Curve]:
    crossings, rate_bps = crossings_of(transfers.paths, rates(work.fabric))
    owed = np.bincount(transfers.chunk_qp, work.chunks.bytes, len(transfers.queue_pairs)).astype(float)
    return fluid_curves(crossings, rate_bps, pool=np.arange(len(owed)), pool_bytes=owed)


@given(work=works(), name=st.sampled_from(["ecmp", "rails"]))
def test_no_link_is_over_its_rate_and_all_bytes_arrive(work: Work, name: str) -> None:
    transfers = flow(work, assigned(name, work))
    curves = curves_of(work, transfers)
    events = sorted({0.0, *(float(time) for times, _ in curves for time in times)})
    counts = np.array([np.interp(events, times, counts) for times, counts in curves])
    sent: dict[Port, NDArray[np.float64]] = {}
    for path, count in zip(transfers.paths, counts, strict=True):
        for port in path:
            sent[port] = sent.get(port, np.zeros(len(events))) + count
    for port, total in sent.items():
        at_most = rates(work.fabric)[port] * np.diff(events) / 8
        assert (np.diff(total) <= at_most * (1 + 1e-6) + 1e-6).all()
    owed = np.bincount(transfers.chunk_qp, work.chunks.bytes, len(transfers.queue_pairs))
    assert counts[:, -1:].sum(axis=1) == pytest.approx(owed) if len(owed) else not len(counts)


@given(work=works(), name=st.sampled_from(["ecmp", "rails"]))
def test_nothing_is_delivered_before_it_could_be(work: Work, name: str) -> None:
    transfers = flow(work, assigned(name, work))
    assert (transfers.sent_s <= transfers.delivered_s).all()
    alone = 8 * work.chunks.bytes / 80.0  # every link has 80 bit/s
    assert (transfers.delivered_s >= alone * (1 - 1e-6)).all()


@given(work=works(), name=st.sampled_from(["ecmp", "rails"]))
def test_cct_is_at_least_the_lower_bound(work: Work, name: str) -> None:
    cct_s = flow(work, assigned(name, work)).delivered_s.max(initial=0.0)
    assert cct_s >= lower_bound_s(work.messages, work.fabric) * (1 - 1e-6)


@given(work=works())
def test_weighted_by_its_bytes_rails_ends_with_its_busiest_port(work: Work) -> None:
    assignment = assigned("rails", work)
    owed = np.bincount(assignment.chunk_qp, work.chunks.bytes, len(assignment.queue_pairs)).astype(float)
    paths = ways(work.fabric, assignment.queue_pairs, np.random.default_rng(0))
    transfers = fluid_transfers(
        rate_bps=rates(work.fabric),
        queue_pairs=assignment.queue_pairs,
        paths=paths,
        chunks=work.chunks,
        assignment=assignment,
        weights=owed,
    )
    busiest: dict[Port, float] = {}
    for path, size in zip(paths, owed, strict=True):
        for port in path:
            busiest[port] = busiest.get(port, 0.0) + size
    assert transfers.delivered_s.max(initial=0.0) == pytest.approx(8 * max(busiest.values(), default=0) / 80)


def simple(
    sizes: list[int], paths: list[list[str]], rate_bps: dict[str, float], cap_bps: list[float] | None = None
) -> list[float]:
    """Return when each of some queue pairs with one chunk each is done."""
    pairs = tuple(QueuePair(Nic(0, 0), Nic(1, 0), entropy) for entropy in range(len(sizes)))
    number = np.arange(len(sizes))
    transfers = fluid_transfers(
        rate_bps={Port(name, 0): rate for name, rate in rate_bps.items()},
        queue_pairs=pairs,
        paths=tuple(tuple(Port(name, 0) for name in path) for path in paths),
        chunks=Chunks(number, np.array(sizes)),
        assignment=Assignment(pairs, number, number),
        cap_bps=None if cap_bps is None else np.array(cap_bps),
    )
    return [float(time) for time in transfers.delivered_s]


def test_one_bottleneck_is_shared_until_the_short_one_ends() -> None:
    assert simple([1, 3], [["x"], ["x"]], {"x": 8.0}) == pytest.approx([2.0, 4.0])


def test_incast_takes_what_the_receiver_takes() -> None:
    assert simple(
        [5] * 4, [[f"h{n}", "leaf"] for n in range(4)], {f"h{n}": 8.0 for n in range(4)} | {"leaf": 8.0}
    ) == (pytest.approx([20.0] * 4))


def test_what_a_short_one_leaves_goes_to_whoever_can_use_it() -> None:
    # a alone on y, b over both, c alone on x: b is held back by x, so a has the rest of y.
    assert simple([10, 4, 4], [["y"], ["x", "y"], ["x"]], {"x": 8.0, "y": 24.0}) == pytest.approx(
        [4.0, 8.0, 8.0]
    )


def test_pacing_holds_a_queue_pair_back_and_leaves_the_rest_to_others() -> None:
    assert simple([1, 3], [["x"], ["x"]], {"x": 8.0}, [2.0, 8.0]) == pytest.approx([4.0, 4.0])


def test_chunks_of_a_queue_pair_follow_each_other() -> None:
    pair = QueuePair(Nic(0, 0), Nic(1, 0))
    transfers = fluid_transfers(
        rate_bps={Port("h0", 0): 8.0},
        queue_pairs=(pair,),
        paths=((Port("h0", 0),),),
        chunks=Chunks(np.array([0, 0, 1]), np.array([2, 1, 4])),
        assignment=Assignment((pair,), np.zeros(3, dtype=np.int64), np.array([2, 0, 1])),
    )
    assert transfers.sent_s.tolist() == pytest.approx([4.0, 6.0, 0.0])
    assert transfers.delivered_s.tolist() == pytest.approx([6.0, 7.0, 4.0])


def test_a_pool_is_drained_by_all_its_flows_together() -> None:
    curves = fluid_curves(
        np.array([[0], [1]]), np.array([8.0, 24.0]), pool=np.array([0, 0]), pool_bytes=np.array([8.0])
    )
    assert [(times.tolist(), counts.tolist()) for times, counts in curves] == [
        ([0.0, 2.0], [0.0, 2.0]),
        ([0.0, 2.0], [0.0, 6.0]),
    ]


def test_no_work_takes_no_time() -> None:
    assert simple([], [], {}) == []


@pytest.mark.parametrize(
    ("paths", "cap_bps", "error", "sentence"),
    [
        ([[]], None, FabricError, "queue pair 0 has no way"),
        ([["y"]], None, FabricError, "crosses y:0, which has no rate"),
        ([["x"], ["x"]], None, ScenarioError, "2 ways for 1 queue pairs"),
        ([["x"]], [0.0], ScenarioError, "a cap of 0"),
        ([["x"]], [1.0, 1.0], ScenarioError, "2 caps for 1 queue pairs"),
    ],
)
def test_bad_input_is_refused(
    paths: list[list[str]], cap_bps: list[float] | None, error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        simple([1], paths, {"x": 8.0}, cap_bps)
