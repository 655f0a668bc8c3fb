"""A user's own pattern as it is written down: the class that makes it, and the fields that it is made of."""

import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from graphlib import CycleError, TopologicalSorter
from typing import cast

import numpy as np
from numpy.typing import NDArray

from topologies.errors import DemandError, LightrailError, ScenarioError
from topologies.own import own_code, own_object
from traffic.collectives.exchange import Exchange, Pattern
from traffic.messages import Messages

PAGE = "docs/own_pattern.md"
METHODS = ("exchange", "renumbered")
VALUES = ("name", "gpus")
"""What a pattern has besides its methods."""


def class_name(own: type[Pattern]) -> str:
    """Return a pattern's class as ``module:Class``."""
    return f"{own.__module__}:{own.__qualname__}"


def own_pattern(name: str, made_of: Mapping[str, object]) -> Pattern:
    """Return a user's own pattern.

    Parameters
    ----------
    name
        ``module:Class``, with the module on Python's path or in the current directory.
    made_of
        The arguments of the class by name; lists become tuples.

    Raises
    ------
    LightrailError
        If there is no such class, it makes no pattern of them, or its own code raises.
    """
    own = own_object("pattern", name)
    # Looked at before it is called: a file that names it may come from anybody.
    if not isinstance(own, type) or not all(callable(getattr(own, method, None)) for method in METHODS):
        raise _not_a_pattern(name)
    make = cast(Callable[..., object], own)
    with own_code("pattern", name):
        pattern = make(**{key: _frozen(value) for key, value in made_of.items()})
        if lacking := [value for value in VALUES if not hasattr(pattern, value)]:
            raise _not_a_pattern(name, lacking[0])
    return cast(Pattern, pattern)


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
    return DemandError(f"the exchange of the pattern {name!r} {said}", f"see {PAGE}")


def words_of_own(pattern: Pattern) -> dict[str, object]:
    """Return what `own_pattern` makes an equal pattern of: its class, and its fields as JSON has them.

    Raises
    ------
    DemandError
        If that makes none: its class cannot be named, or holds what JSON does not.
    """
    name = class_name(type(pattern))
    module, _, own = name.partition(":")
    if module == "__main__" or "." in own:
        where = "the script that runs" if module == "__main__" else "another class or a function"
        raise _unwritable(pattern, f"its class is in {where}", "put it in a module of its own")
    hint = "make it a frozen dataclass of numbers, texts and tuples of them"
    try:
        made_of: dict[str, object] = json.loads(json.dumps(_fields(pattern), allow_nan=False, default=_plain))
    except (TypeError, ValueError) as error:
        raise _unwritable(pattern, str(error), hint) from error
    try:
        again = own_pattern(name, made_of)
        with own_code("pattern", name):
            is_equal = bool(again == pattern)
    except LightrailError as error:
        raise _unwritable(pattern, error.sentence, error.hint) from error
    if not is_equal:
        raise _unwritable(pattern, "what its class makes of its fields is not equal to it", hint)
    return {"pattern": name, "fields": made_of}


def _fields(pattern: Pattern) -> dict[str, object]:
    if not is_dataclass(pattern):
        return {}
    return {field.name: getattr(pattern, field.name) for field in fields(pattern) if field.init}


def _plain(value: object) -> object:
    """Return a number of numpy's as one of Python's."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"it holds an object of type {type(value).__name__}")


def _frozen(value: object) -> object:
    """Return a value of JSON as a frozen value holds it."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _unwritable(pattern: Pattern, why: str, hint: str) -> DemandError:
    sentence = f"the pattern {class_name(type(pattern))!r} cannot be written down: {why}"
    return DemandError(sentence, hint if PAGE in hint else f"{hint}, see {PAGE}")


def _not_a_pattern(name: str, lacking: str = "") -> ScenarioError:
    return ScenarioError(
        f"{name!r} is not a pattern" + (f": it has no {lacking}" if lacking else ""),
        f"name a class with {', '.join((*VALUES, *METHODS[:-1]))} and {METHODS[-1]}, see {PAGE}",
    )
