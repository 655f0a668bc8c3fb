"""The audit: it shares nothing with what it looks at, and finds nothing in runs that may be."""

import ast
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from testbed.audit.audit import audited
from testbed.audit.finding import Audit, Circumstances, Finding
from testbed.core.run import Run
from testbed.experiment.audit_of import sound
from testbed.experiment.experiment import Experiment
from testbed.model.predict import predict
from tests.audit.cases import small_runs
from tests.traffic.cases import lent_for
from topologies.errors import LightrailError, UnsoundError
from topologies.fabric import Fabric
from topologies.fat_tree import fat_tree_fabric
from topologies.leaf_spine import leaf_spine_fabric
from topologies.rail import rail_fabric
from traffic.collectives.all_to_all import AllToAll
from traffic.collectives.node_all_to_all import RingAllToAll
from traffic.collectives.pattern import Pattern
from traffic.collectives.point_to_point import PointToPoint
from traffic.collectives.ring import Operation, Ring
from traffic.demand import Demand
from traffic.effects import Down, Effect, Lossy, Slow
from traffic.faults import Fault, When
from traffic.job import Collective, Compute, Job, Node
from traffic.tables import Tables

FOLDER = Path(__file__).parents[2] / "testbed" / "audit"
MAY_IMPORT = (
    "testbed.audit",
    "topologies.",
    "traffic.clock",
    "traffic.collectives",
    "traffic.compose",
    "traffic.effects",
    "traffic.faults",
    "traffic.job",
    "traffic.tables",
)
"""Values, definitions and tables; neither core nor backends, schemes or transports."""
RUNS = dict(small_runs())
FABRICS = (
    rail_fabric(4, 2),
    rail_fabric(2, 4),
    rail_fabric(4, 2, uplink_bps=40e9),
    leaf_spine_fabric(4, 2, 2),
    fat_tree_fabric(4),
    rail_fabric(4, 2).with_links(delay_s=2e-6, loss=1e-3),
)
SCHEMES = ("ecmp", "plb", "reps", "minrtt", "rails", "optimal")


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.py")), ids=lambda file: file.name)
def test_it_imports_nothing_of_what_makes_runs(file: Path) -> None:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            ours = node.module.split(".")[0] in (
                "testbed",
                "traffic",
                "topologies",
                "controller",
                "scenarios",
            )
            assert not ours or node.module.startswith(MAY_IMPORT), node.module


def test_nothing_is_lowered_or_placed_again() -> None:
    for file in FOLDER.glob("*.py"):
        called = {
            node.attr for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Attribute)
        }
        assert not called & {"lower", "place", "choose", "delegate"}, file


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("lent_s", [0.0, 1e-5])
def test_a_small_run_may_be(name: str, lent_s: float) -> None:
    experiment = RUNS[name]
    audit = predict(experiment, lent_bytes=lent_for(experiment.fabric, lent_s)).audit
    assert audit is not None
    assert audit.findings == ()
    assert audit.share == 1.0


@pytest.mark.parametrize("name", [name for name, each in RUNS.items() if not each.faults])
def test_a_small_run_of_coupled_flows_may_be(name: str) -> None:
    audit = predict(RUNS[name], couples=True).audit
    assert audit is not None
    assert audit.findings == ()


def test_of_a_users_own_pattern_it_says_that_it_looked_at_conservation_only() -> None:
    own, known = predict(RUNS["own pattern"]).audit, predict(RUNS["step"]).audit
    assert own is not None
    assert known is not None
    assert own.conserved_only == ("sent",)
    assert known.conserved_only == ()


def test_the_tables_of_nothing_lack_every_node() -> None:
    experiment = RUNS["step"]
    found = audited(Tables(), experiment.job, experiment.fabric, Circumstances())
    assert "did not run" in str(found.findings[-1])


def test_an_unsound_prediction_is_an_error_where_there_is_no_verdict() -> None:
    finding = Finding("bytes", "the message from GPU 0 to GPU 1 of 'a' did not arrive", "messages", 4)
    run = predict(RUNS["step"])
    assert sound(run) is run
    with pytest.raises(UnsoundError, match="row 4 of messages"):
        sound(Run(run.tables, Audit((finding,))))


