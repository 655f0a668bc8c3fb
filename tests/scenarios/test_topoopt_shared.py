"""Jobs that share a cluster: how they are drawn and repeated, what counts, claims, and shards that flip."""

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios._topoopt.experiments import INSIDE
from scenarios._topoopt.fabrics import FAT_TREE, IDEAL, OVERSUBSCRIBED, TOPOOPT
from scenarios._topoopt.shared import points as shared_points
from scenarios._topoopt.shared.points import (
    MIXES,
    MODELS,
    OF_EXCHANGE,
    PATHS,
    PRIVATE,
    SHARD,
    SHARED,
    AloneTimes,
    DrawnJob,
    JobFound,
    SharedCluster,
    SharedPoint,
    calls_of,
    drawn_jobs,
    found_alone,
    found_in,
    jobs_of,
    points_of,
    repeated,
    shared_experiment,
)
from scenarios._topoopt.shared.report import LOADS, by_load, jobs_table, p99, shared_claims
from scenarios._topoopt.shared.shards import (
    FIRST,
    FLIP_S,
    MEMBERS,
    NICS,
    OTHER,
    THIRD,
    circuits_of,
    shards_experiment,
    shards_findings,
    waited_s,
)
from testbed.model.predict import predict
from testbed.report.claims import PREDICTED, Claim
from testbed.trust.outcome import Outcome
from tests.results_page import TOPOOPT_SHARED, documented
from tests.scenarios.command import ran
from traffic.collectives.ring import Ring

PAIR = SharedCluster(servers=2 * SHARD, fat_tree_bps=50e9)
"""Two jobs, on a fat-tree so slow that BERT waits for its network too."""
TWO = (DrawnJob("bert", tuple(range(0, 32, 2))), DrawnJob("vgg16", tuple(range(31, 0, -2))))
TIMES = {"dlrm": 0.015, "bert": 0.0625, "candle": 0.134, "vgg16": 0.1}
ALONE: AloneTimes = {TOPOOPT: TIMES, IDEAL: TIMES, FAT_TREE: TIMES, OVERSUBSCRIBED: TIMES}


def notebook_draw(rng: random.Random) -> str:
    """Return a model as the published notebook draws it: each comparison has a new random number."""
    thresholds = (0.35, 0.65, 0.9, 1.0)
    return next(
        model for model, threshold in zip(MODELS, thresholds, strict=True) if rng.random() < threshold
    )


def found(fabric: str, jobs: int, times: float, seed: int = 0) -> pd.DataFrame:
    """Return a cluster in which every job takes so many seconds."""
    return jobs_table(SharedPoint(fabric, jobs, seed), [JobFound("bert", times, 1, times)] * jobs, ALONE)


def test_the_notebook_s_shares_are_what_its_procedure_draws() -> None:
    rng, count = random.Random(1), 20_000
    drawn = Counter(notebook_draw(rng) for _ in range(count))
    assert sum(MIXES["notebook"]) == pytest.approx(1) == sum(MIXES["text"])
    for model, share in zip(MODELS, MIXES["notebook"], strict=True):
        assert drawn[model] / count == pytest.approx(share, abs=0.012)  # 3.4 standard deviations


@pytest.mark.parametrize("mix", MIXES)
def test_models_are_drawn_by_their_shares(mix: str) -> None:
    cluster = SharedCluster(mix=mix)
    drawn = Counter(job.model for seed in range(300) for job in drawn_jobs(cluster, 27, seed))
    for model, share in zip(MODELS, MIXES[mix], strict=True):
        assert drawn[model] / drawn.total() == pytest.approx(share, abs=0.02)


@given(st.integers(1, 27), st.integers(0, 2**32))
def test_jobs_have_servers_of_their_own_and_fewer_are_the_first_of_more(jobs: int, seed: int) -> None:
    drawn = drawn_jobs(SharedCluster(), jobs, seed)
    servers = [server for job in drawn for server in job.servers]
    assert len(set(servers)) == len(servers) == SHARD * jobs
    assert set(servers) <= set(range(432))
    assert drawn == drawn_jobs(SharedCluster(), 27, seed)[:jobs]


@given(st.lists(st.floats(0.01, 1.5), min_size=1, max_size=27))
def test_jobs_repeat_for_longer_than_the_longest_takes_and_once_more_at_most(
    once_s: list[float],
) -> None:
    lasts_s = 1.7 * max(once_s)
    for own_s, times in zip(once_s, repeated(once_s), strict=True):
        assert (times - 1) * own_s < lasts_s <= times * own_s * (1 + 1e-12)


