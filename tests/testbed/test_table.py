"""The terminal's tables: every number, and never a void one without the word."""

import pytest
from rich.console import Console, RenderableType

from scenarios._rails.claims_rails import rails_claims
from testbed.report.table import claims_table, summary_table
from testbed.run.outcome import Outcome, Verdict, summary
from tests.testbed.cases import (
    STRAINED,
    VOID,
    experiment_of,
    outcome_of,
    small_fabric,
    small_outcomes,
    with_verdict,
)
from traffic.workloads.synthetic import uniform


def shown(renderable: RenderableType, width: int = 80) -> str:
    """Return what a terminal of some width would show."""
    console = Console(width=width)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


def words_of(renderable: RenderableType) -> str:
    """Return the same in one line."""
    return " ".join(shown(renderable).split())


def rows_of(outcomes: list[Outcome], width: int = 80) -> list[list[str]]:
    return [line.split() for line in shown(summary_table(summary(outcomes)), width).splitlines()]


def test_a_block_per_workload_closed_by_its_bound() -> None:
    rows = rows_of(small_outcomes(seeds=1))
    assert rows[2:6] == [
        ["uniform"],
        ["ecmp", "faithful", "1.4", "1.4", "1.4", "1.00", "0.000", "0.000", "1.04", "1.04"],
        ["rails", "faithful", "1.27", "1.4", "1.4", "1.00", "0.000", "0.000", "1.04", "1.04"],
        ["bound", "1.34", "1.04", "1.00"],
    ]


def test_a_long_name_of_a_workload_costs_no_column() -> None:
    table = summary(small_outcomes(seeds=2)).replace("uniform", "trace of a long and telling name")
    rows = [line.split() for line in shown(summary_table(table)).splitlines()]
    over_bound = [row[-1] for row in rows if row and row[0] in ("ecmp", "rails")]
    assert over_bound == ["1.04", "1.04", "1.56", "1.04"]


@pytest.mark.parametrize("width", [60, 80, 200])
def test_every_void_row_says_so_however_narrow_the_terminal(width: int) -> None:
    outcomes = with_verdict(small_outcomes(seeds=1), VOID, 1, 2)
    said = [row[1].rstrip("…") for row in rows_of(outcomes, width) if row and row[0] in ("ecmp", "rails")]
    assert said == ["faithful", "void", "void", "faithful"]


def test_what_is_relative_to_a_void_baseline_is_not_shown() -> None:
    rows = rows_of(with_verdict(small_outcomes(seeds=1), VOID, 0))
    assert rows[4][5] == "void"
    assert rows[5] == ["bound", "1.34", "void", "1.00"]


def test_seeds_that_differ_in_their_verdict_are_counted() -> None:
    text = shown(summary_table(summary(with_verdict(small_outcomes(seeds=2), STRAINED, 1))))
    assert "strained 1/2" in text
    assert "Means over 2 seeds" in text


def test_a_missing_baseline_is_named() -> None:
    text = words_of(summary_table(summary(small_outcomes(seeds=1)[1::2])))
    assert "The baseline ecmp was not run for uniform, sparse 0.4: no relative busbw there." in text


def test_predictions_say_model_and_synthetic_workloads_are_named() -> None:
    outcome = outcome_of(experiment_of(small_fabric(), uniform(4), "rails"))
    text = words_of(summary_table(summary([outcome]), baseline="rails"))
    assert "rails model" in text
    assert "model: predicted, no byte crossed an emulated network." in text
    assert "Synthetic workloads: uniform." in text
    traced = summary([outcome]).assign(workload="trace", note="nccl-tests matrix synthetic.txt")
    assert "Synthetic" not in words_of(summary_table(traced, baseline="rails"))


def test_claims_stand_with_their_range_their_number_and_the_reason() -> None:
    outcomes = with_verdict(small_outcomes(seeds=1), VOID, 2)
    lines = [
        " ".join(line.split()) for line in shown(claims_table(rails_claims(summary(outcomes)))).splitlines()
    ]
    at = next(index for index, line in enumerate(lines) if line.startswith("RailS has 1.29x"))
    assert lines[at - 1] == "RailS, VI-B"
    assert lines[at].endswith("1.16 .. 1.42 1.00x no")
    assert "void: ecmp, sparse 0.4, seed 0" in lines


def test_a_point_that_disagrees_is_marked_and_the_caption_says_what_the_mark_means() -> None:
    point = experiment_of(small_fabric(), uniform(4), "rails")
    apart, near = (outcome_of(point, Verdict("faithful"), slower) for slower in (1.3, 1.1))
    text = words_of(summary_table(summary([apart]), baseline="rails"))
    assert "rails faithful" in text
    assert "1.30 !" in text
    assert "!: the model disagrees, outside 0.90 .. 1.15." in text
    assert "!" not in words_of(summary_table(summary([near]), baseline="rails"))
