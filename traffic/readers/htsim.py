"""htsim's connection matrix (``.cm``, ``.tm``): sizes are bytes, starts are **picoseconds**.

A demand is one all-to-all whose messages all start at once, so the reader refuses what says
otherwise rather than drop it: a connection that starts at another time than the others. Triggers
are honoured when asked for: a connection waits for the rounds before it, so triggered files
become a `Job` with a step per round (a connection's round is one more than that of the
connection that fires its trigger; a barrier's round follows its last one). That is stricter than
htsim, where one chain may run ahead of another; the note says so.

Some files in circulation carry starts written in microseconds, as an old comment in the loader
says; the loader takes picoseconds, and so does this reader.

References
----------
csg-htsim, sim/datacenter/connection_matrix.cpp.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import networkx as nx
import numpy as np

from topologies.errors import TraceError
from traffic.demand import Demand
from traffic.job import Job
from traffic.readers.text import MAX_BYTES, MAX_GPUS, bad_line, count_of, text_of, trace_name
from traffic.steps import Step, job_of_steps

MAX_CELLS = MAX_GPUS**2
"""Most cells that the matrices of all rounds may have together."""
MAX_SIZE_BYTES = (1 << 31) - 1
"""Largest connection; htsim reads the size as an int [bytes]."""
HEADERS = ("Nodes", "Connections", "Triggers", "Failures")
_PAIR = re.compile(r"(\d{1,9})->(\d{1,9})")
_VALUED = ("id", "start", "trigger", "size", "send_done_trigger", "recv_done_trigger", "prio", "msg")
_CONNECTION = "a connection such as '2->11 id 1 start 0 size 2000000'"


@dataclass(frozen=True, slots=True)
class _Connection:
    """One line of the file."""

    line: int
    source: int
    destination: int
    size_bytes: int
    start_ps: int | None
    waits_for: int | None
    fires: tuple[int, ...]


def read_htsim(path: Path, *, all_to_alls: int | None = None) -> Job:
    """Return the connections of a connection matrix as steps.

    Parameters
    ----------
    path
        The file.
    all_to_alls
        At most so many steps, the first ones; by default all.

    Returns
    -------
    Job
        One step if no connection waits for a trigger, otherwise a step per round. Several
        connections between two nodes add up.

    Raises
    ------
    TraceError
        If the file cannot be read or contradicts itself, its connections start at different
        times, a trigger is fired by none, or triggers wait for each other.
    """
    counts, connections = _parsed(path)
    starts = {connection.start_ps for connection in connections if connection.start_ps is not None}
    if len(starts) > 1:
        raise TraceError(
            f"{path} starts connections at {len(starts)} times from {min(starts)} to {max(starts)} ps",
            "a demand starts at one instant; use one file per start time",
        )
    rounds = _rounds(path, connections)
    if (max(rounds) + 1) * counts["Nodes"] ** 2 > MAX_CELLS:
        raise TraceError(
            f"{path} is too large: {max(rounds) + 1} rounds of triggers between {counts['Nodes']} nodes"
        )
    matrices = np.zeros((max(rounds) + 1, counts["Nodes"], counts["Nodes"]), dtype=np.int64)
    for connection, index in zip(connections, rounds, strict=True):
        matrices[index, connection.source, connection.destination] += connection.size_bytes
    note = f"htsim connection matrix {path.name}" + (", a step per round of triggers" if max(rounds) else "")
    name = trace_name(path)
    steps = [
        Step(Demand(f"{name} {index}" if max(rounds) else name, matrix, note))
        for index, matrix in enumerate(matrices[:all_to_alls])
    ]
    return job_of_steps(name, steps, note)


def _parsed(path: Path) -> tuple[dict[str, int], list[_Connection]]:
    counts: dict[str, int] = {}
    connections: list[_Connection] = []
    triggers = failures = 0
    for number, line in enumerate(text_of(path).splitlines(), 1):
        tokens = line.split("#")[0].split()
        if not tokens:
            continue
        if tokens[0] in HEADERS:
            counts[tokens[0]] = _header(path, number, tokens)
        elif tokens[0] == "trigger":
            triggers += 1
        elif tokens[0] == "failure":
            failures += 1
        else:
            connections.append(_connection(path, number, tokens, counts.get("Nodes", 0)))
    found = {"Connections": len(connections), "Triggers": triggers, "Failures": failures}
    for header, count in found.items():
        if count != counts.get(header, 0):
            raise TraceError(
                f"{path} holds {count} {header.lower()}, its header says {counts.get(header, 0)}"
            )
    if failures:
        raise TraceError(
            f"{path} holds {failures} link failures", "a demand has none; fail links in the fabric"
        )
    if not connections:
        raise TraceError(f"{path} holds no connection", f"give it {_CONNECTION}")
    return counts, connections


def _header(path: Path, number: int, tokens: list[str]) -> int:
    if len(tokens) != 2:
        raise bad_line(path, number, " ".join(tokens), f"'{tokens[0]} <count>'")
    most = MAX_GPUS if tokens[0] == "Nodes" else 1 << 31
    return count_of(path, number, tokens[1], expected=f"the number of {tokens[0].lower()}", most=most)


def _connection(path: Path, number: int, tokens: list[str], nodes: int) -> _Connection:
    ends = _PAIR.fullmatch(tokens[0])
    if not ends:
        raise bad_line(path, number, tokens[0], _CONNECTION)
    if not nodes:
        raise bad_line(path, number, tokens[0], "'Nodes <count>' before the first connection")
    source, destination = (
        count_of(path, number, end, expected="a node", most=nodes - 1) for end in ends.groups()
    )
    values: dict[str, int] = {}
    rest = iter(tokens[1:])
    for key in rest:
        if key not in _VALUED:
            raise bad_line(path, number, key, f"one of {', '.join(_VALUED)}")
        most = MAX_SIZE_BYTES if key == "size" else MAX_BYTES
        values[key] = count_of(path, number, next(rest, ""), expected=f"the value of {key}", most=most)
    if "size" not in values:
        raise bad_line(path, number, " ".join(tokens), "a size in bytes")
    if ("start" in values) == ("trigger" in values):
        raise bad_line(path, number, " ".join(tokens), "either a start in ps or a trigger")
    fires = tuple(values[key] for key in ("send_done_trigger", "recv_done_trigger") if key in values)
    return _Connection(
        number, source, destination, values["size"], values.get("start"), values.get("trigger"), fires
    )


def _rounds(path: Path, connections: list[_Connection]) -> list[int]:
    """Return each connection's round: 0 without a trigger, else after all that fire its trigger."""
    # Triggers are nodes of the graph themselves, as negative numbers: a barrier of m connections
    # before n others has m + n edges, not m x n.
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(range(len(connections)))
    for index, connection in enumerate(connections):
        graph.add_edges_from((index, -1 - trigger) for trigger in connection.fires)
        if connection.waits_for is not None:
            graph.add_edge(-1 - connection.waits_for, index)
    try:
        generations = list(nx.topological_generations(graph))
    except nx.NetworkXUnfeasible as error:
        raise TraceError(f"{path} has triggers that wait for each other", "break the circle") from error
    fired = {trigger for connection in connections for trigger in connection.fires}
    for connection in connections:
        if connection.waits_for is not None and connection.waits_for not in fired:
            found = f"trigger {connection.waits_for}"
            raise bad_line(path, connection.line, found, "one that a connection fires")
    # A connection, then the triggers that wait for it, then the connections that wait for these.
    rounds = {node: number // 2 for number, nodes in enumerate(generations) for node in nodes}
    return [rounds[index] for index in range(len(connections))]
