"""Delegated all-to-alls in the runner: their legs, what these wait for, and the rows that come of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise

from testbed.run.backend import Strand
from testbed.run.run_tables import Row, Sent
from traffic.delegation import MOST_KNOWN, Delegation
from traffic.messages import Messages
from traffic.records import NVLINK
from traffic.scheme import Placement


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

    @property
    def waits(self) -> list[int]:
        """For how many others each leg waits."""
        counts = [0] * len(self.legs)
        for leg in self.legs:
            for then in leg.then:
                counts[then] += 1
        return counts


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


def pair_paths(placed: Placement, names: Sequence[str]) -> list[str]:
    """Return the path of each message over its lanes, whose names are given."""
    parts: list[list[str]] = [[] for _ in range(int(placed.message.max(initial=-1)) + 1)]
    for message, qp, size in zip(
        placed.message.tolist(), placed.qp.tolist(), placed.bytes.tolist(), strict=True
    ):
        parts[message].append(f"{size}@{names[qp]}")
    return list(map(" ".join, parts))


def rows_of(
    legs: Legs,
    node: str,
    start_ps: int,
    ends_ps: Sequence[int],
    paths: Sequence[Mapping[str, int]],
    *,
    per_pair: bool,
) -> Iterator[Row]:
    """Yield the rows of an all-to-all.

    Parameters
    ----------
    legs, node, start_ps
        What ran, as which collective, and when that began.
    ends_ps, paths
        When each leg ended, and how many bytes went over which queue pair, by name.
    per_pair
        Whether there is a row for each pair of servers, instead of one for each message between them.
    """
    found, pairs = legs.delegation, legs.delegation.pair.tolist()
    end_ps = max(ends_ps)
    inside_ps = ends_ps[legs.inside] if legs.inside >= 0 else end_ps
    columns = (found.messages.source, found.messages.destination, found.messages.bytes)
    for source, destination, size, pair in zip(*(column.tolist() for column in columns), pairs, strict=True):
        if pair < 0:
            yield node, source, destination, size, start_ps, inside_ps, NVLINK
        elif not per_pair:
            leg = legs.first_pair + pair
            path = _part(paths[leg], size, legs.legs[leg].size)
            yield node, source, destination, size, start_ps, end_ps, path
    for leg, carried in zip(legs.legs, paths, strict=True):
        if per_pair and leg.inside is None:
            yield (
                node,
                leg.source,
                leg.destination,
                leg.size,
                start_ps,
                end_ps,
                _part(carried, leg.size, leg.size),
            )


def rows_as_one(
    legs: Legs, node: str, start_ps: int, ends_ps: Sequence[int], paths: Sequence[str]
) -> list[Row | Sent]:
    """Return the rows of an all-to-all whose pairs of servers are one leg: of messages inside, and of pairs.

    Parameters
    ----------
    legs, node, start_ps, ends_ps
        As of `rows_of`.
    paths
        Between each pair of servers.
    """
    found, end_ps = legs.delegation, max(ends_ps)
    rows: list[Row | Sent] = []
    if legs.inside >= 0:
        rows.append(Sent(node, found.inside, start_ps, ends_ps[legs.inside], (NVLINK,)))
    if len(found.between):
        rows.append(Sent(node, found.between, start_ps, end_ps, paths))
    return rows


def _over_nvlink(messages: Messages, then: range) -> Leg:
    return Leg(-1, -1, int(messages.bytes.sum()), then, messages)


def _part(legs: Mapping[str, int], size: int, total: int) -> str:
    """Return the path of what has its part, ``size`` bytes, of all that goes between two servers."""
    edges = [0, *(round(carried * size / total) for carried in accumulate(legs.values()))]
    parts = zip(legs, pairwise(edges), strict=True)
    return " ".join(f"{end - begin}@{leg}" for leg, (begin, end) in parts if end > begin)
