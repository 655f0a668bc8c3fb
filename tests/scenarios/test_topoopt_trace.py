"""A trace's training step over TopoOpt's circuits: its rings, what they take by hand, and what is refused."""

import os
from collections import Counter
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from scenarios._topoopt.relaying import between_servers
from scenarios._topoopt.trace_rings import (
    circuits_findings,
    circuits_table,
    over_plan,
    step_plan,
    trace_scenario,
)
from testbed.model.predict import predict
from testbed.trust.outcome import Outcome
from tests.scenarios import command
from topologies.fabric import Fabric
from topologies.patch_panel import patch_panel_fabric
from traffic.collectives.all_to_all import AllToAll
from traffic.collectives.pattern import Pattern
from traffic.collectives.point_to_point import PointToPoint
from traffic.collectives.ring import Operation, Ring
from traffic.demand import Demand
from traffic.job import Collective, Job
from traffic.training import Layout
from traffic.workloads.gpt import gpt_step

OPERATIONS: tuple[Operation, ...] = get_args(Operation)
MB, RATE_BPS = 1_000_000, 100e9
PASSES = {"all-reduce": 2, "reduce-scatter": 1, "all-gather": 1}


def one_call(fabric: Fabric, *patterns: Pattern) -> Job:
    """Return a job whose collectives all start at once."""
    return Job("call", fabric.gpus, tuple(Collective(str(k), each) for k, each in enumerate(patterns)))


def rings_of_rails(fabric: Fabric, size: int, operation: Operation = "all-reduce") -> list[Ring]:
    """Return a group for each GPU of a server, with one GPU in each, as data-parallel ranks are."""
    rails = fabric.servers[0].gpus
    return [Ring((tuple(range(rail, fabric.gpus, rails)),), size, operation) for rail in range(rails)]


def predicted(job: Job, fabric: Fabric) -> Outcome:
    """Return the prediction of a job over its circuits."""
    (experiment,) = trace_scenario(job, fabric, "title", [0]).experiments
    return Outcome(experiment, predict(experiment))


@st.composite
def groups(draw: st.DrawFn) -> tuple[Fabric, Job]:
    """Draw a panel, and disjoint groups of any of its GPUs."""
    servers, gpus = draw(st.integers(2, 7)), draw(st.integers(2, 4))
    fabric = patch_panel_fabric(servers, nics=draw(st.integers(2, 6)), gpus=gpus)
    order = draw(st.permutations(range(fabric.gpus)))
    cut = draw(st.integers(2, fabric.gpus))
    members = [part for part in (order[:cut], order[cut:]) if len(part) > 1]
    operation = draw(st.sampled_from(OPERATIONS))
    return fabric, one_call(fabric, *(Ring((tuple(part),), MB, operation) for part in members))


@given(drawn=groups())
def test_a_ring_passes_the_gpus_of_each_server_once_and_goes_on_as_planned(drawn: tuple[Fabric, Job]) -> None:
    fabric, job = drawn
    plan = step_plan(job, fabric)
    for before, after in zip(job.collectives, over_plan(job, fabric, plan).collectives, strict=True):
        was, ring = before.pattern, after.pattern
        assert isinstance(was, Ring)
        assert isinstance(ring, Ring)
        assert (ring.gpus, ring.bytes, ring.operation) == (was.gpus, was.bytes, was.operation)
        servers = {fabric.gpu_servers[gpu] for gpu in ring.gpus}
        if len(servers) == 1:
            assert ring == was
            continue
        passed = [[fabric.gpu_servers[gpu] for gpu in each] for each in ring.rings]
        assert [tuple(dict.fromkeys(each)) for each in passed] == list(plan.rings_of(tuple(servers)))
        entered = [sum(each[k - 1] != each[k] for k in range(len(each))) for each in passed]
        assert entered == [len(servers)] * len(passed)


