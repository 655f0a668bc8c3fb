"""A run under several transports: each is shown as if there were no other, and beside the others."""

import math
import re
from dataclasses import replace

import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from scenarios._rails.claims_rails import rails_claims
from testbed.report.claims import side_by_side, under_each_transport
from testbed.report.claims_repeat import repeat_claims
from testbed.report.figures import figures
from testbed.report.heat_maps import nic_heat_map, uplink_heat_map
from testbed.report.means import Point, beside_circuits, circuit_points, points
from testbed.report.node_report import node_sheet
from testbed.report.palette import colours
from testbed.report.plots import cct_over_transports
from testbed.report.table import block_rows, claims_table, held_text, summary_table
from testbed.trust.outcome import Outcome, summary
from tests.testbed.cases import VOID, bars_of, small_outcomes, under_credit_and_tcp, with_verdict
from tests.testbed.test_table import shown

OUTCOMES = under_credit_and_tcp()
TABLE = summary(OUTCOMES)
BOTH = ("credit", "tcp")
PAPERS = ("uniform", "sparse 0.4")


def alone(transport: str) -> pd.DataFrame:
    """Return the rows of one transport."""
    return TABLE[TABLE["transport"] == transport]


def of(transport: str, rows: list[Point]) -> list[str]:
    """Return the points of a transport as text: NaN does not equal itself."""
    return [str(point) for point in rows if point.transport == transport]


def title_of(figure: Figure) -> str:
    """Return a figure's title."""
    return max(
        (t.get_text() for t in figure.findobj(Text) if isinstance(t, Text)), key=lambda t: "(over" in t
    )


@pytest.mark.parametrize("transport", BOTH)
def test_the_means_of_a_transport_are_those_of_its_rows_alone(transport: str) -> None:
    assert of(transport, points(TABLE)) == [str(point) for point in points(alone(transport))]
    assert len(of(transport, points(TABLE))) == 4


def test_a_void_baseline_under_one_transport_leaves_the_other_s_ratios() -> None:
    number = next(i for i, o in enumerate(OUTCOMES) if o.experiment.transport_name == "tcp")
    spoiled = points(summary(with_verdict(OUTCOMES, VOID, number)))
    assert of("credit", spoiled) == of("credit", points(TABLE))
    assert of("tcp", spoiled) != of("tcp", points(TABLE))


@pytest.mark.parametrize("transport", BOTH)
def test_the_rows_of_a_transport_are_those_of_its_table_alone(transport: str) -> None:
    for workload in PAPERS:
        mine = [point for point in points(TABLE) if point.workload == workload]
        names, mixed = "", []
        for (name, under, *numbers), _ in block_rows(mine, 1e-3, ["transport"]):
            names = name or names
            mixed += [[names, *numbers]] if under in (transport, "") else []
        single = [point for point in points(alone(transport)) if point.workload == workload]
        assert mixed == [cells for cells, _ in block_rows(single, 1e-3, [])]


def test_a_table_says_each_row_s_transport_or_that_of_all_in_80_columns() -> None:
    lines = shown(summary_table(TABLE)).splitlines()
    said = [line.split()[:2] for line in lines if "faithful" in line]
    assert said == [["ecmp", "credit"], ["tcp", "faithful"], ["rails", "credit"], ["tcp", "faithful"]] * 2
    assert max(map(len, lines)) <= 80
    assert "…" not in shown(summary_table(TABLE))
    one = " ".join(shown(summary_table(alone("tcp"))).split())
    assert "Transport: tcp." in one
    assert "ecmp faithful" in one


@pytest.mark.parametrize("transport", BOTH)
def test_the_claims_of_a_transport_are_those_of_its_rows_alone(transport: str) -> None:
    judged = [claim for claim in under_each_transport(rails_claims, TABLE) if claim.transport == transport]
    expected = [str(replace(claim, transport=transport)) for claim in rails_claims(alone(transport))]
    assert list(map(str, judged)) == expected
    assert len(expected) == 14


def test_claims_stand_side_by_side_one_line_where_they_hold() -> None:
    claims = under_each_transport(rails_claims, TABLE)
    for row in side_by_side(claims):
        assert list(row) == list(BOTH)
        assert len({(claim.source, claim.text, claim.expected) for claim in row.values()}) == 1
    lines = [line.rstrip() for line in shown(claims_table(claims)).splitlines()]
    assert lines[0].split() == ["claim", "expected", *BOTH]
    assert any(
        re.match(r"RailS has 1\.29x the busbw of ECMP +1\.16 \.\. 1\.42 1\.00x no +1\.25x$", x) for x in lines
    )
    assert "  credit: no difference" in lines
    held = [row for row in side_by_side(claims) if {claim.verdict for claim in row.values()} == {"holds"}]
    for row in held:
        at = next(i for i, line in enumerate(lines) if line.startswith(row["tcp"].text))
        assert not lines[at + 1].startswith("  ")
    assert lines[-1] == held_text(claims)
    assert f"; under both: {len(held)}; not run: " in lines[-1]


def test_every_claim_of_railS_is_one_line_of_80_columns_under_three_transports() -> None:
    everything = [*PAPERS, "sparse 0.6", "sparse 0.2", "sparse 0", "sender skew", "receiver skew"]
    everything += [f"mixtral {how} {phase}" for how in ("dense", "sparse") for phase in ("start", "mid")]
    row = TABLE.iloc[0].to_dict()
    table = pd.DataFrame(
        [row | {"workload": name, "transport": t} for name in everything for t in ("credit", "tcp", "ideal")]
    )
    claims = under_each_transport(rails_claims, table)
    holding = [replace(claim, measured=1.0, verdict="holds") for claim in claims]
    lines = shown(claims_table(holding)).splitlines()
    headings = {claim.source for claim in claims}
    assert len(lines) == 1 + len(headings) + len(side_by_side(claims)) + 2
    assert "by construction" in " ".join(headings)


