"""What a user's own policy returns, looked at before anything is made of it: one sentence says what is wrong.

Here is what needs no fabric: types, shapes, numbers in range, each chunk once. Where the queue pairs of any
scheme begin and end, and how many bytes they carry, is checked where the kernel receives them
(`traffic.placing`).
"""

from collections.abc import Sequence
from typing import TypeGuard

import numpy as np
from numpy.typing import NDArray

from topologies.errors import ScenarioError
from topologies.fabric import Nic
from traffic.spraying.policy import ENTROPIES, Assignment, Permitted, QpState, QueuePair, ReactivePolicy

PAGE = "docs/own_scheme.md"
LONGEST = 100
"""Most characters that a sentence repeats of a value."""


def checked_assignment(name: str, found: object, chunks: int) -> Assignment:
    """Return what a proactive policy returned, with its indices as int64.

    Parameters
    ----------
    name
        The scheme, as it is named in a sentence.
    found
        What its ``assign`` returned.
    chunks
        How many chunks there are.

    Raises
    ------
    ScenarioError
        If that is not an assignment of so many chunks, each once, to queue pairs.
    """
    if not isinstance(found, Assignment):
        raise refusal(name, f"returned {_kind(found)}", "return an Assignment")
    queue_pairs = _queue_pairs(name, found.queue_pairs)
    qp = _indices(name, "chunk_qp", found.chunk_qp, chunks, len(queue_pairs), "queue pairs")
    order = _indices(name, "order", found.order, chunks, chunks, "chunks")
    times = np.bincount(order, minlength=chunks)
    if (wrong := np.flatnonzero(times != 1)).size:
        chunk = int(wrong[0])
        raise refusal(name, f"posts chunk {chunk} {times[chunk]} times", "have every chunk once in order")
    return Assignment(queue_pairs, qp, order)


def checked_permitted(name: str, found: object, messages: int) -> Permitted:
    """Return what a reactive policy permits.

    Parameters
    ----------
    name
        The scheme, as it is named in a sentence.
    found
        What its ``permit`` returned.
    messages
        How many messages there are.

    Raises
    ------
    ScenarioError
        If that does not say for each message which queue pairs may carry it, or says that none may.
    """
    if not isinstance(found, Permitted):
        raise refusal(name, f"returned {_kind(found)} from permit", "return a Permitted")
    queue_pairs, of_message = _queue_pairs(name, found.queue_pairs), found.of_message
    if not isinstance(of_message, Sequence) or len(of_message) != messages:
        what = len(of_message) if isinstance(of_message, Sequence) else _kind(of_message)
        said = f"permitted queue pairs to {what} messages, and there are {messages}"
        raise refusal(name, said, "give of_message a tuple for each message")
    for message, qps in enumerate(of_message):
        if not isinstance(qps, Sequence) or not all(_is_index(qp, len(queue_pairs)) for qp in qps):
            said = f"permitted message {message} {_shown(qps)}, and has {len(queue_pairs)} queue pairs"
            raise refusal(name, said, "give a tuple of their indices")
        if not qps or len(set(qps)) < len(qps):
            said = f"permitted message {message} the queue pairs {_shown(qps)}"
            raise refusal(name, said, "permit each message one at least, and each once")
    return Permitted(queue_pairs, tuple(tuple(map(int, qps)) for qps in of_message))


def choice(
    policy: ReactivePolicy, message: int, permitted: Sequence[int], states: Sequence[QpState], now: float
) -> int | None:
    """Return the queue pair that a policy chooses for a message's next chunk, or None to wait.

    Raises
    ------
    ScenarioError
        If it chooses what the message may not use.
    """
    qp: object = policy.choose(message=message, states=states, now=now)
    if qp is None:
        return None
    if not _is_index(qp, len(states)) or qp not in permitted:
        said = f"chose {_shown(qp)} for message {message}, which may use {_shown(tuple(permitted))}"
        raise refusal(policy.name, said, "return the index of a queue pair that it permitted, or None")
    return int(qp)


def refusal(name: str, said: str, hint: str) -> ScenarioError:
    """Return the error of a scheme that did something that no scheme may do."""
    return ScenarioError(f"the scheme {name!r} {said}", f"{hint}, see {PAGE}")


def _queue_pairs(name: str, found: object) -> tuple[QueuePair, ...]:
    if not isinstance(found, Sequence):
        raise refusal(name, f"has {_kind(found)} for queue pairs", "give a tuple of QueuePair")
    for each in found:
        if not isinstance(each, QueuePair):
            raise refusal(name, f"has {_kind(each)} among its queue pairs", "give a tuple of QueuePair")
        if not (isinstance(each.source, Nic) and isinstance(each.destination, Nic)):
            raise refusal(name, f"has the queue pair {_shown(each)}", "give it a Nic at either end")
        numbers = (*each.source, *each.destination)
        if not (all(map(_is_number, numbers)) and _is_index(each.entropy, ENTROPIES)):
            said = f"has the queue pair {_shown(each)}"
            raise refusal(name, said, f"count NICs in integers, entropies from 0 to {ENTROPIES - 1}")
        if each.communicator != 0:
            said = f"has the queue pair {_shown(each)}"
            raise refusal(name, said, "name no communicator: queue pairs are made those of the collective's")
    queue_pairs = tuple(found)
    if len(set(queue_pairs)) < len(queue_pairs):
        twice = next(each for each in queue_pairs if queue_pairs.count(each) > 1)
        raise refusal(name, f"has the queue pair {twice} twice", "give each once")
    return queue_pairs


def _indices(name: str, field: str, found: object, count: int, below: int, of_what: str) -> NDArray[np.int64]:
    """Return an array of indices as int64; ScenarioError if it is none of so many."""
    if type(found) is not np.ndarray or found.dtype.kind not in "iu" or found.shape != (count,):
        what = f"an array of {found.dtype}, {found.shape}" if isinstance(found, np.ndarray) else _kind(found)
        hint = f"give an array of integers of the shape ({count},)"
        raise refusal(name, f"has {what} for {field}, with {count} chunks", hint)
    wrong = found[(found < 0) | (found >= below)]
    if wrong.size:
        raise refusal(name, f"has {wrong[0]} in {field}, with {below} {of_what}", "count from 0")
    return found.astype(np.int64, copy=False)


def _is_number(value: object) -> TypeGuard[int | np.integer]:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _is_index(value: object, below: int) -> TypeGuard[int | np.integer]:
    return _is_number(value) and 0 <= int(value) < below


def _kind(what: object) -> str:
    return f"an object of type {type(what).__name__}"


def _shown(value: object) -> str:
    """Return a value as a sentence shows it: numbers as they are, of a user's own classes the name."""
    if isinstance(value, np.generic):
        return _shown(value.item())
    if isinstance(value, bool | int | float | str | tuple | list | QueuePair):
        text = str(value)
        return text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."
    return _kind(value)
