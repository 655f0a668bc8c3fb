"""The scenario of permutations: what it replays or makes up, what it predicts, and which claims it rules."""

import os
from collections import Counter
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios import spray_permutation as scenario
from scenarios._rails.claims_spray import spray_claims
from scenarios.spray_permutation import DATA_SETS, FLOW_BYTES, derangement, is_permutation, made_up
from testbed.report.run_json import experiments_of
from testbed.study.study_options import described
from tests.scenarios import command
from tests.tools import CHECKOUT
from tests.traffic.trace_files import MICE, written
from topologies.errors import ScenarioError, TraceError
from topologies.rail import rail_fabric
from traffic.collectives.point_to_point import PointToPoint
from traffic.demand import Demand
from traffic.job import Collective, Job
from traffic.steps import demands_of, single
from traffic.transports.host_settings import TransportSetup
from traffic.workloads.datasets import dataset_path

ACROSS = [(source, (source + 8) % 16) for source in range(16)]
"""A permutation whose flows all cross the core of 16 servers."""
NAME = "trace perm_16n_16c_2MB.cm"
HOLDS = {"ecmp": 2.0, "reps": 1.1, "spray": 1.2}
"""CCT over the lower bound at which all claims hold."""


def connections(flows: list[tuple[int, int]], nodes: int = 16) -> str:
    """Return flows of 2 MB as a connection matrix of htsim."""
    lines = [
        f"{source}->{to} id {number} start 0 size 2000000" for number, (source, to) in enumerate(flows, 1)
    ]
    return "\n".join([f"Nodes {nodes}", f"Connections {len(flows)}", *lines])


def ran(out: Path, *options: str | Path, data: Path | None = None) -> "CompletedProcess[str]":
    """Predict the scenario with one seed, data sets being where ``data`` says."""
    env = {**os.environ, **({"LIGHTRAIL_DATA": str(data)} if data else {})}
    return command.ran("spray_permutation", "--model-only", "--seeds", "1", "--out", out, *options, env=env)


def busiest(records: pd.DataFrame) -> float:
    """Return what leaves by the busiest port, as how many flows."""
    legs = [leg.partition("@") for path in records["path"] for leg in path.split(" ")]
    sent = Counter[str]()
    for size, _, ports in legs:
        sent.update(dict.fromkeys(ports.split(","), int(size)))
    return max(sent.values()) / FLOW_BYTES


def sent(job: Job) -> np.ndarray:
    """Return the bytes that servers send each other in a job of one step."""
    (demand,) = demands_of(job)
    return demand.matrix


def test_the_data_set_is_replayed_and_takes_as_long_as_the_busiest_link_of_each_scheme(
    tmp_path: Path,
) -> None:
    file, out = tmp_path / DATA_SETS["permutation"], tmp_path / "out"
    file.parent.mkdir()
    file.write_text(connections(ACROSS))
    done = ran(out, data=tmp_path)
    assert done.returncode == 0, done.stderr
    table = pd.read_csv(out / "summary.csv")
    assert table[["workload", "name", "transport"]].to_numpy().tolist() == [
        [NAME, name, "credit"] for name in ("ecmp", "plb", "minrtt", "reps", "spray")
    ]
    over = dict(zip(table["name"], table["cct_s"] / table["bound_s"], strict=True))
    flows = {name: busiest(mine) for name, mine in pd.read_csv(out / "records.csv").groupby("scheme")}
    for name in over:
        assert over[name] >= flows[name] * (1 - 1e-6), name
    assert flows["ecmp"] in (2, 3, 4)
    assert flows["minrtt"] in (2, 3, 4)
    assert 1.0 < flows["spray"] < 2, "entropies fall unevenly on paths"
    assert over["reps"] == pytest.approx(1.0, rel=1e-6)
    assert "nothing was emulated" in done.stdout


def test_where_the_data_set_is_not_there_a_drawn_permutation_stands_in_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere = partial(dataset_path, checkout=tmp_path / "checkout", environment={})
    monkeypatch.setattr(scenario, "dataset_path", nowhere)
    file = CHECKOUT / "scenarios" / "spray_permutation.toml"
    points = described(file)(seeds="2", schemes="spray").experiments
    assert [each.job.name for each in points] == ["synthetic permutation"] * 2
    assert all("synthetic" in each.job.note for each in points)
    first, second = (sent(each.job) for each in points)
    assert (first != second).any(), "another for each seed"
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "htsim/perm_16n_16c_2MB.cm is not on this machine" in line
    assert line.endswith("going on with a synthetic permutation")


def test_a_fabric_of_another_size_has_a_permutation_of_its_own(tmp_path: Path) -> None:
    done = ran(tmp_path / "out", "--k", "2", "--schemes", "ecmp,spray")
    assert done.returncode == 0, done.stderr
    table = pd.read_csv(tmp_path / "out" / "summary.csv")
    assert table["workload"].tolist() == ["synthetic permutation"] * 2
    assert (table["cct_s"] / table["bound_s"]).tolist() == pytest.approx([1.0, 1.0], rel=1e-6)


