"""A network of links whose rates change, and flows that start at any time: max-min fair between events.

A *flow* takes bytes out of a *pool* over a path. A pool with one flow is a queue pair; with several,
its bytes leave over several queue pairs or lit circuits at once. Parcels leave a pool first in, first
out. *Coupled* flows, each with a pool of its own, flow only all at once, at rates in proportion to what
their pools hold, so that they end together: the edges of a ring. An event is the end of a message, or
what the caller changes (bytes, rates, paths). Between events all rates are constant, so nothing is
stepped through time. Equal calls give equal results, bit by bit.

An event solves only the component of links and flows that it touches (`traffic.fluid.maxmin`).
"""

import heapq
import itertools
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from topologies.errors import FabricError
from traffic.backlog import Backlog
from traffic.clock import NEVER, SECOND, TOO_LATE, checked, ps
from traffic.fair_weights import fair_weights
from traffic.fluid.maxmin import max_min_rates

SAME_TIME = 30
"""Ends whose distance is at most 2 to minus this of the time from now to them are one event: symmetric flows
end together, whatever rounding makes of them."""
_OF_FLOWS = {"_flow_bps": 0.0, "_flow_bytes": 0.0, "_flow_since_ps": 0}
_OF_POOLS = {
    "_posted": 0.0,
    "_left": 0.0,
    "_drain_bps": 0.0,
    "_since_ps": 0,
    "_end_ps": NEVER,
    "_next_end": np.inf,
}
"""What is kept of each flow and pool, and of a new one."""


class PoolArrival(NamedTuple):
    """The last byte arrived of what was posted together of a message in a pool."""

    at_ps: int
    message: int
    pool: int


