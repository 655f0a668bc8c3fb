"""What a user's own policy returns, looked at before anything is made of it: one sentence says what is wrong.

Here is what needs no fabric: types, shapes, numbers in range, each chunk once. Where the queue pairs of any
scheme begin and end, and how many bytes they carry, is checked when the scheme answers
(`traffic.placing`).
"""

from collections.abc import Callable, Sequence
from typing import TypeGuard

import numpy as np
from numpy.typing import NDArray

from topologies.errors import ScenarioError
from topologies.fabric import Nic
from traffic.spraying.policy import (
    ENTROPIES,
    Assignment,
    Chooser,
    Lanes,
    LaneSet,
    LaneState,
    QueuePair,
    each_of,
)

PAGE = "docs/howto/own_scheme.md"
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


def checked_lanes(name: str, found: object, message: int, known: set[Lanes]) -> Lanes:
    """Return what a reactive policy lets a message use.

    Parameters
    ----------
    name
        The scheme, as it is named in a sentence.
    found
        What its ``admit`` returned.
    message
        The number of the message.
    known
        What was looked at before, to which it is added.

    Raises
    ------
    ScenarioError
        If that is no tuple of sets of lanes, or there is no lane, or one twice.
    """
    if not isinstance(found, tuple) or not all(isinstance(each, LaneSet) for each in found):
        raise refusal(name, f"returned {_kind(found)} from admit", "return a tuple of LaneSet")
    if not all(map(_is_of_tuples, found)):
        raise refusal(name, "has lanes between what is no tuple of NICs", "give NICs and entropies in tuples")
    if found not in known:
        if not _queue_pairs(name, each_of(found)):
            said, hint = f"admitted message {message} to no lane", "admit each message to one at least"
            raise refusal(name, said, hint)
        known.add(found)
    return found


def _is_of_tuples(lanes: LaneSet) -> bool:
    sides: tuple[object, object] = lanes.sources, lanes.destinations
    of_nics = [isinstance(side, tuple) and all(isinstance(nic, Nic) for nic in side) for side in sides]
    return all(of_nics) and isinstance(lanes.entropies, tuple | range)


def choice(policy: Chooser, message: int, states: Sequence[LaneState], now: float) -> int | None:
    """Return the lane that a policy chooses, of those shown, for a message's next chunk, or None to wait.

    Raises
    ------
    ScenarioError
        If there is no such lane.
    """
    choose: Callable[..., object] = policy.choose  # compiled, a call of the method itself takes ints alone
    lane = choose(message=message, states=states, now=now)
    if lane is None:
        return None
    lanes = len(states)
    if isinstance(lane, int) and not isinstance(lane, bool) and 0 <= lane < lanes:  # as nearly all are
        return lane
    if not _is_index(lane, lanes):
        said = f"chose {_shown(lane)} for message {message}, which has {lanes} lanes"
        raise refusal(policy.name, said, "return the index of a lane that it was admitted to, or None")
    return int(lane)


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
