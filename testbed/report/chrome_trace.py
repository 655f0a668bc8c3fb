"""Runs as a trace that Perfetto (ui.perfetto.dev) and chrome://tracing show: the Trace Event Format, in JSON.

Each run has a process for its job, with its nodes and what failed, one for each server and one for each OCS.
A server has a thread for each GPU that computes, and for its part in collectives, sent and received; a GPU's
messages have threads of their own. What overlaps on a thread stands on another beside it, since viewers draw
slices that overlap partly wrongly.

A trace stays small: a run has at most `MOST_EVENTS` slices, and each kind is in it whole or not at all, in
the order of `COLUMNS`; what was left out is said in ``otherData``. Times are real microseconds, each of whole
nanoseconds.
"""

import heapq
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from typing import NamedTuple

import pandas as pd

from testbed.core.run import Run
from testbed.report.activity import light_spans, server_spans, timed_messages
from topologies.fabric import Fabric

MOST_EVENTS = 50_000
"""Most slices of a run, some 5 MB."""
INSTANTS = ("failed", "detected", "gone around", "back", "in use again", "given up")
"""What of a run's events happens to links and nodes, and not to circuits."""
COLUMNS = {
    "nodes": ["node"],
    "circuits": ["ocs", "circuits"],
    "collectives": ["server", "lane", "node"],
    "computes": ["gpu", "node"],
    "messages": ["source", "destination", "node", "bytes", "crosses"],
}
"""The kinds of slices, and what is read of each besides its times."""
NOTHING: dict[str, str | int] = {}
Value = str | int | float | dict[str, str | int]
Event = dict[str, Value]


class Slice(NamedTuple):
    """Something that took time."""

    process: str
    thread: str
    """The threads that it stands on, if it overlaps with others, are numbered."""
    name: str
    start_s: float
    end_s: float
    args: dict[str, str | int]


def chrome_trace(runs: Mapping[str, Run], fabric: Fabric) -> str:
    """Return runs of one experiment as a trace in JSON, an event per line.

    Parameters
    ----------
    runs
        By what they are called: emulated, predicted.
    fabric
        Where they ran.
    """
    events: list[Event] = []
    left_out: dict[str, str] = {}
    pids = count(1)
    for name, run in runs.items():
        slices = list[Slice]()
        for kind, found in _kinds(run, fabric).items():
            if len(slices) + len(found) <= MOST_EVENTS:
                slices += _slices(kind, found, fabric)
            else:
                left_out[f"{kind} of the {name} run"] = f"{len(found)}, see records.csv and nodes.csv"
        events += _run_events(name, slices, run, pids)
    lines = ",\n".join(map(json.JSONEncoder(separators=(",", ":")).encode, events))
    head = json.dumps({"displayTimeUnit": "ms", "otherData": left_out})
    return f'{head[:-1]}, "traceEvents": [\n{lines}\n]}}\n'


def _kinds(run: Run, fabric: Fabric) -> dict[str, pd.DataFrame]:
    """Return the tables that a trace may hold of a run, from the coarsest to the finest."""
    nodes = run.tasks.groupby("node", sort=False).agg(start_s=("start_s", "min"), end_s=("end_s", "max"))
    spans = server_spans(run, fabric)
    return {
        "nodes": nodes.reset_index(),
        "circuits": light_spans(run, fabric),
        "collectives": spans[spans["lane"] != "computes"],
        "computes": run.tasks[run.tasks["gpu"] >= 0],
        "messages": timed_messages(run),
    }


def _slices(kind: str, found: pd.DataFrame, fabric: Fabric) -> Iterator[Slice]:
    """Yield the slices of a kind."""
    servers = [server.name for server in fabric.servers]
    of_gpu = [servers[server] for server in fabric.gpu_servers]
    columns = COLUMNS[kind]
    rows = zip(*(found[name].tolist() for name in ("start_s", "end_s", *columns)), strict=True)
    for start_s, end_s, *about in rows:
        if kind == "nodes":
            process, thread, name, args = "job", "nodes", about[0], NOTHING
        elif kind == "circuits":
            process, thread, name, args = about[0], "light", about[1] or "dark", NOTHING
        elif kind == "collectives":
            process, thread, name, args = servers[about[0]], about[1], about[2], NOTHING
        elif kind == "computes":
            process, thread, name, args = of_gpu[about[0]], f"GPU {about[0]}", about[1], NOTHING
        else:
            source, destination, node, size, crosses = about
            process, thread, name = of_gpu[source], f"GPU {source}'s messages", f"to GPU {destination}"
            args = {"node": node, "bytes": size, "over": "network" if crosses else "NVLink"}
        yield Slice(process, thread, name, start_s, end_s, args)


def _run_events(name: str, slices: Iterable[Slice], run: Run, pids: Iterator[int]) -> Iterator[Event]:
    """Yield the events of a run, process by process."""
    threads: dict[str, dict[str, list[Slice]]] = defaultdict(lambda: defaultdict(list))
    for each in slices:
        threads[each.process][each.thread].append(each)
    for process, of_process in threads.items():
        pid, tids = next(pids), count(1)
        yield _about("process_name", {"name": f"{name}: {process}"}, pid)
        yield _about("process_sort_index", {"sort_index": pid}, pid)
        for thread, of_thread in of_process.items():
            for number, lane in enumerate(_lanes(of_thread)):
                tid = next(tids)
                label = f"{thread} {number + 1}" if number else thread
                yield _about("thread_name", {"name": label}, pid, tid)
                yield _about("thread_sort_index", {"sort_index": tid}, pid, tid)
                yield from (_complete(each, pid, tid) for each in lane)
        if process == "job":
            yield from _instants(run, pid)


def _about(what: str, args: dict[str, str | int], pid: int, tid: int = 0) -> Event:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": args}


def _complete(each: Slice, pid: int, tid: int) -> Event:
    start_ns, end_ns = _ns(each.start_s), _ns(each.end_s)
    ts, dur = start_ns / 1e3, (end_ns - start_ns) / 1e3
    event: Event = {"ph": "X", "name": each.name, "pid": pid, "tid": tid, "ts": ts, "dur": dur}
    if each.args:
        event["args"] = each.args
    return event


def _instants(run: Run, pid: int) -> Iterator[Event]:
    rows = zip(*(run.events[name].tolist() for name in ("at_s", "what", "which")), strict=True)
    for at_s, what, which in rows:
        if what in INSTANTS:
            at: Event = {"ts": _ns(at_s) / 1e3, "pid": pid, "tid": 1}
            yield {"ph": "i", "s": "g", "name": f"{which} {what}", **at}


def _lanes(slices: Iterable[Slice]) -> list[list[Slice]]:
    """Return slices on as few lanes as there are at most at an instant; on a lane none overlap."""
    lanes: list[list[Slice]] = []
    ends: list[tuple[int, int]] = []
    for each in sorted(slices, key=lambda each: (each.start_s, each.end_s)):
        if ends and ends[0][0] <= _ns(each.start_s):
            _, number = heapq.heappop(ends)
        else:
            number = len(lanes)
            lanes.append([])
        lanes[number].append(each)
        heapq.heappush(ends, (_ns(each.end_s), number))
    return lanes


def _ns(time_s: float) -> int:
    """Return a time in whole nanoseconds: viewers count in them."""
    return round(time_s * 1e9)
