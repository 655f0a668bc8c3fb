"""Two event logs compared: what is the same, what is physics, and the first place where they part."""

import pytest

from testbed.core.event_log import FORMAT
from testbed.trust.event_diff import EventDiff, Parting, diff_lines, event_diff, log_of
from topologies.errors import ScenarioError

A = (
    "0.000  began  job",
    "1.000  ready  node a",
    "1.000    start  op a/0 0>1  over 0.0>1.0#0  (10 bytes)",
    "1.000    start  op a/1 1>0  over 1.0>0.0#0  (10 bytes)",
    "50.000  arrived  op a/0 0>1  over 0.0>1.0#0",
    "60.000  ended  op a/0 0>1",
    "100.000  ended  op a/1 1>0",
    "100.000    ended  node a",
)


def diff(*b: str, a: tuple[str, ...] = A, share: float = 0.0, least_us: float = 0.0) -> EventDiff:
    """Return how the logs of some lines differ."""
    logs = (
        log_of(name, "\n".join((FORMAT, "# of a test", *lines, ""))) for name, lines in (("A", a), ("B", b))
    )
    return event_diff(*logs, share=share, least_us=least_us)


def changed(before: str, after: str) -> tuple[str, ...]:
    """Return the lines of A with another text in them."""
    assert any(before in line for line in A)
    return tuple(line.replace(before, after) for line in A)


def partings(found: EventDiff) -> tuple[list[str], list[str]]:
    """Return the things that part by decisions, and those by times."""
    return [each.of for each in found.decisions], [each.of for each in found.times]


@pytest.mark.parametrize(
    "b",
    [
        A,
        (*A[:3], A[4], A[3], *A[5:]),  # of other things
        A[:4] + A[5:],
        (
            *A[:4],
            *(f"2.000  {what}  op a/0 0>1  over x" for what in ("to place", "lead", "stand", "go on")),
            *A[4:],
        ),
        changed("(10 bytes)", "(11 bytes)"),
        changed("1.000    start", "1.000      start"),
        (*A, "", "# a comment"),
    ],
)
def test_order_among_things_amounts_and_what_arrives_in_part_are_not_compared(b: tuple[str, ...]) -> None:
    found = diff(*b)
    assert found.agrees
    assert list(diff_lines(found))[2:] == [
        "2 of 2 operations, 1 of 1 nodes, 1 of 1 jobs agree",
        "the logs agree, within 0.000 us",
    ]


def test_another_lane_a_missing_event_and_another_order_are_decisions() -> None:
    assert partings(diff(*changed("over 1.0>0.0#0", "over 1.1>0.1#0"))) == (["op a/1 1>0"], [])
    assert partings(diff(*A[:-2], A[-1])) == (["op a/1 1>0"], [])
    assert partings(diff(*A[:1], *A[2:])) == (["node a"], [])
    assert partings(diff(*A[:5], A[6], A[5], "100.000  lost  op a/0 0>1", A[7])) == (["op a/0 0>1"], [])


@pytest.mark.parametrize(
    ("share", "least_us", "agrees"),
    [(0.0, 0.0, False), (0.04, 0.0, True), (0.03, 0.0, False), (0.0, 4.0, True), (0.0, 3.9, False)],
)
def test_times_may_differ_by_a_share_of_the_longer_run_or_a_time(
    share: float, least_us: float, agrees: bool
) -> None:
    found = diff(*changed("60.000", "64.000"), share=share, least_us=least_us)
    assert found.agrees is agrees
    assert partings(found) == ([], [] if agrees else ["op a/0 0>1"])
    assert found.furthest is not None
    assert found.furthest.a is not None
    assert found.furthest.a.what == "ended"


def test_the_longer_run_decides_what_a_share_is_of() -> None:
    longer = [*changed("60.000", "63.000"), "200.000  ready  node b"]
    assert partings(diff(*longer, share=0.016)) == (["node b"], [])
    assert partings(diff(*A, a=tuple(longer), share=0.016)) == (["node b"], [])


def test_the_earlier_of_the_first_decision_and_the_first_time_is_shown_first() -> None:
    for decided, timed, first in ((1, 6, "decision"), (6, 2, "event")):
        b = list(A)
        b[decided] = b[decided].replace("  node a", "  node x").replace("op a/1", "op x")
        b[timed] = b[timed].replace("100.000", "200.000").replace("1.000", "60.000")
        shown = [line for line in diff_lines(diff(*b)) if line.startswith("the first")]
        assert [line.split()[2] for line in shown] == sorted(["decision", "event"], key=lambda w: w != first)