def test_entropies_are_those_that_were_asked_for(tmp_path: Path) -> None:
    done = ran(tmp_path / "out", "--k", "2", "--schemes", "spray", "--entropies", "16")
    assert done.returncode == 0, done.stderr
    (point,) = experiments_of(tmp_path / "out" / "run.json")
    assert point.transport == TransportSetup("credit", entropies=16)


def test_an_incast_is_as_long_under_every_scheme_and_has_no_claim(tmp_path: Path) -> None:
    trace = tmp_path / "in.cm"
    trace.write_text(connections([(source, 3) for source in range(3)], nodes=4))
    done = ran(tmp_path / "out", "--trace", trace)
    assert done.returncode == 0, done.stderr
    table = pd.read_csv(tmp_path / "out" / "summary.csv")
    assert table["workload"].tolist() == ["trace in.cm"] * 5
    assert (table["cct_s"] / table["bound_s"]).tolist() == pytest.approx([1.0] * 5, rel=1e-6)
    assert "claim" not in done.stdout


@pytest.mark.parametrize("pattern", ["permutation", "incast"])
def test_a_pattern_beside_a_file_of_connections_is_refused(tmp_path: Path, pattern: str) -> None:
    (tmp_path / "in.cm").write_text(connections([(source, 3) for source in range(3)], nodes=4))
    done = ran(tmp_path / "out", "--pattern", pattern, "--trace", tmp_path / "in.cm")
    assert done.returncode == 2
    assert "the connections are a file's, so the pattern has no effect; leave it out" in done.stderr


def test_connections_with_starts_need_their_unit_and_others_have_none(tmp_path: Path) -> None:
    trace, fabric = str(written(tmp_path, MICE)), rail_fabric(5, 1)
    job = scenario.flows(fabric, 0, connections=trace, start_unit="us")
    assert [node.at_s for node in job.nodes] == pytest.approx([0.0, 50e-6, 100e-6])
    with pytest.raises(TraceError, match=r"in which unit; give start_unit \(--start-unit\)"):
        scenario.flows(fabric, 0, connections=trace)
    with pytest.raises(ScenarioError, match="all connections start together, so the unit of starts has no"):
        scenario.flows(fabric, 0, start_unit="us")


@given(st.integers(2, 60), st.integers(0, 2**32))
def test_a_drawn_permutation_leaves_none_in_its_place(size: int, seed: int) -> None:
    drawn = derangement(size, np.random.default_rng(seed))
    assert sorted(drawn.tolist()) == list(range(size))
    assert (drawn != np.arange(size)).all()


def test_all_permutations_of_three_that_leave_none_in_its_place_are_drawn_as_often() -> None:
    rng = np.random.default_rng(0)
    drawn = Counter(tuple(derangement(3, rng).tolist()) for _ in range(2000))
    assert drawn.keys() == {(1, 2, 0), (2, 0, 1)}
    assert drawn[1, 2, 0] / 2000 == pytest.approx(0.5, abs=0.04)  # 3.6 standard deviations


@given(st.integers(2, 40), st.integers(0, 2**32))
def test_made_up_connections_are_of_2_mb_and_as_their_pattern_says(servers: int, seed: int) -> None:
    each, alone = FLOW_BYTES, (servers - 1) * FLOW_BYTES
    permutation, incast = (sent(made_up(name, servers, seed)) for name in ("permutation", "incast"))
    assert permutation.sum(axis=0).tolist() == permutation.sum(axis=1).tolist() == [each] * servers
    assert permutation.diagonal().tolist() == [0] * servers
    assert incast.sum(axis=0).tolist() == [0] * (servers - 1) + [alone]
    assert incast.sum(axis=1).tolist() == [each] * (servers - 1) + [0]


@pytest.mark.parametrize(
    ("matrix", "is_one"),
    [
        ([[0, 5, 0], [0, 0, 9], [1, 0, 0]], True),
        ([[0, 5, 0], [0, 0, 0], [0, 0, 0]], True),
        ([[0, 5, 5], [0, 0, 0], [0, 0, 0]], False),
        ([[0, 0, 5], [0, 0, 5], [0, 0, 0]], False),
    ],
)
def test_a_permutation_has_a_flow_at_most_from_and_to_each(matrix: list[list[int]], *, is_one: bool) -> None:
    assert is_permutation(single(Demand("any", np.array(matrix)))) == is_one


