"""Delegated all-to-alls in the runner: their legs, what these wait for, and the rows that come of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from testbed.run.backend import Strand
from testbed.run.run_tables import Integers, Of, Part, Written, counted
from traffic.clock import NEVER
from traffic.delegation import MOST_KNOWN, Delegation
from traffic.messages import Messages
from traffic.scheme import Placement
from traffic.tables import CROSSES, GATHER, NVLINK, SCATTER


@dataclass(frozen=True, eq=False)
class Leg:
    """What the runner sends as one message: a leg inside all servers, or what one sends to another."""

    source: int
    destination: int
    size: int
    then: range
    """The legs that wait for it, counted from the first of the all-to-all."""
    inside: Messages | None = None
    """What it moves over NVLink; None between servers."""
    between: Messages | None = None
    """What all servers send to each other, of a leg for all pairs; else None."""


@dataclass(frozen=True, eq=False)
class Legs:
    """The legs of a delegated all-to-all, in the order in which they may start."""

    delegation: Delegation
    legs: tuple[Leg, ...]
    first_pair: int
    """The leg of the first pair of servers; those of the others follow it, if it is not that of all."""
    inside: int
    """The leg of what stays inside; -1 if nothing does."""

    @cached_property
    def rows_inside(self) -> Integers:
        """Which of the all-to-all's messages stay inside."""
        return _packed(np.flatnonzero(self.delegation.pair < 0))

    @cached_property
    def kept(self) -> "tuple[Kept, ...]":
        """What is kept of each leg."""
        ops = [
            CROSSES if leg.inside is None else -1 if index == self.inside else _op(self, index)
            for index, leg in enumerate(self.legs)
        ]
        sent = [leg.inside or self.delegation.between for leg in self.legs]
        return tuple(
            Kept(op, *map(_packed, (each.source, each.destination, each.bytes)))
            for op, each in zip(ops, sent, strict=True)
        )

    @property
    def waits(self) -> list[int]:
        """For how many others each leg waits."""
        counts = [0] * len(self.legs)
        for leg in self.legs:
            for then in leg.then:
                counts[then] += 1
        return counts


class Kept(NamedTuple):
    """What is kept of a leg that ran as one, in as few bytes as hold it: of many thousands all last."""

    op: int
    """What it is part of; -1 of the messages that stay inside."""
    source: Integers
    destination: Integers
    bytes: Integers


class Lanes(NamedTuple):
    """Where what all pairs of servers owe each other goes as coupled flows."""

    pair: Integers
    """The pair of servers of each parcel."""
    qp: Integers
    """Its queue pair."""
    bytes: Integers
    over: tuple[Integers, Integers, Integers]
    """Medium, lane and path of each of the queue pairs, as tables number them."""


def lanes_of(placed: Placement, over: Sequence[tuple[int, int, int]]) -> Lanes:
    """Return where a placement's parcels go; ``over`` is what tables call each of its queue pairs."""
    medium, lane, path = np.array(over, dtype=np.int32).reshape(-1, 3).T
    return Lanes(_packed(placed.message), _packed(placed.qp), _packed(placed.bytes), (medium, lane, path))


@lru_cache(maxsize=MOST_KNOWN)
def legs_of(delegation: Delegation, *, pipelined: bool, as_one: bool = False, may_move: bool = False) -> Legs:
    """Return the legs of an all-to-all: gather, inside, pairs of servers and scatter, those that exist.

    With ``as_one`` all pairs of servers are one leg, as they are where they go as coupled flows. Where
    lanes ``may_move`` there is always a scatter, of what arrives elsewhere than planned.
    """
    between = delegation.between
    gathers, stays, scatters = (
        int(len(leg) > 0) for leg in (delegation.gather, delegation.inside, delegation.scatter)
    )
    scatters |= may_move
    first_pair = gathers + stays
    scatter = first_pair + (min(len(between), 1) if as_one else len(between))
    middle = range(0) if pipelined else range(gathers, scatter)
    last = range(0) if pipelined else range(scatter, scatter + scatters)
    columns = between.source.tolist(), between.destination.tolist(), between.bytes.tolist()
    pairs = [Leg(*pair, last) for pair in zip(*columns, strict=True)] if not as_one else []
    if as_one and len(between):
        pairs = [Leg(-1, -1, sum(columns[2]), last, between=between)]
    legs = (
        *(_over_nvlink(delegation.gather, middle) for _ in range(gathers)),
        *(_over_nvlink(delegation.inside, last) for _ in range(stays)),
        *pairs,
        *(_over_nvlink(delegation.scatter, range(0)) for _ in range(scatters)),
    )
    return Legs(delegation, legs, first_pair, first_pair - 1 if stays else -1)


def lane_flows(
    placed: Placement, carriers: Sequence[int], numbers: Sequence[int], is_light: Sequence[bool]
) -> list[list[Strand]]:
    """Return what goes over circuits as one coupled flow, and what goes over packets as another.

    A coupled flow ends when its busiest link does. Lanes that are circuits of their pair alone share nothing.
    Senders whose lanes share packet NICs, or circuits that servers forward between, do so by what they have
    left, so that those on the busiest link end together; what else they cross has room for them.

    Parameters
    ----------
    placed
        Where the lanes are.
    carriers, is_light
        Of its queue pairs: their numbers, and whether they go over circuits.
    numbers
        Of its messages.
    """
    flows: tuple[list[Strand], list[Strand]] = ([], [])
    rows = zip(placed.message.tolist(), placed.qp.tolist(), placed.bytes.tolist(), strict=True)
    for message, qp, size in rows:
        flows[is_light[qp]].append(Strand(numbers[message], size, carriers[qp]))
    return [flow for flow in flows if flow]


