"""A user's own job as a JSON file; docs/reference/jobs.md teaches the format.

The models below are the format: what they do not name is refused, so that a key that is misspelt is
never ignored. A file is checked in two steps, by the models (keys, types, ranges) and by the values
that are made of them (names, arrows, patterns), and the first thing that is wrong is reported with its
place in the file. What `write_job` writes, `read_job` reads as an equal job; repeated parts are written
unfolded.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, JsonValue, ValidationError

from topologies.errors import DemandError, MachineError, ScenarioError, TraceError
from topologies.fabric import MOST_GPUS
from topologies.own import say_own
from topologies.own_value import class_name
from topologies.strict_json import Strict, first_of, json_value, shown
from traffic.collectives.all_to_all import AllToAll
from traffic.collectives.node_all_to_all import ExchangeRound, Hop, RingAllToAll
from traffic.collectives.own_pattern import PATTERN, check_lowered
from traffic.collectives.pattern import Pattern
from traffic.collectives.point_to_point import PointToPoint
from traffic.collectives.ring import Operation, Ring
from traffic.compose import MOST_NODES, Repeat, unfolded
from traffic.demand import Demand
from traffic.job import LONGEST_S, Collective, Compute, Job, Node
from traffic.readers.text import MAX_BYTES, MAX_GPUS, text_of

FORMAT = "lightrail job 1"
HINT = "docs/reference/jobs.md describes the format"
LONGEST_PLACE = 200

Bytes = Annotated[int, Field(ge=0, le=MAX_BYTES)]
Seconds = Annotated[float, Field(ge=0, le=LONGEST_S)]
Gpus = Annotated[list[Annotated[int, Field(ge=0, lt=MOST_GPUS)]], Field(max_length=MOST_GPUS)]
"""An all-to-all has a dense matrix, and at most `MAX_GPUS`."""
_Hop = Annotated[Gpus, Field(min_length=2, max_length=2)]
Name = Annotated[str, Field(min_length=1)]


class _Waiting(Strict):
    """What all nodes have."""

    name: Name
    after: list[str] = Field(default_factory=list)
    repeat: Annotated[int, Field(ge=1, le=MOST_NODES)] = 1


class _Starting(_Waiting):
    """A node of its own, which may start at a time; a part has none."""

    at_s: Seconds = 0.0


class _Sending(_Starting):
    """What all collectives have."""

    communicator: Name = ""


class _Compute(_Starting):
    kind: Literal["compute"]
    gpus: Gpus | None = None
    duration_s: Seconds
    durations_s: list[Seconds] = Field(default_factory=list)

    def node(self, gpus: int) -> Node:
        return Compute(self.name, _members(self.gpus, gpus), self.duration_s, (), tuple(self.durations_s))


class _AllToAll(_Sending):
    kind: Literal["all_to_all"]
    gpus: Annotated[Gpus, Field(max_length=MAX_GPUS)] | None = None
    matrix_bytes: list[list[Bytes]] | None = None
    uniform_bytes: Bytes | None = None
    demand: str | None = None
    note: str = ""
    coupled_as_one: bool = False

    def node(self, gpus: int) -> Node:
        if (self.matrix_bytes is None) == (self.uniform_bytes is None):
            raise DemandError("bytes are given twice or not at all", "give matrix_bytes or uniform_bytes")
        ranks = _members(self.gpus, gpus)
        if len(ranks) > MAX_GPUS:
            raise DemandError(f"an all-to-all between {len(ranks)} GPUs", f"give at most {MAX_GPUS}")
        if self.matrix_bytes is None:
            matrix = np.full((len(ranks), len(ranks)), self.uniform_bytes, dtype=np.int64)
            np.fill_diagonal(matrix, 0)
        else:
            _check_square(self.matrix_bytes, len(ranks))
            matrix = np.array(self.matrix_bytes, dtype=np.int64)
        demand = Demand(self.name if self.demand is None else self.demand, matrix, self.note)
        return Collective(self.name, AllToAll(demand, ranks, self.coupled_as_one))


class _Ring(_Sending):
    kind: Literal["ring_all_reduce", "ring_reduce_scatter", "ring_all_gather"]
    gpus: Gpus | None = None
    rings: list[Gpus] | None = None
    bytes: Bytes

    def node(self, gpus: int) -> Node:
        if self.rings is not None and self.gpus is not None:
            raise DemandError("both gpus and rings are given", "give gpus for one ring, or rings")
        rings = [_members(self.gpus, gpus)] if self.rings is None else map(tuple, self.rings)
        return Collective(self.name, Ring(tuple(rings), self.bytes, OPERATIONS[self.kind]))


class _RingAllToAll(_Sending):
    kind: Literal["ring_all_to_all"]
    hops: list[list[_Hop]]
    hops_back: list[list[_Hop]] = Field(default_factory=list)
    nodes: list[Gpus] = Field(default_factory=list)
    node_bytes: Bytes

    def node(self, gpus: int) -> Node:
        rings, back = (_hops(some) for some in (self.hops, self.hops_back))
        nodes = tuple(map(tuple, self.nodes))
        return Collective(self.name, RingAllToAll(rings, self.node_bytes, back, nodes))


class _ExchangeRound(_Sending):
    kind: Literal["exchange_round"]
    hops: list[list[_Hop]]
    nodes: list[Gpus]
    distance: int
    node_bytes: Bytes

    def node(self, gpus: int) -> Node:
        nodes = tuple(map(tuple, self.nodes))
        return Collective(self.name, ExchangeRound(_hops(self.hops), nodes, self.distance, self.node_bytes))


class _Message(Strict):
    source: Annotated[int, Field(ge=0, lt=MOST_GPUS)]
    destination: Annotated[int, Field(ge=0, lt=MOST_GPUS)]
    bytes: Annotated[int, Field(ge=1, le=MAX_BYTES)]


class _PointToPoint(_Sending):
    kind: Literal["point_to_point"]
    messages: list[_Message]

    def node(self, gpus: int) -> Node:
        sent = tuple((each.source, each.destination, each.bytes) for each in self.messages)
        return Collective(self.name, PointToPoint(sent))


class _Own(_Sending):
    kind: Literal["own"]
    pattern: Name
    fields: dict[str, JsonValue] = Field(default_factory=dict)

    def node(self, gpus: int) -> Node:
        return Collective(self.name, PATTERN.value(self.pattern, self.fields))


class _Part(_Waiting):
    kind: Literal["part"]
    nodes: "_Nodes"


AnyNode = _Compute | _AllToAll | _Ring | _RingAllToAll | _ExchangeRound | _PointToPoint | _Own | _Part
_Nodes = Annotated[
    list[Annotated[AnyNode, Field(discriminator="kind")]], Field(min_length=1, max_length=MOST_NODES)
]
PATTERNS = (AllToAll, Ring, RingAllToAll, ExchangeRound, PointToPoint)
"""Every pattern that comes with lightrail."""
OPERATIONS: Mapping[str, Operation] = {
    "ring_all_reduce": "all-reduce",
    "ring_reduce_scatter": "reduce-scatter",
    "ring_all_gather": "all-gather",
}


class JobModel(Strict):
    """A job file."""

    format: Literal["lightrail job 1"]
    name: Name
    gpus: Annotated[int, Field(ge=1, le=MOST_GPUS)]
    note: str = ""
    nodes: _Nodes


def read_job(path: Path) -> Job:
    """Return the job of a file.

    Raises
    ------
    TraceError
        If the file cannot be read or is no such job; it says where in the file.
    """
    document = _document_in(path)
    say_own(path, document)
    return job_of_document(document, str(path))


def write_job(job: Job, path: Path) -> None:
    """Write a job to a file that `read_job` reads as an equal job.

    Raises
    ------
    DemandError
        As of `job_text`.
    MachineError
        If the file cannot be written.
    """
    text = job_text(job)
    try:
        path.write_text(text)
    except (OSError, ValueError) as error:
        raise MachineError(f"write {str(path)!r}: {error}", "give a path that can be written") from error


def job_document(job: Job) -> dict[str, Any]:
    """Return a job as what its file says, for JSON that holds more than a job.

    Raises
    ------
    DemandError
        If the format has no words for it: a pattern that is not made of a class and plain values
        (`traffic.collectives.own_pattern`), or numbers beyond its ranges.
    """
    document = _document_of(job)
    try:
        JobModel.model_validate(document)
    except ValidationError as error:
        raise DemandError(f"job {job.name!r} cannot be written: {_first_of(error)}", HINT) from error
    return document


def own_patterns(nodes: Iterable[Node]) -> list[str]:
    """Return the classes of patterns of the user's own, as ``module:Class``, each once."""
    return list(dict.fromkeys(class_name(type(pattern)) for pattern in _own(nodes)))


