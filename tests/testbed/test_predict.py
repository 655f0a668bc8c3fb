"""The prediction: legs that sum to their messages, and schemes that do not come with lightrail."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.run.predict import predict
from tests.testbed.cases import experiment_of, small_fabric
from tests.traffic.cases import Work, works
from topologies.fabric import Fabric, Nic
from traffic.messages import Chunks, Messages
from traffic.records import COLUMNS, legs_of
from traffic.spraying.ecmp import Ecmp
from traffic.spraying.policy import ENTROPIES, Assignment, QueuePair
from traffic.workloads.synthetic import uniform


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
    ecmp, idle = (predict(experiment_of(small_fabric(), uniform(4), name)).records for name in ("ecmp", own))
    assert idle["end_s"].tolist() == ecmp["end_s"].tolist()


@pytest.mark.parametrize("name", ["ecmp", "rails", "minrtt"])
@settings(max_examples=20, deadline=None)
@given(work=works().filter(lambda work: len(work.messages)), seed=st.integers(0, 9))
def test_legs_sum_to_their_message(name: str, work: Work, seed: int) -> None:
    records = predict(experiment_of(work.fabric, work.demand, name, seed)).records
    owed = (work.messages.source, work.messages.destination, work.messages.bytes)
    assert records[["source", "destination", "bytes"]].to_numpy().T.tolist() == [c.tolist() for c in owed]
    crossed = records[records["path"] != "nvlink"]
    carried = legs_of(records)["bytes"].groupby(level=0).sum().reindex(crossed.index)
    assert carried.tolist() == crossed["bytes"].tolist()
    assert crossed["bytes"].sum() == work.crossing.bytes.sum()
    assert (records["start_s"] <= records["end_s"]).all()
    assert dict(records.dtypes.astype(str)) == COLUMNS
