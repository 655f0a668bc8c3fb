"""TopoOpt's OCS-reconfig: which servers are joined for what they owe each other now (Algorithm 5).

    n            servers
    d            ports of each, or of each server
    T            unsatisfied demand, n x n: bytes that may go and have not arrived; its diagonal is left out
    L_ij         circuits between i and j so far
    Discount(l)  what l circuits of a pair are worth: the x-th adds the share of `DISCOUNTS`
    utility      sum of T_ij Discount(L_ij)

Each circuit goes to the pair of greatest marginal utility whose ends have free ports. Ports that are free
then are joined whatever is owed. Where servers forward, two-edge replacement connects what fell apart.

Circuits are duplex as in the artifact, where T is the greater of both directions, in whole bytes: a pair of
which no byte is left gets no more. Or they are directed as printed: a server sends over d circuits and
receives over d others.

The paper leaves open the order of ties (here the lowest servers), linear and factorial discounts (here the
x-th circuit is worth 1 / x or 1 / x! of the first), and what becomes of free ports: its loop goes on with
pairs that owe nothing, in no order, and its artifact joins servers without any circuit at random. Here pairs
that the caller names come first, such as those of a random graph.

References
----------
TopoOpt (NSDI 2023), appendix E.4 and Algorithm 5; appendix F for SiP-ML as the same without a discount; the
artifact's ``DemandHeuristicNetworkOptimizer``. Two-edge replacement: OWAN (SIGCOMM 2016).
"""

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from math import factorial, floor
from typing import Literal

import numpy as np
from networkx.utils import UnionFind
from numpy.typing import ArrayLike

from controller.schedulers.demand import Matrix, checked_matrix
from topologies.errors import DemandError

Pair = tuple[int, int]
"""A circuit: two servers, the lower first; or, directed, who sends and who receives."""
Discount = Literal["exponential", "linear", "factorial", "none"]
EXPONENTIAL: Discount = "exponential"
NO_DISCOUNT: Discount = "none"
DISCOUNTS: Mapping[str, Callable[[int], float]] = {
    "exponential": lambda circuit: 2.0**-circuit,
    "linear": lambda circuit: 1 / circuit,
    "factorial": lambda circuit: 1 / factorial(circuit),
    "none": lambda _circuit: 1.0,
}
"""The share of a pair's demand that its x-th circuit adds to the utility, x from 1."""


def reconfigured(
    unsatisfied: ArrayLike,
    degree: int | Sequence[int],
    *,
    duplex: bool = True,
    discount: str = EXPONENTIAL,
    spare: Iterable[Pair] = (),
) -> tuple[Pair, ...]:
    """Return the circuits for what is owed, in the order in which they are chosen.

    Parameters
    ----------
    unsatisfied
        T, shape (n, n) [bytes].
    degree
        Ports of every server, or of each.
    duplex
        Whether a circuit takes a port of each server and carries both ways.
    discount
        One of `DISCOUNTS`.
    spare
        Pairs that free ports join first; one may be there several times.

    Returns
    -------
    tuple
        A pair with several circuits is there as often. Free ports are left at one server at most.

    Raises
    ------
    DemandError
        If the demand makes no sense, a number of ports is negative, or there is no such discount.

    References
    ----------
    TopoOpt, Algorithm 5, lines 2 to 20.
    """
    owed = _between(unsatisfied, duplex)
    ports = _Ports(np.broadcast_to(np.asarray(degree, dtype=np.int64), len(owed)).tolist(), duplex)
    share = _share(discount)
    left = [(-owed[pair], *pair) for pair in zip(*map(np.ndarray.tolist, np.nonzero(owed)), strict=True)]
    heapq.heapify(left)
    while left:
        _, i, j = heapq.heappop(left)
        if not ports.are_free(i, j):
            continue
        ports.join(i, j)
        marginal = float(owed[i, j]) * share(ports.circuits[i, j] + 1) / share(1)
        if (then := floor(marginal) if duplex else marginal) > 0:
            heapq.heappush(left, (-then, i, j))
    ports.join_free(spare)
    return tuple(ports.made)


