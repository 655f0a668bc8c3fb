"""htsim's connection matrix (``.cm``, ``.tm``): sizes are bytes, starts are in a **unit that no file says**.

Connections that start together are one all-to-all. Where they start at several times, each time is a node of
the `Job` that waits for no other; the first is the start of the job. Triggers are a graph: a connection waits
for those that fire its trigger and for no others, so one chain may run ahead of another.
Connections that wait for the same and fire the same are one node; a barrier between several nodes and several
others is a node too. Where every node starts the one next one, as barriers between rounds do, the job is a
sequence of all-to-alls.

What htsim does, and how it is read:

- A trigger fires when the bytes of a connection are acknowledged (``send_done_trigger``) or have arrived
  (``recv_done_trigger``, which htsim fires for connections that it uses again only). Both are its end here.
- A ``oneshot`` trigger that fires twice stops htsim, and so does a ``barrier`` that fires more often than its
  ``count``; one that fires less often never starts what waits for it. These are refused.
- A ``multishot`` trigger starts one connection whenever it fires, in the order of time, which no graph has:
  one that fires once and starts one connection is read, others are refused.
- A connection of size 0 sends until the simulation stops. A job ends when all has arrived, so it is refused.
- ``prio`` orders the pulls of NDP's receivers. It is not modelled; the note says so where it differs.
- Connections between two nodes share what carries them, as any two do: they stay apart, and such a round is a
  list of messages, no matrix.
- ``msg`` says that lines of one ``id`` are messages of one connection, one after the other. They add up where
  all lines start together, and are refused elsewhere, as an ``id`` of two connections is everywhere.
- ``addon`` changes nothing: no part of htsim asks for it.

The loader takes starts for picoseconds, and so do NDP and csg-htsim's EQDS. UEC, EQDS and RoCE of uet-htsim,
and Swift's program in both, take the same number for microseconds. So the caller says the unit where starts
differ; the note has their range.

References
----------
csg-htsim, sim/datacenter/connection_matrix.cpp and sim/trigger.cpp; spcl/HTSIM, main_uec.cpp, for ``msg``;
ultraethernet/uet-htsim at 40ccb05, ``UecSrc::connectPort``, and csg-htsim, main_swift.cpp, for microseconds.
"""

import re
from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Literal, NamedTuple

from topologies.errors import TraceError
from traffic.clock import SECOND
from traffic.collectives.pattern import bytes_between
from traffic.collectives.point_to_point import PointToPoint
from traffic.compose import MOST_NODES
from traffic.demand import Demand
from traffic.job import Collective, Compute, Job, Node
from traffic.readers.text import MAX_BYTES, MAX_GPUS, bad_line, count_of, file_name, text_of, trace_name
from traffic.steps import Step, job_of_steps

StartUnit = Literal["us", "ps"]
"""The unit of starts: microseconds, as htsim_uec takes them, or picoseconds, as older programs do."""
UNIT_PS: Mapping[StartUnit, int] = {"us": 10**6, "ps": 1}
MAX_CELLS = MAX_GPUS**2
"""Most cells that the matrices of all rounds have together; more or larger rounds stay lists of messages."""
MAX_SIZE_BYTES = (1 << 31) - 1
"""Largest connection; htsim reads the size as an int [bytes]."""
HEADERS = ("Nodes", "Connections", "Triggers", "Failures")
_PAIR = re.compile(r"(\d{1,9})->(\d{1,9})")
_FIRES = ("send_done_trigger", "recv_done_trigger")
_VALUED = ("id", "start", "trigger", "size", *_FIRES, "prio")
_BARE = ("msg", "addon")
_KINDS = ("oneshot", "multishot", "barrier")
_PRIORITY = 2_000_000
"""Of a connection without ``prio``."""
_CONNECTION = "a connection such as '2->11 id 1 start 0 size 2000000'"
_TRIGGER = "a trigger such as 'trigger id 1 oneshot' or 'trigger id 2 barrier count 4'"
_LEFT_OUT = "delete the line and lower Connections by one"


@dataclass(frozen=True, slots=True)
class _Connection:
    """A line of the file that is a connection."""

    line: int
    source: int
    destination: int
    size_bytes: int
    start: int | None
    """When it starts, in the unit of the file."""
    waits_for: int | None
    """The trigger that starts it."""
    fires: tuple[int, ...]
    """The triggers that it fires when it ends, one twice if it fires it twice."""
    number: int
    """Its id; 0 without."""
    is_message: bool
    priority: int

    @property
    def key(self) -> int:
        """Its id; where it has none, a number that no other line has."""
        return self.number or -self.line


