"""Cross-ToR traffic of orchestrated jobs: what is predicted over ToR uplinks, its time, and bad input."""

from dataclasses import replace
from decimal import Decimal
from itertools import product
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios._infinitehbd.orchestration.crossing import CpTraffic, crossings
from scenarios._infinitehbd.orchestration.crossing_report import crossing_findings
from scenarios._infinitehbd.orchestration.placements import (
    BEST,
    OPTIMISED,
    RANKED,
    SHUFFLED,
    UNCONSTRAINED,
    JobRequest,
    OrchestratedCluster,
    drawn_faults,
    percent_of,
)
from testbed.core.run import Run
from testbed.model.predict import predict
from testbed.trust.outcome import Outcome, Verdict, Word
from tests.scenarios.command import ran
from topologies.errors import ScenarioError
from traffic.metrics import communication_s, link_bytes, path_bytes

CLUSTER = OrchestratedCluster(32, 2, 16, tp_gpus=16)


def request(cluster: OrchestratedCluster, faulty: int, seed: int, percent: float) -> JobRequest:
    return JobRequest(cluster, drawn_faults(cluster.nodes, faulty, seed), percent)


def shares(point: CpTraffic) -> tuple[float, float]:
    """Return the share of bytes whose predicted path has a spine, and the time of the last [s]."""
    run = predict(point.experiment)
    sizes = path_bytes(run.tables)
    crossed = sum(size for path, size in sizes.items() if any(port.node == "spine0" for port in path))
    return crossed / sum(sizes.values()), communication_s(run.tables)


@pytest.mark.parametrize(("seed", "percent"), [(0, 75), (1, 90), (2, 90)])
def test_bytes_over_uplinks_are_the_shares_that_ranks_count(seed: int, percent: float) -> None:
    found = crossings(request(CLUSTER, 3, seed, percent), 4, seed)
    assert {(each.numbering, each.placement) for each in found} == {
        *product((BEST, RANKED), (OPTIMISED, UNCONSTRAINED)),
        (RANKED, SHUFFLED),
    }
    for each in found:
        crossed, took_s = shares(each)
        assert crossed == pytest.approx(each.share)
        assert took_s == pytest.approx(each.busiest_s, rel=1e-6)
        assert each.nic_s == 8e8 / 400e9
        assert each.least <= each.share
    if percent == 75:
        counted = {(each.placement, each.numbering): (each.least, each.share) for each in found}
        assert counted[OPTIMISED, BEST] == counted[OPTIMISED, RANKED] == (0, 0)
        assert counted[UNCONSTRAINED, BEST] == pytest.approx((0.25, 7 / 12))
        assert counted[UNCONSTRAINED, RANKED] == counted[SHUFFLED, RANKED] == (0.25, 1)


@pytest.mark.parametrize(("oversubscription", "times"), [(1, 1), (1.5, 1.5), (3, 3)])
def test_crossing_takes_as_much_longer_as_tors_are_oversubscribed(
    oversubscription: float, times: float
) -> None:
    for each in crossings(request(CLUSTER, 3, 0, 75), oversubscription, 0):
        assert each.busiest_s == pytest.approx(each.nic_s * (times if each.share else 1))
        assert shares(each)[1] == pytest.approx(each.busiest_s, rel=1e-6)


def test_of_four_nodes_to_a_tor_only_the_ranks_as_they_are_are_sent() -> None:
    found = crossings(request(replace(CLUSTER, tor_nodes=4), 3, 1, 50), 4, 1)
    assert {each.numbering for each in found} == {RANKED}
    for each in found:
        assert shares(each)[0] == pytest.approx(each.share)
        assert each.share >= each.least
    outcomes = [Outcome(each.experiment, predict(each.experiment)) for each in found]
    (sheet,) = crossing_findings(outcomes, found).sheets
    assert "X_best is known for two nodes under a ToR only" in sheet.caption


def emulated(point: CpTraffic, word: Word = "faithful") -> Outcome:
    """Return an outcome whose ports count what was predicted, without headers."""
    run = predict(point.experiment)
    sent = link_bytes(run.tables)
    wire = pd.DataFrame({"port": range(len(sent)), "bytes": list(sent.values()), "packets": 1, "drops": 0})
    counted = Run(replace(run.tables, wire=wire, ports=tuple(sent)))
    return Outcome(point.experiment, run, counted, Verdict(word))