def check_own_patterns(nodes: Iterable[Node]) -> None:
    """Refuse patterns of the user's own whose messages cannot be sent, as `check_lowered` does."""
    for pattern in _own(nodes):
        check_lowered(pattern)


def _own(nodes: Iterable[Node]) -> list[Pattern]:
    patterns = (node.pattern for node in nodes if isinstance(node, Collective))
    return [pattern for pattern in patterns if type(pattern) not in PATTERNS]


def job_text(job: Job) -> str:
    """Return a job as the text of its file, a line per node; errors are those of `job_document`."""
    document = job_document(job)
    nodes = ",\n    ".join(map(json.dumps, document.pop("nodes")))
    head = "".join(f"  {json.dumps(key)}: {json.dumps(value)},\n" for key, value in document.items())
    return f'{{\n{head}  "nodes": [\n    {nodes}\n  ]\n}}\n'


# Reading

_first_of = partial(first_of, tagged="nodes")


def _document_in(path: Path) -> object:
    text = text_of(path)
    try:
        return json_value(text)
    except TraceError as error:
        raise TraceError(f"{path}: {error.sentence}", HINT) from error


def job_of_document(document: object, file: str) -> Job:
    """Return the job that `job_document` gave; TraceError, which names ``file``, if it is none."""
    try:
        model = JobModel.model_validate(document)
    except ValidationError as error:
        raise TraceError(f"{file}, {_first_of(error)}", HINT) from error
    try:
        return unfolded(model.name, model.gpus, _parts(model.nodes, model.gpus, f"{file}, "), model.note)
    except DemandError as error:
        raise TraceError(f"{file}: {error.sentence}", error.hint) from error