@st.composite
def jobs(draw: st.DrawFn, fabric: Fabric) -> Job:
    """Draw a job of every pattern and of compute, in any order that arrows allow."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    gpus, nodes = fabric.gpus, list[Node]()
    for number in range(draw(st.integers(1, 5))):
        after = tuple(node.name for node in nodes if draw(st.booleans()))
        name, kind = f"n{number}", draw(st.sampled_from(["a2a", "ring", "p2p", "hops", "compute"]))
        if kind == "compute":
            some = tuple(sorted(rng.permutation(gpus)[: draw(st.integers(1, gpus))].tolist()))
            each = tuple((rng.random(len(some)) * 1e-4).tolist()) if draw(st.booleans()) else ()
            nodes.append(Compute(name, some, 5e-5, after, each))
        else:
            nodes.append(Collective(name, _pattern(kind, gpus, rng), after))
    return Job("drawn", gpus, tuple(nodes))


def _pattern(kind: str, gpus: int, rng: np.random.Generator) -> Pattern:
    order = rng.permutation(gpus).tolist()
    if kind == "a2a":
        owed = rng.integers(0, 2_000_000, (gpus, gpus)) * (rng.random((gpus, gpus)) < 0.5)
        return AllToAll(Demand("drawn", owed))
    if kind == "ring":
        rings = (tuple(order), tuple(order[::-1]))[: int(rng.integers(1, 3))]
        operations: tuple[Operation, ...] = ("all-reduce", "reduce-scatter", "all-gather")
        return Ring(rings, int(rng.integers(100, 4_000_000)), operations[int(rng.integers(3))])
    if kind == "hops":
        hops = tuple(zip(order, order[1:] + order[:1], strict=True))
        return RingAllToAll((hops,), 2 * int(rng.integers(1, 500_000)))
    ends = [rng.permutation(gpus)[:2].tolist() for _ in range(int(rng.integers(1, 9)))]
    return PointToPoint(tuple((a, b, int(rng.integers(1, 2_000_000))) for a, b in ends))


@pytest.mark.parametrize("name", [name for name, each in RUNS.items() if not (each.faults or each.has_slots)])
def test_a_run_is_sound_in_which_a_link_slows_down_or_loses_packets(name: str) -> None:
    experiment = RUNS[name]
    took_s, ports = predict(experiment).iteration_s, sorted(experiment.fabric.link_at)
    slow, lossy = Slow((ports[0],), 0.3), Lossy((ports[-1],), 0.3)
    faults = (
        Fault("slow", (slow,), When("", 0.2 * took_s, 0.5 * took_s), 0.05 * took_s),
        Fault("lossy", (lossy, slow), When("", 0.4 * took_s), 0.1 * took_s),
    )
    audit = predict(replace(experiment, faults=faults)).audit
    assert audit is not None
    assert audit.findings == ()


@given(st.data())
def test_what_is_drawn_may_be(data: st.DataObject) -> None:
    fabric = data.draw(st.sampled_from(FABRICS))
    job = data.draw(jobs(fabric))
    scheme = data.draw(st.sampled_from(SCHEMES))
    faults: tuple[Fault, ...] = ()
    if data.draw(st.booleans()):
        port = data.draw(st.sampled_from(sorted(fabric.link_at)))
        after_s, detect_s = (data.draw(st.sampled_from([1e-5, 1e-4, 5e-4])) for _ in range(2))
        effects: list[Effect] = [Down((port,)), Slow((port,), 0.3), Lossy((port,), 0.2)]
        effect = data.draw(st.sampled_from(effects))
        when = When("", after_s, data.draw(st.sampled_from([1e-3, 2e-3])))
        faults = (Fault("fault", (effect,), when, detect_s),)
    if data.draw(st.booleans()) and not faults:
        _check(Experiment(fabric, job, scheme), couples=True)
    _check(Experiment(fabric, job, scheme, faults=faults), couples=False)


def _check(experiment: Experiment, *, couples: bool) -> None:
    try:
        audit = predict(experiment, couples=couples).audit
    except LightrailError:
        reject()  # a server without a NIC that works, say: refused, or stuck
    assert audit is not None
    assert audit.findings == ()


def test_a_row_that_proves_it_is_that_of_the_whole_table_where_legs_are_kept_in_blocks() -> None:
    experiment = RUNS["region, servers of GPUs"]
    run = predict(experiment)
    legs = run.tables.legs
    row = int(np.flatnonzero(legs["medium"] > 0)[-1])
    table = pd.DataFrame(legs)
    table.loc[row, "path"] = 0 if legs["path"][row] else 1

    tables = replace(run.tables, legs=table, leg_blocks=None)
    found = audited(tables, experiment.job, experiment.fabric)
    assert {(each.table, each.row) for each in found.findings if each.check == "paths"} == {("legs", row)}
