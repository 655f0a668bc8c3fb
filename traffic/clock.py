"""The clock of a run: whole picoseconds since its start, so that it does the same whenever it begins.

Seconds in a double lose digits as a run grows: after an hour two ends that lie within a part of 1e-9 of
the time are microseconds apart. Durations are seconds (doubles) wherever they are given, and become
picoseconds when they are added to a time. int64 holds 106 days of them.

References
----------
htsim's ``simtime_picosec``.
"""

from topologies.errors import ScenarioError

SECOND = 10**12
"""[ps]"""
NEVER = 2**63 - 1
"""The time of what does not happen [ps]."""
TOO_LATE = NEVER - 1
"""Stands for times that come, but after all that the clock counts [ps]."""


def ps(seconds: float) -> int:
    """Return a duration in picoseconds, rounded, but a positive one is at least 1; `NEVER` if it is infinite.

    Raises
    ------
    ScenarioError
        If it is longer than the clock counts.
    """
    if seconds == float("inf"):
        return NEVER
    return checked(max(round(min(seconds * SECOND, TOO_LATE)), int(seconds > 0)))


def checked(at_ps: int) -> int:
    """Return a time; ScenarioError if the clock does not count so far."""
    if at_ps >= TOO_LATE:
        raise ScenarioError(
            "the run takes more than 106 days, the longest that its clock counts",
            "send less, over faster links, or wait less",
        )
    return at_ps


def in_seconds(at_ps: int) -> float:
    """Return a time in seconds; infinite for `NEVER`."""
    return at_ps / SECOND if at_ps < NEVER else float("inf")