def connected(
    pairs: Iterable[Pair],
    unsatisfied: ArrayLike,
    *,
    servers: int,
    duplex: bool = True,
    discount: str = EXPONENTIAL,
) -> tuple[Pair, ...]:
    """Return circuits that connect all servers, made of others by two-edge replacement.

    Of two parts each gives a circuit of least worth, (a, b) and (c, d), for (a, d) and (b, c).
    A server without circuits comes between the two ends of one; two such servers get two circuits.

    Parameters
    ----------
    pairs
        Circuits; directed, as many from a server as to it.
    unsatisfied
        T, shape (servers, servers).
    servers
        n.
    duplex, discount
        As of `reconfigured`.

    Returns
    -------
    tuple
        The circuits that stay in their order, then new ones. Degrees are as before, but for servers that had
        no circuit, which have two; directed, all servers reach each other.

    Raises
    ------
    DemandError
        If there are too few circuits, or directed ones do not balance.

    Notes
    -----
    Taking two bridges apart for two circuits would join nothing. So a part gives a circuit of a cycle: one
    that is not in its spanning tree of greatest demand, the least of which is its least circuit on a cycle.
    Directed parts are balanced, hence Eulerian, and lose any one circuit without falling apart for good.

    References
    ----------
    TopoOpt, Algorithm 5, line 21, and appendix E.4.
    """
    owed, share = _between(unsatisfied, duplex), _share(discount)
    parallel, numbers = Counter[Pair](), count()

    def circuit(i: int, j: int) -> _Circuit:
        pair = _pair(i, j, duplex)
        parallel[pair] += 1
        return _Circuit(pair, float(owed[pair]) * share(parallel[pair]), next(numbers))

    there = [circuit(*pair) for pair in pairs]
    if not duplex:
        _check_balanced([each.pair for each in there], servers)
    # Stable: else as they are found. Those with cycles come first, as they join those without.
    whole, *others = sorted(_parts(there, servers, duplex), key=lambda part: (not part.loose, not part.tied))
    for other in others:
        whole = _joined(whole, other, circuit, duplex)
    return tuple(each.pair for each in sorted(whole.circuits, key=lambda each: each.number))


