"""The prediction of schemes that do not come with lightrail."""

import numpy as np

from testbed.predict import predict
from tests.testbed.cases import experiment_of, small_fabric
from topologies.fabric import Fabric, Nic
from traffic.messages import Chunks, Messages
from traffic.spraying.ecmp import Ecmp
from traffic.spraying.policy import ENTROPIES, Assignment, QueuePair
from traffic.workloads import uniform


def with_an_idle_queue_pair(
    *, fabric: Fabric, messages: Messages, chunks: Chunks, rng: np.random.Generator
) -> Assignment:
    """Assign as ECMP does, and open a queue pair more."""
    plan = Ecmp().assign(fabric=fabric, messages=messages, chunks=chunks, rng=rng)
    spare = (QueuePair(Nic(0, 0), Nic(1, 0), entropy) for entropy in range(ENTROPIES))
    idle = next(qp for qp in spare if qp not in plan.queue_pairs)
    return Assignment((*plan.queue_pairs, idle), plan.chunk_qp, plan.order)


def test_a_queue_pair_that_carries_nothing_changes_no_prediction() -> None:
    own = f"{__name__}:{with_an_idle_queue_pair.__name__}"
    ecmp, idle = (predict(experiment_of(small_fabric(), uniform(4), name)) for name in ("ecmp", own))
    assert idle["end_s"].tolist() == ecmp["end_s"].tolist()