@dataclass(frozen=True, slots=True)
class _Trigger:
    """A line of the file that is a trigger."""

    line: int
    kind: str
    count: int


@dataclass(frozen=True, slots=True)
class _File:
    """The connections and triggers of a file."""

    path: Path
    nodes: int
    connections: list[_Connection]
    triggers: dict[int, _Trigger]

    @property
    def starts(self) -> list[int]:
        """The times at which connections start, each once, in order."""
        return sorted({each.start for each in self.connections if each.start is not None})

    @property
    def waiting(self) -> Mapping[int, list[_Connection]]:
        """The connections that wait for each trigger, of those for which some wait."""
        waiting = defaultdict[int, list[_Connection]](list)
        for each in self.connections:
            if each.waits_for is not None:
                waiting[each.waits_for].append(each)
        return waiting


class _Group(NamedTuple):
    """The common part of connections that are one node."""

    start: int | None
    waits_for: int | None
    fires: tuple[int, ...]


def read_htsim(path: Path, *, all_to_alls: int | None = None, start_unit: StartUnit | None = None) -> Job:
    """Return the connections of a connection matrix: one all-to-all, a sequence of them, or a graph.

    Parameters
    ----------
    path
        The file.
    all_to_alls
        At most so many of a sequence, the first ones; by default all.
    start_unit
        The unit of starts: us or ps; needed where connections start at different times.

    Returns
    -------
    Job
        An all-to-all if all start together, otherwise one per round if each round starts the next, otherwise
        a node per group of connections that start together, wait for the same and fire the same. A round that
        has two connections between the same nodes is a list of messages, as those of a graph are.

    Raises
    ------
    TraceError
        If the file cannot be read, contradicts itself, or says what a job does not; or if the unit of its
        starts is needed and not given.
    """
    file = _parsed(path)
    starts_s = _starts_s(file, start_unit)
    _check_triggers(file)
    groups = _groups(file)
    _check_ids(file, together=len(groups) == 1)
    if len(groups) > MOST_NODES:
        raise TraceError(
            f"{path} holds {len(groups)} groups of connections that wait for different ones",
            f"give at most {MOST_NODES}",
        )
    job = Job(trace_name(path), file.nodes, _in_order(path, _nodes(groups, starts_s)))
    if all_to_alls is not None and not job.is_chain:
        raise TraceError(
            f"{path} holds a graph, which has no first {all_to_alls} all-to-alls", "take all of it"
        )
    taken = job.nodes[:all_to_alls]
    fits = job.is_chain and len(taken) * file.nodes**2 <= MAX_CELLS and not _has_parallel(job)
    job = replace(job, nodes=taken, note=_note(file, job, start_unit))
    return _in_matrices(job) if fits else job


