"""Circuits by demand: rounds of heaviest matchings, and what ports are left joined by what is left.

    n        servers
    T        model-parallel bytes from server to server in one iteration
    w_ij     T_ij + T_ji, halved for each circuit that i and j have; of simplex circuits T_ij, and i sends

Each round gives every server one circuit more: duplex a perfect matching (Blossom), simplex a permutation
without fixed points (assignment). Of an odd number of servers one rests in each round, another one each time.
A trace of demand stands between all servers, so that those without any get circuits to different ones.

Blossom takes networkx minutes for 1,024 servers, so two things are done before it. Prices, the dual values
of the best fractional matching (an assignment), are taken off the weights. That changes all perfect
matchings alike, and leaves little to search: 9 s became 0.2 s. And of more than `FEW` servers each keeps a
few partners, those that are worth most after prices; they are not always the heaviest, since a server that
all send to is dear. After prices no pair is worth more than 0. So what is found shows which pairs could
improve it: those that alone lose less than all of it. Where there are any beside those kept, they are
searched too, and the result is the heaviest matching, unless there are more than `SECOND_SEARCH`. That was
so with weights within two islands of an odd number of servers each, which are slow as well: 20 s a round of
1,022 servers.

References
----------
TopoOpt (NSDI 2023), Algorithm 1 and appendix E.4 (halving). J. Edmonds, "Maximum matching and a polyhedron
with 0,1-vertices", 1965 (networkx's solver). The artifact takes a perfect matching of least cost
max(T) - T_ij instead, and discounts by c / (c + 1).
"""

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from controller.schedulers.demand import Matrix
from controller.schedulers.matching import heaviest_permutation

Pair = tuple[int, int]
"""A circuit: duplex two servers, the lower first; simplex who sends and who receives."""
FEW = 128
"""Up to as many servers all partners are searched at once."""
PARTNERS_A_ROUND = 4
"""How many partners each of more servers keeps at first, for each round."""
SECOND_SEARCH = 50_000
"""Up to as many pairs are searched again."""
TRACE = 2.0**-36
"""What stands between servers without demand, as a share of the largest."""
_BITS = 45
"""Weights are whole numbers of as many bits, so that Blossom is exact, and so are sums in doubles."""
_Marks = NDArray[np.bool_]


def blossom_rounds(
    transfers: Matrix,
    there: NDArray[np.intp],
    degree: int,
    *,
    duplex: bool = True,
    discounted: bool = True,
) -> list[Pair]:
    """Return circuits for all ports that are free, those of demand first.

    Parameters
    ----------
    transfers
        T, n x n, with nothing on the diagonal; n of at least two.
    there
        Circuits from server to server that exist, n x n; of duplex circuits symmetric.
    degree
        Ports of each server.
    duplex
        Whether circuits go both ways.
    discounted
        Whether circuits that exist halve the weight of their pair.

    References
    ----------
    TopoOpt, Algorithm 1, step 3.
    """
    weights = transfers + transfers.T if duplex else transfers.copy()
    weights += TRACE * (weights.max() or 1.0)
    if discounted:
        weights = np.ldexp(weights, -there)
    sends, receives = degree - there.sum(axis=1), degree - there.sum(axis=0)
    rounds = int(min(sends.min(), receives.min()))
    rests = np.zeros(len(weights), dtype=np.intp)
    circuits: list[Pair] = []
    for _ in range(rounds):
        if duplex:
            partners = None if len(weights) <= FEW else PARTNERS_A_ROUND * rounds
            found = heaviest_matching(weights, partners=partners, may_rest=rests == rests.min())
        else:
            found = _heaviest_derangement(weights)
        circuits += found
        rests += 1
        for pair in found:
            _join(pair, weights, sends, receives, duplex)
            rests[list(pair)] -= duplex
    return circuits + _joined_ports(weights, sends, receives, duplex)


