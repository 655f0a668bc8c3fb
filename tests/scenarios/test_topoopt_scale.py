"""TopoOpt at scale, on small clusters: rows of points, figures' points, claims, resuming, refusals."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pytest

from scenarios._topoopt.fabrics import EXPANDER, FAT_TREE, IDEAL, OCS_RECONFIG, SIP_ML, TOPOOPT
from scenarios._topoopt.scale.batches import TAXES
from scenarios._topoopt.scale.figures import DELAYS_S, FIGURES, MODELS, points_of
from scenarios._topoopt.scale.points import FABRICS, ScaleParameters, ScalePoint, row_of
from scenarios._topoopt.scale.report import scale_findings
from testbed.report.claims import PREDICTED, Claim
from testbed.report.table import held_text
from tests.results_page import TOPOOPT_SCALE, documented
from tests.scenarios.command import ran

RATES_BPS = [10e9, 25e9, 40e9, 100e9, 200e9]
START = ScaleParameters(budget=0)
SMALL = ScalePoint("dlrm", TOPOOPT, 4, 100e9, section="5.4", batch=64, servers=16)
ROW = {"budget": 0, "rule": "projected", "fat_tree_bps": 0.0,
       "iteration_s": 0.1, "start_s": 0.1, "changes": 0,
       "mp_bytes": 1000, "ring_bytes": 4000}  # fmt: skip
CIRCUITS = {"tax": 1.5, "mean_hops": 2.0, "least_over_most": 0.7, "even_least_over_most": 0.5}


def row(point: ScalePoint, time_s: float, **changed: float) -> dict[str, object]:
    """Return a made-up row of a point."""
    own = CIRCUITS if point.fabric in (TOPOOPT, EXPANDER) else {}
    return {**ROW, **own, "iteration_s": time_s, "start_s": time_s, **changed}


def table_of(times_s: dict[ScalePoint, float]) -> pd.DataFrame:
    """Return the summary of made-up points."""
    return pd.DataFrame([{**point.__dict__, **row(point, time_s)} for point, time_s in times_s.items()])


def by_text(claims: Sequence[Claim]) -> dict[str, Claim]:
    assert len({claim.text for claim in claims}) == len(claims)
    return {claim.text: claim for claim in claims}


@pytest.fixture(scope="module")
def rows() -> dict[str, dict[str, float]]:
    """Return the rows of BERT on 16 servers, over each fabric, on all of which each layer is."""
    points = {fabric: ScalePoint("bert", fabric, 4, 100e9, servers=16) for fabric in FABRICS}
    return {fabric: row_of(START, point) for fabric, point in points.items()}  # type: ignore[misc]


@pytest.mark.parametrize("fabric", FABRICS)
def test_a_row_is_of_its_fabric(fabric: str, rows: dict[str, dict[str, float]]) -> None:
    found = rows[fabric]
    assert found["iteration_s"] == found["start_s"], "without a search there is the start alone"
    nics_bps = 4 * 100e9 if fabric != FAT_TREE else 100e9
    sent_s = 8 * (found["ring_bytes"] + found["mp_bytes"]) / 16 / nics_bps
    assert found["iteration_s"] > sent_s, "no fabric beats its NICs"
    assert (found["changes"] > 0) == (fabric in (OCS_RECONFIG, SIP_ML))
    assert set(CIRCUITS) & found.keys() == (set(CIRCUITS) if fabric in (TOPOOPT, EXPANDER) else set())


def test_bert_is_as_fast_as_over_the_ideal_switch_and_circuits_that_change_are_behind(
    rows: dict[str, dict[str, float]],
) -> None:
    times_s = {fabric: found["start_s"] for fabric, found in rows.items()}
    assert times_s[TOPOOPT] == pytest.approx(times_s[IDEAL], rel=0.01)
    assert times_s[EXPANDER] > times_s[FAT_TREE] > 2 * times_s[TOPOOPT]
    assert min(times_s[OCS_RECONFIG], times_s[SIP_ML]) > times_s[TOPOOPT]
    assert rows[TOPOOPT]["tax"] == 1 == pytest.approx(rows[TOPOOPT]["least_over_most"])
    assert rows[TOPOOPT]["mean_hops"] == pytest.approx(32 / 15), "of the coins 1 and 3"
    assert rows[EXPANDER]["tax"] > 1


def test_what_tables_send_is_relayed_on_topoopt_and_makes_it_slower_than_the_switch() -> None:
    topoopt, ideal = (
        row_of(START, ScalePoint(**{**SMALL.__dict__, "fabric": name})) for name in (TOPOOPT, IDEAL)
    )
    share = float(str(topoopt["mp_bytes"])) / float(str(topoopt["ring_bytes"]))
    assert topoopt["tax"] == pytest.approx((1 + 32 / 15 * share) / (1 + share), rel=1e-4)
    assert 1 < float(str(topoopt["iteration_s"])) / float(str(ideal["iteration_s"])) < 1.1
    # 128 tables send 15 servers 4 x 64 samples of 128 numbers of 8 bytes, and are sent their gradients.
    assert topoopt["mp_bytes"] == 2 * 128 * 15 * 4 * 64 * 128 * 8


def test_a_search_is_predicted_beside_what_it_began_with() -> None:
    """Over an expander the ring in order is relayed, so that summing less is faster at once."""
    found = row_of(ScaleParameters(budget=3), ScalePoint("dlrm", EXPANDER, 4, 100e9, servers=16))
    assert float(str(found["iteration_s"])) < 0.95 * float(str(found["start_s"]))


def test_figures_have_the_paper_s_points() -> None:
    points = {figure: of(RATES_BPS) for figure, of in FIGURES.items()}
    assert {figure: len(own) for figure, own in points.items()} == {
        "11": 6 * 5 * 4 + 5 + 4,
        "12": 2 * 6 * 3,
        "17": 2 * len(DELAYS_S) + 1 + 2,
        "27": 6 * 5 * 4,
        "28": 6 * 2 * 5,
    }
    for figure, own in points.items():
        assert len(set(own)) == len(own), figure
        assert {point.servers for point in own} == {128}
    assert {point.degree for point in points["27"]} == {8}
    sections = {figure: {point.section for point in own} for figure, own in points.items()}
    assert sections == {"11": {"5.3"}, "12": {"5.4"}, "17": {"5.3"}, "27": {"5.3"}, "28": {"5.3"}}
    only = {point for own in FIGURES.values() for point in own([100e9]) if point.fabric in (TOPOOPT, IDEAL)}
    assert {point.rate_bps for point in only} == {40e9, 100e9}, "rates are those of Figures 11 and 27"


def test_points_of_figures_are_there_once_and_those_that_take_longest_come_last() -> None:
    points = points_of(["10", "11", "17", "28"], [100e9])
    assert len(set(points)) == len(points)
    assert set(points) == {point for figure in ("11", "17", "28") for point in FIGURES[figure]([100e9])}
    follows = [point.fabric in (OCS_RECONFIG, SIP_ML) for point in points]
    assert follows == sorted(follows)


def test_claims_of_figure_11_are_of_mean_ratios() -> None:
    over = {TOPOOPT: 1.0, IDEAL: 1.0, FAT_TREE: 2.8, EXPANDER: 3.0, OCS_RECONFIG: 1.5, SIP_ML: 1.05}
    times_s = {point: over[point.fabric] * 1e9 / point.rate_bps for point in FIGURES["11"](RATES_BPS)}
    ideal = {point for point in times_s if point.fabric == IDEAL and point.rate_bps == 10e9}
    found = scale_findings(["11"], table_of({**times_s, **dict.fromkeys(ideal, 0.05)}))
    claims = by_text(found.claims)
    # At one of five rates the ideal switch is twice as fast.
    assert claims["dlrm: the ideal switch is 1.3 times as fast as TopoOpt"].measured == pytest.approx(1.2)
    assert claims["vgg16: TopoOpt and the ideal switch alike"].measured == pytest.approx(0.9)
    assert {claim.verdict for claim in claims.values()} == {"not comparable"}, "nothing was emulated"
    failing = {text for text, claim in claims.items() if "not in the range" in claim.reason}
    assert failing == {
        "ncf: the fat-tree of similar cost takes 2.1 times as long",
        "ncf: the ideal switch is 1.7 times as fast as TopoOpt",
    }
    (sheet,) = found.sheets
    assert [block.title for block in sheet.blocks] == list(MODELS)
    assert [line.cells[-1] for line in sheet.blocks[0].lines] == [
        "1.00",
        "0.90",
        "2.80",
        "3.00",
        "1.50",
        "1.05",
    ]


def test_claims_of_points_that_are_missing_were_not_run() -> None:
    points = [point for point in FIGURES["11"](RATES_BPS) if point.fabric in (TOPOOPT, IDEAL)]
    claims = by_text(scale_findings(["11"], table_of(dict.fromkeys(points, 1.0))).claims)
    ran_ones = {text for text, claim in claims.items() if claim.ran}
    assert ran_ones == {text for text in claims if "ideal switch" in text}
    assert {claim.reason for text, claim in claims.items() if text not in ran_ones} == {"not predicted"}
    assert scale_findings(["11", "12", "17", "27", "28"], pd.DataFrame()).claims == []


def test_claims_of_figures_12_to_15() -> None:
    over = {TOPOOPT: 1.0, IDEAL: 0.95, FAT_TREE: 2.7}
    table = table_of({point: over[point.fabric] for point in FIGURES["12"]([])})
    table["tax"] = [
        TAXES.get((batch, degree), 2.0) for batch, degree in zip(table["batch"], table["degree"], strict=True)
    ]
    table["mean_hops"] = table["degree"].map({4: 5.7, 8: 3.6})
    found = scale_findings(["12"], table)
    claims = by_text(found.claims)
    closed = [
        claim for claim in claims.values() if claim.source in ("TopoOpt, Figure 13", "TopoOpt, Figure 14")
    ]
    assert Counter(claim.verdict for claim in closed) == {"arithmetic": 4, "does not hold": 1}
    failing = {
        text: claim.measured
        for text, claim in claims.items()
        if claim.verdict == "does not hold" or "not in the range" in claim.reason
    }
    assert failing == {
        "batch 2048: TopoOpt takes 1.1 times as long as the fat-tree": pytest.approx(1 / 2.7),
        "mean path 3 hops, d = 8": pytest.approx(3.6),
        "all-to-all alone: the least loaded circuit has 39% less, d = 4": pytest.approx(0.5),
        "all-to-all alone: the least loaded circuit has 59% less, d = 8": pytest.approx(0.5),
    }
    (sheet,) = found.sheets
    assert [(block.title, len(block.lines)) for block in sheet.blocks] == [("d = 4", 6), ("d = 8", 6)]
    assert sheet.blocks[0].lines[0].cells[:5] == ["64", "0.250", "1000.0", "950.0", "2700.0"]


def test_costs_whose_counting_was_chosen_to_meet_the_paper_are_arithmetic() -> None:
    claims = scale_findings(["10"], pd.DataFrame()).claims
    ideal, ocs, tree = claims
    assert (ideal.verdict, ocs.verdict, tree.verdict) == ("arithmetic", "arithmetic", "does not hold")
    assert held_text(claims) == "holds: 0 of 1; arithmetic: 2"


def test_claims_of_figures_17_and_28() -> None:
    def time_s(point: ScalePoint) -> float:
        if point.fabric == TOPOOPT:
            return 8 / point.degree
        worse = {("dlrm", True): 3.0, ("bert", True): 1.4}.get((point.model, point.forwards), 1.0)
        return worse if point.delay_s == 10e-3 else 1.0

    points = [point for figure in ("17", "28") for point in FIGURES[figure]([])]
    found = scale_findings(["17", "28"], table_of({point: time_s(point) for point in points}))
    reasons = {text: claim.reason for text, claim in by_text(found.claims).items()}
    assert {text: reason for text, reason in reasons.items() if not reason.endswith("; in the range")} == {
        "DLRM at 10 ms: forwarding better than none": "not predicted",
        "bert: hardly changes with d (4 to 8)": f"{PREDICTED}; not in the range",
    }
    assert len(reasons) == 6
    delays, degrees = found.sheets
    (dlrm,) = (block for block in delays.blocks if block.title == "dlrm")
    assert [line.cells for line in dlrm.lines] == [
        ["servers forward", *["-"] * (len(DELAYS_S) - 1), "3000.0", "1000.0"],
        ["they do not", *["-"] * len(DELAYS_S), "1000.0"],
    ]
    assert degrees.blocks[1].lines[0].cells == ["candle", "4000.0", "2000.0", "1333.3", "1000.0", "800.0"]


def test_costs_are_a_figure_without_points(tmp_path: Path) -> None:
    done = ran("topoopt_scale", "--figures", "10", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (out,) = (tmp_path / "results" / "topoopt_scale").iterdir()
    assert {"costs.csv", "figure_10.png", "report.html"} <= {path.name for path in out.iterdir()}
    costs = pd.read_csv(out / "costs.csv").set_index(["interconnect", "servers", "rate_gbps"])["usd"]
    assert costs[TOPOOPT, 128, 100] == 416_256, "as its appendix G adds up"
    assert "0 iterations by the fluid model" in (out / "report.html").read_text()


def test_a_study_that_was_cut_off_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = [ScalePoint(**{**SMALL.__dict__, "fabric": name}) for name in (TOPOOPT, IDEAL, FAT_TREE)]
    monkeypatch.setitem(FIGURES, "12", lambda _rates: points)
    options = ["--figures", "10,12", "--budget", "0"]
    out = tmp_path / "out"
    for part in ("1/2", "2/2"):
        assert ran("topoopt_scale", *options, "--part", part, "--out", out).returncode == 0
    done = ran("topoopt_scale", *options, "--resume", out)
    assert done.returncode == 0, done.stderr
    for name in ("summary.csv", "costs.csv"):
        assert list(pd.read_csv(out / name, nrows=0).columns) == documented(TOPOOPT_SCALE, name)
    table = pd.read_csv(out / "summary.csv").dropna(subset="model").set_index("fabric")
    assert set(table.index) == {TOPOOPT, IDEAL, FAT_TREE}
    assert 0.05 < table["iteration_s"][IDEAL] < 0.3 * table["iteration_s"][FAT_TREE] < 0.08
    refused = ran("topoopt_scale", *options, "--seed", "1", "--resume", out)
    assert refused.returncode == 2
    assert f"{out} was begun without --seed, and --seed 1 is given" in refused.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--figures", "99"], "unknown word '99' of --figures; choose from 10, 11, 12, 17, 27, 28"),
        (["--figures", ","], "is empty"),
        (["--rates", "nan"], "nan Gbit/s of --rates; give a rate above 0"),
        (["--rates", "0"], "0 Gbit/s of --rates"),
        (["--rates", "x"], "'x' is not a list of numbers"),
        (
            ["--figures", "10,12", "--rates", "100"],
            "11 and 27 are not among --figures, so --rates has no effect",
        ),
        (["--budget", "-1"], "a budget of '-1'; give steps, up to 100000, or 'paper'"),
        (["--budget", "100001"], "a budget of '100001'"),
        (["--budget", "9" * 5000], "give steps, up to 100000"),
        (["--seed", "-1"], "a seed of -1; take one from 0 on"),
    ],
)
def test_bad_input_is_told_in_a_sentence(tmp_path: Path, options: list[str], said: str) -> None:
    done = ran("topoopt_scale", "--out", tmp_path / "out", *options)
    assert done.returncode == 2
    (told,) = done.stderr.strip().splitlines()
    assert said in told
    assert len(told) < 300
    assert not (tmp_path / "out").exists()