def _parsed(path: Path) -> _File:
    counts: dict[str, int] = {}
    connections: list[_Connection] = []
    triggers: dict[int, _Trigger] = {}
    failures = 0
    for number, line in enumerate(text_of(path).splitlines(), 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        if words[0] in HEADERS:
            if words[0] in counts:
                raise bad_line(path, number, words[0], "each header once")
            counts[words[0]] = _header(path, number, words)
        elif words[0] == "trigger":
            own, trigger = _trigger(path, number, words)
            if own in triggers:
                raise bad_line(path, number, f"trigger id {own}", "each trigger once")
            triggers[own] = trigger
        elif words[0] == "failure":
            failures += 1
        else:
            connections.append(_connection(path, number, words, counts.get("Nodes", 0)))
    _check_counts(path, counts, len(connections), len(triggers), failures)
    if not connections:
        raise TraceError(f"{path} holds no connection", f"give it {_CONNECTION}")
    return _File(path, counts["Nodes"], connections, triggers)


def _check_counts(
    path: Path, header: Mapping[str, int], connections: int, triggers: int, failures: int
) -> None:
    """Refuse a file that does not hold what its header says, or link failures."""
    for name, found in (("Connections", connections), ("Triggers", triggers), ("Failures", failures)):
        if found != header.get(name, 0):
            raise TraceError(f"{path} holds {found} {name.lower()}, its header says {header.get(name, 0)}")
    if failures:
        raise TraceError(
            f"{path} holds {failures} link failures", "a demand has none; fail links in the fabric"
        )


def _header(path: Path, number: int, words: list[str]) -> int:
    if len(words) != 2:
        raise bad_line(path, number, " ".join(words), f"'{words[0]} <count>'")
    most = MAX_GPUS if words[0] == "Nodes" else 1 << 31
    return count_of(path, number, words[1], expected=f"the number of {words[0].lower()}", most=most)


def _connection(path: Path, number: int, words: list[str], nodes: int) -> _Connection:
    ends = _PAIR.fullmatch(words[0])
    if not ends:
        raise bad_line(path, number, words[0], _CONNECTION)
    if not nodes:
        raise bad_line(path, number, words[0], "'Nodes <count>' before the first connection")
    source, destination = (
        count_of(path, number, end, expected="a node", most=nodes - 1) for end in ends.groups()
    )
    values = _values(path, number, words[1:], _VALUED, _BARE)
    if "size" not in values:
        raise bad_line(path, number, " ".join(words), "a size in bytes")
    if ("start" in values) == ("trigger" in values):
        raise bad_line(path, number, " ".join(words), "either a start or a trigger")
    if not values["size"]:
        raise TraceError(
            f"{path}, line {number}: a connection of size 0 never ends", f"give it bytes, or {_LEFT_OUT}"
        )
    if source == destination:
        raise TraceError(f"{path}, line {number}: node {source} sends to itself", _LEFT_OUT)
    return _Connection(
        number,
        source,
        destination,
        values["size"],
        values.get("start"),
        values.get("trigger"),
        tuple(sorted(values[key] for key in _FIRES if values.get(key))),
        values.get("id", 0),
        "msg" in values,
        values.get("prio", _PRIORITY),
    )


def _trigger(path: Path, number: int, words: list[str]) -> tuple[int, _Trigger]:
    values = _values(path, number, words[1:], ("id", "count"), _KINDS)
    kinds = [kind for kind in _KINDS if kind in values]
    if len(kinds) != 1 or "id" not in values:
        raise bad_line(path, number, " ".join(words), _TRIGGER)
    return values["id"], _Trigger(number, kinds[0], values.get("count", 0))


def _values(
    path: Path, number: int, words: Sequence[str], valued: Sequence[str], bare: Sequence[str]
) -> dict[str, int]:
    """Return the words of a line with the number behind each, 1 for those that stand alone."""
    values: dict[str, int] = {}
    rest = deque(words)
    while rest:
        key = rest.popleft()
        if key in values:
            raise bad_line(path, number, key, "each word once")
        if key in valued:
            least, most = int(key == "id"), MAX_SIZE_BYTES if key == "size" else MAX_BYTES
            text = rest.popleft() if rest else ""
            values[key] = count_of(path, number, text, expected=f"the value of {key}", least=least, most=most)
        elif key in bare:
            values[key] = 1
            if key == "msg" and rest and rest[0].isdecimal():  # a message may have a number
                rest.popleft()
        else:
            raise bad_line(path, number, key, f"one of {', '.join((*valued, *bare))}")
    return values


def _starts_s(file: _File, start_unit: StartUnit | None) -> dict[int | None, float]:
    """Return how long after the first start each one comes [s]; refuse several without a unit."""
    starts = file.starts
    if start_unit is None and len(starts) > 1:
        raise TraceError(
            f"{file.path} has connections that start at different times, and does not say in which unit",
            "give start_unit (--start-unit): us if it was made for htsim_uec, ps if for its older programs",
        )
    if start_unit not in (None, *UNIT_PS):
        raise TraceError(f"unknown unit of starts {start_unit!r}", "give us or ps")
    return {start: (start - starts[0]) * UNIT_PS[start_unit or "ps"] / SECOND for start in starts}


def _check_triggers(file: _File) -> None:
    """Refuse triggers that never start what waits for them, or not all of it at a known end."""
    for each in file.connections:
        for named in (*each.fires, *([] if each.waits_for is None else [each.waits_for])):
            if named not in file.triggers:
                raise bad_line(file.path, each.line, f"trigger {named}", "one that the file declares")
    fired = Counter(named for each in file.connections for named in each.fires)
    for named, waiting in file.waiting.items():
        trigger, times = file.triggers[named], fired[named]
        where = f"{file.path}, line {trigger.line}: {trigger.kind} trigger {named}"
        if not times:
            raise bad_line(file.path, waiting[0].line, f"trigger {named}", "one that a connection fires")
        if trigger.kind == "barrier" and trigger.count != times:
            raise TraceError(
                f"{where} needs {trigger.count} firings and has {times}", f"write 'barrier count {times}'"
            )
        if trigger.kind == "oneshot" and times > 1:
            raise TraceError(
                f"{where} is fired {times} times, which stops htsim",
                f"write 'barrier count {times}' if it waits for all of them",
            )
        if trigger.kind == "multishot" and (times > 1 or len(waiting) > 1):
            raise TraceError(
                f"{where} starts one of its connections ({len(waiting)}) at each of its firings ({times}), "
                "in the order of time, and a job has no such arrows",
                "start each of them by a oneshot trigger of its own, which one connection fires",
            )


def _check_ids(file: _File, *, together: bool) -> None:
    """Refuse an id of two connections, and messages of one connection that do not start together."""
    known: dict[int, _Connection] = {}
    for each in file.connections:
        first = known.setdefault(each.key, each)
        ends = (first.source, first.destination) == (each.source, each.destination)
        if first is not each and not (ends and first.is_message and each.is_message):
            raise bad_line(
                file.path,
                each.line,
                f"id {each.number}",
                f"an id other than that of line {first.line}, or msg in both",
            )
        if not together and each.is_message:
            raise TraceError(
                f"{file.path}, line {each.line}: messages of one connection do not all start together",
                "give each an id of its own and leave out msg: they then share the link",
            )


def _groups(file: _File) -> Mapping[_Group, list[_Connection]]:
    """Return the connections that start together and for which the same waits."""
    waiting = file.waiting
    groups = defaultdict[_Group, list[_Connection]](list)
    for each in file.connections:
        fires = tuple(trigger for trigger in dict.fromkeys(each.fires) if trigger in waiting)
        groups[_Group(each.start, each.waits_for, fires)].append(each)
    return groups


def _nodes(groups: Mapping[_Group, list[_Connection]], starts_s: Mapping[int | None, float]) -> list[Node]:
    """Return a node per group, and those that barriers between several groups and several add."""
    names = {group: _name(connections) for group, connections in groups.items()}
    fired_by = defaultdict[int, list[str]](list)
    for group, name in names.items():
        for trigger in group.fires:
            fired_by[trigger].append(name)
    starting = Counter(group.waits_for for group in groups)
    nodes: list[Node] = []
    for trigger, firing in fired_by.items():
        if len(firing) > 1 and starting[trigger] > 1:
            # m + n arrows in place of m * n; a compute of no GPU takes no time.
            nodes.append(Compute(f"trigger {trigger}", (), 0.0, tuple(firing)))
            fired_by[trigger] = [nodes[-1].name]
    for group, connections in groups.items():
        after = () if group.waits_for is None else tuple(fired_by[group.waits_for])
        sent, at_s = PointToPoint(_messages(connections)), starts_s.get(group.start, 0.0)
        # A communicator of its own, as connections of htsim do not wait for each other's bytes.
        nodes.append(Collective(names[group], sent, after, names[group], at_s))
    return nodes


def _messages(connections: Sequence[_Connection]) -> tuple[tuple[int, int, int], ...]:
    """Return source, destination and bytes of each connection; messages of one add up."""
    found = dict[int, tuple[int, int, int]]()
    for each in connections:
        _, _, before = found.get(each.key, (0, 0, 0))
        found[each.key] = each.source, each.destination, before + each.size_bytes
    return tuple(found.values())


def _name(connections: Sequence[_Connection]) -> str:
    first, *more = connections
    return (
        f"{first.source}->{first.destination}{f' and {len(more)} more' if more else ''} (line {first.line})"
    )


def _in_order(path: Path, nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Return nodes behind those that they wait for."""
    named = {node.name: node for node in nodes}
    try:
        order = list(TopologicalSorter({node.name: node.after for node in nodes}).static_order())
    except CycleError as error:
        raise TraceError(f"{path} has triggers that wait for each other", "break the circle") from error
    return tuple(map(named.__getitem__, order))


def _has_parallel(job: Job) -> bool:
    """Return whether a node has two messages from one node of the file to one other."""
    moves = [each.pattern.lower().moves for each in job.collectives]
    return any(len(each.source) > len({*zip(each.source, each.destination, strict=True)}) for each in moves)


def _in_matrices(job: Job) -> Job:
    """Return a chain of rounds as all-to-alls."""
    steps = []
    for index, each in enumerate(job.collectives):
        name = f"{job.name} {index}" if len(job.nodes) > 1 else job.name
        steps.append(Step(Demand(name, bytes_between(each.pattern, job.gpus), job.note)))
    return job_of_steps(job.name, steps, job.note)


def _note(file: _File, job: Job, start_unit: StartUnit | None) -> str:
    """Return where a job comes from, its form, and what of the file it does not have."""
    note = f"htsim connection matrix {file_name(file.path)}"
    if not job.is_chain:
        note += f", a graph of {len(job.nodes)} nodes"
    elif len(job.nodes) > 1:
        note += ", a step per round of triggers"
    said = [note]
    if len(starts := file.starts) > 1:
        said.append(f"starts from {starts[0]} to {starts[-1]} {start_unit}")
    if len({each.priority for each in file.connections}) > 1:
        said.append("priorities differ and are not modelled: all share alike")
    return "; ".join(said)
