"""How TopoOpt divides ports: first between rings and matchings, then between classes of AllReduce groups.

Groups of one size of which no two share a server form a class, and its rings take the same ports: all
strided groups of a size do.

    n        servers; d ports of each, d_A of them for rings
    g        members of each group of a class
    W        2 (g - 1) S: what a group sends in a ring to sum S bytes; W_A of all classes

The paper leaves open what follows. A class takes d_A W / W_A ports, rounded up, with the d_A that there was
before the first class, or what is left. One ring over all servers is always there, else the graph may fall
apart: the first of a class that spans them, or the ring +1 beside the classes. Ports that are left of d_A go
to the heaviest class that can use them.

References
----------
TopoOpt (NSDI 2023), Algorithm 1, steps 1 and 2; its artifact's ``network.cc`` reserves the ring +1 as well.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from controller.schedulers.blossom_rounds import Pair
from controller.schedulers.totient import Rule, ring_over
from topologies.errors import ScenarioError


@dataclass(frozen=True, eq=False)
class RingClass:
    """Groups of one size whose rings take the same ports."""

    groups: list[tuple[int, ...]]
    """The members of each; no server is in two."""
    ring_bytes: int
    """W of all groups together."""

    @property
    def size(self) -> int:
        """The members of each group, g."""
        return len(self.groups[0])

    def ports(self, duplex: bool) -> int:
        """Return how many ports of each member a ring takes."""
        return 2 if duplex and self.size > 2 else 1

    def circuits(self, step: int, duplex: bool) -> list[Pair]:
        """Return the circuits of a ring over each group, in the ring's order; duplex two members need one."""
        found = []
        for members in self.groups:
            ring = ring_over(members, step)
            hops = list(zip(ring, (*ring[1:], ring[0]), strict=True))
            found += hops[:1] if duplex and self.size == 2 else hops
        return found


def ring_classes(sums: Mapping[tuple[int, ...], int]) -> list[RingClass]:
    """Return the classes of groups, those first that send most.

    Parameters
    ----------
    sums
        S of each group [bytes], by its members.
    """
    classes: list[list[tuple[int, ...]]] = []
    for members in sorted(sums):
        for groups in classes:
            if len(groups[0]) == len(members) and all(set(members).isdisjoint(other) for other in groups):
                groups.append(members)
                break
        else:
            classes.append([members])
    found = [
        RingClass(groups, sum(2 * (len(members) - 1) * sums[members] for members in groups))
        for groups in classes
    ]
    return sorted(found, key=lambda each: (-each.ring_bytes, -each.size))


def ring_degree(
    ring_bytes: int,
    mp_bytes: float,
    servers: int,
    degree: int,
    *,
    duplex: bool,
    mp_degree: Literal["proportional"] | int,
) -> int:
    """Return d_A, which is enough for a whole number of rings over all servers.

    Parameters
    ----------
    ring_bytes, mp_bytes
        W_A, and what is sent besides [bytes].
    servers, degree
        n and d.
    duplex
        Whether circuits go both ways, so that a ring takes two ports.
    mp_degree
        Ports for matchings, at most; or in proportion to the bytes.

    Raises
    ------
    ScenarioError
        If there is no port for a ring.
    """
    unit = 2 if duplex and servers > 2 else 1
    if degree < unit or (mp_degree != "proportional" and not 0 <= mp_degree <= degree - unit):
        asked = "" if mp_degree == "proportional" else f", {mp_degree} of them for model parallelism,"
        raise ScenarioError(
            f"{degree} ports of each server{asked} do not make a ring over all",
            f"it takes {unit} of each server",
        )
    if mp_degree != "proportional":
        share = degree - mp_degree
    else:
        total = ring_bytes + Fraction(mp_bytes)
        share = max(1, ceil(degree * ring_bytes / total)) if total else degree
    return min(-(-share // unit) * unit, degree - degree % unit)


def ring_counts(
    classes: Sequence[RingClass], share: int, servers: int, *, duplex: bool, rule: Rule
) -> tuple[list[int], bool]:
    """Return how many rings each class gets, and whether the ring +1 over all servers is beside them.

    Parameters
    ----------
    classes
        The heaviest first.
    share, servers
        d_A and n.
    duplex
        Whether circuits go both ways.
    rule
        ``artifact``: shares are d_A W_A / W, as in ``network.cc``. So the heaviest class takes all ports but
        those of the ring +1.
    """
    everybody = RingClass([tuple(range(servers))], 0)
    unit = everybody.ports(duplex)
    sizes = [each.ring_bytes for each in classes]
    if not any(sizes):
        sizes = [1] * len(classes)
    counts, left, connected = [], share, False
    for each, size in zip(classes, sizes, strict=True):
        spans = each.size == servers
        asked = max(_asked(size, sum(sizes), share, rule), spans)
        room = left if spans or connected else left - unit
        counts.append(min(-(-asked // unit), room // unit))
        left -= counts[-1] * unit
        connected |= spans
    free = np.full(servers, share, dtype=np.intp)
    for each, count in zip([everybody, *classes], [not connected, *counts], strict=True):
        _spend(free, each, count, duplex)
    for index, each in enumerate(classes):
        more = int(min(free[list(members)].min() for members in each.groups)) // each.ports(duplex)
        counts[index] += more
        _spend(free, each, more, duplex)
    return counts, not connected


def _asked(size: int, total: int, share: int, rule: Rule) -> int:
    """Return how many ports a class asks for."""
    if rule == "artifact":
        return -(-share * total // size) if size else share
    return -(-share * size // total)


def _spend(free: NDArray[np.intp], each: RingClass, count: int, duplex: bool) -> None:
    """Take the ports of a number of rings."""
    for members in each.groups:
        free[list(members)] -= count * each.ports(duplex)