def random_circuits(
    servers: int, degree: int, rng: np.random.Generator, *, duplex: bool = True
) -> tuple[Pair, ...]:
    """Return a random regular graph that is connected: random Hamiltonian cycles.

    Parameters
    ----------
    servers, degree
        n and d. A cycle takes two ports; of an odd degree the last ones are paired at random.
    rng
        Draws.
    duplex
        As of `reconfigured`; directed, a cycle takes a port to send and one to receive.

    Notes
    -----
    Circuits may be parallel, seldom if there are many servers. For large n such a sum of cycles has every
    property that almost all random regular graphs have.

    References
    ----------
    J. H. Kim and N. C. Wormald, "Random matchings which induce Hamilton cycles and Hamiltonian decompositions
    of random regular graphs", JCTB 81(1), 2001. TopoOpt starts from a random graph (its artifact).
    """
    pairs = list[Pair]()
    if servers < 2:
        return ()
    for _ in range(degree // 2 if duplex else degree):
        cycle = rng.permutation(servers).tolist()
        pairs += zip(cycle, [*cycle[1:], cycle[0]], strict=True)
    if duplex and degree % 2:
        order = rng.permutation(servers).tolist()
        pairs += zip(order[::2], order[1::2], strict=False)
    return tuple(_pair(*pair, duplex) for pair in pairs)


def _pair(i: int, j: int, duplex: bool) -> Pair:
    return (min(i, j), max(i, j)) if duplex else (i, j)


class _Ports:
    """The free ports of servers, and the circuits that have been made."""

    def __init__(self, degrees: list[int], duplex: bool) -> None:
        if degrees and min(degrees) < 0:
            raise DemandError(f"servers of {min(degrees)} ports", "give none or more")
        self._duplex = duplex
        self._sends = degrees
        # A duplex circuit takes one port of each end: then both are one list.
        self._receives = degrees if duplex else list(degrees)
        self.circuits = Counter[Pair]()
        self.made: list[Pair] = []

    def are_free(self, i: int, j: int) -> bool:
        return i != j and self._sends[i] > 0 and self._receives[j] > 0

    def join(self, i: int, j: int) -> None:
        self._sends[i] -= 1
        self._receives[j] -= 1
        self.made.append(_pair(i, j, self._duplex))
        self.circuits[self.made[-1]] += 1

    def join_free(self, first: Iterable[Pair]) -> None:
        """Join what is free: some pairs first, then the lowest servers, to those with fewest circuits."""
        for i, j in first:
            if self.are_free(i, j):
                self.join(i, j)
        for i in range(len(self._sends)):
            while others := [j for j in range(len(self._receives)) if self.are_free(i, j)]:
                self.join(i, min(others, key=lambda j: self.circuits[_pair(i, j, self._duplex)]))


@dataclass(frozen=True, eq=False)
class _Circuit:
    pair: Pair
    worth: float
    """What it adds to the utility."""
    number: int
    """In the order in which they are made."""


@dataclass(frozen=True, eq=False)
class _Part:
    """Servers that circuits connect, and no circuit joins to others."""

    server: int
    """One of them: the only one if there are no circuits."""
    tied: list[_Circuit] = field(default_factory=list)
    """Without these it may fall apart, without one of these it does."""
    loose: list[_Circuit] = field(default_factory=list)
    """Without these it does not."""

    @property
    def circuits(self) -> list[_Circuit]:
        return [*self.tied, *self.loose]

    @property
    def least(self) -> _Circuit:
        """The circuit that it gives: the last of those that are worth least."""
        return min(self.loose or self.tied, key=lambda circuit: (circuit.worth, -circuit.number))


def _parts(circuits: Sequence[_Circuit], servers: int, duplex: bool) -> list[_Part]:
    """Return the parts in the order of their lowest servers."""
    joined: UnionFind[int] = UnionFind(range(servers))
    tree = set[int]()
    for circuit in sorted(circuits, key=lambda circuit: -circuit.worth):
        i, j = circuit.pair
        if duplex and joined[i] != joined[j]:
            tree.add(id(circuit))
        joined.union(i, j)
    parts: dict[int, _Part] = {}
    for server in range(servers):
        parts.setdefault(joined[server], _Part(server))
    for circuit in circuits:
        part = parts[joined[circuit.pair[0]]]
        (part.tied if id(circuit) in tree else part.loose).append(circuit)
    return list(parts.values())


def _joined(one: _Part, other: _Part, circuit: Callable[[int, int], _Circuit], duplex: bool) -> _Part:
    """Return two parts as one, with new circuits; the first has some if the other has."""
    if not one.circuits:
        taken = []
        new = circuit(one.server, other.server), circuit(other.server, one.server)
    elif not other.circuits:
        taken, (a, b) = [one.least], one.least.pair
        new = circuit(a, other.server), circuit(other.server, b)
    else:
        taken, (a, b), (c, d) = [one.least, other.least], one.least.pair, other.least.pair
        new = circuit(a, d), circuit(c, b)
    tied = [each for each in (*one.tied, *other.tied) if each not in taken]
    loose = [each for each in (*one.loose, *other.loose) if each not in taken]
    bridges = len(one.tied) + len(other.tied) - len(tied)
    if bridges == 2:
        raise DemandError(
            "circuits do not connect all servers: there are fewer than it takes",
            "have servers of two ports or more, and all of them joined (reconfigured)",
        )
    if not duplex:
        return _Part(one.server, tied, [*loose, *new])
    return _Part(one.server, [*tied, *new[: 1 + bridges]], [*loose, *new[1 + bridges :]])


def _between(unsatisfied: ArrayLike, duplex: bool) -> Matrix:
    """Return T between pairs: of duplex circuits the greater direction, in whole bytes, for i < j."""
    owed = checked_matrix(unsatisfied)
    np.fill_diagonal(owed, 0.0)
    return np.floor(np.triu(np.maximum(owed, owed.T))) if duplex else owed


def _share(discount: str) -> Callable[[int], float]:
    if discount not in DISCOUNTS:
        raise DemandError(f"unknown discount {discount!r}", f"take one of {', '.join(DISCOUNTS)}")
    return DISCOUNTS[discount]


def _check_balanced(circuits: Collection[Pair], servers: int) -> None:
    sends, receives = (np.bincount([pair[end] for pair in circuits], minlength=servers) for end in (0, 1))
    if (sends != receives).any():
        server = int(np.flatnonzero(sends != receives)[0])
        raise DemandError(
            f"server {server} sends over {sends[server]} circuits and receives over {receives[server]}",
            "give each server as many from it as to it",
        )
