"""The Mixtral replay: volumes as published, four all-to-alls there and back, imbalance that falls."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topologies.errors import DemandError
from topologies.rail import rail_fabric
from traffic.job import Compute
from traffic.steps import demands_of
from traffic.workloads.gating import gini
from traffic.workloads.mixtral import PHASES, TOKEN_BYTES, Placement, mixtral_replay

phases = st.sampled_from(sorted(PHASES))
placements: st.SearchStrategy[Placement] = st.sampled_from(["dense", "sparse"])


@settings(deadline=None)
@given(st.sampled_from([1, 2, 4, 8, 16]), st.integers(1, 4), phases, placements, st.integers(0, 99))
def test_volume_is_what_each_expert_sends(
    servers: int, rails: int, phase: str, placement: Placement, seed: int
) -> None:
    replay = mixtral_replay(rail_fabric(servers, rails, 0), phase, placement, seed=seed)
    first = demands_of(replay)[0].matrix
    per_server = first.sum(axis=1).reshape(servers, rails).sum(axis=1)
    experts_per_server = max(1, 8 // servers)
    volume = experts_per_server * round(PHASES[phase].expert_bytes / TOKEN_BYTES) * TOKEN_BYTES
    assert (per_server == volume).all()


@given(phases, placements)
def test_there_and_back_twice(phase: str, placement: Placement) -> None:
    replay = mixtral_replay(rail_fabric(8, 2), phase, placement)
    dispatch, combine, gradient, last = demands_of(replay)
    assert np.array_equal(dispatch.matrix, combine.matrix.T)
    assert np.array_equal(dispatch.matrix, gradient.matrix)
    assert np.array_equal(combine.matrix, last.matrix)
    names = ["step 0", "compute 0", "step 1", "step 2", "compute 2", "step 3", "compute 3"]
    assert [node.name for node in replay.nodes] == names
    forward, backward, attention = (n.duration_s for n in replay.nodes if isinstance(n, Compute))
    assert backward == 2 * forward > 0
    assert attention > 0


def test_dense_is_on_all_gpus_and_sparse_on_the_first() -> None:
    fabric = rail_fabric(8, 4)
    dense, sparse = (mixtral_replay(fabric, "mid", placement) for placement in ("dense", "sparse"))
    assert (demands_of(dense)[0].matrix > 0).all()
    assert np.argwhere(demands_of(sparse)[0].matrix.sum(axis=0)).ravel().tolist() == list(range(0, 32, 4))
    for matrix in (demands_of(dense)[0].matrix, demands_of(dense)[1].matrix):
        blocks = matrix.reshape(8, 4, 8, 4)
        assert np.ptp(blocks, axis=(1, 3)).max() <= 1
    by_server = [demands_of(c)[0].matrix.reshape(8, 4, 8, 4).sum(axis=(1, 3)) for c in (dense, sparse)]
    assert np.array_equal(*by_server)


def test_imbalance_falls_and_volume_rises() -> None:
    imbalance = []
    for phase in PHASES:
        demands = [demands_of(mixtral_replay(rail_fabric(8, 1), phase, seed=seed))[0] for seed in range(9)]
        imbalance.append(np.mean([gini(demand.matrix.sum(axis=0)) for demand in demands]))
    assert list(PHASES) == ["start", "early", "mid", "stable"]
    assert imbalance == sorted(imbalance, reverse=True)
    assert 0.1 <= imbalance[-1] <= 0.25
    volumes = [phase.expert_bytes for phase in PHASES.values()]
    assert volumes == sorted(volumes)
    assert (volumes[0], volumes[-1]) == (100e6, 256e6)


def test_copies_of_the_model_keep_to_themselves() -> None:
    matrix = demands_of(mixtral_replay(rail_fabric(16, 2), "start"))[0].matrix
    assert not matrix[:16, 16:].any()
    assert not matrix[16:, :16].any()
    assert not np.array_equal(matrix[:16, :16], matrix[16:, 16:])


def test_the_seed_decides() -> None:
    fabric = rail_fabric(8, 2)
    assert mixtral_replay(fabric, "mid", seed=3) == mixtral_replay(fabric, "mid", seed=3)
    assert mixtral_replay(fabric, "mid", seed=3) != mixtral_replay(fabric, "mid", seed=4)
    assert mixtral_replay(fabric, "mid").note.startswith("synthetic: Mixtral 8x7B, mid, 204 MB per expert")


@pytest.mark.parametrize(
    ("servers", "options", "culprit"),
    [
        (3, {}, "8 experts on 3 servers"),
        (12, {}, "8 experts on 12 servers"),
        (8, {"phase": "late"}, "no phase 'late'"),
        (8, {"placement": "spread"}, "no placement 'spread'"),
        (8, {"gpu_flops": 0.0}, "GPUs of 0 FLOP/s"),
        (8, {"seed": -1}, "seed of -1"),
    ],
)
def test_what_makes_no_sense_is_named(servers: int, options: dict[str, object], culprit: str) -> None:
    with pytest.raises(DemandError) as error:
        mixtral_replay(rail_fabric(servers, 1), **({"phase": "mid"} | options))  # type: ignore[arg-type]
    assert culprit in str(error.value)
