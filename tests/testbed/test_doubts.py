"""Doubts: each reason that a point is not faithful once, with what to do, in a replay and below a table."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.report.doubts import doubts
from testbed.report.results import ResultsDirectory
from testbed.study.results_table import results_table
from testbed.trust.outcome import Verdict
from tests.testbed.cases import STRAINED, VOID, small_outcomes, with_verdict
from tests.testbed.test_results import RUN

WAITED = "something waited for a CPU {}% of the time"
ADVICE = "lower --emulated-rate"
verdicts = st.builds(
    Verdict,
    st.sampled_from(["void", "strained"]),
    st.lists(st.sampled_from(["a port failed", "the engine was late", "unknown: drops"]), unique=True).map(
        tuple
    ),
    st.sampled_from([ADVICE, "repeat it"]),
)


def test_a_reason_stands_once_with_how_many_points_have_it_and_the_worst_word_first() -> None:
    void = [
        Verdict("void", (WAITED.format(share), "leaf0:1 is not shaped"), ADVICE) for share in (85, 100, 92)
    ]
    other = Verdict("void", ("leaf0:2 is not shaped",), ADVICE)
    assert doubts([STRAINED, Verdict("faithful"), *void, other]) == [
        "void: something waited for a CPU 100% of the time (3 of 6 points, figures up to this)",
        "void: leaf0:1 is not shaped (3 of 6 points)",
        "void: leaf0:2 is not shaped (1 of 6 points)",
        f"void: {ADVICE}",
        f"strained: {STRAINED.reasons[0]} (1 of 6 points)",
        f"strained: {STRAINED.advice}",
    ]


def test_of_one_point_nothing_is_counted_and_of_predictions_nothing_is_said() -> None:
    assert doubts([VOID]) == [f"void: {VOID.reasons[0]}", f"void: {VOID.advice}"]
    assert doubts([Verdict("model")] * 3) == []
    assert doubts([Verdict("model", ("no byte crossed the network",))]) == [
        "model: no byte crossed the network"
    ]


@given(st.lists(verdicts, min_size=2))
def test_every_reason_and_every_advice_is_there_and_none_twice(mine: list[Verdict]) -> None:
    lines = doubts(mine)
    assert len(lines) == len(set(lines))
    reasons = {f"{each.word}: {reason}" for each in mine for reason in each.reasons}
    advice = {f"{each.word}: {each.advice}" for each in mine}
    assert {line.partition(" (")[0] for line in lines} == reasons | advice
    for line in lines:
        said, _, count = line.partition(" (")
        having = sum(said.partition(": ")[2] in each.reasons and said.startswith(each.word) for each in mine)
        assert count == (f"{having} of {len(mine)} points)" if having else "")


@pytest.mark.parametrize("verdict", [VOID, STRAINED])
def test_below_the_printed_table_stands_why_points_are_not_faithful(tmp_path: Path, verdict: Verdict) -> None:
    with ResultsDirectory(RUN, root=tmp_path) as results:
        for outcome in with_verdict(small_outcomes(seeds=1), verdict, 1):
            results.add(outcome)
    lines = str(results_table(results).caption).splitlines()[1:]
    assert lines == doubts([each.verdict for each in results.outcomes])
    assert lines == [
        f"{verdict.word}: {verdict.reasons[0]} (1 of 4 points)",
        f"{verdict.word}: {verdict.advice}",
    ]
