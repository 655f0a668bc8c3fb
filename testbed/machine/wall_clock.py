"""The wall clock beside the monotonic one: how far apart they are, which changes when the wall clock is set.

The kernel slews both alike, so that a difference between two readings is a step, by whoever sets the clock,
or the time for which the machine was suspended.
"""

import time

READINGS = 5
"""The shortest of so many counts: a reading that is interrupted is off by the time it took."""
STEP_S = 0.001
"""A difference above this is a step, and no error of the readings [s]."""


def wall_ahead_s() -> float:
    """Return how far the wall clock is ahead of the monotonic one [s]."""
    readings = [(time.monotonic_ns(), time.time_ns(), time.monotonic_ns()) for _ in range(READINGS)]
    before, wall, after = min(readings, key=lambda reading: reading[2] - reading[0])
    return (wall - (before + after) // 2) / 1e9
