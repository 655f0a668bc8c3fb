"""InfiniteHBD's fault trace: a JSON list of the starts and ends of node faults, sorted by time.

An event is ``{"node_id": UUID, "event_time": days, "event_type": "fault_start" or "fault_end", ...}``;
other keys are ignored. Servers are numbered by the order of their ids as strings; those that never
fail, which the file does not name, come after them. A node may have a fault inside another: an end
belongs to the latest start. A fault without an end lasts to the end of the window.

References
----------
stepfun-ai/InfiniteHBD-Trace, fault_trace.json; InfiniteHBD, appendix A.
"""

import math
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from topologies.errors import TraceError
from topologies.strict_json import shown
from traffic.fault_trace import FaultTrace
from traffic.readers.text import json_of, trace_name

SERVERS = 400
"""Of the cluster that the public trace was recorded in."""


class _Event(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")

    node_id: str
    event_time: Annotated[float, Field(ge=0, lt=1e6)]
    event_type: Literal["fault_start", "fault_end"]


EVENTS = TypeAdapter(Annotated[list[_Event], Field(min_length=1)])


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
    events = json_of(path, EVENTS, "events with node_id, event_time in days and event_type, sorted by time")
    number = {name: index for index, name in enumerate(sorted({event.node_id for event in events}))}
    if len(number) > servers:
        raise TraceError(f"{path} names {len(number)} servers", f"give a trace of at most {servers}")
    last_days = events[-1].event_time
    window = float(math.floor(last_days))
    if window < 1:
        raise TraceError(f"{path} covers {last_days:g} days", "give a trace of at least one day")
    faults = _faults(path, events, window)
    return FaultTrace(
        trace_name(path),
        servers,
        window,
        np.array([number[name] for name, _, _ in faults], dtype=np.int64),
        np.array([start for _, start, _ in faults]),
        np.array([end for _, _, end in faults]),
    )


def _faults(path: Path, events: list[_Event], window_days: float) -> list[tuple[str, float, float]]:
    """Return node, start and end of each fault: an end belongs to the latest start of its node."""
    open_since: dict[str, list[float]] = {}
    faults = []
    before = 0.0
    for index, event in enumerate(events):
        node, time = event.node_id, event.event_time
        if time < before:
            raise TraceError(f"{path}, event {index}: time {time:g} after {before:g}", "sort events by time")
        before = time
        if event.event_type == "fault_start":
            open_since.setdefault(node, []).append(time)
        elif open_since.get(node):
            faults.append((node, open_since[node].pop(), time))
        else:
            found = f"the end of a fault of {shown(node)} that has not begun"
            raise TraceError(f"{path}, event {index}: {found}", "give a fault_start first")
    for node, starts in open_since.items():
        faults += [(node, start, max(start, window_days)) for start in starts]
    return faults
