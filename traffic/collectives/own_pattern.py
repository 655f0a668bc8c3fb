"""A user's own pattern: how it is written down, and what its exchange must be."""

from collections import defaultdict
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from typing import cast

import numpy as np
from numpy.typing import NDArray

from topologies.errors import DemandError
from topologies.own import own_code
from traffic.collectives.exchange import Exchange, Pattern
from traffic.messages import Messages
from traffic.own_value import Kind, class_name, own_value, words_of_value

PATTERN = Kind(
    "pattern",
    "docs/own_pattern.md",
    methods=("exchange", "renumbered"),
    values=("name", "gpus"),
    parts="name, gpus, exchange and renumbered",
    error=DemandError,
)


def own_pattern(name: str, made_of: Mapping[str, object]) -> Pattern:
    """Return a user's own pattern: parameters and errors are those of `own_value`."""
    return cast(Pattern, own_value(PATTERN, name, made_of))


def check_exchange(pattern: Pattern) -> None:
    """Refuse a user's own pattern whose messages cannot be sent.

    Raises
    ------
    LightrailError
        If its own code raises, or it returns no exchange, or one of messages without bytes or between GPUs
        that do not take part, or of messages that wait for each other.
    """
    name = class_name(type(pattern))
    with own_code("pattern", name):
        exchange, again = cast(object, pattern.exchange()), cast(object, pattern.exchange())
        gpus = np.array(sorted(pattern.gpus), dtype=np.int64)
    if not isinstance(exchange, Exchange):
        raise _no_exchange(name, f"is an object of type {type(exchange).__name__}")
    if not isinstance(exchange.messages, Messages):
        raise _no_exchange(name, f"has messages of type {type(exchange.messages).__name__}")
    messages, waits, connection = exchange.messages, exchange.waits, exchange.connection
    ends = {"source": messages.source, "destination": messages.destination}
    arrays = {"bytes": messages.bytes, **ends, "waits": waits, "connection": connection}
    for field, array in arrays.items():
        if type(array) is not np.ndarray or array.dtype.kind not in "iu":
            raise _no_exchange(name, f"has no array of integers for {field}")
        shape = (len(array), 2) if field == "waits" else (messages.bytes.size,)
        if array.shape != shape and (field != "connection" or array.size):
            raise _no_exchange(name, f"has {field} of the shape {array.shape}, and not {shape}")
    for field, array in ends.items():
        if (outside := array[~np.isin(array, gpus)]).size:
            raise _no_exchange(name, f"has the {field} {outside[0]}, which is not among its gpus")
    if messages.bytes.min(initial=1) < 1:
        raise _no_exchange(name, f"has a message of {messages.bytes.min()} bytes")
    _check_waits(name, waits, len(messages))
    if not _is_same(exchange, again):
        raise _no_exchange(name, "is another one each time that it is asked for")


def _is_same(exchange: Exchange, again: object) -> bool:
    """Return whether a second exchange is as the first; bounds and predictions ask for it anew."""
    if not (isinstance(again, Exchange) and isinstance(again.messages, Messages)):
        return False
    pairs = zip(_arrays(exchange), _arrays(again), strict=True)
    return all(np.array_equal(array, other) for array, other in pairs)


def _arrays(exchange: Exchange) -> tuple[NDArray[np.int64], ...]:
    messages = exchange.messages
    return messages.source, messages.destination, messages.bytes, exchange.waits, exchange.connection


def _check_waits(name: str, waits: NDArray[np.int64], messages: int) -> None:
    if waits.size and (waits.min() < 0 or waits.max() >= messages):
        raise _no_exchange(name, f"has {messages} messages, and waits of others")
    before = defaultdict[int, list[int]](list)
    if len(np.unique(waits, axis=0)) < len(waits):
        raise _no_exchange(name, "has a wait twice")
    for first, then in waits.tolist():
        before[then].append(first)
    try:
        TopologicalSorter(before).prepare()
    except CycleError as error:
        circle = " > ".join(map(str, error.args[1]))
        raise _no_exchange(name, f"has messages that wait for each other: {circle}") from error


def _no_exchange(name: str, said: str) -> DemandError:
    return DemandError(f"the exchange of the pattern {name!r} {said}", f"see {PATTERN.page}")


def words_of_own(pattern: Pattern) -> dict[str, object]:
    """Return what `own_pattern` makes an equal pattern of; DemandError if that makes none."""
    name, made_of = words_of_value(PATTERN, pattern)
    return {"pattern": name, "fields": made_of}
