"""Earliest deadline first against the condition on all intervals, which it is equal to."""

from collections.abc import Callable

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from testbed.audit.capacity import first_missed

RATE_BPS = 8e3
"""A thousand bytes a second, so that the byte of tolerance decides nothing below."""
Row = tuple[int, int, int]
"""When it is released and how much later it is due [s], and its size [1,000 bytes]."""
jobs = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 20), st.integers(1, 9)), min_size=1, max_size=12)


def missed(rows: list[Row], *rates: tuple[int, float], lent: float = 0.0) -> int | None:
    """Return which row is missed over a link that has another rate from some times on."""
    release, lasts, size = np.array(rows, dtype=np.int64).T
    at_s, bps = np.array([(0, RATE_BPS), *rates]).T
    until_s = np.append(at_s, 1e3)
    carried = np.append(0, np.cumsum(np.diff(until_s) * bps / 8))
    begins, ends = (np.interp(times_s, until_s, carried) for times_s in (release, release + lasts))
    return first_missed(begins, ends + lent * 1e3, size * 1e3)


def fits(rows: list[Row], room: Callable[[int, int], float]) -> bool:
    """Return whether every interval has room for what has to be done within it."""
    begins, ends = {release for release, *_ in rows}, {release + lasts for release, lasts, _ in rows}
    return all(
        sum(size for release, lasts, size in rows if a <= release and release + lasts <= b) <= room(a, b)
        for a in begins
        for b in ends
        if a < b
    )


@given(jobs, st.integers(0, 4))
def test_what_is_missed_has_no_room_in_some_interval(rows: list[Row], lent: int) -> None:
    assert (missed(rows, lent=lent) is None) == fits(rows, lambda a, b: b - a + lent)


@given(jobs, st.integers(0, 25), st.integers(0, 10), st.integers(0, 3))
def test_a_link_that_is_dark_carries_what_is_lent_alone(
    rows: list[Row], at: int, lasts: int, lent: int
) -> None:
    def lit(a: int, b: int) -> int:
        return b - a - max(min(b, at + lasts) - max(a, at), 0) + lent

    assert (missed(rows, (at, 0.0), (at + lasts, RATE_BPS), lent=lent) is None) == fits(rows, lit)


def test_two_messages_at_the_rate_of_one_are_missed() -> None:
    assert missed([(0, 5, 5), (0, 5, 5)]) in (0, 1)
    assert missed([(0, 10, 5), (0, 5, 5)]) is None


def test_what_has_no_time_at_all_is_missed() -> None:
    at = np.zeros(1)
    assert first_missed(at, at, np.array([1e6])) is not None
