"""Every scheme as fluids: all arrives, not before it could, and over queue pairs that the scheme permits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.core.backend import LightChanged, SetCircuits
from testbed.core.run import Run
from testbed.core.simulation import Simulation
from testbed.model.backend import FluidBackend
from tests.examples import examples
from tests.traffic.cases import Work, admitted_by, assigned, lent_for, rail_paths, rates, work_of, works
from topologies.errors import ScenarioError
from topologies.fabric import Fabric, Path, Port
from topologies.light import Circuit
from topologies.parallel_ocs import parallel_ocs_fabric
from topologies.rail import rail_fabric
from traffic.bounds import lower_bound_s
from traffic.clock import NEVER, in_seconds
from traffic.records import NVLINK, path_of
from traffic.scheme import Sprayed
from traffic.spraying.minrtt import MinRtt
from traffic.spraying.policy import Lanes, Message, ProactivePolicy, QueuePair, each_of
from traffic.spraying.registry import POLICIES, policy_named
from traffic.steps import single

CHUNK_BYTES = 8


class Seen(dict[QueuePair, Path]):
    """A path over a random spine for each queue pair that is asked for."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric, self._rng = fabric, np.random.default_rng(0)

    def get(self, pair: QueuePair, _default: object = None) -> Path:
        if pair not in self:
            (self[pair],) = rail_paths(self._fabric, (pair,), self._rng)
        return self[pair]


def run_of(work: Work, name: str, lent_s: float = 0.0) -> Run:
    """Return what comes of a demand under a scheme, over random spines."""
    by_bytes = isinstance(policy_named(name), ProactivePolicy)
    lent_bytes = lent_for(work.fabric, lent_s)
    backend = FluidBackend(work.fabric, {}, by_bytes=by_bytes, paths=Seen(work.fabric), lent_bytes=lent_bytes)
    scheme = Sprayed(lambda: policy_named(name), 0, CHUNK_BYTES)
    return Simulation(work.fabric, single(work.demand), backend, scheme).run()


@pytest.mark.parametrize("name", sorted(POLICIES))
@settings(max_examples=examples(8, 25))
@given(work=works())
def test_all_arrives_and_not_before_it_could(name: str, work: Work) -> None:
    found = run_of(work, name).messages
    assert found["bytes"].sum() == work.messages.bytes.sum()
    crossing = found[found["path"] != NVLINK]
    nics = max(server.nics for server in work.fabric.servers)
    assert (crossing["end_s"] >= 8 * crossing["bytes"] / 80.0 / nics * (1 - 1e-6)).all()
    assert found["end_s"].max() >= lower_bound_s(work.messages, work.fabric) * (1 - 1e-6) or not len(found)


@pytest.mark.parametrize("name", sorted(POLICIES))
@settings(max_examples=examples(8, 25))
@given(work=works().filter(lambda work: len(work.messages)), share=st.floats(0.0, 1.5))
def test_messages_come_earlier_by_what_is_lent_and_by_no_more_than_the_bound(
    name: str, work: Work, share: float
) -> None:
    before = run_of(work, name).messages
    crossing = before["path"] != NVLINK
    lent_s = share * float(before.loc[crossing, "end_s"].max()) if crossing.any() else 1.0
    after = run_of(work, name, lent_s).messages
    expected = (before["end_s"] - lent_s * crossing).clip(lower=0.0)
    np.testing.assert_allclose(after["end_s"], expected, 1e-6, 1e-6 * lent_s + 1e-9)
    bound_s = lower_bound_s(work.messages, work.fabric, lent_for(work.fabric, lent_s))
    assert after["end_s"].max() >= bound_s * (1 - 1e-6) - 1e-12 * lent_s


@pytest.mark.parametrize("name", sorted(POLICIES))
@settings(max_examples=examples(8, 25))
@given(work=works())
def test_a_messages_legs_sum_to_its_size_over_queue_pairs_that_it_may_use(name: str, work: Work) -> None:
    found = run_of(work, name).messages
    crossing = found[found["path"] != NVLINK]
    policy = policy_named(name)
    if isinstance(policy, ProactivePolicy):
        plan = assigned(name, work)
        carriers = [
            {plan.queue_pairs[qp] for qp in plan.chunk_qp[work.chunks.message == message].tolist()}
            for message in range(len(work.crossing))
        ]
    else:
        carriers = [set(each_of(among)) for among in admitted_by(policy, work).lanes]
    for path, size, queue_pairs in zip(crossing["path"], crossing["bytes"], carriers, strict=True):
        legs = [leg.split("@") for leg in path.split(" ")]
        assert sum(int(carried) for carried, _ in legs) == size
        ends = {(path[0], work.fabric.peer(path[-1])) for path in (path_of(ports) for _, ports in legs)}
        nic_port = work.fabric.nic_port
        assert ends <= {(nic_port(each.source), nic_port(each.destination)) for each in queue_pairs}


class AdmitsNothing(MinRtt):
    """A scheme with lanes that no message may use."""

    def admit(self, *, message: Message) -> Lanes:
        return ()


def test_a_message_without_lanes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(POLICIES, "reps", lambda _count, _entropies: AdmitsNothing())
    with pytest.raises(ScenarioError, match="chunks and no lane"):
        run_of(work_of(rail_fabric(2, 1), np.ones((2, 2), dtype=np.int64)), "reps")


@given(work=works())
def test_weighted_by_its_bytes_rails_ends_with_its_busiest_port(work: Work) -> None:
    plan = assigned("rails", work)
    owed = np.bincount(plan.chunk_qp, work.chunks.bytes, len(plan.queue_pairs))
    busiest: dict[Port, float] = dict.fromkeys(rates(work.fabric), 0.0)
    for path, size in zip(
        rail_paths(work.fabric, plan.queue_pairs, np.random.default_rng(0)), owed, strict=True
    ):
        for port in path:
            busiest[port] += size
    found = run_of(work, "rails").messages
    crossing_s = found.loc[found["path"] != NVLINK, "end_s"]
    assert (crossing_s.max() if len(crossing_s) else 0.0) == pytest.approx(8 * max(busiest.values()) / 80)


def test_delays_drawn_are_those_of_orders_with_circuits() -> None:
    """What a log has of an OCS that is ordered dark, and of one that keeps what it needs, takes no time."""
    backend = FluidBackend(parallel_ocs_fabric(2, 1), {"ocs0": 9.0}, drawn_s={"ocs0": [0.1, 0.0, 0.2]})
    lit_s = []
    every: tuple[tuple[Circuit, ...], ...] = (((0, 1), (1, 0)), ((0, 1),), (), ((1, 0),), ((0, 1),))
    for circuits in every:
        backend.carry_out(SetCircuits({"ocs0": circuits}))
        (lit,) = backend.advance(NEVER)
        assert isinstance(lit, LightChanged)
        lit_s.append(in_seconds(lit.at_ps))
    assert lit_s == pytest.approx([0.1, 0.1, 0.1, 0.3, 9.3])