def test_a_graph_of_connections_is_no_permutation() -> None:
    sent = Collective("0->1", PointToPoint(((0, 1, FLOW_BYTES),)))
    assert not is_permutation(Job("graph", 2, (sent,)))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--k", "3"], "a fat tree of 3-port switches; give an even number of ports"),
        (["--k", "26"], "flows between 4394 servers; give at most 4096"),
        (["--k", "-4"], "a fat tree of -4-port switches"),
        (["--seeds", "0"], "0 seeds; take 1 to 10000"),
        (["--schemes", ","], "--schemes: the list is empty"),
        (["--trace", "/nonexistent"], "/nonexistent does not exist"),
        (["--trace", "{file}", "--k", "2"], "between 16 GPUs, the fabric has 2"),
        (["--entropies", "0"], "0 entropies of a NIC; give 1 to 64"),
        (["--entropies", "65"], "65 entropies of a NIC; give 1 to 64"),
        (["--entropies", "4", "--schemes", "reps:8"], "'reps:8' asks for '8' entropies; give a whole number"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path: Path, options: list[str], said: str) -> None:
    (tmp_path / "across.cm").write_text(connections(ACROSS))
    done = ran(tmp_path / "out", *(option.format(file=tmp_path / "across.cm") for option in options))
    assert done.returncode == 2
    *_, line = done.stderr.strip().splitlines()  # before it may stand that the data set is not there
    assert said in line
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


def summary_of(
    over_bound: dict[str, float], verdict: str = "faithful", recycled: float = 0.9
) -> pd.DataFrame:
    """Return a summary of two seeds in which schemes take so many times the bound, as predicted."""
    rows = [
        {
            "workload": NAME,
            "name": name,
            "seed": seed,
            "verdict": verdict,
            "cct_s": over,
            "predicted_s": over,
            "bound_s": 1.0,
            "recycled": recycled if name == "reps" else np.nan,
        }
        for name, over in over_bound.items()
        for seed in (0, 1)
    ]
    return pd.DataFrame(rows)


def rulings(table: pd.DataFrame) -> list[tuple[str, str]]:
    """Return what is ruled of each claim, and why."""
    return [(claim.verdict, claim.reason) for claim in spray_claims(table, NAME)]


def test_claims_hold_where_spraying_and_reps_are_near_the_bound_and_ecmp_s_flows_collide() -> None:
    claims = spray_claims(summary_of(HOLDS), NAME)
    assert [(claim.text, claim.verdict, claim.basis) for claim in claims] == [
        ("Spraying ends within 1.30x of the lower bound", "holds", "2 seeds"),
        ("ECMP's flows collide: 1.5x the CCT of spraying", "holds", "2 seeds"),
        ("REPS ends within 1.30x of the lower bound", "holds", "2 seeds"),
        ("REPS uses entropies again for half of its packets", "holds", "2 seeds"),
    ]
    assert [claim.measured for claim in claims] == pytest.approx([1.2, 2.0 / 1.2, 1.1, 0.9])


def test_claims_do_not_hold_beyond_their_ranges() -> None:
    far = summary_of({"ecmp": 2.0, "reps": 1.31, "spray": 1.4}, recycled=0.49)
    above, below = ("does not hold", "above the range"), ("does not hold", "below the range")
    assert rulings(far) == [above, below, above, below]


@pytest.mark.parametrize("word", ["model", "strained", "void", "unsound"])
def test_what_was_not_faithful_rules_nothing(word: str) -> None:
    said = dict.fromkeys(("spray", "ecmp", "reps"), "nothing was emulated")
    if word != "model":
        said = {name: f"{word}: {name}, {NAME}" for name in said}
    assert rulings(summary_of(HOLDS, word)) == [
        ("not comparable", said[name]) for name in ("spray", "ecmp", "reps", "reps")
    ]


def test_seeds_that_were_not_faithful_are_left_out() -> None:
    table = summary_of(HOLDS)
    late = table["seed"] == 1
    table = table.mask(late, table.assign(verdict="strained", cct_s=9.0, recycled=0.0))
    claims = spray_claims(table, NAME)
    assert [(claim.verdict, claim.basis) for claim in claims] == [("holds", "1 seed")] * 4
    assert [claim.measured for claim in claims] == pytest.approx([1.2, 2.0 / 1.2, 1.1, 0.9])


def test_ecmp_is_compared_in_the_seeds_in_which_flows_meet_by_the_prediction() -> None:
    table = summary_of(HOLDS)
    apart, is_ecmp = table.assign(cct_s=1.05, predicted_s=1.0), table["name"] == "ecmp"
    in_one_seed = table.mask(is_ecmp & (table["seed"] == 1), apart)
    _, collides, *_ = spray_claims(in_one_seed, NAME)
    assert collides.verdict == "holds"
    assert collides.measured == pytest.approx(2.0 / 1.2)
    in_both = table.mask(is_ecmp, apart)
    assert rulings(in_both)[1] == ("not comparable", "by the prediction no two flows of ECMP meet")


def test_claims_about_schemes_that_were_not_run_say_so() -> None:
    claims = spray_claims(summary_of({"spray": 1.2}), NAME)
    assert [(claim.verdict, claim.ran, claim.reason) for claim in claims] == [
        ("holds", True, ""),
        ("not comparable", False, f"not run: ecmp, {NAME}"),
        ("not comparable", False, f"not run: reps, {NAME}"),
        ("not comparable", False, f"not run: reps, {NAME}"),
    ]
