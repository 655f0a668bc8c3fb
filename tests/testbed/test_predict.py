"""The prediction: legs that sum to their messages, and schemes that do not come with lightrail."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.core.packet_paths import paths_over
from testbed.model.predict import is_informed, predict
from testbed.trust.outcome import bound_s
from tests.examples import examples
from tests.testbed import ocs_cases
from tests.testbed.cases import experiment_of, queue_pairs_of, small_fabric
from tests.traffic.cases import Work, works
from topologies.fabric import Fabric, Nic
from topologies.leaf_spine import leaf_spine_fabric
from topologies.rail import rail_fabric
from traffic.demand import Demand
from traffic.messages import Chunks, Messages
from traffic.metrics import communication_s
from traffic.records import COLUMNS, legs_of
from traffic.spraying.ecmp import Ecmp
from traffic.spraying.policy import ENTROPIES, Assignment, QueuePair
from traffic.transports.host_settings import TransportSetup
from traffic.workloads.synthetic import uniform


def with_an_idle_queue_pair(
    *, fabric: Fabric, messages: Messages, chunks: Chunks, rng: np.random.Generator
) -> Assignment:
    """Assign as ECMP does, and open a queue pair more."""
    plan = Ecmp().assign(fabric=fabric, messages=messages, chunks=chunks, rng=rng)
    spare = (QueuePair(Nic(0, 0), Nic(1, 0), entropy) for entropy in range(ENTROPIES))
    idle = next(qp for qp in spare if qp not in plan.queue_pairs)
    return Assignment((*plan.queue_pairs, idle), plan.chunk_qp, plan.order)


def test_an_emulation_informs_where_it_took_other_paths_or_drew_other_delays() -> None:
    fabric = leaf_spine_fabric(4, 2, 2)
    asked = experiment_of(fabric, uniform(4), "ecmp")
    pairs = queue_pairs_of(asked)
    paths = paths_over(fabric, datagrams=True)
    own = {pair: paths[pair] for pair in pairs}
    assert not is_informed(asked, own, {})
    assert not is_informed(asked, {}, None)
    crossing, path = next((pair, path) for pair, path in own.items() if len(path) == 4)
    found = (paths[replace(crossing, entropy=entropy)] for entropy in range(64))
    other = next(each for each in found if each != path)
    assert is_informed(asked, own | {crossing: other}, {})
    circuits = ocs_cases.experiment_of("spectra")
    mean_s = {name: delay.mean_s for name, delay in circuits.ocs_delays.items()}
    rounded = {name: [delay_s * (1 + 1e-13)] * 3 for name, delay_s in mean_s.items()}
    assert not is_informed(circuits, {}, rounded)
    assert is_informed(circuits, {}, rounded | {"ocs0": [1.1 * mean_s["ocs0"]]})


def test_a_queue_pair_that_carries_nothing_changes_no_prediction() -> None:
    own = f"{__name__}:{with_an_idle_queue_pair.__name__}"
    ecmp, idle = (predict(experiment_of(small_fabric(), uniform(4), name)).records for name in ("ecmp", own))
    assert idle["end_s"].tolist() == ecmp["end_s"].tolist()


@pytest.mark.parametrize("name", ["ecmp", "rails", "minrtt"])
@settings(max_examples=examples(6, 20), deadline=None)
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


@pytest.mark.parametrize(
    ("transport", "end_s"),
    [("ideal", [4.0, 4.0, 4.0]), ("credit", [4.0, 2.0, 4.0]), ("tcp", [4.0, 2.0, 4.0])],
)
def test_queue_pairs_share_as_their_transport_has_it(transport: str, end_s: list[float]) -> None:
    # 0 owes 1 three and 2 one, 3 owes 2 three. By bytes, all take 4 s. Evenly, the one that meets another at
    # both ends has half of each NIC, and is done at 2 s; then the others have their NICs for themselves.
    matrix = np.zeros((4, 4), dtype=np.int64)
    matrix[0, 1], matrix[0, 2], matrix[3, 2] = 3_000_000, 1_000_000, 3_000_000
    fabric = rail_fabric(4, 1, rate_bps=8e6)
    asked = experiment_of(fabric, Demand("three", matrix), "rails")
    records = predict(replace(asked, transport=TransportSetup(transport))).records
    assert records["end_s"].tolist() == pytest.approx(end_s)


@pytest.mark.parametrize("transport", ["credit", "tcp", "ideal"])
@pytest.mark.parametrize("own", ["Sticky", "Restless"])
@settings(max_examples=examples(5, 10), deadline=None)
@given(work=works().filter(lambda work: len(work.crossing)), seed=st.integers(0, 9))
def test_a_users_own_reactive_scheme_is_predicted(own: str, transport: str, work: Work, seed: int) -> None:
    asked = experiment_of(work.fabric, work.demand, f"tests.testbed.sticky:{own}", seed)
    asked = replace(asked, transport=TransportSetup(transport))
    run = predict(asked)
    records = run.records
    assert records["bytes"].sum() == work.messages.bytes.sum()
    crossed = records[records["path"] != "nvlink"]
    assert legs_of(crossed)["bytes"].sum() == work.crossing.bytes.sum()
    bound = bound_s(asked)
    assert communication_s(run.tables) >= bound * (1 - 1e-9)
    busy_s = work.crossing.bytes.sum() * 8 / work.fabric.nic_rate_bps(Nic(0, 0))
    assert crossed["end_s"].max() <= busy_s * (1 + 1e-9), "one message at a time would be quicker"


def test_a_scheme_that_settles_is_predicted_without_two_on_one_nic_where_another_is_idle() -> None:
    # Two messages from two GPUs of a server to two GPUs of another: each finds a NIC of its own.
    matrix = np.zeros((4, 4), dtype=np.int64)
    matrix[0, 2] = matrix[1, 3] = 1_000_000
    asked = experiment_of(
        rail_fabric(2, 2, rate_bps=8e6), Demand("two", matrix), "tests.testbed.sticky:Sticky"
    )
    for seed in range(5):
        records = predict(replace(asked, seed=seed, transport=TransportSetup("credit"))).records
        assert records["end_s"].tolist() == pytest.approx([1.0, 1.0])
        assert all(len(path.split()) == 1 for path in records["path"])
