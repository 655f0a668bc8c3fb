"""Equal sections solved once: the tables are those of the job run as a whole, under every scheme."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.core.run import Run
from testbed.core.simulation import Simulation
from testbed.experiment.experiment import Experiment
from testbed.model.backend import FluidBackend
from testbed.model.predict import predict
from testbed.model.solved_once import solved_once
from tests.examples import examples
from tests.testbed.cases import DILATION
from tests.testbed.tables import check_tables
from tests.traffic.cases import lent_for
from tests.traffic.job_cases import jobs
from topologies.mfabric import mfabric_fabric
from topologies.rail import rail_fabric
from traffic.collectives.all_to_all import AllToAll
from traffic.collectives.node_all_to_all import ExchangeRound, RingAllToAll
from traffic.collectives.point_to_point import PointToPoint
from traffic.collectives.ring import Ring
from traffic.communicators import Communicators
from traffic.compose import Repeat, one_after_another, placed, side_by_side, unfolded
from traffic.delegated import DelegatedSetup
from traffic.demand import Demand
from traffic.jitter import jittered
from traffic.job import Collective, Compute, Job, Node, chain
from traffic.records import NVLINK
from traffic.scheme import Sprayed, memory_of
from traffic.spraying.policy import ProactivePolicy
from traffic.spraying.registry import POLICIES, policy_named
from traffic.steps import Step, job_of_steps
from traffic.transports.host_settings import TransportSetup

FABRIC = rail_fabric(4, 2, 2, rate_bps=80_000.0, nvlink_bps=640_000.0)
"""Eight GPUs, two to a server, and two spines, so that hashes and choices matter."""
CLOSE_PS = 1000
"""Queue pairs that an equal section did not have are solved together with its own, which rounds otherwise."""


class Model:
    """The fluid model over `FABRIC` under a scheme, and what it ran."""

    def __init__(self, scheme: str, lent_s: float = 0.0, entropies: int | None = None) -> None:
        self.backend = FluidBackend(
            FABRIC,
            {},
            by_bytes=isinstance(policy_named(scheme), ProactivePolicy),
            datagrams=entropies is not None,
            lent_bytes=lent_for(FABRIC, lent_s),
        )
        self.ran: list[Job] = []
        self._placing = Sprayed(lambda: policy_named(scheme, entropies), 0)
        self._communicators: Communicators | None = None

    def run(self, job: Job) -> Run:
        """Run each node of a job."""
        self.ran.append(job)
        numbers = self._communicators
        return Simulation(FABRIC, job, self.backend, self._placing, communicators=numbers).run()

    def solve(self, job: Job) -> Run:
        """Run its sections where none equal to it has run."""
        self._communicators = Communicators(job)
        return solved_once(job, self.backend, self.run, lambda: memory_of(self._placing))


@st.composite
def parts(draw: st.DrawFn, name: str) -> Job:
    """Draw a job whose computes end at times of their own, alone or beside another."""
    drawn = draw(jobs(8, largest=1000))
    job = jittered(
        replace(drawn, name=name, nodes=tuple(map(sturdy, drawn.nodes))), draw(st.integers(0, 9)), 0.5
    )
    if draw(st.booleans()):
        return job
    around = placed(job, draw(st.permutations(range(8))), of=8)
    other = jittered(around, draw(st.integers(10, 19)), 0.5)
    return side_by_side(name, [replace(job, name="left"), replace(other, name="right")])


def sturdy(node: Node) -> Node:
    """Return a node whose end no rounding decides, which differs from section to section in a whole run too.

    Durations that nearly agree would be ordered by rounding, and a byte that shares a link with thousands by
    what each has left takes long or not by what rounding left of it.
    """
    if isinstance(node, Compute):
        return replace(node, duration_s=round(node.duration_s, 1), durations_s=())
    pattern = node.pattern
    if isinstance(pattern, Ring):
        return replace(
            node,
            pattern=replace(pattern, bytes=pattern.bytes + 1000 * len(pattern.gpus) * len(pattern.rings)),
        )
    if isinstance(pattern, RingAllToAll | ExchangeRound):
        return replace(node, pattern=replace(pattern, node_bytes=pattern.node_bytes + 2000))
    if isinstance(pattern, PointToPoint):
        return replace(
            node, pattern=PointToPoint(tuple((a, b, size + 1000) for a, b, size in pattern.messages))
        )
    if isinstance(pattern, AllToAll):
        larger = pattern.demand.matrix + 1000
        return replace(node, pattern=AllToAll(replace(pattern.demand, matrix=larger), pattern.ranks))
    raise TypeError(f"an unknown pattern, {pattern.name}")


@st.composite
def composed(draw: st.DrawFn) -> Job:
    """Draw parts that follow each other, some of them several times, then or later again."""
    drawn = [draw(parts(f"part {number}")) for number in range(draw(st.integers(1, 2)))]
    order = draw(st.lists(st.sampled_from(drawn), min_size=1, max_size=4))
    times = [unfolded(part.name, 8, [Repeat(part, draw(st.integers(1, 3)))]) for part in order]
    return one_after_another("whole", [replace(job, name=f"{number}") for number, job in enumerate(times)])


def legs(path: str) -> dict[str, int]:
    """Return how many bytes of a message took each way."""
    if path == NVLINK:
        return {NVLINK: 0}
    return {way: int(size) for size, way in (leg.split("@") for leg in path.split(" "))}


def check_same(found: Run, whole: Run) -> None:
    """Check that two runs have the same rows in the same order at the same times."""
    place = {name: number for number, name in enumerate(whole.tables.nodes)}
    now = np.array([place[name] for name in found.tables.nodes], dtype=np.int32)
    for name in ("messages", "spans"):
        table, expected = getattr(found.tables, name), getattr(whole.tables, name)
        table = table.assign(node=now[table["node"].to_numpy()])  # nodes are numbered section by section
        times = [column for column in expected.columns if column.endswith("_ps")]
        others = [column for column in expected.columns if column not in times]
        pd.testing.assert_frame_equal(table[others], expected[others])
        assert (abs(table[times] - expected[times]) <= CLOSE_PS).all(axis=None)
    check_tables(found.tables)
    for one, other in zip(found.messages["path"], whole.messages["path"], strict=True):
        ways, expected_ways = legs(one), legs(other)
        for way in ways | expected_ways:  # a leg's two edges are each rounded to a byte
            assert abs(ways.get(way, 0) - expected_ways.get(way, 0)) <= 2
    pd.testing.assert_frame_equal(found.events, whole.events)


@pytest.mark.parametrize("scheme", sorted(POLICIES))
@settings(max_examples=examples(2, 8), deadline=None)
@given(job=composed())
def test_the_tables_are_those_of_the_whole(scheme: str, job: Job) -> None:
    check_same(Model(scheme).solve(job), Model(scheme).run(job))


@pytest.mark.parametrize("couples", [False, True])
def test_an_all_to_all_and_the_point_to_point_of_its_messages_take_their_own_times(couples: bool) -> None:
    """Both go over two packet NICs; half of the one crosses NVLink before and after."""
    fabric = mfabric_fabric(4, gpus=2, nics=4, packet_nics=2, nvlink_bps=200e9, one_packet_switch=True)
    owed = np.kron(1 - np.eye(4, dtype=np.int64), [[4_000_000, 0], [0, 0]])
    moved = tuple((int(a), int(b), int(owed[a, b])) for a, b in np.argwhere(owed))
    nodes = tuple(
        Collective(f"{kind} {turn}", pattern)
        for turn in range(2)
        for kind, pattern in (("one by one", PointToPoint(moved)), ("all", AllToAll(Demand("all", owed))))
    )
    experiment = Experiment(fabric, chain("both", 8, nodes), DelegatedSetup())
    spans = predict(experiment, couples=couples).tasks
    transfer_s = 8 * 12e6 / 200e9
    whole_s = transfer_s + 2 * 8 * 6e6 / 200e9
    took_s = (spans["end_s"] - spans["start_s"]).tolist()
    assert took_s == pytest.approx([transfer_s, whole_s] * 2, rel=0.01)


def test_a_point_to_point_does_not_stand_for_the_all_to_all_of_its_messages() -> None:
    """One is delegated, the other not; it was 71 % off."""
    fabric = mfabric_fabric(4, gpus=2, nics=4, packet_nics=2)
    owed = np.kron(1 - np.eye(4, dtype=np.int64), [[4_000_000, 0], [0, 0]])
    moved = tuple((int(a), int(b), int(owed[a, b])) for a, b in np.argwhere(owed))
    nodes = [
        Collective(f"{kind} {turn}", pattern)
        for turn in range(3)
        for kind, pattern in (("one by one", PointToPoint(moved)), ("all", AllToAll(Demand("all", owed))))
    ]
    job = chain("both", 8, tuple(nodes))
    experiment = Experiment(fabric, job, DelegatedSetup())
    backend = FluidBackend(fabric, {}, by_bytes=True, datagrams=True)
    whole = Simulation(fabric, job, backend, experiment.new_scheme(), couples=True).run()
    pd.testing.assert_frame_equal(predict(experiment, couples=True).tables.spans, whole.tables.spans)


def test_a_section_runs_again_only_until_nothing_new_is_opened() -> None:
    first, then = (
        Job(name, 8, (Collective("a", Ring((ring,), 8000)),))
        for name, ring in (("b", (0, 2, 4)), ("c", (1, 3, 7)))
    )
    job = unfolded(
        "whole",
        8,
        [Repeat(first, 50), Repeat(then, 50, ("b",)), Repeat(replace(first, name="d"), 50, ("c",))],
    )
    model = Model("rails")
    check_same(model.solve(job), Model("rails").run(job))
    ran = [node.name for part in model.ran for node in part.nodes if isinstance(node, Collective)]
    assert ran == ["0/b[0]/a", "1/b[1]/a", "2/c[0]/a", "3/c[1]/a", "4/d[0]/a"]


def test_computes_run_once_whatever_is_opened_meanwhile() -> None:
    sends = tuple(Collective(f"{to}", PointToPoint(((0, to, 8000),))) for to in range(2, 8))
    nodes = [node for each in sends for node in (each, Compute(f"after {each.name}", (0, 1), 1.0))]
    job, model = chain("whole", 8, tuple(nodes)), Model("ecmp")
    check_same(model.solve(job), Model("ecmp").run(job))
    assert [len(part.nodes) for part in model.ran] == [2] * 7


def test_a_job_without_equal_sections_runs_as_it_is() -> None:
    job = chain("whole", 8, tuple(Compute(f"{number}", (0,), number) for number in range(5)))
    model = Model("ecmp")
    model.solve(job)
    assert model.ran == [job]


def test_a_job_with_starts_runs_as_it_is() -> None:
    job = chain("whole", 8, tuple(Compute(f"{number}", (0,), 1.0) for number in range(3)))
    late = replace(job, nodes=(*job.nodes[:2], replace(job.nodes[2], at_s=5.0)))
    assert Model("ecmp").solve(late).tasks["start_s"].tolist() == [0.0, 1.0, 5.0]


def test_sections_of_nothing_take_no_time() -> None:
    job = chain("whole", 8, tuple(Compute(f"{number}", (), 1.0) for number in range(5)))
    found = Model("ecmp").solve(job)
    assert not len(found.tasks)
    assert not len(found.messages)


@pytest.mark.parametrize("scheme", ["ecmp", "rails"])
def test_every_section_is_lent_what_shapers_lend(scheme: str) -> None:
    demand = Demand("tokens", np.random.default_rng(0).integers(1000, 9000, (8, 8)))
    job = job_of_steps("steps", [Step(demand, compute_s) for compute_s in (0.5, 0.0, 0.5, 0.0)])
    lent = Model(scheme, 0.1).solve(job)
    check_same(lent, Model(scheme, 0.1).run(job))
    gained_s = Model(scheme).run(job).iteration_s - lent.iteration_s
    assert gained_s == pytest.approx(4 * 0.1)


@pytest.mark.parametrize("scheme", ["ecmp", "rails", "reps"])
def test_predictions_have_equal_steps_at_equal_intervals(scheme: str) -> None:
    demand = Demand("tokens", np.random.default_rng(0).integers(1000, 9000, (8, 8)))
    job = job_of_steps("steps", [Step(demand, 0.5)] * 6)
    transport = TransportSetup("ideal")
    predicted = predict(Experiment(FABRIC, job, scheme, DILATION, transport=transport))
    whole = Model(scheme, entropies=transport.sprays).run(job)
    assert predicted.records["step"].tolist() == whole.records["step"].tolist()
    np.testing.assert_allclose(predicted.records["end_s"], whole.records["end_s"], 1e-9)
    np.testing.assert_allclose(predicted.tasks["end_s"], whole.tasks["end_s"], 1e-9)
    assert predicted.tasks["node"].tolist() == whole.tasks["node"].tolist()
