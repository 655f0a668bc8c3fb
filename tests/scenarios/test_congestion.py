"""The study of congestion controls: its flows, its measures, its claims, its plots."""

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from scenarios._congestion.measures import flow_measures
from scenarios._congestion.plots import EARLY, LATE, windows_over_time
from scenarios._congestion.report import congestion_claims
from scenarios.congestion import MADE, PatternName, flows
from testbed.report.run_json import experiments_of
from tests.scenarios import command
from topologies.fat_tree import fat_tree_fabric
from traffic.clock import NEVER
from traffic.collectives.point_to_point import PointToPoint
from traffic.job import Collective, Job
from traffic.tables import FLOWS, MESSAGES, SOURCES, Tables

FABRIC = fat_tree_fabric(k=4)
MB, KB, US = 10**6, 10**3, 10**6


def sent(job: Job) -> list[tuple[int, int, int, int]]:
    """Return the flows of a job: source, destination, bytes, and when each starts [us]."""
    found = []
    for node in job.nodes:
        assert isinstance(node, Collective)
        assert isinstance(node.pattern, PointToPoint)
        found += [(*message, round(node.at_s * US)) for message in node.pattern.messages]
    return found


@pytest.mark.parametrize(
    ("pattern", "count", "to", "starts"),
    [
        ("incast_8", 8, {0: 16 * MB}, {0}),
        ("incast_15", 15, {0: 30 * MB}, {0}),
        ("two_incasts", 14, {0: 14 * MB, 8: 14 * MB}, {0}),
        ("elephant_mice", 12, {0: 22_200 * KB}, {*range(0, 600, 50)}),
        ("uniform", 240, dict.fromkeys(range(16), 15 * 125 * KB), {0}),
        ("late_incast", 23, {0: 5_500 * KB, **dict.fromkeys(range(1, 16), 2 * MB)}, {0, 60}),
    ],
)
def test_a_pattern_has_its_flows(
    pattern: PatternName, count: int, to: dict[int, int], starts: set[int]
) -> None:
    job = flows(FABRIC, 3, pattern=pattern)
    found = sent(job)
    received = Counter[int]()
    for _, destination, size, _ in found:
        received[destination] += size
    assert (len(found), received, {start for *_, start in found}) == (count, to, starts)
    assert job.name == pattern.replace("_", " ")
    assert all(source != destination for source, destination, *_ in found)


def test_a_late_incast_is_drawn_by_the_seed_and_no_other_pattern_is() -> None:
    drawn = {name for name in MADE if flows(FABRIC, 0, pattern=name) != flows(FABRIC, 1, pattern=name)}
    assert drawn == {"late_incast"}


def test_mice_have_a_communicator_of_their_own_so_that_no_source_has_two_flows() -> None:
    nodes = [node for node in flows(FABRIC, 0, pattern="elephant_mice").nodes if isinstance(node, Collective)]
    assert len({node.communicator for node in nodes}) == len(nodes) == 12


def rows(columns: dict[str, str], *given: dict[str, object]) -> pd.DataFrame:
    """Return a table of rows that have 0 where nothing is given."""
    return pd.DataFrame([{**dict.fromkeys(columns, 0), **row} for row in given]).astype(columns)


def message(released_us: int, end_us: int) -> dict[str, object]:
    """Return a row of messages; one without an end was given up."""
    end_ps = end_us * US if end_us else NEVER
    given_up = end_ps == NEVER
    return {"released_ps": released_us * US, "end_ps": end_ps, "given_up": given_up, "crosses": True}


def sample(source: int, at_us: float, delivered: int) -> dict[str, object]:
    """Return a row of flows."""
    return {"source": source, "at_ps": int(at_us * US), "delivered_bytes": delivered}


