"""The work of one step: its messages, their chunks, and what the policy makes of them.

Both backends start from the same work, so that what they differ in is the network alone.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from testbed.experiment import Experiment
from traffic.messages import Chunks, Messages, chunks_of, crosses_network, messages_of
from traffic.spraying.policy import Assignment, Permitted, Policy, ProactivePolicy, QueuePair
from traffic.spraying.registry import policy_named


@dataclass(frozen=True, eq=False)
class Work:
    """One all-to-all, ready to be sent; real bytes."""

    messages: Messages
    """All messages, those inside servers too."""
    crossing: Messages
    """Those that cross the network, which are what policies see."""
    chunks: Chunks
    """Their chunks."""
    policy: Policy
    """The scheme, new for this step."""
    plan: Assignment | Permitted
    """What it decided before the start."""

    @property
    def queue_pairs(self) -> tuple[QueuePair, ...]:
        """The queue pairs to open."""
        return self.plan.queue_pairs


def work_of(experiment: Experiment, step: int) -> Work:
    """Return the work of an experiment's step."""
    fabric = experiment.fabric
    messages = messages_of(experiment.collective.steps[step].demand)
    crossing = messages.select(crosses_network(messages, fabric))
    chunks = chunks_of(crossing, experiment.chunk_bytes)
    policy, rng = policy_named(experiment.policy), experiment.rng()
    plan: Assignment | Permitted
    if isinstance(policy, ProactivePolicy):
        plan = policy.assign(fabric=fabric, messages=crossing, chunks=chunks, rng=rng)
    else:
        plan = policy.permit(fabric=fabric, messages=crossing, rng=rng)
    return Work(messages, crossing, chunks, policy, plan)


def emulated_bytes(chunks: Chunks, volume: float) -> NDArray[np.int64]:
    """Return the chunks' sizes at emulated scale (`scaled_bytes`)."""
    return scaled_bytes(chunks.bytes, volume)


def scaled_bytes(sizes: NDArray[np.int64], volume: float) -> NDArray[np.int64]:
    """Return sizes at emulated scale, in sum what the real ones are, but at least a byte each.

    Where ``volume`` makes less than a byte of one, the bytes that fill it up come on top.
    """
    edges = np.rint(np.cumsum(sizes) * volume).astype(np.int64)
    return np.asarray(np.maximum(np.diff(edges, prepend=0), 1))
