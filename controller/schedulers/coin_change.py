"""Routes over a circulant graph by changing coins, what relaying costs, and routes over any graph.

    n        servers on a ring
    coin     a jump: every server s has a circuit to s + coin (mod n)
    offset   (target - server) mod n
    relays   servers that forward on the way; a path has one hop more

The next hop of a server depends on its offset alone: n - 1 entries serve all servers, forwarding needs the
destination only, and no packet goes in a circle, since the relays that are left fall by one at each hop.

Where the paths of the two directions do not join the same NICs, acknowledgements take the path of their data
backwards: TCP needs both ends of a connection to stay on their NICs.

References
----------
TopoOpt, section 4.2 and Algorithm 4 (CoinChangeMod), which leaves open which of equally short changes is
taken; section 5.4 for the bandwidth tax; section 5.5: the best routing keeps the busiest link least loaded.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Literal, get_args

import networkx as nx
import numpy as np
from numpy.typing import ArrayLike, NDArray

from topologies.errors import ScenarioError
from topologies.fabric import Fabric, Nic, Port
from topologies.light import Circuit, Configuration
from topologies.routes import Routes
from topologies.routing import Flow, Table

Change = dict[tuple[int | str, Nic | Flow], Nic | Port]
Ties = Literal["least_loaded", "smallest_coin"]
"""Which of equally short changes is taken, see `coin_change`."""


@dataclass(frozen=True, eq=False)
class Changes:
    """How each offset is changed into coins."""

    first: NDArray[np.int64]
    """The coin that leaves a server at each offset, shape (servers,); 0 at offset 0."""
    relays: NDArray[np.int64]
    """Servers that forward, shape (servers,); -1 at offset 0."""

    def coins(self, offset: int) -> list[int]:
        """Return the coins of an offset, in the order in which they are crossed.

        Examples
        --------
        >>> coin_change(12, (1, 5, 7, 11)).coins(9)
        [5, 5, 11]
        """
        found = []
        while offset:
            found.append(int(self.first[offset]))
            offset = (offset - found[-1]) % len(self.first)
        return found

    @cached_property
    def loads(self) -> Counter[int]:
        """The load of a circuit of each coin where all servers send each other 1, relayed bytes included.

        Examples
        --------
        >>> coin_change(12, (1, 5, 7, 11)).loads.most_common()
        [(5, 6), (1, 5), (7, 5), (11, 4)]
        """
        return Counter(coin for offset in range(len(self.first)) for coin in self.coins(offset))

    @property
    def mean_hops(self) -> float:
        """The mean hops between two servers, over all pairs."""
        return float((self.relays[1:] + 1).mean())


@lru_cache(maxsize=64)
def coin_change(servers: int, coins: tuple[int, ...], rule: Ties = "least_loaded") -> Changes:
    """Return how each offset is changed into the fewest coins.

    Parameters
    ----------
    servers
        n.
    coins
        The jumps that every server has, each from 1 to n - 1; of duplex circuits p and n - p.
    rule
        Which of equally short changes is taken, if several are. ``smallest_coin``: the one that begins with
        the smallest coin. ``least_loaded``: the one that leaves the busiest coin the least load, then the
        second busiest, and so on, where all servers send each other the same. Offsets of few hops choose
        first, of these the ones of few choices. Where the smallest coins load the busiest one less, they are
        taken.

    Raises
    ------
    ScenarioError
        If a coin is out of its range, some servers are not reached, or the rule is unknown.

    References
    ----------
    TopoOpt, Algorithm 4.
    """
    if outside := [coin for coin in coins if not 0 < coin < servers]:
        raise ScenarioError(f"a coin of {outside[0]} between {servers} servers", "take 1 to servers - 1")
    if rule not in get_args(Ties):
        raise ScenarioError(f"unknown rule {rule!r}", f"take {' or '.join(get_args(Ties))}")
    ordered = sorted(set(coins))
    hops = _fewest_coins(servers, ordered)
    if (hops < 0).any():
        raise ScenarioError(
            f"coins {', '.join(map(str, ordered)) or 'of none'} do not join {servers} servers",
            "take a coin that is coprime to their number",
        )
    # A negative index counts from the end, so offset - coin needs no modulus.
    begins = [[coin for coin in ordered if hops[offset - coin] < hops[offset]] for offset in range(servers)]
    smallest = _changes([min(each, default=0) for each in begins], hops)
    if rule == "smallest_coin":
        return smallest
    # No coins of regular rings need the smallest, up to 99 servers of 10 ports; 4 of 3,652 drawn sets did.
    return min(_changes(_least_loaded(begins, hops), hops), smallest, key=_busiest)


def _fewest_coins(servers: int, coins: Sequence[int]) -> NDArray[np.int64]:
    """Return the coins that each offset takes at least, shape (servers,); -1 where there are none."""
    hops = np.full(servers, -1, dtype=np.int64)
    due, count = {0}, 0
    while due:
        hops[list(due)] = count
        due = {reached for offset in due for coin in coins if hops[reached := (offset + coin) % servers] < 0}
        count += 1
    return hops


def _least_loaded(begins: Sequence[Sequence[int]], hops: NDArray[np.int64]) -> list[int]:
    """Return the first coin of each offset's change, of those with which a shortest one begins."""
    first, changes, loads = [0] * len(hops), [Counter[int]() for _ in hops], Counter[int]()
    for offset in sorted(range(1, len(hops)), key=lambda each: (hops[each], len(begins[each]))):
        found = {coin: changes[offset - coin] + Counter([coin]) for coin in begins[offset]}
        coin = min(found, key=lambda each: sorted((loads + found[each]).values(), reverse=True))
        first[offset], changes[offset] = coin, found[coin]
        loads += found[coin]
    return first


