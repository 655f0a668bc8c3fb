"""Percentages that InfiniteHBD's paper prints: how one is written, and which are held to be the same."""

from testbed.report.claims import Range

PERCENT, POINTS = "{:.2f} %", "{:.2f} points"


def around_percent(value: float) -> Range:
    """Return the range within 10 % of a printed percentage, which has no side of 1 to keep."""
    return 0.9 * value, 1.1 * value
