"""A user's own pattern: how it is written down, and what its operations must be."""

from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from typing import cast

import numpy as np
from numpy.typing import NDArray

from topologies.errors import DemandError
from topologies.own import own_code
from topologies.own_value import Kind, class_name
from traffic.collectives.pattern import EndToEnd, Pattern, forwards
from traffic.messages import Messages
from traffic.ops import ANY, OWN, Ops, Part

PATTERN: Kind[Pattern] = Kind(
    "pattern",
    "docs/howto/own_pattern.md",
    methods=("lower", "renumbered"),
    values=("name", "gpus"),
    parts="name, gpus, lower and renumbered",
    error=DemandError,
    word="pattern",
)


def check_lowered(pattern: Pattern) -> None:
    """Refuse a user's own pattern whose operations cannot be carried out.

    Raises
    ------
    LightrailError
        If its own code raises, or it returns no operations, or some without bytes or between GPUs that do not
        take part, or that wait for each other, or owe something else when they may be coupled; or if what it
        owes from end to end is no messages between its GPUs.
    """
    name = class_name(type(pattern))
    with own_code("pattern", name):
        ops, again = cast(object, pattern.lower()), cast(object, pattern.lower())
        coupled = cast(object, pattern.lower(coupled=True))
        gpus = np.array(sorted(pattern.gpus), dtype=np.int64)
        owed = [cast(object, pattern.end_to_end) for _ in range(2)] if forwards(pattern) else []
    for found in (ops, again, coupled):
        _check_ops(name, found, gpus)
    ops, again, coupled = cast(tuple[Ops, Ops, Ops], (ops, again, coupled))
    if any(part.together for part in ops.parts):
        raise _not_valid(name, "go together where they may not be coupled")
    if not _is_same(ops, again):
        raise _not_valid(name, "are others each time that they are asked for")
    if not _owes_as(ops, coupled):
        raise _not_valid(name, "carry other bytes when they may be coupled")
    for found in owed:
        _check_end_to_end(f"{name}.end_to_end", found, gpus, ops)
    if owed and not _is_same(*(Ops((Part(cast(EndToEnd, found).messages),)) for found in owed)):
        raise _not_valid(f"{name}.end_to_end", "are others each time that they are asked for")


def _check_ops(name: str, ops: object, gpus: NDArray[np.int64]) -> None:
    if not isinstance(ops, Ops):
        raise _not_valid(name, f"are an object of type {type(ops).__name__}")
    parts = cast(object, ops.parts)
    if not isinstance(parts, tuple) or not parts or not all(isinstance(part, Part) for part in parts):
        raise _not_valid(name, "are no tuple of parts")
    for part in ops.parts:
        _check_part(name, part, gpus)
    if ops.brought:
        raise _not_valid(name, "bring messages that are not their moves")
    if not _is_integers(ops.after) or ops.after.shape != (len(ops.after), 2):
        raise _not_valid(name, "have no array of pairs of integers for after")
    _check_after(name, ops.after, len(ops))


def _check_end_to_end(name: str, owed: object, gpus: NDArray[np.int64], ops: Ops) -> None:
    if not isinstance(owed, EndToEnd):
        raise _not_valid(name, f"are an object of type {type(owed).__name__}")
    _check_part(name, Part(owed.messages), gpus)
    nodes = cast(object, owed.nodes)
    if not isinstance(nodes, tuple) or not all(isinstance(node, tuple) for node in nodes):
        raise _not_valid(name, "have nodes that are no tuple of tuples")
    listed = [gpu for node in owed.nodes for gpu in node]
    if not all(type(gpu) is int for gpu in listed) or len(set(listed)) < len(listed):
        raise _not_valid(name, "have nodes with what is no number of a GPU, or with one twice")
    if not set(listed) <= set(gpus.tolist()):
        raise _not_valid(name, "have nodes with a GPU that is not among its gpus")
    messages = owed.messages
    if (messages.source == messages.destination).any():
        raise _not_valid(name, "have a message from a GPU to itself")
    if sum(messages.bytes.tolist()) > sum(ops.moves.bytes.tolist()):
        raise _not_valid(name, "have more bytes than it moves")


def _check_part(name: str, part: Part, gpus: NDArray[np.int64]) -> None:
    moves = cast(object, part.moves)
    if not isinstance(moves, Messages):
        raise _not_valid(name, f"have moves of type {type(moves).__name__}")
    for field, array in part.columns.items():
        if not _is_integers(array):
            raise _not_valid(name, f"have no array of integers for {field}")
        is_optional = field in ("channel", "placed_as") and not array.size
        if array.shape != (moves.bytes.size,) and not is_optional:
            raise _not_valid(name, f"have {field} of the shape {array.shape}, and not {(moves.bytes.size,)}")
    for field in ("source", "destination"):
        array = part.columns[field]
        if (outside := array[~np.isin(array, gpus)]).size:
            raise _not_valid(name, f"have the {field} {outside[0]}, which is not among its gpus")
    if moves.bytes.min(initial=1) < 1:
        raise _not_valid(name, f"have a move of {moves.bytes.min()} bytes")
    if (part.medium, part.stage) != (ANY, OWN):
        raise _not_valid(name, "say what they go over, which their scheme decides")


def _is_integers(array: object) -> bool:
    return type(array) is np.ndarray and array.dtype.kind in "iu"


def _is_same(ops: Ops, again: Ops) -> bool:
    """Return whether operations are equal; bounds and predictions ask for them anew."""
    if len(ops.parts) != len(again.parts):
        return False
    pairs = zip(_arrays(ops), _arrays(again), strict=True)
    return all(np.array_equal(array, other) for array, other in pairs)


def _arrays(ops: Ops) -> list[NDArray[np.int64]]:
    return [ops.after, *(column for part in ops.parts for column in part.columns.values())]


def _owes_as(ops: Ops, other: Ops) -> bool:
    """Return whether all that GPUs send to each other is the same, in whatever moves."""
    return all(np.array_equal(one, two) for one, two in zip(_by_pair(ops), _by_pair(other), strict=True))


def _by_pair(ops: Ops) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the GPUs that send to each other, each two once, and their bytes."""
    ends = np.stack([ops.moves.source, ops.moves.destination], axis=1)
    pairs, pair = np.unique(ends, axis=0, return_inverse=True)
    sizes = np.zeros(len(pairs), dtype=np.int64)
    np.add.at(sizes, pair.ravel(), ops.moves.bytes)
    return pairs, sizes


def _check_after(name: str, after: NDArray[np.int64], ops: int) -> None:
    if after.size and (after.min() < 0 or after.max() >= ops):
        raise _not_valid(name, f"are {ops}, and some wait for others")
    before = defaultdict[int, list[int]](list)
    if len(np.unique(after, axis=0)) < len(after):
        raise _not_valid(name, "have a wait twice")
    for first, then in after.tolist():
        before[then].append(first)
    try:
        TopologicalSorter(before).prepare()
    except CycleError as error:
        circle = " > ".join(map(str, error.args[1]))
        raise _not_valid(name, f"wait for each other: {circle}") from error


def _not_valid(name: str, said: str) -> DemandError:
    return DemandError(f"the operations of the pattern {name!r} {said}", f"see {PATTERN.page}")
