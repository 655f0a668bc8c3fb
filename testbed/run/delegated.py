"""Delegated all-to-alls in the runner: their legs, what these wait for, and the rows that come of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from testbed.run.backend import Strand
from testbed.run.run_tables import Of, Part, Written, counted
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
    def rows_inside(self) -> NDArray[np.int64]:
        """Which of the all-to-all's messages stay inside."""
        return np.flatnonzero(self.delegation.pair < 0)

    @property
    def waits(self) -> list[int]:
        """For how many others each leg waits."""
        counts = [0] * len(self.legs)
        for leg in self.legs:
            for then in leg.then:
                counts[then] += 1
        return counts


class Lanes(NamedTuple):
    """Where what all pairs of servers owe each other goes as coupled flows."""

    placed: Placement
    over: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]
    """Medium, lane and path of each of its queue pairs, as tables number them."""


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
    found, start_ps = legs.delegation, times_ps[0][0]
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
                node, row, 0, *ends, size, start_ps, end_ps, end_ps == NEVER, False, -1
            )
            if ended_ps < NEVER:
                part = Part(0, NVLINK, -1, -1, source, destination, size, began_ps, ended_ps)
                written.add_parts(node, number, [part])
        elif not per_pair:
            groups[pair] = len(written.messages) if groups[pair] < 0 else groups[pair]
            times = start_ps, last_ps
            written.messages.add(node, row, 0, *ends, size, *times, given_up, True, groups[pair])
    for index, leg in enumerate(legs.legs):
        if leg.inside is None:
            pair = index - legs.first_pair
            if per_pair:
                groups[pair] = len(written.messages)
                ends, times = (leg.source, leg.destination), (start_ps, last_ps)
                written.messages.add(node, -1, 0, *ends, leg.size, *times, given_up, True, groups[pair])
            written.add_parts(node, -1, parts[index], op=CROSSES, group=groups[pair])
        elif index != legs.inside:
            written.add_inside(node, -1, leg.inside, times_ps[index], op=_op(legs, index))


def write_as_one(
    written: Written,
    node: int,
    legs: Legs,
    times_ps: Sequence[tuple[int, int]],
    lanes: Lanes | None,
    let_go_ps: int,
) -> None:
    """Write down an all-to-all whose pairs of servers were one leg: messages inside, and pairs.

    Parameters
    ----------
    written, node, legs, times_ps, let_go_ps
        As of `write_in_turn`.
    lanes
        Where the pairs went; None if there are none.
    """
    found, start_ps = legs.delegation, times_ps[0][0]
    between, end_ps = found.between, max(end_ps for _, end_ps in times_ps)
    times_ps = [(max(first_ps, let_go_ps), end_ps) for first_ps, end_ps in times_ps]
    for index, leg in enumerate(legs.legs):
        if leg.inside is not None and index != legs.inside:
            written.add_inside(node, -1, leg.inside, times_ps[index], op=_op(legs, index))
        elif leg.inside is not None:
            ends, rows = (leg.inside.source, leg.inside.destination), len(leg.inside)
            columns = (*ends, leg.inside.bytes, start_ps, times_ps[index][1], False, False, -1)
            first = written.messages.block(rows, node, Of(legs.rows_inside), 0, *columns)
            written.add_inside(node, Of(counted(rows), plus=first), leg.inside, times_ps[index])
    if len(between) and lanes is not None:
        ends, rows = (between.source, between.destination), len(between)
        group = Of(counted(rows), plus=len(written.messages))
        written.messages.block(rows, node, -1, 0, *ends, between.bytes, start_ps, end_ps, False, True, group)
        placed, crossing_ps = lanes.placed, times_ps[legs.first_pair]
        written.legs.block(
            len(placed.bytes),
            node,
            -1,
            CROSSES,
            0,
            *(Of(column, placed.qp) for column in lanes.over),
            *(Of(end, placed.message) for end in ends),
            placed.bytes,
            *crossing_ps,
            -1,
            Of(placed.message, plus=group.plus),
        )


def _op(legs: Legs, leg: int) -> int:
    return GATHER if leg < legs.first_pair else SCATTER


def _over_nvlink(messages: Messages, then: range) -> Leg:
    return Leg(-1, -1, int(messages.bytes.sum()), then, messages)