def _busiest(changes: Changes) -> int:
    return max(changes.loads.values(), default=0)


def _changes(first: Sequence[int], hops: NDArray[np.int64]) -> Changes:
    coins, relays = np.array(first, dtype=np.int64), hops - 1
    coins.setflags(write=False)
    relays.setflags(write=False)
    return Changes(coins, relays)


def bandwidth_tax(ring_bytes: float, transfers: ArrayLike, hops: ArrayLike) -> float:
    """Return the bandwidth tax: the bytes that servers send, relayed ones included, over those they owe.

    Parameters
    ----------
    ring_bytes
        R: what all members of rings send over circuits of their own [bytes].
    transfers
        A: model-parallel bytes between servers, shape (n, n).
    hops
        Hops between servers, shape (n, n).

    References
    ----------
    TopoOpt, section 5.4: (R + sum of A hop by hop) / (R + A).
    """
    owed = np.asarray(transfers, dtype=float)
    sent = (owed * np.asarray(hops, dtype=float)).sum()
    return float((ring_bytes + sent) / (ring_bytes + owed.sum()))


def hops_between(changes: Changes) -> NDArray[np.int64]:
    """Return the hops between each two servers, shape (servers, servers); 0 from a server to itself."""
    server = np.arange(len(changes.relays))
    hops: NDArray[np.int64] = changes.relays[(server[None, :] - server[:, None]) % len(server)] + 1
    return hops


class Joins:
    """The NICs whose light joins servers both ways, over what is lit and has not failed.

    Where light does not come back acknowledgements cannot, so one-way circuits join no servers.
    """

    def __init__(self, fabric: Fabric, lit: Configuration, failed: Collection[Port]) -> None:
        self._routes = Routes(fabric, lit, failed)
        self.between: dict[tuple[int, int], list[Nic]] = defaultdict(list)
        """The NICs of one server whose light reaches another one, in order: of parallel circuits."""
        for nic in fabric.nics:
            if (to := self._routes.next_nic(nic)) and self._routes.next_nic(to) == nic:
                self.between[nic.server, to.server].append(nic)

    def reached(self, nic: Nic) -> Nic:
        """Return the NIC that a NIC's light reaches."""
        found = self._routes.next_nic(nic)
        assert found
        return found

    @cached_property
    def beside(self) -> "nx.DiGraph[int]":
        """The servers that each server has light to, in order."""
        return nx.DiGraph(sorted(self.between))

    def lanes(self, path: Sequence[int]) -> list[list[Nic]]:
        """Return the NICs by which a path leaves its servers, once for each of its parallel circuits."""
        hops = [self.between.get(hop, []) for hop in pairwise(path)]
        return [list(lane) for lane in zip(*hops, strict=False)]


@dataclass(frozen=True)
class CoinChange:
    """Next hops by the change of what is left of the way (Algorithm 4).

    Parallel circuits along a whole path are paths of their own. Where a circuit of a path is dark or has
    failed, its two servers take shortest paths instead, and all others stay on theirs.
    """

    coins: tuple[int, ...]
    """The jumps that every server has."""
    rule: Ties = "least_loaded"
    """Which of equally short changes is taken."""

    def table(self, *, fabric: Fabric, lit: Configuration, failed: Collection[Port]) -> Table:
        """Return the next hops; as of `topologies.routing.Routing`."""
        joins, servers = Joins(fabric, lit, failed), len(fabric.servers)
        changes = coin_change(servers, self.coins, self.rule)
        lanes = {
            (near, (near + offset) % servers): joins.lanes(_path(changes, near, offset))
            for near in range(servers)
            for offset in range(1, servers)
        }
        table: Change = {}
        for (near, _), mine in lanes.items():
            for lane in mine:
                table[near, joins.reached(lane[-1])] = lane[0]
        for (near, far), mine in lanes.items():
            back = {_ends(joins, lane) for lane in lanes[far, near]}
            for lane in mine:
                source, destination = _ends(joins, lane)
                if (destination, source) not in back:
                    table |= _backwards(joins, lane)
        # Last, so that a flow which has a coin-change path too is led along one of the two all the way.
        return table | KShortest().of_pairs(joins, {pair for pair, mine in lanes.items() if not mine})