def test_what_is_on_the_wire_rules_the_claims() -> None:
    points = [point for percent in (75, 90) for point in crossings(request(CLUSTER, 3, 0, percent), 4, 0)]
    found = crossing_findings([emulated(point) for point in points], points)
    (sheet,) = found.sheets
    wires = [line.cells[4:6] for block in sheet.blocks for line in block.lines]
    assert [counted for counted, _ in wires] == [wire for _, wire in wires]
    ruled = [(claim.verdict, round(claim.measured, 2)) for claim in found.claims]
    assert ruled == [
        ("holds", 0.43), ("holds", 1.57), ("does not hold", 1.0),  # the best ranks: bytes, messages, jobs
        ("holds", 0.29), ("holds", 2.33), ("does not hold", 1.0),
        ("holds", 1.0),
    ]  # fmt: skip


@pytest.mark.parametrize("word", ["void", "unsound", "model"])
def test_what_was_not_emulated_soundly_rules_nothing(word: Word) -> None:
    points = crossings(request(CLUSTER, 3, 0, 75), 4, 0)
    outcomes = [
        Outcome(point.experiment, predict(point.experiment)) if word == "model" else emulated(point, word)
        for point in points
    ]
    found = crossing_findings(outcomes, points)
    assert {claim.verdict for claim in found.claims} == {"not comparable"}
    assert {line.cells[5] for block in found.sheets[0].blocks for line in block.lines} == {"-"}


@pytest.mark.parametrize(("faulty", "percent"), [(20, 90), (0, 1)])
def test_a_job_that_does_not_fit_is_named(faulty: int, percent: float) -> None:
    with pytest.raises(ScenarioError, match="does not fit"):
        crossings(request(CLUSTER, faulty, 0, percent), 4, 0)


@given(st.integers(1, 100_000), st.integers(0, 10_000))
def test_a_percentage_of_gpus_is_exact(gpus: int, hundredths: int) -> None:
    percent = float(Decimal(hundredths) / 100)
    assert int(percent_of(percent, gpus)) == hundredths * gpus // 10_000


def test_a_job_loses_no_group_to_floating_point() -> None:
    """With ``int(share * nodes * gpus)`` eight of these were two groups short."""
    for percent in range(1, 100):
        for nodes in range(200, 2000, 200):
            job = JobRequest(OrchestratedCluster(nodes, 2, nodes), frozenset(), percent)
            assert job.tp_groups == percent * nodes * 8 // 100 // 32 // 2 * 2


@pytest.mark.drawn
def test_a_run_s_first_table_is_what_crosses_tors(tmp_path: Path) -> None:
    done = ran(
        "infinitehbd_dcn",
        "--model-only",
        "--transport",
        "tcp",
        "--job-percent",
        "90",
        "--out",
        tmp_path / "out",
    )
    assert done.returncode == 0, done.stderr
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert lines[0] == "crosses ToRs [%] transport verdict least counted wire CCT [ms] mean / link"
    at = lines.index("best, 90 %")
    assert lines[at + 1 : at + 3] == [
        "optimised tcp model 14.29 21.43 - 8.00 3.00 1.00",
        "unconstrained tcp model 14.29 50.00 - 8.00 4.71 1.00",
    ]
    assert all(len(line) <= 80 for line in done.stdout.splitlines()[:-1])
    report = (tmp_path / "out" / "report.html").read_text()
    assert report.index("crosses ToRs [%]") < report.index("busbw / unconstrained")
    assert (tmp_path / "out" / "crossing.png").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--faulty", "32"], "32 faulty nodes of 32; leave some that work"),
        (["--faulty", "20"], "does not fit around 20 of 32 nodes"),
        (["--job-percent", "0"], "a job of 0 % of the GPUs"),
        (["--seed", "-1"], "--seed: found -1, expected 0 or more"),
        (["--hops", "1"], "K = 1 on nodes of 8 GPUs"),
        (["--tor-nodes", "3"], "under ToRs of 3"),
        (["--tp", "12"], "TP groups of 12 GPUs on nodes of 8"),
        (["--oversubscription", "0.5"], "an oversubscription of 0.5; give 1 or more"),
        (["--oversubscription", "nan"], "--oversubscription: found NaN, expected a finite number"),
    ],
)
def test_bad_input_is_one_sentence(options: list[str], said: str) -> None:
    done = ran("infinitehbd_dcn", "--model-only", *options)
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    assert said in line
