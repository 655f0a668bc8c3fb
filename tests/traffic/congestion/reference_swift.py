"""Swift once more, from its formulas alone: passes over what happened to the packets of one source.

Times are in R, sizes in m; events are those of `tests.traffic.congestion.reference_nscc`. The smoothed round
trip and the timeouts in a row depend on no window: each is a pass of its own, and W is found last.

References
----------
G. Kumar et al., "Swift: Delay is simple and effective for congestion control in the datacenter", SIGCOMM
2020, section 3 and Algorithm 1.
"""

from collections.abc import Sequence
from math import sqrt

from tests.traffic.congestion.reference_nscc import PASSED, Event, total

ALPHA = 6.25 / (1 / sqrt(0.1) - 1 / sqrt(100))
"""Of flow scaling, so that it is 6.25 R at 0.1 packets and 0 at 100."""


def windows(events: Sequence[Event], bdp: float, links: int = 2) -> list[float]:
    """Return W after each event."""
    most = max(1.5 * bdp, 1.0)
    w, decreased = most, -1e9
    result = []
    for (kind, time, n, rtt, _), smoothed, timeouts in zip(
        events, smoothed_rtts(events), timeouts_in_a_row(events), strict=True
    ):
        before, can_decrease = w, time - decreased >= smoothed
        delay, target = max(rtt, 1.0), target_delay(w, links)
        if kind == "acknowledged" and delay < target:
            w = w + n / w if w >= 1 else w + n
        elif kind == "acknowledged" and can_decrease:
            w = max(1 - 0.8 * (delay - target) / delay, 1 - 0.5) * w
        elif kind == "silent" and timeouts >= 5:
            w = 0.1
        elif (kind == "overtaken" or (kind == "silent" and timeouts)) and can_decrease:
            w = (1 - 0.5) * w
        w = min(max(w, 0.1), most)
        if w < before:
            decreased = time
        result.append(w)
    return result


def target_delay(w: float, links: int) -> float:
    """Return the round trip that W aims at."""
    scaling = ALPHA / sqrt(w) - ALPHA / sqrt(100)
    return 1.25 + links * 1.25 / 6.55 + max(0.0, min(scaling, 6.25))


def smoothed_rtts(events: Sequence[Event]) -> list[float]:
    """Return the smoothed round trip after each event."""
    smoothed, result = 1.0, []
    for kind, _, _, rtt, _ in events:
        if kind == "acknowledged":
            smoothed = 7 / 8 * smoothed + 1 / 8 * max(rtt, 1.0)
        result.append(smoothed)
    return result


def timeouts_in_a_row(events: Sequence[Event]) -> list[int]:
    """Return how many timeouts there were since another packet was heard of; 0 at one that is none itself."""
    row, sent_before, result = 0, 0.0, []
    for i, (kind, *_) in enumerate(events, 1):
        is_new = kind == "silent" and total(events[:i], PASSED) > sent_before
        if is_new:
            row, sent_before = row + 1, total(events[:i], ("sent",))
        elif kind in ("acknowledged", "overtaken"):
            row = 0
        result.append(row if is_new else 0)
    return result