def write_in_turn(
    written: Written,
    node: int,
    legs: Legs,
    times_ps: Sequence[tuple[int, int]],
    parts: Sequence[Sequence[Part]],
    *,
    let_go_ps: int,
    given_up: bool,
    per_pair: bool,
) -> None:
    """Write down an all-to-all whose pairs of servers have a leg each.

    Parameters
    ----------
    written, node
        Where, and as which node.
    legs
        What ran.
    times_ps, parts
        When each leg began and ended, `NEVER` if it did not; and what carried it.
    let_go_ps
        When a controller let the all-to-all go; its first legs are owed since before.
    given_up
        Whether the all-to-all was.
    per_pair
        Whether there is a row for each pair of servers, instead of one for each message between them.
    """
    found, start_ps, communicator = legs.delegation, times_ps[0][0], written.communicators[node]
    last_ps = NEVER if given_up else max(end_ps for _, end_ps in times_ps)
    times_ps = [(max(first_ps, let_go_ps), end_ps) for first_ps, end_ps in times_ps]
    began_ps, ended_ps = times_ps[legs.inside]
    groups = [-1] * len(found.between)
    columns = found.messages.source, found.messages.destination, found.messages.bytes, found.pair
    rows = zip(*(column.tolist() for column in columns), strict=True)
    for row, (source, destination, size, pair) in enumerate(rows):
        ends = source, destination
        if pair < 0:
            end_ps = NEVER if given_up else ended_ps
            number = written.messages.add(
                node, row, communicator, *ends, size, start_ps, end_ps, end_ps == NEVER, False, -1
            )
            if ended_ps < NEVER:
                part = Part(0, NVLINK, -1, -1, source, destination, size, began_ps, ended_ps)
                written.add_parts(node, number, [part])
        elif not per_pair:
            groups[pair] = len(written.messages) if groups[pair] < 0 else groups[pair]
            times = start_ps, last_ps
            written.messages.add(node, row, communicator, *ends, size, *times, given_up, True, groups[pair])
    for index, leg in enumerate(legs.legs):
        if leg.inside is None:
            pair = index - legs.first_pair
            if per_pair:
                groups[pair] = len(written.messages)
                ends, times = (leg.source, leg.destination), (start_ps, last_ps)
                written.messages.add(
                    node, -1, communicator, *ends, leg.size, *times, given_up, True, groups[pair]
                )
            written.add_parts(node, -1, parts[index], op=CROSSES, group=groups[pair])
        elif index != legs.inside:
            sent = leg.inside.source, leg.inside.destination, leg.inside.bytes
            written.add_inside(node, -1, sent, times_ps[index], op=_op(legs, index))


def write_as_one(
    written: Written,
    node: int,
    legs: Sequence[Kept],
    rows_inside: Integers,
    times_ps: Sequence[tuple[int, int]],
    lanes: Lanes | None,
    let_go_ps: int,
) -> None:
    """Write down an all-to-all whose pairs of servers were one leg: messages inside, and pairs.

    Parameters
    ----------
    written, node, times_ps, let_go_ps
        As of `write_in_turn`.
    legs, rows_inside
        What is kept of it.
    lanes
        Where the pairs went; None if there are none.
    """
    start_ps, end_ps = times_ps[0][0], max(end_ps for _, end_ps in times_ps)
    communicator = written.communicators[node]
    times_ps = [(max(first_ps, let_go_ps), last_ps) for first_ps, last_ps in times_ps]
    for (op, source, destination, size), (first_ps, last_ps) in zip(legs, times_ps, strict=True):
        rows, number, sent = len(size), len(written.messages), (source, destination, size)
        numbers = Of(counted(rows), plus=number)
        if op == CROSSES and lanes is not None:
            written.messages.block(
                rows, node, -1, communicator, *sent, start_ps, end_ps, False, True, numbers
            )
            written.legs.block(
                len(lanes.bytes),
                node,
                -1,
                CROSSES,
                0,
                *(Of(column, lanes.qp) for column in lanes.over),
                Of(source, lanes.pair),
                Of(destination, lanes.pair),
                lanes.bytes,
                first_ps,
                last_ps,
                -1,
                Of(lanes.pair, plus=number),
            )
        elif op < 0:
            written.messages.block(
                rows, node, rows_inside, communicator, *sent, start_ps, last_ps, False, False, -1
            )
            written.add_inside(node, numbers, sent, (first_ps, last_ps))
        else:
            written.add_inside(node, -1, sent, (first_ps, last_ps), op=op)


def _packed(numbers: Integers) -> Integers:
    """Return numbers that are not negative in the type that takes the fewest bytes."""
    return numbers.astype(np.min_scalar_type(int(numbers.max(initial=0))))


def _op(legs: Legs, leg: int) -> int:
    return GATHER if leg < legs.first_pair else SCATTER


def _over_nvlink(messages: Messages, then: range) -> Leg:
    return Leg(-1, -1, int(messages.bytes.sum()), then, messages)
