"""The demand matrices for parallel OCSes: shapes, sums and seeds."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.traffic.trace_files import MICE, written
from topologies.errors import DemandError, TraceError
from traffic.workloads.ocs_workloads import (
    NOISE,
    SCALED,
    Matrix,
    benchmark,
    demand_of_file,
    derangements,
    gpt,
    moe,
    ocs_demand,
    parallelism,
)

each_workload = pytest.mark.parametrize("workload", [benchmark, gpt, moe])


def entries_per_line(demand: Matrix) -> tuple[int, int]:
    return int((demand > 0).sum(axis=1).max()), int((demand > 0).sum(axis=0).max())


@each_workload
def test_seed_decides_everything(workload: Callable[[int], Matrix]) -> None:
    assert (workload(3) == workload(3)).all()
    assert (workload(3) != workload(4)).any()


@each_workload
def test_entries_are_demands(workload: Callable[[int], Matrix]) -> None:
    demand = workload(0)
    assert demand.shape[0] == demand.shape[1]
    assert np.isfinite(demand).all()
    assert (demand >= 0).all()


def test_benchmark_is_a_sum_of_permutations() -> None:
    demand = benchmark(0, noise=0)
    assert demand.shape == (100, 100)
    assert np.allclose(demand.sum(axis=0), 1)
    assert np.allclose(demand.sum(axis=1), 1)
    assert entries_per_line(demand) == (16, 16)
    assert np.isclose(np.unique(demand.round(12)), 0.7 / 4).any()


def test_benchmark_noise_leaves_the_nonzeros_nonzero() -> None:
    still, noisy = benchmark(0, noise=0), benchmark(0, noise=0.01)
    assert ((still > 0) == (noisy > 0)).all()
    assert np.std((noisy - still)[still > 0.1]) == pytest.approx(0.01, rel=0.1)


def test_gpt_is_sparse_skewed_and_doubly_stochastic() -> None:
    demand = gpt(0, noise=0)
    assert demand.shape == (32, 32)
    assert np.allclose(demand.sum(axis=0), 1)
    assert np.allclose(demand.sum(axis=1), 1, atol=1e-6)
    assert entries_per_line(demand) == (4, 4)  # tensor ring, data ring, two neighbouring stages
    assert demand.max() > 0.8


@pytest.mark.parametrize("degrees", [(1, 4, 2), (4, 1, 2), (4, 4, 1)])
def test_gpt_without_one_parallelism(degrees: tuple[int, int, int]) -> None:
    pipeline, tensor, data = degrees
    demand = gpt(0, pipeline=pipeline, tensor=tensor, data=data, noise=0)
    assert demand.shape == (pipeline * tensor * data,) * 2
    assert np.allclose(demand.sum(axis=1), 1, atol=1e-6)


def test_moe_is_dense_with_hot_columns() -> None:
    demand = moe(0)
    assert demand.shape == (64, 64)
    assert entries_per_line(demand) == (63, 63)
    assert not demand.diagonal().any()
    assert demand.sum(axis=0).max() == pytest.approx(1)
    assert demand.sum(axis=1).max() < 0.8


def test_moe_tokens_go_to_as_many_experts_as_asked() -> None:
    demand = moe(0, chosen=8, tokens=100_000, affinity=0)
    by_expert = demand.sum(axis=0) / demand.sum()
    assert by_expert.max() <= 1 / 8
    with pytest.raises(DemandError, match="64 of 64"):
        moe(0, chosen=64)


@pytest.mark.parametrize("workload", SCALED)
@pytest.mark.parametrize("servers", [3, 7, 8, 16])
def test_a_workload_for_few_servers_fills_about_a_line_and_owes_nobody_itself(
    workload: str, servers: int
) -> None:
    demand = ocs_demand(workload, 1, servers, 1e9)
    assert demand.gpus == servers
    assert "synthetic" in demand.note
    assert not demand.matrix.diagonal().any()
    busiest = max(demand.matrix.sum(axis=0).max(), demand.matrix.sum(axis=1).max())
    assert 0.25e9 < busiest < 1.1e9
    assert demand == ocs_demand(workload, 1, servers, 1e9)
    assert demand != ocs_demand(workload, 2, servers, 1e9)


@pytest.mark.parametrize("servers", range(2, 17))
def test_every_server_owes_a_large_flow_and_small_ones_to_others(servers: int) -> None:
    for seed in range(20):
        demand = ocs_demand("benchmark", seed, servers, 1e9).matrix / 1e9
        assert not demand.diagonal().any()
        lines = np.concatenate([demand, demand.T])
        assert lines.sum(axis=1) == pytest.approx(1, abs=5 * 2 * NOISE)  # the noise of four entries
        assert ((lines > 0).sum(axis=1) == min(4, servers - 1)).all()
        assert (lines.max(axis=1) > 0.7 - 5 * NOISE).all()


def test_parallelism_leaves_no_gpu_out() -> None:
    assert all(np.prod(parallelism(gpus)) == gpus for gpus in range(1, 200))


@pytest.mark.parametrize(
    ("workload", "servers", "line_bytes", "said"),
    [
        ("nobody", 4, 1e9, "unknown workload 'nobody'"),
        ("gpt", 1, 1e9, "a demand between 1 servers"),
        ("moe", 4, 0, "a line that carries 0 bytes"),
    ],
)
def test_what_is_no_workload_is_refused(workload: str, servers: int, line_bytes: float, said: str) -> None:
    with pytest.raises(DemandError, match=said):
        ocs_demand(workload, 0, servers, line_bytes)


def test_a_file_of_any_format_is_a_demand(tmp_path: Path) -> None:
    (tmp_path / "nccl.txt").write_text("9 1 2\n3 9 4\n5 6 9\n")
    (tmp_path / "two.cm").write_text(
        "Nodes 3\nConnections 2\nTriggers 1\n"
        "0->1 id 1 start 0 size 7000000 send_done_trigger 1\n"
        "1->2 id 2 trigger 1 size 8000000\ntrigger id 1 oneshot\n"
    )
    nccl, two = (demand_of_file(tmp_path / name, servers=8) for name in ("nccl.txt", "two.cm"))
    assert nccl.matrix.tolist() == [[0, 1, 2], [3, 0, 4], [5, 6, 0]], "to others"
    assert two.matrix.tolist() == [[0, 7_000_000, 0], [0, 0, 0], [0, 0, 0]]
    assert (nccl.name, two.name) == ("trace nccl.txt", "trace two.cm")
    assert two.note.endswith("the first of 2 exchanges, 7 of 15 MB")


def test_of_connections_with_starts_the_first_are_the_demand(tmp_path: Path) -> None:
    demand = demand_of_file(written(tmp_path, MICE), servers=8, start_unit="us")
    assert demand.matrix.sum() == demand.matrix[4, 0] == 20_000_000
    assert demand.note.endswith("starts from 7 to 107 us; the first of 3 exchanges, 20 of 20.6 MB")


def test_exchanges_of_several_groups_that_start_together_are_one_demand(tmp_path: Path) -> None:
    header = "HYBRID_TRANSFORMER model_parallel_NPU_group: 2 ep: 2 all_gpus: 4 checkpoints: 0"
    layer = "moe -1 5 ALLTOALL_EP 4000000 0 NONE 0 0 ALLTOALL_EP 2000000 0"
    (tmp_path / "step.txt").write_text(f"{header}\n1\n{layer}")
    demand = demand_of_file(tmp_path / "step.txt", servers=9)
    assert demand.matrix.tolist() == (2_000_000 * np.eye(4)[[2, 3, 0, 1]]).tolist()
    assert demand.note.endswith(
        "; the first 2 of 4 exchanges, 8 of 12 MB; left out: 1 nodes that compute or are rings"
    )


def test_a_file_in_which_nobody_owes_another_anything_is_refused(tmp_path: Path) -> None:
    (tmp_path / "idle.txt").write_text("9 0\n0 9\n")
    with pytest.raises(TraceError, match="holds nothing that one server owes another"):
        demand_of_file(tmp_path / "idle.txt", servers=2)


@pytest.mark.parametrize("size", [2, 3, 5, 8, 16])
@pytest.mark.parametrize("seed", range(5))
def test_nobody_sends_to_itself_and_flows_coincide_only_where_they_must(size: int, seed: int) -> None:
    orders = list(derangements(4, size, np.random.default_rng(seed)))
    assert all(sorted(order) == list(range(size)) for order in orders)
    assert not (np.array(orders) == np.arange(size)).any()
    for column in np.array(orders).T:
        assert len(set(column.tolist())) == min(4, size - 1)


def test_the_generator_decides_which() -> None:
    first, again, other = (
        [order.tolist() for order in derangements(4, 8, np.random.default_rng(seed))] for seed in (0, 0, 1)
    )
    assert first == again != other
