"""Networks as a search over strategies sees them: which links the bytes between two servers cross.

Bytes from server to server take fixed routes, so what an exchange puts on each link is a sum over its pairs.
On a switch a pair crosses the sender's NIC and the receiver's; over circuits it crosses a shortest path, hop
by hop. Of equally short next hops a table of jumps may name one, as the coin change does for TopoOpt's
circuits; else the smallest jump is taken, or one at random.

References
----------
TopoOpt, sections 4.1, 4.2 and 5.1 (its search on switches assumes one big switch).
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import shortest_path

from topologies.errors import ScenarioError

Members = tuple[int, ...]
"""The servers of an AllReduce."""
Indices = NDArray[np.intp]
Numbers = NDArray[np.float64]
Sizes = NDArray[np.int64] | Numbers


@dataclass(frozen=True, eq=False)
class RoutedNetwork:
    """Links between servers, and which of them each pair crosses."""

    servers: int
    """n."""
    rates_bps: Numbers
    """Of each link, shape (links,)."""
    starts: Indices
    """Where the crossings of each pair begin, shape (n * n + 1,); pair (a, b) is number a * n + b."""
    links: Indices
    """The links that are crossed, pair by pair."""
    rings_of: Callable[[Members], Sequence[Sequence[int]]]
    """The directed rings of an AllReduce, which divide its bytes evenly."""

    def loads_s(self, sources: Indices, destinations: Indices, sizes: Sizes) -> Numbers:
        """Return how long each link takes for bytes between pairs of servers [s], shape (links,)."""
        pairs = sources * self.servers + destinations
        starts = self.starts[pairs]
        counts = self.starts[pairs + 1] - starts
        ends = counts.cumsum()
        crossings = np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - ends + counts, counts)
        loads = np.bincount(self.links[crossings], np.repeat(sizes, counts), len(self.rates_bps))
        loads_s: Numbers = 8 * loads / self.rates_bps
        return loads_s

    def ring_loads_s(self, members: Members) -> Numbers:
        """Return how long each link takes for a byte that all members sum, over their rings [s]."""
        rings = [np.asarray(ring, dtype=np.intp) for ring in self.rings_of(members)]
        sources = np.concatenate(rings)
        destinations = np.concatenate([np.roll(ring, -1) for ring in rings])
        size = 2 * (len(members) - 1) / len(members) / len(rings)
        return self.loads_s(sources, destinations, np.full(len(sources), size))


def in_order(members: Members) -> tuple[Members]:
    """Return one ring through the members in their order, as NICs behind a switch have it."""
    return (members,)


def switch_network(servers: int, rate_bps: float) -> RoutedNetwork:
    """Return a big switch: each server has a link to it and one from it.

    Parameters
    ----------
    servers
        n.
    rate_bps
        Of a server, each way: all its NICs.
    """
    source, destination = np.divmod(np.arange(servers * servers), servers)
    apart = source != destination
    links = np.stack([source[apart], servers + destination[apart]], axis=1).ravel()
    starts = np.concatenate([[0], 2 * apart.cumsum()])
    return RoutedNetwork(servers, np.full(2 * servers, rate_bps), starts, links, in_order)


def circuit_network(
    pairs: Sequence[tuple[int, int]],
    rate_bps: float,
    *,
    servers: int,
    duplex: bool = True,
    first_jumps: NDArray[np.int64] | None = None,
    rng: np.random.Generator | None = None,
) -> RoutedNetwork:
    """Return servers that circuits join and that forward along a shortest path for each pair.

    An AllReduce has one ring, in the order of its members, as on an expander.

    Parameters
    ----------
    pairs
        Two servers for each circuit; parallel ones are one link of all their rates.
    rate_bps
        Of a circuit, each way.
    servers
        n.
    duplex
        Whether a circuit goes both ways, or from the first of its servers to the second.
    first_jumps
        The jump that is preferred among equally short next hops, by (target - server) mod n, shape (n,).
    rng
        Draws among equally short next hops; without it and jumps all go by the smallest jump.

    Raises
    ------
    ScenarioError
        If some servers are not reached.
    """
    circuits = Counter([*pairs, *((b, a) for a, b in pairs if duplex)])
    ends = sorted(circuits, key=lambda link: (link[0], (link[1] - link[0]) % servers))
    near, far = np.array(ends, dtype=np.intp).reshape(-1, 2).T
    hops = shortest_path(csr_array((np.ones(len(ends)), (near, far)), (servers, servers)), unweighted=True)
    if np.isinf(hops).any():
        raise ScenarioError(
            f"{len(pairs)} circuits do not join {servers} servers", "give circuits that lead everywhere"
        )
    pair, link = _walked(near, far, hops, first_jumps, rng)
    order = np.argsort(pair, kind="stable")
    starts = np.concatenate([[0], np.bincount(pair, minlength=servers * servers).cumsum()])
    rates = rate_bps * np.array([circuits[link] for link in ends], dtype=float)
    return RoutedNetwork(servers, rates, starts, link[order], in_order)


def _walked(
    near: Indices,
    far: Indices,
    hops: Numbers,
    first_jumps: NDArray[np.int64] | None,
    rng: np.random.Generator | None,
) -> tuple[Indices, Indices]:
    """Return which pair crosses which link, with one shortest path for each pair."""
    servers = len(hops)
    degree = np.bincount(near, minlength=servers)
    first = degree.cumsum() - degree
    pair = np.flatnonzero(~np.eye(servers, dtype=bool))
    at, target = np.divmod(pair, servers)
    pairs, links = [pair[:0]], [pair[:0]]
    slots = np.arange(degree.max(initial=1))
    while len(pair):
        candidate = np.minimum(first[at][:, None] + slots, len(near) - 1)
        nearer = (slots < degree[at][:, None]) & (
            hops[far[candidate], target[:, None]] < hops[at, target][:, None]
        )
        rank = nearer if rng is None else nearer * rng.random(nearer.shape)
        if first_jumps is not None:
            jump = first_jumps[(target - at) % servers]
            rank = rank * (1 + ((far[candidate] - at[:, None]) % servers == jump[:, None]))
        link = candidate[np.arange(len(pair)), rank.argmax(axis=1)]
        pairs.append(pair)
        links.append(link)
        on = far[link] != target
        pair, at, target = pair[on], far[link][on], target[on]
    return np.concatenate(pairs), np.concatenate(links)
