"""Synthetic demands: what is sent is conserved, what is stated holds, seeds decide."""

from collections.abc import Callable
from itertools import permutations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from topologies.errors import DemandError
from topologies.rail import rail_fabric
from traffic.demand import Demand
from traffic.workloads.gating import GATING_ZIPF, apportioned, gini, zipf_shares
from traffic.workloads.synthetic import (
    GATINGS,
    HIDDEN,
    TOKENS,
    Gating,
    receiver_skew,
    sender_skew,
    sparse,
    uniform,
)

FABRIC = rail_fabric(8, 4)
gpus = st.integers(1, 40)
tokens = st.integers(1, 5000)
hidden = st.integers(1, 100)
seeds = st.integers(0, 1000)
sparsities = st.floats(0, 0.9)


def normalised_mse(loads: NDArray[np.int64]) -> float:
    """Return the mean squared error of loads from their mean, 1 when one has all."""
    shares = loads / loads.sum()
    even = 1 / len(shares)
    return float(((shares - even) ** 2).sum() / ((1 - even) ** 2 + (len(shares) - 1) * even**2))


@given(gpus, tokens, hidden)
def test_uniform_sends_and_receives_the_same_everywhere(gpus: int, tokens: int, hidden: int) -> None:
    matrix = uniform(gpus, tokens=tokens, hidden=hidden).matrix
    assert (matrix.sum(axis=0) == tokens * hidden * 2).all()
    assert (matrix.sum(axis=1) == tokens * hidden * 2).all()
    assert np.ptp(matrix) <= 1


def test_uniform_is_32_mib_per_gpu_by_default() -> None:
    assert TOKENS * HIDDEN * 2 == 32 << 20
    assert (uniform(32).matrix == 1 << 20).all()


@given(st.integers(2, 40), sparsities, st.integers(1, 3), tokens, hidden, seeds)
def test_sparse_keeps_its_promises(
    gpus: int, sparsity: float, top_k: int, tokens: int, hidden: int, seed: int
) -> None:
    active = gpus - round(sparsity * gpus)
    assume(active > 0)
    top_k = min(top_k, active)
    per_token, per_gpu = (
        sparse(gpus, sparsity, top_k=top_k, gating=gating, tokens=tokens, hidden=hidden, seed=seed).matrix
        for gating in GATINGS
    )
    assert (per_gpu.sum(axis=1) == tokens * hidden * 2).all()
    assert ((per_gpu > 0).sum(axis=1) <= top_k).all()
    # Each token sends a copy to each of its experts, and none twice to one.
    assert (per_token.sum(axis=1) == top_k * tokens * hidden * 2).all()
    assert per_token.max() <= tokens * hidden * 2
    for matrix in (per_gpu, per_token):
        assert (matrix.sum(axis=0) > 0).sum() <= active
        assert (matrix % (hidden * 2) == 0).all()


@pytest.mark.parametrize("top_k", [1, 2, 4])
def test_a_row_covers_many_experts_per_token_and_top_k_of_them_per_gpu(top_k: int) -> None:
    per_token, per_gpu = (sparse(32, 0.6, top_k=top_k, gating=gating) for gating in GATINGS)
    assert ((per_token.matrix > 0).sum(axis=1) == 13).all(), "all that are active"
    assert ((per_gpu.matrix > 0).sum(axis=1) == top_k).all()
    assert (per_token.matrix.sum(axis=0) > 0).sum() == 13
    assert (per_token.name, per_gpu.name) == ("sparse 0.6", "sparse 0.6 per GPU")
    assert f"each token's top {top_k} of 13" in per_token.note
    assert f"each GPU's top {top_k} of 13" in per_gpu.note


def test_tokens_draw_experts_by_their_shares_without_replacement() -> None:
    """Of three experts with shares by Zipf's 2, two each: the chance to be left out, by hand."""
    shares = np.array([36, 9, 4]) / 49
    alone = {frozenset((a, b)): 0.0 for a in range(3) for b in range(a)}
    for a, b in permutations(range(3), 2):
        alone[frozenset((a, b))] += shares[a] * shares[b] / (1 - shares[a])
    chosen = [sum(p for pair, p in alone.items() if expert in pair) for expert in range(3)]
    tokens = 200_000
    copies = sparse(3, 0, tokens=tokens, zipf=2.0, hidden=1).matrix / 2
    for row in copies:
        assert sorted(row / tokens, reverse=True) == pytest.approx(chosen, abs=0.005)


@pytest.mark.parametrize("gating", GATINGS)
def test_sparser_is_hotter(gating: Gating) -> None:
    hottest = [
        np.mean(
            [sparse(32, sparsity, gating=gating, seed=seed).matrix.sum(axis=0).max() for seed in range(5)]
        )
        for sparsity in (0, 0.2, 0.4, 0.6)
    ]
    assert hottest == sorted(hottest)