def test_measures_of_an_elephant_and_two_mice() -> None:
    tables = Tables(
        messages=rows(MESSAGES, message(10, 400), message(60, 100), message(110, 170), message(110, 0)),
        sources=rows(
            SOURCES, {"acknowledged": 90, "marked": 27, "resent": 2}, {"acknowledged": 10, "marked": 3}
        ),
        flows=rows(
            FLOWS,
            *(sample(0, at_us, delivered) for at_us, delivered in ((50, 10), (101, 30), (103, 99))),
            *(sample(1, at_us, delivered) for at_us, delivered in ((101, 10), (103, 10))),
            sample(2, 103, 50),
        ),
    )
    assert flow_measures(tables) == {
        "first_s": pytest.approx(90e-6),
        "p99_s": pytest.approx(np.percentile([390e-6, 40e-6, 60e-6], 99)),
        "late_mean_s": pytest.approx(50e-6),
        "jain": pytest.approx(40**2 / (2 * (30**2 + 10**2))),
        "marked_share": pytest.approx(0.3),
        "resent": 2,
    }


def test_a_prediction_has_completions_and_no_packets() -> None:
    found = flow_measures(Tables(messages=rows(MESSAGES, message(0, 100), message(0, 200))))
    assert found == pytest.approx(
        {
            "first_s": 100e-6,
            "p99_s": 199e-6,
            **dict.fromkeys(["late_mean_s", "jain", "marked_share", "resent"], math.nan),
        },
        nan_ok=True,
    )


LATE_US = {"dctcp": 44.0, "nscc": 54.0, "credit": 104.0}
FIRST = {"dctcp": 0.91, "nscc": 0.92, "credit": 1.0}
"""Those of uet-htsim."""
R_US = 12.72
SHORT, LONG = 1.55 * R_US / US, 2.65 * R_US / US
"""How long half of the packets queue there under nscc, and if T is 4 R [s]."""


def measured(
    late_us: dict[str, float],
    first: dict[str, float],
    queue_s: float = SHORT,
    *,
    verdict: str = "faithful",
    scheme: str = "reps",
) -> pd.DataFrame:
    """Return a table of an incast and of mice under each transport, of two seeds."""
    return pd.DataFrame(
        [
            {
                "workload": workload,
                "name": scheme,
                "transport": transport,
                "seed": seed,
                "verdict": verdict,
                "first_over_bound": first[transport],
                "late_mean_s": late_us[transport] / US,
                "queue_p50_s": queue_s,
            }
            for workload in ("incast 8", "elephant mice")
            for transport in late_us
            for seed in (0, 1)
        ]
    )


def rulings(table: pd.DataFrame) -> list[str]:
    """Return the verdict of each claim."""
    return [claim.verdict for claim in congestion_claims(table)]


def test_claims_hold_of_htsims_own_figures() -> None:
    claims = congestion_claims(measured(LATE_US, FIRST))
    assert [(claim.text, claim.verdict, round(claim.measured, 3)) for claim in claims] == [
        ("reps: the first of 8 flows to one NIC ends at 0.92 of the bound under nscc", "holds", 0.92),
        ("reps: the first of 8 flows to one NIC ends at 1.00 of the bound under credit", "holds", 1.0),
        (
            "reps: half of the packets of 8 flows to one NIC queue for 25 us (2 R) or less under nscc",
            "holds",
            19.716,
        ),
        ("reps: mice beside an elephant take longer under nscc than under dctcp", "holds", 1.227),
        ("reps: mice beside an elephant take longer under credit than under nscc", "holds", 1.926),
    ]
    assert all(claim.is_own for claim in claims), "no paper says so"


def test_claims_do_not_hold_where_the_order_or_the_first_is_another() -> None:
    turned = {"dctcp": 54.0, "nscc": 44.0, "credit": 44.5}
    first = {"dctcp": 1.0, "nscc": 0.99, "credit": 0.96}
    assert rulings(measured(turned, first, LONG)) == ["does not hold"] * 5


@pytest.mark.parametrize("word", ["void", "unsound", "model"])
def test_claims_are_ruled_by_what_was_emulated_alone(word: str) -> None:
    assert rulings(measured(LATE_US, FIRST, verdict=word)) == ["not comparable"] * 5


