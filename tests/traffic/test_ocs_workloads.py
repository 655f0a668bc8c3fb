"""The demand matrices for parallel OCSes: shapes, sums and seeds."""

from collections.abc import Callable

import numpy as np
import pytest

from topologies.errors import DemandError
from traffic.ocs_workloads import Matrix, benchmark, gpt, moe

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