@given(seeds, tokens, st.floats(0, 3))
def test_sender_skew_receives_evenly(seed: int, tokens: int, exponent: float) -> None:
    demand = sender_skew(FABRIC, exponent=exponent, tokens=tokens, seed=seed)
    assert demand.total_bytes == FABRIC.gpus * tokens * HIDDEN * 2
    assert np.ptp(demand.matrix.sum(axis=0)) <= FABRIC.gpus * HIDDEN * 2
    assert np.ptp(demand.matrix, axis=1).max() <= HIDDEN * 2


@given(seeds, tokens, st.floats(0, 3))
def test_receiver_skew_sends_evenly(seed: int, tokens: int, exponent: float) -> None:
    demand = receiver_skew(FABRIC, exponent=exponent, tokens=tokens, seed=seed)
    assert (demand.matrix.sum(axis=1) == tokens * HIDDEN * 2).all()
    assert (demand.matrix == demand.matrix[0]).all()


@pytest.mark.parametrize("axis", [0, 1], ids=["receivers", "senders"])
def test_skew_inside_a_server_is_what_the_paper_reports_for_ecmp(axis: int) -> None:
    demand = (receiver_skew if axis == 0 else sender_skew)(FABRIC)
    loads = demand.matrix.sum(axis=axis).reshape(8, 4)
    assert [normalised_mse(server) for server in loads] == pytest.approx([0.15] * 8, abs=0.005)


SEEDED: list[Callable[[int], Demand]] = [
    lambda seed: sparse(32, 0.4, seed=seed),
    lambda seed: sender_skew(FABRIC, seed=seed),
    lambda seed: receiver_skew(FABRIC, seed=seed),
]


@pytest.mark.parametrize("workload", SEEDED)
def test_the_seed_decides(workload: Callable[[int], Demand]) -> None:
    assert workload(1) == workload(1)
    assert not np.array_equal(workload(1).matrix, workload(2).matrix)
    assert workload(1).note.startswith("synthetic: ")


def test_notes_state_the_gini() -> None:
    assert f"Gini {gini(zipf_shares(32, GATING_ZIPF)):.2f}" in sparse(32, 0).note
    received = gini(sparse(32, 0.6).matrix.sum(axis=0))
    assert f"received Gini {received:.2f}" in sparse(32, 0.6).note


@pytest.mark.parametrize(
    ("workload", "culprit"),
    [
        (lambda: uniform(0), "0 GPUs"),
        (lambda: uniform(2, tokens=0), "0 tokens"),
        (lambda: uniform(2, hidden=-1), "-1 numbers"),
        (lambda: sparse(0, 0), "0 GPUs"),
        (lambda: sparse(8, 1), "sparsity of 1"),
        (lambda: sparse(8, -0.1), "sparsity of -0.1"),
        (lambda: sparse(8, float("nan")), "sparsity of nan"),
        (lambda: sparse(8, 0, top_k=9), "top 9 of 8"),
        (lambda: sparse(8, 0.9), "top 2 of 1"),
        (lambda: sparse(8, 0, top_k=0), "top 0"),
        (lambda: sparse(8, 0, zipf=-1), "exponent of -1"),
        (lambda: sparse(8, 0, seed=-1), "seed of -1"),
        (lambda: sparse(8, 0, gating="layer"), "no gating 'layer'"),  # type: ignore[arg-type]
        (lambda: sender_skew(FABRIC, exponent=float("inf")), "exponent of inf"),
        (lambda: receiver_skew(FABRIC, tokens=0), "0 tokens"),
    ],
)
def test_what_makes_no_sense_is_named(workload: Callable[[], Demand], culprit: str) -> None:
    with pytest.raises(DemandError) as error:
        workload()
    assert culprit in str(error.value)


@given(st.integers(0, 10**12), st.lists(st.floats(0.001, 1000), min_size=1, max_size=50))
def test_apportioning_is_exact_and_fair(total: int, weights: list[float]) -> None:
    shares = np.array(weights) / sum(weights)
    whole = apportioned(total, shares)
    assert whole.sum() == total
    assert (np.abs(whole - shares * total) < 1 + 1e-3).all()


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=30))
def test_gini_is_its_definition(loads: list[int]) -> None:
    differences = sum(abs(a - b) for a in loads for b in loads)
    expected = differences / (2 * len(loads) * sum(loads)) if sum(loads) else 0
    assert gini(loads) == pytest.approx(expected, abs=1e-9)


def test_default_gating_is_as_uneven_as_real_text() -> None:
    for experts in (8, 16, 32, 64, 128, 256):
        assert 0.1 <= gini(zipf_shares(experts, GATING_ZIPF)) <= 0.25


def test_a_distribution_is_over_something() -> None:
    with pytest.raises(DemandError, match="0 experts"):
        zipf_shares(0, 1)