def test_all_nodes_of_a_job_are_on_its_servers_and_a_repeat_sends_all_again() -> None:
    experiment = shared_experiment(PAIR, SharedPoint(OVERSUBSCRIBED, 2, 0), TWO, [1, 2])
    for node in experiment.job.nodes:
        number = int(node.name.split(",")[0].removeprefix("job "))
        assert {gpu // INSIDE for gpu in node.gpus} <= set(TWO[number].servers)
    summed = Counter[str]()
    for node in experiment.job.collectives:
        assert isinstance(node.pattern, Ring)
        summed[node.name.partition("/")[0]] += node.pattern.bytes
    bert, vgg16 = 226_569_220, 1_157_409_952
    assert summed == {"job 0, bert[0]": bert, "job 1, vgg16[0]": vgg16, "job 1, vgg16[1]": vgg16}


@pytest.mark.parametrize("paths", PATHS)
def test_jobs_share_no_flows_and_exchanges_do_only_where_flows_are_of_jobs(paths: str) -> None:
    point = SharedPoint(OVERSUBSCRIBED, 2, 0)
    experiment = shared_experiment(replace(PAIR, paths=paths), point, TWO, [1, 2])
    numbers = experiment.communicators
    of: dict[str, set[int]] = {"0": set(), "1": set()}
    for node in experiment.job.collectives:
        of[node.name[4]].add(numbers.number(node))
    assert not of["0"] & of["1"]
    once = [node for node in experiment.job.collectives if "[0]" in node.name]
    assert len(of["0"] | of["1"]) == (len(once) if paths == OF_EXCHANGE else 2)


def test_the_first_iteration_counts_beside_jobs_that_slow_it_down() -> None:
    """Two jobs of BERT on alternate servers of a slow fat-tree: neither is faster than alone."""
    jobs = [DrawnJob("bert", tuple(range(first, 32, 2))) for first in (0, 1)]
    point = SharedPoint(FAT_TREE, 2, 0)
    alone, together = (
        found_in(predict(shared_experiment(PAIR, point, some, times), couples=True), some, times)
        for some, times in ((jobs[:1], [1]), (jobs, [2, 1]))
    )
    assert [job.repeats for job in together] == [2, 1]
    assert together[0].repeats_s > 1.9 * alone[0].iteration_s
    assert together[1].repeats_s == together[1].iteration_s
    assert together[0].iteration_s >= alone[0].iteration_s


@pytest.mark.parametrize("fabric", PRIVATE)
def test_where_jobs_do_not_interact_they_take_as_long_as_alone(fabric: str) -> None:
    for jobs in (5, 27):
        took = found_alone(SharedCluster(), ALONE, SharedPoint(fabric, jobs, 3))
        assert [job.iteration_s for job in took] == [
            TIMES[job.model] for job in drawn_jobs(SharedCluster(), jobs, 3)
        ]


@given(st.lists(st.floats(0, 1e3), min_size=1, max_size=300))
def test_a_hundredth_of_values_at_most_is_above_the_percentile(values: list[float]) -> None:
    limit = p99(pd.Series(values))
    assert limit in values
    assert sum(value > limit for value in values) < max(1, 0.01 * len(values))


def test_who_ended_early_had_repeated_before_the_last_first_iteration_ended() -> None:
    took = [JobFound("candle", 0.9, 1, 0.9), JobFound("dlrm", 0.1, 4, 0.8), JobFound("dlrm", 0.1, 4, 0.95)]
    assert jobs_table(SharedPoint(FAT_TREE, 3, 0), took, ALONE)["ended_early"].tolist() == [
        False,
        True,
        False,
    ]


def _is_met(claim: Claim) -> bool:
    return claim.reason.startswith(f"{PREDICTED}; in the range")


def test_predictions_stand_beside_the_paper_s_ratios_and_none_where_loads_are_missing() -> None:
    ratios = {TOPOOPT: 1.0, IDEAL: 1.0, FAT_TREE: 3.1, OVERSUBSCRIBED: 1.26}
    table = by_load(pd.concat(found(name, jobs, ratio) for name, ratio in ratios.items() for jobs in LOADS))
    claims = shared_claims(SharedCluster(), table, "1 seed")
    assert [claim.measured for claim in claims] == pytest.approx([3.1, 1.26, 3.1, 3.1, 1.26])
    assert {claim.verdict for claim in claims} == {"not comparable"}, "nothing was emulated"
    assert [_is_met(claim) for claim in claims] == [False, True, True, True, True]
    few = shared_claims(SharedCluster(), table.drop(index=5, level="jobs"), "1 seed")
    assert [claim.ran for claim in few] == [True, True, True, False, False]
    assert not any(claim.ran for claim in shared_claims(SharedCluster(servers=448), table, "1 seed"))


def quick_alone_s(_cluster: SharedCluster, model: str) -> dict[str, float]:
    """Return the times of a model alone, without a prediction."""
    return dict.fromkeys(ALONE, TIMES[model])


def twice_as_long(cluster: SharedCluster, point: SharedPoint) -> tuple[JobFound, ...]:
    """Return the times of jobs that share a fabric, without a prediction."""
    drawn = drawn_jobs(cluster, point.jobs, point.seed)
    return tuple(JobFound("bert", 2 * TIMES[job.model], 1, 2 * TIMES[job.model]) for job in drawn)


def test_a_small_study_is_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_points, "alone_s", quick_alone_s)
    monkeypatch.setattr(shared_points, "found_together", twice_as_long)
    done = ran(
        "topoopt_shared",
        "--job-counts",
        "2,27",
        "--seeds",
        "2",
        "--mix",
        "notebook",
        "--out",
        tmp_path / "out",
    )
    assert done.returncode == 0, done.stderr
    for name in ("summary.csv", "jobs.csv"):
        assert list(pd.read_csv(tmp_path / "out" / name, nrows=0).columns) == documented(TOPOOPT_SHARED, name)
    table = pd.read_csv(tmp_path / "out" / "summary.csv")
    assert len(table) == 2 * 2 * 4
    means = table.groupby("fabric")["mean_s"].sum()
    assert means[FAT_TREE] == pytest.approx(2 * means[TOPOOPT])
    assert "2.00" in done.stdout
    assert "TopoOpt costs 2.81 million dollars" in (tmp_path / "out" / "report.html").read_text()
    assert {"jobs.csv", "load.png", "report.html", "run.json"} <= {
        path.name for path in (tmp_path / "out").iterdir()
    }


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--seeds", "0"], "0 seeds; take 1 to 10000"),
        (["--servers", "8"], "a cluster of 8 servers; give 16 to 1024"),
        (["--job-counts", "28"], "'28' of --job-counts; give whole numbers from 1 to 27"),
        (["--job-counts", "five"], "'five' of --job-counts"),
        (["--job-counts", "9" * 5000], "give whole numbers from 1 to 27"),
        (["--job-counts", ","], "is empty"),
        (["--mix", "paper"], "unknown word 'paper' of --mix; choose from text, notebook"),
        (["--paths", "none"], "unknown word 'none' of --paths; choose from exchange, job"),
        (["--fat-tree-rate", "nan"], "nan Gbit/s of --fat-tree-rate"),
        (["--fat-tree-rate", "3"], "no prices for 3 Gbit/s"),
        (
            ["--emulate", "--seeds", "3", "--fat-tree-rate", "100"],
            "--emulate runs a small cluster of its own, so --seeds and --fat-tree-rate have no effect",
        ),
    ],
)
def test_bad_input_is_told_in_a_sentence(tmp_path: Path, options: list[str], said: str) -> None:
    done = ran("topoopt_shared", "--out", tmp_path / "out", *options)
    assert done.returncode == 2
    (told,) = done.stderr.strip().splitlines()
    assert said in told
    assert not (tmp_path / "out").exists()


