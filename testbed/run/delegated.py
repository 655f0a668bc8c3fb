"""Delegated all-to-alls in the runner: their legs, what these wait for, and the rows that come of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise

from testbed.run.backend import Strand
from traffic.delegation import MOST_KNOWN, Delegation
from traffic.messages import Messages
from traffic.records import NVLINK
from traffic.scheme import Placement

Row = tuple[str, int, int, int, float, float, str]
"""Node, source, destination, bytes, start and end [s], path: a row of `testbed.run.runner.Run.messages`."""


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


@dataclass(frozen=True, eq=False)
class Legs:
    """The legs of a delegated all-to-all, in the order in which they may start."""

    delegation: Delegation
    legs: tuple[Leg, ...]
    first_pair: int
    """The leg of the first pair of servers; those of the others follow it."""
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
def legs_of(delegation: Delegation, *, pipelined: bool) -> Legs:
    """Return the legs of an all-to-all: gather, inside, pairs of servers and scatter, those that exist."""
    between = delegation.between
    gathers, stays, scatters = (
        int(len(leg) > 0) for leg in (delegation.gather, delegation.inside, delegation.scatter)
    )
    first_pair = gathers + stays
    scatter = first_pair + len(between)
    middle = range(0) if pipelined else range(gathers, scatter)
    last = range(0) if pipelined else range(scatter, scatter + scatters)
    pairs = zip(between.source.tolist(), between.destination.tolist(), between.bytes.tolist(), strict=True)
    legs = (
        *(_over_nvlink(delegation.gather, middle) for _ in range(gathers)),
        *(_over_nvlink(delegation.inside, last) for _ in range(stays)),
        *(Leg(*pair, last) for pair in pairs),
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


def rows_of(
    legs: Legs,
    node: str,
    start_s: float,
    ends_s: Sequence[float],
    paths: Sequence[Mapping[str, int]],
    *,
    per_pair: bool,
) -> Iterator[Row]:
    """Yield the rows of an all-to-all.

    Parameters
    ----------
    legs, node, start_s
        What ran, as which collective, and when that began.
    ends_s, paths
        When each leg ended, and how many bytes went over which queue pair, by name.
    per_pair
        Whether there is a row for each pair of servers, instead of one for each message between them.
    """
    found, pairs = legs.delegation, legs.delegation.pair.tolist()
    end_s = max(ends_s)
    inside_s = ends_s[legs.inside] if legs.inside >= 0 else end_s
    columns = (found.messages.source, found.messages.destination, found.messages.bytes)
    for source, destination, size, pair in zip(*(column.tolist() for column in columns), pairs, strict=True):
        if pair < 0:
            yield node, source, destination, size, start_s, inside_s, NVLINK
        elif not per_pair:
            leg = legs.first_pair + pair
            path = _part(paths[leg], size, legs.legs[leg].size)
            yield node, source, destination, size, start_s, end_s, path
    for leg, carried in zip(legs.legs, paths, strict=True):
        if per_pair and leg.inside is None:
            yield (
                node,
                leg.source,
                leg.destination,
                leg.size,
                start_s,
                end_s,
                _part(carried, leg.size, leg.size),
            )


def _over_nvlink(messages: Messages, then: range) -> Leg:
    return Leg(-1, -1, int(messages.bytes.sum()), then, messages)


def _part(legs: Mapping[str, int], size: int, total: int) -> str:
    """Return the path of what has its part, ``size`` bytes, of all that goes between two servers."""
    edges = [0, *(round(carried * size / total) for carried in accumulate(legs.values()))]
    parts = zip(legs, pairwise(edges), strict=True)
    return " ".join(f"{end - begin}@{leg}" for leg, (begin, end) in parts if end > begin)
