"""What is unsound has no numbers: not in a summary, not in a mean, not in a claim, and it says why."""

import math
from dataclasses import replace

import pandas as pd

from scenarios._rails.claims_rails import rails_claims
from testbed.audit.finding import Audit, Finding
from testbed.core.run import Run
from testbed.report.collective_report import VERDICTS
from testbed.report.means import WORDS, points
from testbed.report.palette import colours
from testbed.report.plots import busbw_bars, cct_percentiles
from testbed.report.table import STYLES, caption
from testbed.trust.control import Control
from testbed.trust.fidelity import WORST_LAST, with_control
from testbed.trust.outcome import MEASURED, Outcome, Verdict, summary
from tests.testbed.cases import bars_of, small_outcomes

FOUND = Finding("capacity", "h0:0 cannot have carried 9 bytes of 'a2a' from 0 s to 1 s", "legs", 3)
"""What an audit finds."""


def unsound(run: Run) -> Run:
    return replace(run, audit=Audit((FOUND,)))


def outcomes_with(*at: int, predicted: bool = False) -> list[Outcome]:
    """Return small outcomes; those at some places have a run that cannot be."""
    outcomes = small_outcomes()
    for index in at:
        each = outcomes[index]
        assert each.emulated
        outcomes[index] = (
            replace(each, predicted=unsound(each.predicted))
            if predicted
            else replace(each, emulated=unsound(each.emulated))
        )
    return outcomes


def test_the_verdict_is_unsound_and_its_reason_has_the_row_that_proves_it() -> None:
    (outcome, *_) = outcomes_with(0)
    assert outcome.verdict.word == "unsound"
    assert outcome.verdict.reasons[0] == f"emulated: {FOUND.sentence} (capacity: row 3 of legs)"
    (predicted, *_) = outcomes_with(0, predicted=True)
    assert predicted.verdict.reasons[0].startswith("predicted: ")


def test_a_model_run_is_unsound_too_and_no_control_changes_that() -> None:
    outcome = replace(small_outcomes()[0], emulated=None, verdict=Verdict("model"))
    assert outcome.verdict.word == "model"
    assert replace(outcome, predicted=unsound(outcome.predicted)).verdict.word == "unsound"
    (emulated, *_) = outcomes_with(0)
    assert with_control(emulated, Control(1e9, 4, 0.0, 0.0)).verdict.word == "unsound"
    assert WORST_LAST[-1] == WORDS[-1] == "unsound"
    assert "unsound" in STYLES
    assert "unsound" in dict(VERDICTS)


def test_its_row_has_no_numbers_and_the_others_have_theirs() -> None:
    table = summary(outcomes_with(0))
    assert table.loc[0, list(MEASURED)].isna().all()
    assert table.loc[1:, "cct_s"].notna().all()
    assert FOUND.sentence in str(table.loc[0, "reasons"])
    (outcome, *_) = outcomes_with(0)
    assert math.isnan(outcome.cct_s)
    assert math.isnan(outcome.over_predicted)


def test_a_row_says_how_much_was_audited() -> None:
    outcome = replace(small_outcomes()[0], emulated=None, verdict=Verdict("model"))
    partly = replace(outcome.predicted, audit=Audit((), ("sent",), 0.02))
    table = summary([outcome, replace(outcome, predicted=partly)])
    assert table["audited"].tolist() == [
        "all",
        "of sent only that every byte arrived; 2.0% of the nodes row by row",
    ]


def test_it_is_in_no_mean_and_alone_it_has_none() -> None:
    outcomes = outcomes_with(0)
    table = summary(outcomes)
    about = outcomes[0].experiment
    (point,) = (p for p in points(table) if (p.workload, p.scheme) == (about.job.name, about.scheme_name))
    seeds = table[(table["workload"] == point.workload) & (table["scheme"] == point.scheme)]["cct_s"]
    assert point["cct_s"].value == seeds.dropna().mean()
    assert (point.word, point.void) == ("unsound", False)
    alone = points(table.loc[[0]])[0]
    assert math.isnan(alone["cct_s"].value)
    assert alone.void
    assert "unsound: its tables" in caption([alone], "ecmp")


def test_no_claim_about_it_holds() -> None:
    columns = ("cct_s", "cct_mean_s", "cct_p80_s", "cct_p95_s", "cct_p99_s")
    rows = [
        {"workload": "uniform", "name": scheme, "transport": "credit", "seed": seed, "verdict": "faithful"}
        | {"busbw_gbytes_s": 1 / seconds, "bound_s": 1.0, **dict.fromkeys(columns, seconds)}
        for scheme, seconds in (("ecmp", 1.29), ("rails", 1.0))
        for seed in (0, 1)
    ]
    table = pd.DataFrame(rows)
    (sound,) = (claim for claim in rails_claims(table) if "RailS has 1.29x" in claim.text)
    table.loc[0, "verdict"] = "unsound"
    (claim,) = (claim for claim in rails_claims(table) if "RailS has 1.29x" in claim.text)
    assert sound.verdict == "holds"
    assert (claim.verdict, claim.reason) == ("not comparable", "unsound: ecmp, uniform, seed 0")


def test_plots_draw_no_bar_of_it_and_say_so() -> None:
    outcomes = outcomes_with(*range(len(small_outcomes())))
    table = summary(outcomes)
    for figure in (
        busbw_bars(table, colours(table["name"])),
        cct_percentiles(outcomes, table, colours(table["name"])),
    ):
        assert not any(bars_of(axes) for axes in figure.axes)
        assert any("unsound" in text.get_text() for axes in figure.axes for text in axes.texts)