class FluidNetwork:
    """Links, the flows that cross them, and the pools that the flows drain.

    Parameters
    ----------
    rate_bps
        The rate of each link at time 0, 0 for a dark one, shape (links,) [bit/s].
    by_bytes
        Whether queue pairs of a communicator share a link in proportion to what their pools hold, as the
        ideal transport has it, instead of evenly; those of different ones by `traffic.fair_weights`.
    """

    def __init__(self, rate_bps: ArrayLike, *, by_bytes: bool = False) -> None:
        self.now_ps = 0
        self._link_bps, self._by_bytes = np.array(rate_bps, dtype=float), by_bytes
        self._paths = np.zeros((0, 1), dtype=np.int64)
        self._pool, self._part_of = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        self._delivered, self._delay_ps = np.zeros(0), np.zeros(0, dtype=np.int64)
        self._communicator = np.zeros(0, dtype=np.int64)
        self._communicators: dict[int, int] = {}
        """The number that each communicator has here, from 0."""
        self._coupled = np.zeros(0, dtype=np.int64)
        """Which coupled flows each flow is one of; -1 for one on its own."""
        self._coupled_weight = np.zeros(0)
        """The weight of those coupled flows whose pool holds most."""
        self._flow_bps, self._flow_bytes = np.zeros(0), np.zeros(0)
        self._flow_since_ps = np.zeros(0, dtype=np.int64)
        self._posted, self._left, self._drain_bps = np.zeros(0), np.zeros(0), np.zeros(0)
        self._since_ps, self._end_ps = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        self._next_end = np.zeros(0)
        self._backlogs: list[Backlog] = []
        self._holding: set[int] = set()
        """The pools that have messages to deliver."""
        self._arriving: list[tuple[int, int, int, int]] = []
        self._tickets = itertools.count()
        self._touched_links: set[int] = set()
        self._touched_pools: set[int] = set()
        """Links and pools of components that have to be solved again."""
        self._regrouped = True
        """Whether components have to be found again."""
        self._components = 0
        """The next component has this number."""
        self._component_of_link = np.zeros(0, dtype=np.int64)
        self._component_of_pool = np.zeros(0, dtype=np.int64)
        self._flows_of: dict[int, NDArray[np.int64]] = {}
        """The flows of each component that has some, in order."""
        self._joined_to: dict[int, int] = {}
        """The component that one became part of since all were found."""
        self._first_end_ps: int | None = NEVER
        """The least of the pools' ends; None after a change, until it is asked for."""
        self._together_ps = 0
        """How much after now what ends is of the same event."""

    def add_link(self, rate_bps: float) -> int:
        """Return the number of a new link of a rate [bit/s]."""
        self._link_bps = np.append(self._link_bps, rate_bps)
        if not self._regrouped:
            self._component_of_link = np.append(self._component_of_link, self._components)
            self._components += 1
        return len(self._link_bps) - 1

    def add_flows(
        self,
        paths: Sequence[Sequence[int]],
        *,
        pool: ArrayLike | None = None,
        part_of: ArrayLike | None = None,
        delivered: ArrayLike = 1.0,
        delay_s: ArrayLike = 0.0,
        coupled_weight: float | None = None,
        communicator: ArrayLike = 0,
    ) -> range:
        """Return the numbers of new flows over some paths.

        Parameters
        ----------
        paths
            The links that each crosses, each once.
        pool
            The pool that each drains, shape (flows,); new pools are numbered on from `pools`. By default
            each flow has a new one of its own.
        part_of
            Flows of equal value share the weight of one queue pair while they flow, shape (flows,); by
            default each has its own number, and is a queue pair.
        delivered
            The part of each flow's bytes that links do not lose, shape (flows,); by default all.
        delay_s
            How much later each new pool's bytes arrive than they leave, shape (new pools,) [s].
        coupled_weight
            If given, these flows are coupled: each weighs in proportion to what its pool holds. Without
            ``by_bytes`` the one whose pool holds most weighs this much.
        communicator
            That of each flow, shape (flows,).

        Raises
        ------
        FabricError
            If a flow crosses no link, or one that does not exist.
        """
        first, more = len(self._paths), len(paths)
        self._widen(max(map(len, paths), default=0))
        self._paths = np.pad(self._paths, ((0, more), (0, 0)), constant_values=-1)
        for flow, path in enumerate(paths, start=first):
            self._paths[flow, : len(path)] = path
        _check_paths(self._paths[first:], len(self._link_bps))
        number = np.arange(more)
        own = np.asarray(self.pools + number if pool is None else pool, dtype=np.int64)
        whole = first + number if part_of is None else part_of
        named = np.broadcast_to(np.asarray(communicator, dtype=np.int64), more).tolist()
        numbered = [self._communicators.setdefault(name, len(self._communicators)) for name in named]
        together = -1 if coupled_weight is None else len(self._coupled_weight)
        if coupled_weight is not None:
            self._coupled_weight = np.append(self._coupled_weight, coupled_weight)
        said = {"_pool": own, "_part_of": whole, "_delivered": delivered, "_communicator": numbered}
        _lengthen(self, {**_OF_FLOWS, **said, "_coupled": together}, more)
        self._add_pools(int(own.max(initial=-1)) + 1 - self.pools, delay_s)
        if pool is None and part_of is None and coupled_weight is None and not self._regrouped:
            self._join_components(range(first, first + more))
        else:
            self._regrouped = True
        return range(first, first + more)

    @property
    def pools(self) -> int:
        """How many pools there are; the next new one has this number."""
        return len(self._backlogs)

    def _add_pools(self, more: int, delay_s: ArrayLike) -> None:
        if more > 0:
            delay_ps = np.rint(np.multiply(delay_s, SECOND)).astype(np.int64)
            _lengthen(self, {**_OF_POOLS, "_delay_ps": delay_ps}, more)
            self._backlogs += [Backlog() for _ in range(more)]

    def post(self, pool: ArrayLike, size: ArrayLike, message: ArrayLike) -> None:
        """Put parcels behind what pools hold; `advance` returns a message when its last byte arrives.

        Parameters
        ----------
        pool, size, message
            Of each parcel, in the order in which they are posted: shape (parcels,), or a number each.
        """
        pools, messages = (np.atleast_1d(np.asarray(numbers, dtype=np.int64)) for numbers in (pool, message))
        sizes = np.atleast_1d(np.asarray(size))
        by_pool = np.argsort(pools, kind="stable")
        used, first = np.unique(pools[by_pool], return_index=True)
        edges = [*first.tolist(), len(pools)]
        self._bring_up(used)
        changed = used if self._by_bytes else used[self._left[used] == 0]
        self._touched_pools.update(changed.tolist())
        ordered_sizes, ordered_messages = sizes[by_pool].tolist(), messages[by_pool].tolist()
        for number, (begin, end) in zip(used.tolist(), pairwise(edges), strict=True):
            backlog = self._backlogs[number]
            before = backlog.posted
            backlog.post(ordered_sizes[begin:end], ordered_messages[begin:end])
            self._holding.add(number)
            self._posted[number] = backlog.posted
            self._left[number] += backlog.posted - before
            self._next_end[number] = backlog.next_end

    def weigh(self, flow: int, weight: float) -> None:
        """Give coupled flows, of which ``flow`` is one, another ``coupled_weight``."""
        self._coupled_weight[self._coupled[flow]] = weight
        self._touched_pools.add(int(self._pool[flow]))

    def held(self, pool: int) -> set[int]:
        """Return the messages that have bytes in a pool."""
        return self._backlogs[pool].messages

    def held_bytes(self, pools: Sequence[int]) -> float:
        """Return how much has not left some pools, each given once [bytes]."""
        numbers = np.asarray(pools, dtype=np.int64)
        self._bring_up(numbers)
        return float(self._left[numbers].sum())

    def filled(self, pools: Sequence[int]) -> list[int]:
        """Return those of some pools that have messages to deliver."""
        return [pool for pool in pools if pool in self._holding]

    def left(self, pool: int) -> dict[int, float]:
        """Return what has not left a pool of each message [bytes]."""
        self._bring_up(np.array([pool]))
        return self._backlogs[pool].left(float(self._posted[pool] - self._left[pool]))

    def withdraw(self, pool: int) -> list[tuple[int, float]]:
        """Take back what has not left a pool: each message, and how much of it [bytes]."""
        self._bring_up(np.array([pool]))
        gone = float(self._posted[pool] - self._left[pool])
        parcels = self._backlogs[pool].withdraw(gone)
        self._holding.discard(pool)
        self._posted[pool], self._left[pool] = gone, 0.0
        self._end_ps[pool], self._next_end[pool] = NEVER, np.inf
        self._first_end_ps = None
        self._touched_pools.add(pool)
        return parcels

    def set_rates(self, links: ArrayLike, rate_bps: ArrayLike) -> None:
        """Give links another rate [bit/s]; 0 makes them dark."""
        numbers = np.atleast_1d(np.asarray(links, dtype=np.int64))
        self._link_bps[numbers] = rate_bps
        self._touched_links.update(numbers.tolist())

    def set_path(self, flow: int, links: ArrayLike) -> None:
        """Lead a flow over other links; what it sent stays sent."""
        self._widen(np.size(links))
        row = np.full(self._paths.shape[1], -1, dtype=np.int64)
        row[: np.size(links)] = links
        _check_paths(row[None], len(self._link_bps))
        old, self._paths[flow] = self._paths[flow].copy(), row
        self._regrouped = True
        self._touched_links.update(link for link in (*old.tolist(), *row.tolist()) if link >= 0)

    def _widen(self, hops: int) -> None:
        """Make room for paths of so many hops."""
        more = max(hops - self._paths.shape[1], 0)
        self._paths = np.pad(self._paths, ((0, 0), (0, more)), constant_values=-1)

    @property
    def quiet(self) -> bool:
        """Whether no pool holds bytes, and none are on their way."""
        return not (self._holding or self._arriving)

    def quiet_but(self, pools: Collection[int]) -> bool:
        """Return whether no pool holds bytes but some, and none are on their way."""
        return not self._arriving and self._holding.issubset(pools)

    @property
    def _is_idle(self) -> bool:
        """Whether nothing moves, and nothing that moved has to be looked at."""
        return not (self._holding or self._arriving or self._touched_pools or self._touched_links)

    @property
    def next_ps(self) -> int:
        """When the next parcel leaves or arrives if nothing changes [ps]; `NEVER` if none will."""
        leaves_ps = self._next_leaves_ps()
        return min(leaves_ps, self._arriving[0][0]) if self._arriving else leaves_ps

    def _next_leaves_ps(self) -> int:
        """Return when the next parcel leaves its pool if nothing changes [ps]."""
        self._settle()
        if self._first_end_ps is None:
            self._first_end_ps = int(self._end_ps.min(initial=NEVER))
        return self._first_end_ps

    def advance(self, until_ps: int) -> list[PoolArrival]:
        """Let time pass until messages arrive, at most until ``until_ps``, which may be `NEVER`.

        What ends together with that time, but for rounding, counts.

        Returns
        -------
        list of PoolArrival
            What arrived at that one instant; empty if nothing did.
        """
        while not self._is_idle and (at_ps := self.next_ps) <= self._as_one_with(until_ps) and at_ps < NEVER:
            self._move_to(at_ps)
            if arrived := self._leave(at_ps) + self._arrived():
                return arrived
        if until_ps < NEVER:
            self.now_ps = max(self.now_ps, until_ps)
        return []

    def _as_one_with(self, at_ps: int) -> int:
        """Return the last time that is the same instant as one to come [ps]."""
        return at_ps + (max(at_ps - self.now_ps, 0) >> SAME_TIME)

    def _move_to(self, at_ps: int) -> None:
        """Have it be the time of an event."""
        self._together_ps = self._as_one_with(at_ps) - at_ps
        self.now_ps = checked(at_ps)

    def lend(self, lent_bytes: ArrayLike) -> None:
        """Have what full token buckets let through leave at once.

        Each flow has its max-min share of what the buckets hold that it crosses, as if time passed at rates
        at which all of them are empty together: where every bucket holds what its link carries in the same
        time, at the links' own.

        Parameters
        ----------
        lent_bytes
            What each link's bucket holds, shape (links,) [bytes]; inf for a link that has none. A dark link
            lends nothing.
        """
        lent, rates_bps = np.asarray(lent_bytes, dtype=float), self._link_bps.copy()
        has_bucket = np.isfinite(lent) & (rates_bps > 0)
        lasts_s = float((8 * lent[has_bucket] / rates_bps[has_bucket]).max(initial=0.0))
        if not lasts_s:
            return
        every = np.arange(len(rates_bps))
        self.set_rates(every, np.where(has_bucket, 8 * lent / lasts_s, rates_bps))
        began_ps, until_ps = self.now_ps, self.now_ps + ps(lasts_s)
        while (at_ps := self._next_leaves_ps()) <= self._as_one_with(until_ps) and at_ps < NEVER:
            self._move_to(at_ps)
            for arrives_ps, message, pool in self._leave(began_ps):
                heapq.heappush(self._arriving, (arrives_ps, next(self._tickets), message, pool))
        self.now_ps = until_ps = max(self.now_ps, until_ps)
        self.set_rates(every, rates_bps)
        self._settle()
        for times_ps in (self._since_ps, self._end_ps, self._flow_since_ps):
            times_ps[times_ps < TOO_LATE] -= until_ps - began_ps
        self.now_ps, self._first_end_ps = began_ps, None

    @property
    def link_bps(self) -> NDArray[np.float64]:
        """The rate of each link now, shape (links,) [bit/s]."""
        return self._link_bps

    def uses(self, links: Sequence[int]) -> bool:
        """Return whether a flow that has bytes crosses one of some links."""
        if not self._holding:
            return False
        flowing = self._paths[self._left[self._pool] > 0]
        return bool(np.isin(flowing, links).any())

    def rates_bps(self) -> NDArray[np.float64]:
        """Return the rate of each flow now, shape (flows,) [bit/s]."""
        self._settle()
        return self._flow_bps.copy()

    def delivered_bytes(self, flows: ArrayLike) -> NDArray[np.float64]:
        """Return how much has got through of each of some flows, shape (flows,) [bytes]."""
        numbers = np.asarray(flows, dtype=np.int64)
        since_s = (self.now_ps - self._flow_since_ps[numbers]) / SECOND
        return np.asarray(self._flow_bytes[numbers] + since_s * self._good_bps(numbers) / 8)

    def _leave(self, left_ps: int) -> list[PoolArrival]:
        """Take messages whose last byte leaves its pool now out of it; return those that arrive at once.

        ``left_ps`` is when they count as having left: now, unless buckets lent.
        """
        ended = np.flatnonzero(self._end_ps <= self.now_ps + self._together_ps)
        self._since_ps[ended] = self.now_ps
        self._left[ended] = self._posted[ended] - self._next_end[ended]  # exactly, whatever rounding left
        at_once: list[PoolArrival] = []
        counts, delays_ps = self._next_end[ended].tolist(), self._delay_ps[ended].tolist()
        for pool, count, delay_ps in zip(ended.tolist(), counts, delays_ps, strict=True):
            messages = self._backlogs[pool].deliver(count)
            self._next_end[pool] = self._backlogs[pool].next_end
            if self._next_end[pool] == np.inf:
                self._holding.discard(pool)
            if delay_ps:
                for message in messages:
                    arrives_ps = left_ps + delay_ps
                    heapq.heappush(self._arriving, (arrives_ps, next(self._tickets), message, pool))
            else:
                at_once += [PoolArrival(left_ps, message, pool) for message in messages]
        self._time_ends(ended)
        self._touched_pools.update(ended[self._left[ended] == 0].tolist())
        return at_once

    def _arrived(self) -> list[PoolArrival]:
        """Return what was on its way and has arrived by now."""
        arrived = []
        while self._arriving and self._arriving[0][0] <= self.now_ps + self._together_ps:
            at_ps, _, message, pool = heapq.heappop(self._arriving)
            arrived.append(PoolArrival(at_ps, message, pool))
        return arrived

    def _bring_up(self, pools: NDArray[np.int64]) -> None:
        """Count what left pools since they were last looked at."""
        elapsed_s = (self.now_ps - self._since_ps[pools]) / SECOND
        moved = self._drain_bps[pools] * elapsed_s / 8
        self._left[pools] = np.maximum(self._left[pools] - moved, 0.0)
        self._since_ps[pools] = self.now_ps

    def _settle(self) -> None:
        """Solve the components that were touched, as they are now: until now time stood."""
        if not (self._touched_links or self._touched_pools):
            return
        if self._regrouped:
            self._find_components()
        touched = {self._joined(int(self._component_of_link[link])) for link in self._touched_links}
        touched.update(self._joined(int(self._component_of_pool[pool])) for pool in self._touched_pools)
        self._touched_links.clear()
        self._touched_pools.clear()
        parts = [self._flows_of[number] for number in sorted(touched) if number in self._flows_of]
        if not parts:
            return
        flows = np.concatenate(parts) if len(parts) > 1 else parts[0]
        pools = np.flatnonzero(np.bincount(self._pool[flows], minlength=len(self._left)))
        self._bring_up(pools)
        self._flow_bytes[flows] = self.delivered_bytes(flows)
        self._flow_since_ps[flows] = self.now_ps
        self._flow_bps[flows] = self._shares(flows)
        self._drain_bps[pools] = 0.0
        np.add.at(self._drain_bps, self._pool[flows], self._good_bps(flows))
        self._time_ends(pools)

    def _shares(self, flows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the max-min fair rate of each of some flows; of those that cannot flow, 0."""
        has_bytes = np.flatnonzero(self._left.take(self._pool.take(flows)) > 0)
        paths = self._paths.take(flows.take(has_bytes), axis=0)
        lit = ((self._link_bps[paths] > 0) | (paths < 0)).all(axis=1)
        together = self._together(flows.take(has_bytes))
        if together is not None:
            lit = (np.bincount(together, ~lit) == 0).take(together)
            together = together[lit]
        can = has_bytes[lit]
        flowing = flows.take(can)
        weights = np.ones(len(flowing))
        if self._by_bytes:
            weights = fair_weights(self._left[self._pool[flowing]], self._communicator.take(flowing))
        part_of = self._part_of.take(flowing)
        sharing = np.bincount(part_of, minlength=1)[part_of]
        weights = weights / sharing
        if together is not None and not self._by_bytes:
            self._weigh_coupled(weights, flowing, together)
        # Of some of many links: each round looks at all that it is given.
        links, crossed = np.unique(paths[lit], return_inverse=True)
        crossings = crossed.reshape(paths[lit].shape)
        if len(links) and links[0] < 0:
            links, crossings = links[1:], crossings - 1
        rates = np.zeros(len(flows))
        rates[can] = max_min_rates(crossings, self._link_bps[links], weights=weights, coupled=together)
        return rates

    def _together(self, flows: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """Return a number for each of some flows that coupled ones share; None if there are none."""
        if not len(self._coupled_weight):
            return None
        coupled = self._coupled.take(flows)
        own = len(self._coupled_weight) + np.arange(len(flows))
        return np.unique(np.where(coupled < 0, own, coupled), return_inverse=True)[1]

    def _weigh_coupled(
        self, weights: NDArray[np.float64], flows: NDArray[np.int64], together: NDArray[np.int64]
    ) -> None:
        """Set the weights of the coupled ones of some flows, in proportion to what they have left now."""
        left = self._left[self._pool[flows]]
        most = np.zeros(int(together.max(initial=-1)) + 1)
        np.maximum.at(most, together, left)
        coupled = self._coupled[flows]
        mine = np.flatnonzero(coupled >= 0)
        weights[mine] = self._coupled_weight[coupled[mine]] * (left[mine] / most[together[mine]])

    def _time_ends(self, pools: NDArray[np.int64]) -> None:
        """Note when the first parcels of pools will have left at their present rates."""
        gone, drain_bps = self._posted[pools] - self._left[pools], self._drain_bps[pools]
        lasts_ps = np.full(len(pools), np.inf)
        missing = np.maximum(self._next_end[pools] - gone, 0.0)
        np.divide(missing * (8 * SECOND), drain_bps, out=lasts_ps, where=drain_bps > 0)
        lasts_ps[missing == 0] = 0.0  # by rounding it may be empty before its end, and drain no more
        counted = lasts_ps < TOO_LATE - self.now_ps
        self._end_ps[pools] = np.where(np.isinf(lasts_ps), NEVER, TOO_LATE)
        self._end_ps[pools[counted]] = self.now_ps + np.rint(lasts_ps[counted]).astype(np.int64)
        self._first_end_ps = None

    def _good_bps(self, flows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return how fast flows deliver [bit/s]."""
        return np.asarray(self._flow_bps[flows] * self._delivered[flows])

    def _join_components(self, flows: range) -> None:
        """Join the components whose links new flows cross, each with a new pool; others are not looked at."""
        of_pool = np.zeros(len(flows), dtype=np.int64)
        for place, flow in enumerate(flows):
            path = self._paths[flow]
            met = sorted(
                {self._joined(number) for number in self._component_of_link[path[path >= 0]].tolist()}
            )
            first = met[0]
            self._joined_to.update(dict.fromkeys(met[1:], first))
            own = [self._flows_of.pop(number) for number in met if number in self._flows_of]
            self._flows_of[first] = np.sort(np.concatenate([*own, [flow]]))
            of_pool[place] = first
        self._component_of_pool = np.append(self._component_of_pool, of_pool)

    def _joined(self, component: int) -> int:
        """Return the component that one is part of by now."""
        while (into := self._joined_to.get(component)) is not None:
            component = into
        return component

    def _find_components(self) -> None:
        """Number the links, flows and pools that depend on each other alike."""
        self._regrouped = False
        self._joined_to.clear()
        links, flows, pools = len(self._link_bps), len(self._paths), len(self._left)
        parts = int(self._part_of.max(initial=-1)) + 1
        coupled = np.flatnonzero(self._coupled >= 0)
        flow, hop = np.nonzero(self._paths >= 0)
        nodes = np.concatenate(
            [
                self._paths[flow, hop],
                links + flows + self._pool,
                links + flows + pools + self._part_of,
                links + flows + pools + parts + self._coupled[coupled],
            ]
        )
        rows = np.concatenate([links + flow, np.tile(links + np.arange(flows), 2), links + coupled])
        size = links + flows + pools + parts + len(self._coupled_weight)
        graph = coo_array((np.ones(len(rows)), (rows, nodes)), (size, size))
        self._components, labels = connected_components(graph, directed=False)
        number = labels.astype(np.int64)
        self._component_of_link = number[:links]
        self._component_of_pool = number[links + flows : links + flows + pools]
        by_component = np.argsort(number[links : links + flows], kind="stable")
        edges = np.flatnonzero(np.diff(number[links : links + flows][by_component])) + 1
        groups = np.split(by_component, edges)
        self._flows_of = {int(number[links + group[0]]): group for group in groups if len(group)}


def _lengthen(network: FluidNetwork, new: Mapping[str, ArrayLike], more: int) -> None:
    for name, values in new.items():
        column = getattr(network, name)
        added = np.broadcast_to(np.asarray(values, dtype=column.dtype), more)
        setattr(network, name, np.append(column, added))


def _check_paths(paths: NDArray[np.int64], links: int) -> None:
    if len(paths) and not ((paths >= 0).any(axis=1).all() and (paths < links).all()):
        raise FabricError("a flow crosses no link, or one that does not exist")
