"""DCTCP once more, from its formulas alone: windows of data are cut out of what happened, one by one.

Times are in R, sizes in m; events are those of `tests.traffic.congestion.reference_nscc`.

References
----------
M. Alizadeh et al., "Data center TCP (DCTCP)", SIGCOMM 2010, section 3.1.
"""

from collections.abc import Sequence

from tests.traffic.congestion.reference_nscc import Event, total

LOST = ("overtaken", "silent")


def windows(events: Sequence[Event], bdp: float) -> list[float]:
    """Return W after each event."""
    most = max(1.5 * bdp, 1.0)
    w, alpha, begun = most, 0.0, 0
    result = []
    for i in range(1, len(events) + 1):
        window = events[begun:i]
        passed = total(window, ("acknowledged", *LOST))
        if passed >= w:
            share = sum(n for kind, _, n, _, marked in window if kind == "acknowledged" and marked) / passed
            alpha = 15 / 16 * alpha + share / 16
            if total(window, LOST):
                w = w / 2
            elif share:
                w = w * (1 - alpha / 2)
            else:
                w = w + 1
            w, begun = min(max(w, 1.0), most), i
        result.append(w)
    return result