@given(drawn=groups())
def test_rings_enter_and_leave_a_server_at_all_of_its_gpus_in_turn(drawn: tuple[Fabric, Job]) -> None:
    fabric, job = drawn
    for node in over_plan(job, fabric, step_plan(job, fabric)).collectives:
        ring = node.pattern
        assert isinstance(ring, Ring)
        leaves, enters = Counter[int](), Counter[int]()
        for each in ring.rings:
            edges = list(zip(each, (*each[1:], each[0]), strict=True))
            leaves.update(a for a, b in edges if fabric.gpu_servers[a] != fabric.gpu_servers[b])
            enters.update(b for a, b in edges if fabric.gpu_servers[a] != fabric.gpu_servers[b])
        for gpu in leaves | enters:
            server = fabric.gpu_servers[gpu]
            mine = sum(fabric.gpu_servers[other] == server for other in ring.gpus)
            assert leaves[gpu] <= -(-len(ring.rings) // mine)
            assert enters[gpu] <= -(-(len(ring.rings) + len(ring.rings) % 2) // mine)


@given(drawn=groups())
def test_a_plan_counts_what_rings_send_between_servers(drawn: tuple[Fabric, Job]) -> None:
    fabric, job = drawn
    plan = step_plan(job, fabric)
    counted = sum(2 * (len(group.members) - 1) * group.bytes for group, _ in plan.rings)
    led = over_plan(job, fabric, plan).collectives
    sent = sum(int(between_servers(node.pattern, fabric).sum()) for node in led)
    assume(sent)
    assert counted == pytest.approx(sent, rel=1e-3)


@pytest.mark.parametrize(
    ("servers", "nics", "operation"),
    [
        (4, 4, "reduce-scatter"),
        (12, 4, "all-reduce"),
        (2, 6, "all-gather"),  # by six parallel circuits
        (3, 5, "all-reduce"),
    ],
)
def test_groups_at_once_take_what_all_circuits_of_rings_give(
    servers: int, nics: int, operation: Operation
) -> None:
    """Each of the servers' GPUs is of a group of S bytes: p (g - 1) / g S of each leave a server."""
    fabric = patch_panel_fabric(servers, nics=nics, gpus=2, rate_bps=RATE_BPS)
    outcome = predicted(one_call(fabric, *rings_of_rails(fabric, 120 * MB, operation)), fabric)
    used = nics if servers == 2 else nics // 2 * 2  # a ring takes two ports, but a pair one
    sent = PASSES[operation] * (servers - 1) / servers * 2 * 120 * MB
    assert outcome.run.iteration_s == pytest.approx(8 * sent / (used * RATE_BPS), rel=0.01)
    (row,) = circuits_table(outcome).to_dict("records")
    assert row["hops"] == 1
    assert row["at_once"] == 2
    assert row["circuits"] == pytest.approx(used * RATE_BPS / 8e9 / 2, rel=0.01)
    assert row["busbw"] == pytest.approx(row["circuits"], rel=0.01)


def test_a_group_of_all_gpus_crosses_circuits_once_a_server() -> None:
    fabric = patch_panel_fabric(3, nics=4, rate_bps=RATE_BPS)
    outcome = predicted(one_call(fabric, Ring((tuple(range(12)),), 120 * MB)), fabric)
    assert outcome.run.iteration_s == pytest.approx(2 * 11 / 12 * 8 * 120 * MB / (4 * RATE_BPS), rel=0.01)


def test_what_is_not_summed_gets_circuits_by_its_bytes_and_is_relayed_over_others() -> None:
    fabric = patch_panel_fabric(8, nics=4, gpus=1, rate_bps=RATE_BPS)
    heavy, light = PointToPoint(((0, 4, 900 * MB),)), PointToPoint(((1, 4, MB),))
    summed = Ring((tuple(range(8)),), MB)
    for sent, is_joined in ((summed,), False), ((summed, heavy), True):
        pairs = step_plan(one_call(fabric, *sent), fabric).pairs
        assert ((0, 4) in {(min(pair), max(pair)) for pair in pairs}) == is_joined
    outcome = predicted(one_call(fabric, summed, heavy, light), fabric)
    hops = circuits_table(outcome).set_index(["kind", "bytes"])["hops"]
    assert hops["ring all-reduce", MB] == hops["point to point", 900 * MB] == 1
    assert hops["point to point", MB] == 2


def test_an_all_to_all_takes_the_shortest_paths_of_all_pairs() -> None:
    """Four servers in a ring: a third of the bytes are of opposite ones, which have two hops."""
    fabric = patch_panel_fabric(4, nics=2, gpus=1, rate_bps=RATE_BPS)
    demand = Demand("even", np.full((4, 4), 4 * MB))
    (row,) = circuits_table(predicted(one_call(fabric, AllToAll(demand)), fabric)).to_dict("records")
    assert row["hops"] == pytest.approx(4 / 3)
    assert row["busbw"] == pytest.approx(row["circuits"], rel=0.01)
    assert row["circuits"] == pytest.approx(2 * RATE_BPS / 8e9 * 3 / 4, rel=0.01)


def test_a_step_inside_servers_has_nothing_to_say_of_circuits() -> None:
    fabric = patch_panel_fabric(2, nics=2, rate_bps=RATE_BPS)
    outcome = predicted(one_call(fabric, Ring(((0, 1),), MB), Ring(((2, 3),), MB)), fabric)
    assert not circuits_findings((1,), [outcome]).sheets


def test_equal_steps_are_equal_experiments() -> None:
    fabric = patch_panel_fabric(3, nics=2, rate_bps=RATE_BPS)
    step = gpt_step(Layout(2, 3), layers=1)
    first, second = (trace_scenario(step, fabric, "title", [0]).experiments[0] for _ in range(2))
    assert first == second
    assert type(first).from_json(first.to_json()) == first


def ran(out: Path, *options: str) -> tuple[int, str, str]:
    """Run the scenario without an emulation; return its exit code and what it says."""
    words = ["--model-only", "--synthetic", "--layers", "1", "--out", str(out), "--fabric-kind", "topoopt"]
    done = command.ran("ring_trace", *words, *options, env=os.environ | {"COLUMNS": "150"})
    return done.returncode, " ".join(done.stdout.split()), done.stderr.strip()


def test_the_scenario_prints_what_circuits_let_all_groups_have(tmp_path: Path) -> None:
    code, said, errors = ran(tmp_path / "out", "--servers", "4", "--rails", "2")
    assert not code, errors
    assert "ring all-reduce network 4 2 2 419 50.3 12.5 25 0.50" in said
    assert "ring all-reduce 1, 3 4 4 2 2 419 1.00 12.5 12.5 1.00" in said
    assert "over circuits" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--servers", "1"], "no ring of circuits joins 1 server of 8 NICs"),
        (["--servers", "0"], "no ring of circuits joins 0 servers of 8 NICs"),
        (["--rails", "1"], "no ring of circuits joins 4 servers of 1 NIC"),
        (
            ["--schemes", "ecmp"],
            "TopoOpt plans rings and paths, so --schemes has no effect; leave it out with",
        ),
        (["--rings", "per-rail"], "TopoOpt plans rings and paths, so --rings has no effect"),
        (["--tp", "5"], "5 tensor-parallel ranks on 32 GPUs"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path: Path, options: list[str], said: str) -> None:
    code, _, errors = ran(tmp_path / "out", *options)
    assert code == 2
    (line,) = errors.splitlines()
    assert said in line
    assert not (tmp_path / "out").exists()