def test_what_was_made_to_hold_says_so() -> None:
    skewed = TABLE.assign(workload=["sender skew", "receiver skew"] * (len(TABLE) // 2), mse_sent=0.15)
    claims = [*rails_claims(skewed.assign(name="plb")), *rails_claims(skewed)]
    made = {claim.source for claim in claims if "0.15" in claim.text}
    assert made == {"RailS, VI-D, by construction (SKEW_ZIPF)", "RailS, VI-E, by construction (SKEW_ZIPF)"}
    assert all("0.15" in claim.text for claim in claims if claim.source in made)


def test_a_run_again_is_held_against_the_same_transport() -> None:
    again = under_each_transport(lambda rows: repeat_claims(rows, TABLE, "before"), TABLE)
    assert len(again) == 8
    assert {(claim.verdict, claim.measured) for claim in again} == {("holds", 1.0)}
    slower = TABLE.assign(cct_s=TABLE["cct_s"] * (1 + (TABLE["transport"] == "tcp")))
    found = under_each_transport(lambda rows: repeat_claims(rows, TABLE, "before"), slower)
    assert {(claim.transport, claim.verdict) for claim in found} == {
        ("credit", "holds"),
        ("tcp", "does not hold"),
    }
    unknown = repeat_claims(alone("tcp"), alone("credit"), "before")
    assert {claim.verdict for claim in unknown} == {"not comparable"}


def test_every_figure_names_its_transport_and_is_drawn_of_its_rows() -> None:
    plots = figures(OUTCOMES, TABLE)
    assert plots[0].name == "cct_over_transports"
    assert [label.get_text() for label in plots[0].draw().axes[0].get_xticklabels()] == list(BOTH)
    assert {plot.name.rpartition("_")[2] for plot in plots[1:]} == set(BOTH)
    for plot in plots[1:]:
        transport = plot.name.rpartition("_")[2]
        assert title_of(plot.draw()).endswith(f"(over {transport})")
        assert plot.caption.startswith(f"Over {transport}. ")
    single = figures(small_outcomes(), summary(small_outcomes()))
    assert [f"{plot.name}_{name}" for name in BOTH for plot in single] == [plot.name for plot in plots[1:]]
    assert all(title_of(plot.draw()).endswith("(over credit)") for plot in single)


def test_the_comparison_has_a_group_of_bars_per_transport() -> None:
    for axes, workload in zip(cct_over_transports(TABLE, colours(TABLE["name"])).axes, PAPERS, strict=True):
        assert [label.get_text() for label in axes.get_xticklabels()] == list(BOTH)
        for scheme in ("ecmp", "rails"):
            drawn = [bar.get_height() for bar in bars_of(axes)[f"{workload}|{scheme}"]]
            mine = [p for p in points(TABLE) if (p.workload, p.scheme) == (workload, scheme)]
            assert drawn == [point["over_bound"].value for point in mine]


def test_maps_fit_their_titles() -> None:
    mine = [o for o in OUTCOMES if o.experiment.transport_name == "tcp"][:1]
    for draw in (nic_heat_map, uplink_heat_map):
        figure = draw(mine, "uniform")
        assert len(title_of(figure)) * 0.09 < figure.get_figwidth()


def test_a_job_has_a_block_for_each_transport() -> None:
    def titles(outcomes: list[Outcome]) -> list[str]:
        return [block.title for block in node_sheet(outcomes).blocks if block.title]

    assert titles([o for o in OUTCOMES if o.experiment.scheme == "rails"][:2]) == ["over credit", "over tcp"]
    assert titles(OUTCOMES[1:3]) == ["uniform, ecmp over tcp", "uniform, rails over credit"]
    assert titles(OUTCOMES[:1]) == []
    assert "Transport: tcp." in node_sheet(_under("tcp")[:1]).caption


def _under(transport: str) -> list[Outcome]:
    return [outcome for outcome in OUTCOMES if outcome.experiment.transport_name == transport]


@pytest.mark.parametrize(
    ("circuits", "switches", "against"),
    [
        ("datagrams", ["ideal"], "ideal"),
        ("datagrams", ["credit", "tcp"], "credit"),
        ("datagrams, tcp", ["credit", "tcp"], "tcp"),
        ("datagrams, tcp", ["credit"], "credit"),
    ],
)
def test_circuits_are_compared_with_the_big_switch_of_the_transport_beside_them_or_the_first(
    circuits: str, switches: list[str], against: str
) -> None:
    row = TABLE.iloc[0].to_dict()
    speeds = {"ideal": 2.0, "credit": 4.0, "tcp": 8.0}
    table = pd.DataFrame(
        [
            row | {"name": "spectra", "transport": circuits, "busbw_gbytes_s": 1.0},
            *(row | {"name": "big switch", "transport": t, "busbw_gbytes_s": speeds[t]} for t in switches),
        ]
    )
    spectra, *_ = circuit_points(table)
    assert spectra["busbw_relative"].value == 1 / speeds[against]
    assert beside_circuits(circuits) in ("", *switches, "tcp")


def test_packets_are_never_compared_with_another_transport_s_baseline() -> None:
    table = pd.concat([alone("credit"), alone("tcp")[alone("tcp")["name"] == "rails"]])
    lacking = [point for point in points(table) if point.transport == "tcp"]
    assert all(math.isnan(point["busbw_relative"].value) for point in lacking)