def _parts(models: Sequence[AnyNode], gpus: int, where: str) -> list[Node | Repeat]:
    """Return what nodes of a file stand for; ``where`` is the place of their list."""
    _check_names(models, where)
    parts: list[Node | Repeat] = []
    for index, model in enumerate(models):
        place, after = _short(f"{where}nodes[{index}]"), tuple(model.after)
        try:
            parts.append(_part(model, gpus, after, f"{place}."))
        except (DemandError, ScenarioError) as error:
            raise TraceError(f"{place}: {error.sentence}", error.hint) from error
    return parts


def _short(place: str) -> str:
    """Return a place without its middle where it is long: parts may be nested in a hundred others."""
    return place if len(place) <= LONGEST_PLACE else f"{place[: LONGEST_PLACE - 50]}...{place[-30:]}"


def _part(model: AnyNode, gpus: int, after: tuple[str, ...], where: str) -> Node | Repeat:
    if isinstance(model, _Part):
        inside = unfolded(model.name, gpus, _parts(model.nodes, gpus, where))
        return Repeat(inside, model.repeat, after)
    node = replace(model.node(gpus), at_s=model.at_s)
    if isinstance(node, Collective) and isinstance(model, _Sending):
        node = replace(node, communicator=model.communicator)
    if outside := [gpu for gpu in node.gpus if gpu >= gpus]:
        raise DemandError(f"GPU {outside[0]} is used, and the job has {gpus} GPUs", "count them from 0")
    if model.repeat > 1:
        return Repeat(node, model.repeat, after)
    return replace(node, after=after)


