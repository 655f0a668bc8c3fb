"""The terminal's tables: every number, and never a void one without the word."""

import math
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console, RenderableType
from rich.table import Table

from scenarios._rails.claims_rails import rails_claims
from testbed.report.claims import LIGHTRAIL, Claim, Ruling, arithmetic
from testbed.report.table import ARITHMETIC, block_table, claims_table, held_text, least_width, summary_table
from testbed.trust.outcome import Outcome, Verdict, summary
from testbed.trust.similitude import MEDIAN_PACKETS, PRODUCT, Number
from tests.testbed.cases import (
    STRAINED,
    VOID,
    experiment_of,
    outcome_of,
    slowed,
    small_fabric,
    small_outcomes,
    with_verdict,
)
from tests.testbed.test_report import Page, html_of
from topologies.rail import rail_fabric
from traffic.demand import Demand
from traffic.workloads.synthetic import uniform


def shown(renderable: RenderableType, width: int = 80) -> str:
    """Return what a terminal of some width would show, or of the least in which no number is lost."""
    least = least_width(renderable) if isinstance(renderable, Table) else 0
    console = Console(width=max(width, least))
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


def test_the_free_prediction_stands_beside_the_informed_one_where_they_differ() -> None:
    outcomes = small_outcomes(seeds=1)
    assert "The free prediction is the same" in words_of(summary_table(summary(outcomes)))
    informed = [replace(outcome, free=slowed(outcome.predicted, 0.8)) for outcome in outcomes[:1]]
    rows, text = rows_of(informed + outcomes[1:]), words_of(summary_table(summary(informed)))
    assert rows[3][-4:] == ["1.04", "1.30", "!", "1.04"]
    assert rows[4][-3:] == ["1.04", "1.04", "1.04"]
    assert rows[5] == ["bound", "1.34", "1.04", "1.00"]
    assert "model free bound" in text
    assert "the free one the model's own." in text
    unknown = replace(outcomes[0], emulated=None, verdict=Verdict("model"))
    assert "free" not in words_of(summary_table(summary([unknown])))


def test_how_like_a_real_network_it_is_stands_beside_the_verdict() -> None:
    outcomes = small_outcomes(seeds=1)
    assert rows_of(outcomes)[2] == ["uniform"]
    kept = Number(PRODUCT, 4.0, 4.0, True, "kept"), Number(MEDIAN_PACKETS, 9.0, 9.0, True, "kept")
    alike = [replace(outcome, numbers=kept) for outcome in outcomes[:2]]
    unlike = [replace(each, numbers=(replace(kept[0], kept=False),)) for each in outcomes[2:]]
    text = words_of(summary_table(summary([*alike, *unlike])))
    assert "uniform alike ecmp faithful" in text
    assert "sparse 0.4 unlike ecmp faithful" in text
    assert "Warning: under 16 packets a message, median of uniform (9); give more --volume." in text
    assert "ecmp faithful, alike" in Page(html_of([*alike, *unlike])).text


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


def test_what_stays_inside_servers_has_no_times_of_messages_and_no_load() -> None:
    one = rail_fabric(1, 2, 2)
    rows = rows_of([outcome_of(experiment_of(one, uniform(2), scheme)) for scheme in ("ecmp", "rails")])
    for scheme, mean, p99, last, busbw, *loads in (row[:1] + row[2:] for row in rows[3:5]):
        assert (mean, p99, busbw, loads) == ("-", "-", "1.00", ["-"] * 4), scheme
        assert float(last) > 0


def test_a_demand_without_bytes_does_not_blame_the_baseline() -> None:
    nothing = Demand("nothing", np.zeros((4, 4), dtype=np.int64))
    text = words_of(summary_table(summary([outcome_of(experiment_of(small_fabric(), nothing, "ecmp"))])))
    assert "No busbw for nothing: no GPU has bytes for another." in text
    assert "The baseline" not in text


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


LONG = "own_schemes.of_a_long_name:spread_over_all_rails_in_turn"


@pytest.mark.parametrize("width", [40, 60, 80])
def test_every_number_is_whole_however_narrow_it_is_and_long_schemes_wrap(width: int) -> None:
    table = summary(small_outcomes(seeds=2)).replace("rails", LONG)
    shown_table = summary_table(table)
    narrow = shown(shown_table, width)
    wide = shown(shown_table, 300)
    assert LONG in wide
    assert LONG not in narrow
    assert "…" not in narrow
    numbers = [[word for word in text.split() if word[0].isdigit()] for text in (narrow, wide)]
    assert numbers[0] == numbers[1]
    assert max(map(len, narrow.splitlines())) <= max(width, least_width(shown_table))