def test_transports_that_were_not_run_and_other_workloads_are_no_claims_that_fail() -> None:
    table = measured(LATE_US, FIRST)
    claims = congestion_claims(table[table["transport"] != "dctcp"])
    assert [(claim.verdict, claim.ran) for claim in claims][3] == ("not comparable", False)
    assert congestion_claims(table.assign(workload="uniform")) == []


def samples(flows: int) -> pd.DataFrame:
    """Return samples of flows that arrive at 12.5 kB/us for 40 us, every other one from 60 us on."""
    return pd.concat(
        pd.DataFrame(
            {
                "flow": flow,
                "name": f"{flow} to 9",
                "is_late": flow % 2 == 1,
                "at_us": at_us + 60.0 * (flow % 2),
                "delivered_kb": 12.5 * at_us,
                "on_the_way_kb": 5.0,
                "window_kb": window_kb,
                "queue_us": 3.0,
            }
        )
        for flow in range(flows)
        for at_us, window_kb in [(np.linspace(0.0, 40.0, 41), math.nan if flows > 2 else 150.0)]
    )


def test_a_plot_has_rate_queue_and_window_of_each_flow() -> None:
    figure = windows_over_time(samples(2), "two")
    drawn = {axes.get_ylabel(): axes.get_lines() for axes in figure.axes}
    assert [len(lines) for lines in drawn.values()] == [2, 2, 2]
    # 40 steps of 2.5 us: the first 16 are full, and the last 16 of the later flow.
    early, late = (np.asarray(line.get_ydata()) for line in drawn["rate [Gbit/s]"])
    assert early == pytest.approx([100.0] * 16 + [0.0] * 24)
    assert late == pytest.approx([0.0] * 24 + [100.0] * 16)
    assert {float(y) for line in drawn["window [kB]"] for y in np.asarray(line.get_ydata())} == {150.0}
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["0 to 9", "1 to 9"]


def test_many_flows_have_two_colours_and_without_a_window_what_is_on_the_way() -> None:
    figure = windows_over_time(samples(20), "many")
    drawn = {axes.get_ylabel(): axes.get_lines() for axes in figure.axes}
    assert {float(y) for line in drawn["on the way [kB]"] for y in np.asarray(line.get_ydata())} == {5.0}
    assert Counter(line.get_color() for line in drawn["rate [Gbit/s]"]) == {EARLY: 10, LATE: 10}
    said = [text.get_text() for text in figure.legends[0].get_texts()]
    assert said == ["flows from the start", "flows that start later"]


def test_the_study_is_predicted_pattern_by_pattern(tmp_path: Path) -> None:
    patterns = "permutation,incast_8,elephant_mice"
    options = "--model-only", "--schemes", "spray", "--plots", "svg", "--out", tmp_path / "out"
    done = command.ran("congestion", *options, "--patterns", patterns, "--transport", "nscc,dctcp")
    assert done.returncode == 0, done.stderr
    table = pd.read_csv(tmp_path / "out" / "summary.csv").set_index("workload")
    assert [*table.index[1:]] == ["incast 8", "elephant mice"]
    assert table["cct_s"].div(table["bound_s"]).between(1.0, 1.5).all()
    assert (table["transport"] == "nscc").all(), "a prediction knows no windows"
    assert "late [us]" in done.stdout
    points = experiments_of(tmp_path / "out" / "run.json")
    assert {link.delay_s for point in points for link in point.fabric.links} == {1e-6}


def test_htsims_starts_are_replayed_in_the_unit_that_is_given(tmp_path: Path) -> None:
    trace = tmp_path / "mouse.cm"
    trace.write_text("Nodes 4\nConnections 2\n1->0 id 1 start 0 size 200000\n2->0 id 2 start 50 size 9000\n")
    options = "--model-only", "--schemes", "spray", "--transport", "nscc", "--plots", "svg", "--trace", trace
    refused = command.ran("congestion", *options, "--out", tmp_path / "none")
    assert refused.returncode == 2
    assert "--start-unit" in refused.stderr
    done = command.ran("congestion", *options, "--start-unit", "us", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    records = pd.read_csv(tmp_path / "out" / "records.csv")
    assert records["start_s"].tolist() == pytest.approx([0.0, 50e-6])
