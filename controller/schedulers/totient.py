"""TopoOpt's rings: which regular permutations n servers have, and which few of them make a topology.

    n        servers; g members of an AllReduce group, a divisor of n
    p        a step coprime to g: i to i + p visits all members once
    jump     p n / g: as a step between servers, whose groups are strided by n / g
    c        rings that a group gets
    x        c-th root of n: the ratio that successive jumps have ideally

With jumps in geometric progression every distance is a sum of few of them: the diameter of c directed rings
is about c x (Theorem 1). A duplex ring serves p and n - p, so only p up to n / 2 count there.

References
----------
TopoOpt (NSDI 2023), section 4.3, Algorithms 2 (TotientPerms) and 3 (SelectPermutations), and appendix E.2.
The list i + j p that Algorithm 2 prints lacks the factor n / g, which its artifact (``network.cc``) has.
"""

from collections.abc import Sequence
from math import gcd, isqrt
from typing import Literal, get_args

from topologies.errors import DemandError

Rule = Literal["projected", "artifact"]
"""How SelectPermutations is read, see `selected_jumps`."""


def totient_jumps(
    servers: int, members: int, *, duplex: bool = True, primes_only: bool = False
) -> tuple[int, ...]:
    """Return the jumps of all regular rings over the strided groups of a size, ascending (TotientPerms).

    Parameters
    ----------
    servers
        n.
    members
        g, servers of a group.
    duplex
        Whether circuits go both ways, so that p and g - p are one ring.
    primes_only
        Whether only p = 1 and primes are taken: about n / ln n of them, where n is large.

    Raises
    ------
    DemandError
        If g does not divide n.

    References
    ----------
    TopoOpt, Algorithm 2.

    Examples
    --------
    >>> totient_jumps(12, 12, duplex=False)
    (1, 5, 7, 11)
    >>> totient_jumps(12, 4, duplex=False)
    (3, 9)
    """
    if members < 1 or servers < 1 or servers % members:
        raise DemandError(f"groups of {members} of {servers} servers", "give a size that divides them")
    last = members // 2 if duplex else members - 1
    steps = _primes_to(last) if primes_only else range(1, last + 1)
    return tuple(p * servers // members for p in steps if gcd(p, members) == 1)


def ring_over(members: Sequence[int], step: int) -> tuple[int, ...]:
    """Return the members in the order in which a ring visits them: the i-th is followed by the i + step-th.

    Parameters
    ----------
    members
        A group's servers.
    step
        Coprime to how many there are.

    Raises
    ------
    DemandError
        If such steps do not visit all members.

    Examples
    --------
    >>> ring_over(range(12), 5)
    (0, 5, 10, 3, 8, 1, 6, 11, 4, 9, 2, 7)
    """
    size = len(members)
    if gcd(step, size) != 1:
        raise DemandError(f"a ring over {size} members by steps of {step}", "take a step coprime to them")
    return tuple(members[place * step % size] for place in range(size))


def selected_jumps(
    candidates: Sequence[int],
    count: int,
    over: int,
    *,
    rule: Rule = "projected",
    min_ratio: float = 0.0,
) -> tuple[int, ...]:
    """Return the jumps whose rings together join servers over few hops, ascending (SelectPermutations).

    Parameters
    ----------
    candidates
        What `totient_jumps` found, ascending.
    count
        c. With fewer candidates, all of them are returned.
    over
        g, the members of each ring.
    rule
        ``projected``: the next jump is the candidate nearest to x times the last one, the smaller of two.
        ``artifact``: with x the c-th root of g - 1, the m-th is the first free candidate from x to the m on.
    min_ratio
        x at least. Where it is less, fewer jumps are returned, about this ratio apart.

    Raises
    ------
    DemandError
        If there is no candidate while some are asked for.

    References
    ----------
    TopoOpt, Algorithm 3; appendix E.2 for a ratio of 2; the artifact's ``network.cc`` for the other rule.

    Examples
    --------
    >>> selected_jumps(totient_jumps(128, 128), 4, 128)
    (1, 3, 11, 37)
    """
    if rule not in get_args(Rule):
        raise DemandError(f"unknown rule {rule!r}", f"take {' or '.join(get_args(Rule))}")
    if count < 1:
        return ()
    if not candidates:
        raise DemandError(f"{count} rings over {over} members", "there are rings of two and more")
    ratio = _root(over - (rule == "artifact"), count)
    if ratio < min_ratio:
        count, ratio = _powers_within(min_ratio, over), min_ratio
    free = sorted(candidates)
    taken = [free.pop(0)]
    while free and len(taken) < count:
        if rule == "artifact":
            target = (1 - 1e-9) * taken[0] * ratio ** len(taken)  # a power that is a candidate counts
            jump = next((jump for jump in free if jump >= target), free[-1])
        else:
            target = ratio * taken[-1]
            jump = min(free, key=lambda jump: (abs(jump - target), jump))
        free.remove(jump)
        taken.append(jump)
    return tuple(sorted(taken))


def _root(number: int, count: int) -> float:
    """Return a root, exact where it is a whole number, so that ties are ties."""
    root = float(max(number, 1)) ** (1 / count)
    return float(round(root)) if round(root) ** count == number else root


def _powers_within(ratio: float, over: int) -> int:
    """Return how many jumps a ratio apart there are below a number, at least one."""
    powers, power = 1, ratio * ratio
    while power <= over:
        powers, power = powers + 1, power * ratio
    return powers


def _primes_to(last: int) -> list[int]:
    """Return 1 and the primes up to a number."""
    return [n for n in range(1, last + 1) if all(n % divisor for divisor in range(2, isqrt(n) + 1))]
