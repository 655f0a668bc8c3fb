"""Jitter: computes that take a little longer or shorter on each GPU, as real ones do."""

from dataclasses import replace

import numpy as np

from topologies.errors import DemandError
from traffic.job import Compute, Job

LARGEST_SIGMA = 2.0
"""At which one GPU in a thousand takes 65 times the mean."""


def jittered(job: Job, seed: int, sigma: float) -> Job:
    """Return a job whose computes take a time of their own on each GPU.

    Parameters
    ----------
    job
        A job; durations that differ between GPUs already are multiplied too.
    seed
        Of the factors, drawn node by node in job order: equal jobs get equal jitter.
    sigma
        Of the factors' logarithm: 0.05 is about 5 per cent. From 0, which changes nothing, to
        `LARGEST_SIGMA`.

    Notes
    -----
    Each factor is exp(sigma z - sigma^2 / 2), z standard normal: lognormal with mean 1, so that work is
    neither added nor removed on average. What waits for all GPUs waits for the slowest, and takes longer.

    Raises
    ------
    DemandError
        If sigma is out of its range, or the seed is negative.
    """
    if not 0 <= sigma <= LARGEST_SIGMA:
        raise DemandError(f"a jitter of {sigma:g}", f"give a sigma from 0 to {LARGEST_SIGMA:g}, as 0.05")
    if seed < 0:
        raise DemandError(f"the seed {seed} is negative", "take one from 0 on")
    if not sigma:
        return job
    rng = np.random.default_rng(seed)
    nodes = [_jittered(node, rng, sigma) if isinstance(node, Compute) else node for node in job.nodes]
    return replace(job, nodes=tuple(nodes))


def _jittered(node: Compute, rng: np.random.Generator, sigma: float) -> Compute:
    factor = np.exp(sigma * rng.standard_normal(len(node.gpus)) - sigma**2 / 2)
    plain_s = np.array(node.durations_s or (node.duration_s,) * len(node.gpus))
    return replace(node, durations_s=tuple((plain_s * factor).tolist()))
