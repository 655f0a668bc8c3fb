"""Made-up gates have the public matrix's statistics, flatten over training, and lose no token."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from topologies.errors import DemandError
from traffic.readers.detect import read_trace
from traffic.steps import demands_of
from traffic.workloads.gate import (
    ARTIFACT_TOKENS,
    GateStatistics,
    gate_demand,
    gate_loads,
    gate_statistics,
    gate_tokens,
)
from traffic.workloads.mixtral import PHASES

phases = st.lists(st.sampled_from(sorted(PHASES)), min_size=1, max_size=6)
seeds = st.integers(0, 99)


def statistics(phase: str, seed: int = 0) -> GateStatistics:
    """Return the statistics of 30 iterations of 8 layers, 8 sources and 8 experts."""
    return gate_statistics(gate_tokens(gate_loads([phase] * 30, 8, seed=seed), 8, 32768, seed=seed))


def test_public_matrix_has_the_statistics_that_the_generator_is_held_to() -> None:
    assert (ARTIFACT_TOKENS.sum(axis=1) == 32768).all()
    shares = ARTIFACT_TOKENS.sum(axis=0) / ARTIFACT_TOKENS.sum()
    assert shares.round(3).tolist() == [0.296, 0.171, 0.031, 0.099, 0.122, 0.092, 0.028, 0.162]
    public = gate_statistics(ARTIFACT_TOKENS[None, None])
    assert (round(public.most, 2), round(public.least, 2)) == (2.37, 0.22)
    assert (round(public.gini, 2), round(public.row_gini, 3)) == (0.35, 0.357)
    assert 0.10 < public.spread < 0.18
    assert round(float(np.trace(ARTIFACT_TOKENS) / ARTIFACT_TOKENS.sum()), 3) == 0.127


@pytest.mark.parametrize("seed", range(3))
def test_early_gate_is_like_the_public_matrix(seed: int) -> None:
    early = statistics("early", seed)
    assert early.gini == pytest.approx(0.35, abs=0.03)
    assert 2.0 <= early.most <= 2.8
    assert 0.15 <= early.least <= 0.35
    assert abs(early.row_gini - early.gini) <= 0.05
    assert 0.10 <= early.spread <= 0.18


@pytest.mark.parametrize("seed", range(3))
def test_gate_wanders_less_and_flattens_as_training_goes_on(seed: int) -> None:
    found = [statistics(phase, seed) for phase in ("start", "early", "mid", "stable")]
    wander = [phase.wander for phase in found]
    assert wander == sorted(wander, reverse=True)
    assert len(set(wander)) == 4
    assert found[0].gini == pytest.approx(0.35, abs=0.03)
    assert found[1].gini > found[2].gini > found[3].gini
    assert found[3].gini == pytest.approx(0.10, abs=0.03)


def test_no_source_prefers_its_own_experts() -> None:
    tokens = gate_tokens(gate_loads(["early"] * 50, 8), 8, 32768)
    own = np.trace(tokens, axis1=2, axis2=3).sum() / tokens.sum()
    assert own == pytest.approx(1 / 8, abs=0.01)


def test_layers_differ_and_follow_from_the_one_before() -> None:
    loads = gate_loads(["early"] * 40, 3, noise=0.0)
    assert np.abs(loads[:, 0] - loads[:, 1]).max() > 0.05
    # 40 iterations over-determine an 8 x 8 matrix, so that an exact fit proves the tie.
    for layer in (1, 2):
        _, residual, rank, _ = np.linalg.lstsq(loads[:, layer - 1], loads[:, layer], rcond=None)
        assert rank == 8
        assert residual.max() < 1e-20
    noisy = gate_loads(["early"] * 40, 3)
    assert np.linalg.lstsq(noisy[:, 0], noisy[:, 1], rcond=None)[1].max() > 1e-6


@settings(max_examples=examples(12, 40))
@given(phases, st.integers(1, 4), st.integers(2, 12), st.integers(1, 4), st.integers(1, 999),
       st.floats(0, 0.99), seeds)  # fmt: skip
def test_every_token_is_sent(
    of: list[str], layers: int, experts: int, sources: int, sent: int, sparsity: float, seed: int
) -> None:
    loads = gate_loads(of, layers, experts, seed=seed)
    assert loads.shape == (len(of), layers, experts)
    assert (loads > 0).all()
    assert loads.sum(axis=2) == pytest.approx(np.ones((len(of), layers)))
    tokens = gate_tokens(loads, sources, sent, sparsity=sparsity, seed=seed)
    assert tokens.shape == (len(of), layers, sources, experts)
    assert (tokens.sum(axis=3) == sent).all()
    assert ((tokens > 0).sum(axis=3) <= np.ceil((1 - sparsity) * experts)).all()


def test_sparse_gates_have_zero_pairs() -> None:
    loads = gate_loads(["early"] * 5, 4)
    found = [gate_statistics(gate_tokens(loads, 8, 32768, sparsity=q)).zeros for q in (0.0, 0.25, 0.5, 0.75)]
    assert found == [0.0, 0.25, 0.5, 0.75]


@given(seeds)
def test_the_seed_decides(seed: int) -> None:
    loads = gate_loads(["mid"] * 3, 2, seed=seed)
    assert np.array_equal(loads, gate_loads(["mid"] * 3, 2, seed=seed))
    assert not np.array_equal(loads, gate_loads(["mid"] * 3, 2, seed=seed + 1))
    tokens = gate_tokens(loads, 4, 999, seed=seed)
    assert np.array_equal(tokens, gate_tokens(loads, 4, 999, seed=seed))
    assert not np.array_equal(tokens, gate_tokens(loads, 4, 999, seed=seed + 1))


@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 4), st.integers(1, 99), seeds)
def test_demand_goes_between_equal_gpus_of_ranks(
    ranks: int, per_rank: int, tp: int, token_bytes: int, seed: int
) -> None:
    tokens = np.random.default_rng(seed).integers(0, 99, (ranks, ranks * per_rank))
    sharded = gate_demand(tokens, token_bytes, tp).matrix.reshape(ranks, tp, ranks, tp)
    whole = gate_demand(tokens, token_bytes, tp, tp_shards_tokens=False).matrix.reshape(ranks, tp, ranks, tp)
    for source in range(ranks):
        for rank in range(ranks):
            owed = tokens[source, rank * per_rank : (rank + 1) * per_rank].sum() * token_bytes
            assert sharded[source, :, rank].sum() == owed
            assert np.ptp(np.diag(sharded[source, :, rank])) <= 1
            assert (whole[source, :, rank] == owed * np.eye(tp)).all()


def test_one_all_to_all_of_8x7b_has_537_mb_of_each_rank() -> None:
    """N k h 2 bytes out of a rank, N = 8 sequences of 4,096: 536.9 MB."""
    tokens = gate_tokens(gate_loads(["early"], 1), 8, 8 * 4096 * 2)[0, 0]
    demand = gate_demand(tokens, 4096 * 2, 4, note="early")
    assert demand.gpus == 32
    assert (demand.matrix.reshape(8, 4, 32).sum(axis=(1, 2)) == 536_870_912).all()
    assert demand.note == "synthetic: early"


def test_artifacts_file_is_read_as_its_matrix(tmp_path: Path) -> None:
    file = tmp_path / "weights.txt"
    file.write_text(json.dumps(ARTIFACT_TOKENS.tolist()))
    (demand,) = demands_of(read_trace(file, bytes_per_token=4096 * 2))
    assert np.array_equal(demand.matrix, gate_demand(ARTIFACT_TOKENS, 4096 * 2).matrix)


def test_statistics_are_said_in_a_line() -> None:
    text = str(gate_statistics(ARTIFACT_TOKENS[None, None]))
    assert text == "experts' Gini 0.35, max/mean 2.37, std over iterations 0.000, 0% zero pairs"


def test_what_makes_no_sense_is_named() -> None:
    loads = gate_loads(["early"], 1)
    for call, culprit in (
        (lambda: gate_loads(["late"], 1), "no phase 'late'"),
        (lambda: gate_loads([], 1), "a gate of no iteration"),
        (lambda: gate_loads(["early"], 0), "0 layers of 8 experts"),
        (lambda: gate_loads(["early"], 1, 1), "1 layers of 1 experts"),
        (lambda: gate_loads(["early"], 1, noise=-1.0), "noise -1"),
        (lambda: gate_loads(["early"], 1, seed=-1), "seed -1"),
        (lambda: gate_tokens(loads, 0, 9), "9 tokens of 0 sources"),
        (lambda: gate_tokens(loads, 8, 9, sparsity=1.0), "sparsity 1"),
        (lambda: gate_demand(ARTIFACT_TOKENS[:3], 1), "8 experts on 3 ranks"),
        (lambda: gate_demand(ARTIFACT_TOKENS, 0), "tokens of 0 bytes"),
    ):
        with pytest.raises(DemandError) as error:
            call()
        assert culprit in str(error.value)