@dataclass(frozen=True)
class KShortest:
    """Next hops of each pair of servers, over up to k of its shortest paths.

    Two paths count as different if they leave by another NIC or arrive at another one: what is between a NIC
    and a NIC takes one path. Both directions of a connection take the same. A circuit between two servers is
    their only path.

    References
    ----------
    TopoOpt, section 4.2, gives k-shortest paths for model parallelism and no k; its artifact has k = 1, ties
    at random, as here with a seed.
    """

    k: int = 4
    """Paths of a pair at most; bytes are spread evenly over them."""
    seed: int = 0
    """Of which paths are taken of those that are equally short."""

    def __post_init__(self) -> None:
        """Refuse to have no path, and a seed that is none."""
        if self.k < 1:
            raise ScenarioError(f"{self.k} shortest paths", "take one at least")
        if self.seed < 0:
            raise ScenarioError(f"a seed of {self.seed}", "take one from 0 on")

    def table(self, *, fabric: Fabric, lit: Configuration, failed: Collection[Port]) -> Table:
        """Return the next hops; as of `topologies.routing.Routing`."""
        return _k_shortest(self, fabric, tuple(sorted(lit.items())), frozenset(failed))

    def of_pairs(self, joins: Joins, only: Collection[tuple[int, int]] | None = None) -> Change:
        """Return the next hops between all servers, or between some pairs, both ways."""
        table = Change()
        for near in sorted(joins.beside):
            # The servers before each other one on shortest paths; the library's types allow for other calls.
            before: dict[int, list[int]] = nx.predecessor(joins.beside, near)  # type: ignore[assignment]
            for far in sorted(before):
                if far > near and (only is None or not {(near, far), (far, near)}.isdisjoint(only)):
                    for lane in self._lanes(joins, before, near, far):
                        table |= _forwards(joins, lane)
                        table |= _backwards(joins, lane)
        return table

    def _lanes(self, joins: Joins, before: Mapping[int, list[int]], near: int, far: int) -> list[list[Nic]]:
        """Return paths that differ in their first or last NIC, each as the NICs that it leaves by."""
        rng = np.random.default_rng((self.seed, near, far))
        taken: dict[Flow, list[Nic]] = {}
        for path in _paths(before, near, far, rng):
            for lane in joins.lanes(path):
                taken.setdefault(_ends(joins, lane), lane)
            if len(taken) >= self.k:
                break
        return list(taken.values())[: self.k]


@lru_cache(maxsize=4)
def _k_shortest(
    routing: KShortest,
    fabric: Fabric,
    lit: tuple[tuple[str, tuple[Circuit, ...]], ...],
    failed: frozenset[Port],
) -> Change:
    """Return the next hops between all servers; kept, as a change of light asks for those before too."""
    return routing.of_pairs(Joins(fabric, dict(lit), failed))


MOST_TRIED = 64
"""Shortest paths of a pair that are looked at for some that leave or arrive by other NICs."""


def _paths(before: Mapping[int, list[int]], near: int, far: int, rng: np.random.Generator) -> list[list[int]]:
    """Return shortest paths between two servers, in an order that is drawn."""
    found, unfinished = list[list[int]](), [[far]]
    while unfinished and len(found) < MOST_TRIED:
        path = unfinished.pop()
        if path[0] == near:
            found.append(path)
            continue
        unfinished += [[int(server), *path] for server in rng.permutation(before[path[0]])]
    return found


def _path(changes: Changes, near: int, offset: int) -> list[int]:
    """Return the servers from one to that at an offset."""
    path = [near]
    for coin in changes.coins(offset):
        path.append((path[-1] + coin) % len(changes.first))
    return path


def _ends(joins: Joins, lane: Sequence[Nic]) -> Flow:
    return lane[0], joins.reached(lane[-1])


def _forwards(joins: Joins, lane: Sequence[Nic]) -> Change:
    """Return the next hops of what goes along a lane."""
    flow = _ends(joins, lane)
    return {(nic.server, flow): nic for nic in lane}


def _backwards(joins: Joins, lane: Sequence[Nic]) -> Change:
    """Return the next hops of what comes back along a lane of duplex circuits."""
    source, destination = _ends(joins, lane)
    return {(joins.reached(nic).server, (destination, source)): joins.reached(nic) for nic in lane}
