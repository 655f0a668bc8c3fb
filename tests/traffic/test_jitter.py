"""Jitter of computes: what it keeps, what it draws, and what it refuses."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.traffic.job_cases import jobs
from topologies.errors import DemandError
from traffic.jitter import jittered
from traffic.job import Compute, Job


@given(jobs(), st.integers(0, 1 << 32), st.floats(0.001, 2.0))
def test_only_durations_change_and_equal_seeds_give_equal_jobs(job: Job, seed: int, sigma: float) -> None:
    found = jittered(job, seed, sigma)
    assert found == jittered(job, seed, sigma)
    assert jittered(job, seed, 0.0) == job
    for node, before in zip(found.nodes, job.nodes, strict=True):
        if isinstance(node, Compute) and isinstance(before, Compute):
            assert replace(node, durations_s=before.durations_s) == before
            assert len(node.durations_s) == len(node.gpus)
        else:
            assert node == before


def test_factors_are_lognormal_with_mean_1() -> None:
    gpus = 100_000
    (node,) = jittered(Job("drawn", gpus, (Compute("a", tuple(range(gpus)), 2.0),)), 1, 0.3).nodes
    assert isinstance(node, Compute)
    factor = np.array(node.durations_s) / 2.0
    assert factor.mean() == pytest.approx(1.0, abs=4 * 0.31 / gpus**0.5)
    assert np.log(factor).std() == pytest.approx(0.3, rel=0.01)


def test_durations_of_their_own_are_multiplied_too() -> None:
    plain = jittered(Job("drawn", 2, (Compute("a", (0, 1), 1.0),)), 0, 0.1).nodes[0]
    own = jittered(Job("drawn", 2, (Compute("a", (0, 1), 1.0, durations_s=(1.0, 3.0)),)), 0, 0.1).nodes[0]
    assert isinstance(plain, Compute)
    assert isinstance(own, Compute)
    assert own.durations_s == pytest.approx([plain.on_gpu_s(0), 3 * plain.on_gpu_s(1)])


@pytest.mark.parametrize(
    ("seed", "sigma", "sentence"),
    [
        (0, -0.1, "a jitter of -0.1"),
        (0, float("nan"), "a jitter of nan"),
        (-1, 0.1, "the seed -1 is negative"),
    ],
)
def test_what_is_no_jitter_is_refused(seed: int, sigma: float, sentence: str) -> None:
    with pytest.raises(DemandError, match=sentence):
        jittered(Job("drawn", 1, (Compute("a", (0,), 1.0),)), seed, sigma)