def test_a_scheme_is_shown_as_it_is_called() -> None:
    assert "[bold]mine" in shown(
        summary_table(summary(small_outcomes(seeds=1)).replace("rails", "[bold]mine"))
    )


def test_a_table_of_words_needs_little_room() -> None:
    table = block_table("")
    table.add_column("a long header of many words")
    table.add_column("number", no_wrap=True)
    table.add_row("a word, and anotherthatisverylong", "1.02 ±3%")
    assert least_width(table) == 12 + 1 + len("1.02 ±3%")


def test_what_is_not_comparable_is_marked_whatever_was_measured() -> None:
    claims = [
        Claim("takes as long", "A", (0.9, 1.1), 1.0, "holds"),
        Claim("takes longer", "A", (1.1, 2.0), 1.0, "does not hold", "no difference"),
        Claim("takes 70 us", "A", (0.9, 1.1), 1.0, "not comparable", "it is what is emulated"),
        Claim("is void", "A", (0.9, 1.1), reason="void: ecmp"),
    ]
    rows = [line.split() for line in shown(claims_table(claims)).splitlines()]
    lines = [" ".join(words) for words in rows]
    assert "takes as long 0.90 .. 1.10 1.00x" in lines
    assert "takes longer 1.10 .. 2.00 1.00x no" in lines
    assert "takes 70 us 0.90 .. 1.10 1.00x -" in lines
    assert "is void 0.90 .. 1.10 -" in lines
    assert "no: does not hold. -: not comparable." in lines


def test_arithmetic_is_shown_and_never_counted() -> None:
    held = Claim("takes as long", "A", (0.9, 1.1), 1.0, "holds")
    sums = arithmetic("a tenth of 5", "A", (0.5, 0.5), 0.5, "5 / 10", "{:.1f}")
    wrong = arithmetic("a tenth of 5 is 0.6", "A", (0.6, 0.6), 0.5, "5 / 10", "{:.1f}")
    assert (sums.verdict, wrong.verdict) == ("arithmetic", "does not hold")
    text = words_of(claims_table([held, sums]))
    assert "a tenth of 5 0.50 .. 0.50 0.5 = 5 / 10" in text
    assert f"=: {ARITHMETIC}." in text
    assert held_text([held, sums]) == "holds: 1 of 1; arithmetic: 1"
    assert held_text([held, wrong]) == "holds: 1 of 2"
    assert held_text([sums]) == "arithmetic: 1"
    over = [replace(claim, transport=name) for claim in (held, sums) for name in ("tcp", "credit")]
    assert held_text(over) == "holds: tcp 1 of 1, credit 1; under both: 1; arithmetic: 1"


def test_lightrails_own_claims_stand_apart_and_are_counted_apart() -> None:
    papers = [Claim("is fast", "A", (0.9, 1.1), 1.0, "holds"), Claim("is best", "A", (2.0, 3.0), math.nan)]
    rulings: tuple[Ruling, ...] = ("holds", "holds", "does not hold")
    ours = [
        Claim(f"arrives {number}", f"{LIGHTRAIL}, A", (0.9, 1.1), 1.0, verdict)
        for number, verdict in enumerate(rulings)
    ]
    assert held_text(papers) == "holds: 1 of 2; not comparable: 1"
    assert held_text([*ours, *papers]) == f"{held_text(papers)}; lightrail's own hold: 2 of 3"
    assert held_text(ours) == "lightrail's own hold: 2 of 3"
    text = words_of(claims_table([ours[0], *papers, *ours[1:]]))
    assert text.index("is best") < text.index("arrives 0") < text.index("arrives 2")


def test_claims_about_what_was_not_run_are_not_counted() -> None:
    table = summary(small_outcomes(seeds=1))
    some = held_text(rails_claims(table))
    assert some.endswith(f"; not run: {sum(not claim.ran for claim in rails_claims(table))}")
    assert held_text(rails_claims(table[table["scheme"] == "rails"])).startswith("not run: ")
    holding = [claim for claim in rails_claims(table) if claim.ran]
    assert held_text(holding) == some.partition(";")[0]