def test_the_earliest_place_comes_first_and_a_thing_counts_once() -> None:
    b = [line.replace("100.000", "300.000") for line in changed("60.000", "160.000")]
    b[1] = b[1].replace("1.000", "2.000")  # of node a, which ends later too
    found = diff(*b[:2], b[2].replace("#0", "#1"), *b[3:])
    assert partings(found) == (["op a/0 0>1"], ["node a", "op a/1 1>0"])
    assert found.decisions[0].at_us == 1.0
    # after a decision that differs times are of different things
    assert all(each.of != "op a/0 0>1" for each in found.times)


def test_it_shows_the_lines_of_both_logs_around_the_first_place() -> None:
    found = diff(*changed("over 1.0>0.0#0", "over 1.1>0.1#0")[:-1])
    assert list(diff_lines(found)) == [
        "A: A (of a test), 7 events in 100.000 us",
        "B: B (of a test), 6 events in 100.000 us",
        "1 of 2 operations, 0 of 1 nodes, 1 of 1 jobs agree",
        "",
        "the first decision that differs: op a/1 1>0",
        "  A: start over 1.0>0.0#0 at 1.000 us",
        "          3  0.000  began  job",
        "          4  1.000  ready  node a",
        "          5  1.000    start  op a/0 0>1  over 0.0>1.0#0  (10 bytes)",
        "  >       6  1.000    start  op a/1 1>0  over 1.0>0.0#0  (10 bytes)",
        "          7  50.000  arrived  op a/0 0>1  over 0.0>1.0#0",
        "          8  60.000  ended  op a/0 0>1",
        "          9  100.000  ended  op a/1 1>0",
        "  B: start over 1.1>0.1#0 at 1.000 us",
        "          3  0.000  began  job",
        "          4  1.000  ready  node a",
        "          5  1.000    start  op a/0 0>1  over 0.0>1.0#0  (10 bytes)",
        "  >       6  1.000    start  op a/1 1>0  over 1.1>0.1#0  (10 bytes)",
        "          7  50.000  arrived  op a/0 0>1  over 0.0>1.0#0",
        "          8  60.000  ended  op a/0 0>1",
        "          9  100.000  ended  op a/1 1>0",
    ]


def test_where_a_log_has_no_more_the_lines_of_that_time_are_shown() -> None:
    found = diff(*A[:5])
    assert found.decisions[0] == Parting("op a/0 0>1", found.decisions[0].a, None)
    lines = list(diff_lines(found))
    assert "  B: nothing more" in lines
    assert lines[-1] == "          7  50.000  arrived  op a/0 0>1  over 0.0>1.0#0"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "does not begin with"),
        ("workload,scheme\n", "does not begin with"),
        (f"{FORMAT}\nbegan  job\n", "line 2, is not an event"),
        (f"{FORMAT}\n\n1.000  began\n", "line 3, is not an event"),
        (f"{FORMAT}\n1.0  began  job\n", "line 2, is not an event"),
        (f"{FORMAT}\nnan  began  job\n", "line 2, is not an event"),
        (f"{FORMAT}\n1.000  began  jo", "ends within line 2"),
        (FORMAT, "ends within line 1"),
        ("# lightrail event log, format 2\n", "format 2, which this version of lightrail does not read"),
    ],
)
def test_what_is_no_log_is_a_sentence(text: str, said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        log_of("x", text)


def test_a_comparison_names_the_runs_and_shows_nothing_that_a_terminal_obeys() -> None:
    text = f"{FORMAT}\n# \x1b[31mrails\n1.000  began  job\x1b[31m\n"
    lines = list(diff_lines(event_diff(log_of("a\nb", text), log_of("c", text))))
    assert lines[0] == r"A: a\nb (\x1b[31mrails), 1 events in 1.000 us"
    assert all(map(str.isprintable, lines))


def test_two_logs_without_events_agree() -> None:
    assert diff(a=()).agrees
    assert list(diff_lines(diff(a=())))[2] == "nothing, as nothing happened, agree"