def test_shards_have_circuits_between_their_own_servers_on_all_their_nics() -> None:
    for name, members in MEMBERS.items():
        inputs = [port for port, _ in circuits_of(name)]
        assert sorted(inputs) == sorted(NICS * server + nic for server in members for nic in range(NICS))
        joined = {frozenset(port // NICS for port in circuit) for circuit in circuits_of(name)}
        assert joined == {frozenset(pair) for pair in zip(members, (*members[1:], members[0]), strict=True)}


def test_the_third_job_waits_for_the_flip_only_and_the_others_for_nothing() -> None:
    experiment = shards_experiment()
    run = predict(experiment)
    assert [waited_s(run, name) for name in (FIRST, OTHER)] == [0, 0]
    assert waited_s(run, THIRD) == pytest.approx(FLIP_S)
    (sheet,) = shards_findings([Outcome(experiment, run)]).sheets
    third = [line.cells for block in sheet.blocks for line in block.lines][-1]
    assert third == ["third", "model", "0 2 1 3", "-", "610.0", "-", "-", "10.0"]


def test_models_are_predicted_alone_once_and_points_where_jobs_interact() -> None:
    points = points_of([5, 27], range(2))
    assert len(points) == 2 * 2 * 4
    times = [dict.fromkeys(ALONE, TIMES[model]) for model in MODELS]
    shared = [point for point in points if point.fabric in SHARED]
    assert len(calls_of(SharedCluster(), points)) == len(times) + len(shared) == 4 + 2 * 2 * 2
    told = [(JobFound("bert", number, 1, number),) for number in range(len(shared))]
    alone, jobs = jobs_of(SharedCluster(), points, [*times, *told])
    assert alone == ALONE
    assert list(jobs) == points
    assert [jobs[point] for point in shared] == told, "each has what was predicted of it"