def _check_names(models: Sequence[AnyNode], where: str) -> None:
    number: dict[str, int] = {}
    for index, model in enumerate(models):
        if model.name in number:
            named = f"nodes[{number[model.name]}] is named {shown(model.name)} too"
            raise TraceError(f"{where}nodes[{index}].name: {named}", "name them apart")
        number[model.name] = index
    for index, model in enumerate(models):
        for each, name in enumerate(model.after):
            if name not in number:
                place = f"{where}nodes[{index}].after[{each}]"
                raise TraceError(f"{place}: no node is named {shown(name)}", "name one of the same list")


def _hops(several: Sequence[Sequence[Sequence[int]]]) -> tuple[tuple[Hop, ...], ...]:
    return tuple(tuple((near, far) for near, far in hops) for hops in several)


def _members(gpus: Sequence[int] | None, of: int) -> tuple[int, ...]:
    return tuple(range(of)) if gpus is None else tuple(gpus)


def _check_square(rows: Sequence[Sequence[int]], size: int) -> None:
    if len(rows) != size:
        raise DemandError(f"matrix_bytes has {len(rows)} rows for {size} GPUs", "give a row for each GPU")
    for index, row in enumerate(rows):
        if len(row) != size:
            raise DemandError(
                f"matrix_bytes[{index}] has {len(row)} numbers for {size} GPUs", "give one each"
            )


# Writing


def _document_of(job: Job) -> dict[str, Any]:
    head = {"format": FORMAT, "name": job.name, "gpus": job.gpus, **_given(note=job.note)}
    nodes = [
        {"name": node.name, **_given(after=[*node.after], at_s=node.at_s), **_words_of(node)}
        for node in job.nodes
    ]
    return {**head, "nodes": nodes}


def _words_of(node: Node) -> dict[str, object]:
    if isinstance(node, Compute):
        words = {"gpus": [*node.gpus], "duration_s": node.duration_s}
        return {"kind": "compute", **words, **_given(durations_s=[*node.durations_s])}
    return _words_of_pattern(node.name, node.pattern) | _given(communicator=node.communicator)


def _words_of_pattern(name: str, pattern: Pattern) -> dict[str, object]:
    if type(pattern) not in PATTERNS:  # what is derived from one of them may send something else
        return _words_of_own(name, pattern)
    if isinstance(pattern, AllToAll):
        demand = pattern.demand
        words = {"gpus": [*pattern.ranks], "matrix_bytes": demand.matrix.tolist()}
        more = _given(note=demand.note, coupled_as_one=pattern.coupled_as_one)
        return {"kind": "all_to_all", **words, "demand": demand.name, **more}
    if isinstance(pattern, Ring):
        kinds = {operation: kind for kind, operation in OPERATIONS.items()}
        rings = [[*ring] for ring in pattern.rings]
        return {"kind": kinds[pattern.operation], "rings": rings, "bytes": pattern.bytes}
    if isinstance(pattern, RingAllToAll):
        hops, back = ([[[*hop] for hop in ring] for ring in some] for some in (pattern.rings, pattern.back))
        kind = {"kind": "ring_all_to_all", "hops": hops, **_given(hops_back=back)}
        return {**kind, "nodes": [[*node] for node in pattern.nodes], "node_bytes": pattern.node_bytes}
    if isinstance(pattern, ExchangeRound):
        lanes = [[[*hop] for hop in lane] for lane in pattern.lanes]
        kind = {"kind": "exchange_round", "hops": lanes, "nodes": [[*node] for node in pattern.nodes]}
        return {**kind, "distance": pattern.distance, "node_bytes": pattern.node_bytes}
    assert isinstance(pattern, PointToPoint)
    columns = ("source", "destination", "bytes")
    messages = [dict(zip(columns, each, strict=True)) for each in pattern.messages]
    return {"kind": "point_to_point", "messages": messages}


def _words_of_own(name: str, pattern: Pattern) -> dict[str, object]:
    try:
        return {"kind": "own", **PATTERN.document(pattern)}
    except DemandError as error:
        raise DemandError(f"node {name!r}: {error.sentence}", error.hint) from error


def _given(**words: object) -> dict[str, object]:
    """Return the words that are not empty or false, which is what they are by default."""
    return {key: value for key, value in words.items() if value}
