"""InfiniteHBD's fault trace: a JSON list of the starts and ends of node faults, sorted by time.

An event is ``{"node_id": UUID, "event_time": days, "event_type": "fault_start" or "fault_end", ...}``;
other keys are ignored. Servers are numbered by the order of their ids as strings; those that never
fail, which the file does not name, come after them. A node may have a fault inside another: an end
belongs to the latest start. A fault without an end lasts to the end of the window.

References
----------
stepfun-ai/InfiniteHBD-Trace, fault_trace.json; InfiniteHBD, appendix A.
"""

import json
import math
from itertools import pairwise
from pathlib import Path

import numpy as np

from topologies.errors import TraceError
from topologies.strict_json import shown
from traffic.fault_trace import FaultTrace
from traffic.readers.text import text_of, trace_name

SERVERS = 400
"""Of the cluster that the public trace was recorded in."""
EXPECTED = "an object with node_id, event_time in days and event_type fault_start or fault_end"
Event = tuple[str, float, str]


def read_fault_trace(path: Path, servers: int = SERVERS) -> FaultTrace:
    """Return the faults of a file; the window ends with the last whole day that it covers.

    Parameters
    ----------
    path
        The file.
    servers
        How many servers the cluster had, those that never failed included.

    Raises
    ------
    TraceError
        If the file cannot be read or is no such list, a fault ends that has not begun, or more than
        ``servers`` fail.
    """
    events = _events(path)
    number = {name: index for index, name in enumerate(sorted({name for name, _, _ in events}))}
    if len(number) > servers:
        raise TraceError(f"{path} names {len(number)} servers", f"give a trace of at most {servers}")
    window = float(math.floor(events[-1][1]))
    if window < 1:
        raise TraceError(f"{path} covers {events[-1][1]:g} days", "give a trace of at least one day")
    faults = _faults(path, events, window)
    return FaultTrace(
        trace_name(path),
        servers,
        window,
        np.array([number[name] for name, _, _ in faults], dtype=np.int64),
        np.array([start for _, start, _ in faults]),
        np.array([end for _, _, end in faults]),
    )


def _faults(path: Path, events: list[Event], window_days: float) -> list[tuple[str, float, float]]:
    """Return node, start and end of each fault: an end belongs to the latest start of its node."""
    open_since: dict[str, list[float]] = {}
    faults = []
    for index, (node, time, kind) in enumerate(events):
        if kind == "fault_start":
            open_since.setdefault(node, []).append(time)
        elif open_since.get(node):
            faults.append((node, open_since[node].pop(), time))
        else:
            found = f"the end of a fault of {shown(node)} that has not begun"
            raise _bad(path, index, found, "a fault_start first")
    for node, starts in open_since.items():
        faults += [(node, start, max(start, window_days)) for start in starts]
    return faults


def _events(path: Path) -> list[Event]:
    try:
        data = json.loads(text_of(path))
    except json.JSONDecodeError as error:
        raise TraceError(
            f"{path}, line {error.lineno}: {error.msg}, expected a JSON list of events"
        ) from error
    except (RecursionError, ValueError) as error:
        raise TraceError(f"{path} holds a JSON value too deep or too long", "give a fault trace") from error
    if not isinstance(data, list) or not data:
        raise TraceError(f"{path} is not a JSON list of events", f"give a list; an event is {EXPECTED}")
    events = [_event(path, index, value) for index, value in enumerate(data)]
    for index, ((_, before, _), (_, time, _)) in enumerate(pairwise(events), 1):
        if time < before:
            raise _bad(path, index, f"time {time:g} after {before:g}", "events sorted by time")
    return events


def _event(path: Path, index: int, value: object) -> Event:
    match value:
        case {"node_id": str(node), "event_time": int() | float() as time, "event_type": str(kind)}:
            if kind not in ("fault_start", "fault_end") or isinstance(time, bool):
                raise _bad(path, index, f"{shown(kind)} at {shown(time)}", EXPECTED)
            if not 0 <= time < 1e6:
                raise _bad(path, index, f"time {time!r}", "days from 0 to a million")
            return node, float(time), kind
    raise _bad(path, index, "something else", EXPECTED)


def _bad(path: Path, index: int, found: str, expected: str) -> TraceError:
    return TraceError(f"{path}, event {index}: found {found}, expected {expected}")