def heaviest_matching(
    weights: Matrix, *, partners: int | None = None, may_rest: _Marks | None = None
) -> list[Pair]:
    """Return the perfect matching of most weight; of an odd number of servers one rests.

    Parameters
    ----------
    weights
        Symmetric, n x n; the diagonal does not count.
    partners
        How many each server keeps in the first search, by default all.
    may_rest
        Which servers may be left out, by default any; at least one.
    """
    n = len(weights)
    whole = np.full((n + n % 2,) * 2, -np.inf)
    whole[:n, :n] = np.rint(np.ldexp(weights, _BITS - np.frexp(weights.max())[1]))
    if n % 2:  # who is matched with the server that is not there rests
        whole[n, :n] = whole[:n, n] = 0.0 if may_rest is None else np.where(may_rest, 0.0, -np.inf)
    np.fill_diagonal(whole, -np.inf)
    price = _prices(whole)
    profit = 2 * whole - price[:, None] - price
    wired = whole > -np.inf
    kept = wired if partners is None else wired & _most_profitable(profit, n, partners)
    pairs = _blossom(profit, kept)
    better = wired & (profit > sum(profit[pair] for pair in pairs))
    both = kept | better
    if kept.sum() < both.sum() <= 2 * SECOND_SEARCH:
        pairs = _blossom(profit, both)
    return [pair for pair in pairs if pair[1] < n]


def _blossom(profit: Matrix, kept: _Marks) -> list[Pair]:
    """Return the perfect matching of most profit among the pairs that are kept."""
    a, b = np.nonzero(np.triu(kept))
    profits = [int(each) for each in profit[a, b]]
    graph: nx.Graph[int] = nx.Graph()
    graph.add_weighted_edges_from(zip(a.tolist(), b.tolist(), profits, strict=True))
    return sorted((min(pair), max(pair)) for pair in nx.max_weight_matching(graph, maxcardinality=True))


def _prices(weights: Matrix) -> Matrix:
    """Return twice each server's price: no two pay less than their weight, and all together least.

    These are the dual values of the heaviest permutation, its rows' and columns' added up. Of the columns
    they are the longest paths along what a row would gain by another column.
    """
    columns = heaviest_permutation(weights)
    own = weights[np.arange(len(weights)), columns]
    gain = weights - own[:, None]
    price = np.zeros(len(weights))
    for _ in range(len(weights)):
        raised = np.maximum(price, (gain + price[columns, None]).max(axis=0))
        if (raised == price).all():
            break
        price = raised
    prices: Matrix = own - price[columns] + price
    return prices


def _most_profitable(profit: Matrix, n: int, partners: int) -> _Marks:
    """Return which edges some server keeps.

    Among equals the nearest on the ring of servers are kept, and its neighbours and who may rest always:
    else all would keep the same few, and there might be no perfect matching.
    """
    server = np.arange(len(profit))
    apart = np.abs(server[:, None] - server)
    apart = np.minimum(apart, len(profit) - apart)
    best = np.lexsort((apart, -profit), axis=1)[:, :partners]
    kept = np.zeros_like(profit, dtype=bool)
    kept[server[:, None], best] = True
    kept[server[:n], (server[:n] + 1) % n] = True
    kept[n:] = True
    marks: _Marks = kept | kept.T
    return marks


def _heaviest_derangement(weights: Matrix) -> list[Pair]:
    """Return the permutation of most weight in which nobody sends to itself."""
    others = weights.copy()
    np.fill_diagonal(others, -np.inf)
    return list(enumerate(heaviest_permutation(others).tolist()))


def _joined_ports(
    weights: Matrix, sends: NDArray[np.intp], receives: NDArray[np.intp], duplex: bool
) -> list[Pair]:
    """Return circuits between free ports: pairs of most weight first, of equals those of lower servers."""
    weights[sends == 0] = -np.inf
    weights[:, receives == 0] = -np.inf
    np.fill_diagonal(weights, -np.inf)
    circuits: list[Pair] = []
    while True:
        a, b = divmod(int(weights.argmax()), len(weights))
        if weights[a, b] == -np.inf:
            return circuits
        circuits.append((a, b))
        _join((a, b), weights, sends, receives, duplex)
        for server in (a, b):
            if not sends[server]:
                weights[server] = -np.inf
            if not receives[server]:
                weights[:, server] = -np.inf


def _join(
    pair: Pair, weights: Matrix, sends: NDArray[np.intp], receives: NDArray[np.intp], duplex: bool
) -> None:
    """Take the ports of a circuit, and halve the weight of its pair."""
    for a, b in (pair, pair[::-1]) if duplex else (pair,):
        weights[a, b] /= 2
        sends[a] -= 1
        receives[b] -= 1
