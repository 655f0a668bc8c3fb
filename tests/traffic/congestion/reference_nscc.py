"""NSCC once more, from its formulas alone: passes over what happened to the packets of one source.

Times are in R, sizes in m. An event is (kind, time, bytes, round trip, marked); a kind is "sent",
"acknowledged", "overtaken", "silent" or "taken back", and round trips and marks are only of what was
acknowledged. What quick adapt does depends on no other part of the algorithm, and neither does D: each is a
pass of its own over all events, and W is found last.

References
----------
Ultra Ethernet Specification 1.0, section 3.6.13.
"""

from collections.abc import Sequence

Event = tuple[str, float, float, float, bool]
PASSED = ("acknowledged", "overtaken", "silent", "taken back")
HEARD = ("acknowledged", "overtaken")
IGNORED = -1.0


def windows(events: Sequence[Event], bdp: float, a: float) -> list[float]:
    """Return W after each event."""
    most = max(1.5 * bdp, 1.0)
    w, inc, received, undelayed = most, 0.0, 0.0, 0.0
    eta_time = decrease_time = -1e9
    result = []
    passes = zip(events, averages(events), quick_adapted(events, most), strict=True)
    for (kind, time, n, rtt, marked), d, quick in passes:
        q = max(0.0, rtt - 1.0)
        if quick is not None:
            w, inc, received = w if quick == IGNORED else max(quick, 1.0), 0.0, 0.0
        elif kind == "acknowledged":
            received += n
            undelayed = next_undelayed(undelayed, n, q, marked, w)
            if marked and q >= 1.0 and d > 1.0 and time - decrease_time > 1.0:
                w, decrease_time = w * max(1 - 0.8 * (d - 1.0) / d, 0.5), time
            at_once, later = increases(n, q, marked, undelayed, a)
            w, inc = min(max(w + at_once, 1.0), most), inc + later
            eta = time - eta_time >= 1.0
            if eta or received >= 8:
                w, inc, received = w + inc / w + (0.15 * a if eta else 0.0), 0.0, 0.0
            eta_time = time if eta else eta_time
        elif kind in ("overtaken", "silent"):
            w -= n
        w = min(max(w, 1.0), most)
        result.append(w)
    return result


def next_undelayed(before: float, n: float, q: float, marked: bool, w: float) -> float:
    """Return the bytes that came with nearly no delay in a row; infinity once they were more than W."""
    if q >= 1 / 12:
        return 0.0
    after = before if marked else before + n
    return float("inf") if after > w and not marked else after


def increases(n: float, q: float, marked: bool, undelayed: float, a: float) -> tuple[float, float]:
    """Return by what W grows at once, and what is added to inc."""
    if marked:
        return 0.0, 0.0
    if q >= 1.0:
        return 0.0, 5 * a * n
    return (0.25 * a * n, 0.0) if undelayed == float("inf") else (0.0, 4 * a * n * (1.0 - q))


def averages(events: Sequence[Event]) -> list[float]:
    """Return D after each event."""
    d, result = 0.0, []
    for kind, _, _, rtt, marked in events:
        q = 1.0 if kind == "overtaken" else max(0.0, rtt - 1.0)
        if kind in HEARD:
            d = 0.9875 * d + 0.0125 * (0.25 if q > 1.0 and not marked else q)
        result.append(d)
    return result


def quick_adapted(events: Sequence[Event], most: float) -> list[float | None]:
    """Return for each event what W is set to, IGNORED if only that it moves nothing, or None."""
    result: list[float | None] = []
    end: float | None = None
    looked = adapted = 0  # after how many events
    loss_seen, on_its_way = False, 0.0
    for i, (kind, time, _, rtt, _) in enumerate(events, 1):
        answer: float | None = None
        loss_seen = loss_seen or kind == "overtaken"
        if kind in HEARD and total(events[adapted:i], PASSED) < on_its_way:
            answer = IGNORED
        elif kind in HEARD and (end is None or time > end):
            acknowledged = total(events[looked:i], ("acknowledged",))
            if end is not None and (loss_seen or rtt > 5.0) and acknowledged < most / 8:
                answer, adapted, loss_seen = acknowledged, i, False
                on_its_way = total(events[:i], ("sent",)) - total(events[:i], PASSED)
            end, looked = time + 2.0, i
        result.append(answer)
    return result


def total(events: Sequence[Event], kinds: tuple[str, ...]) -> float:
    """Return the bytes of events of some kinds."""
    return sum(event[2] for event in events if event[0] in kinds)
