"""A controller per region: which circuits its OCS shows, decided as a job's all-to-alls come and go.

The all-to-alls of a region follow each other, each a *turn*. What its turn carries is known

    before      the one before has ended, so that circuits change while GPUs compute
    start       only when it starts: it is held until its circuits are lit
    never       in time: it takes what is lit

Circuits are Algorithm 1's for the demand of a turn, those that stay keep their NICs, and only what changes
goes dark. They change between turns, when nothing is on its way over them; a turn that starts before they are
lit is held. What is known to have failed gets no circuit from the next decision on.

A server whose packet NICs have all failed needs a circuit to one that has some, which relays for it. If
Algorithm 1 makes none the two ask for one: what the server would send over packets is added to their demand.
That alone is decided in the middle of a turn, since what is to be relayed waits for it. Where GPUs take the
places of others circuits are made for the demand between the servers where they are then, between turns as
soon as that is known.

References
----------
mFabric, sections 4.2 (a controller per region), 5.1, 5.2 and appendix B.2 (when demands are known), and 5.4
(failures). Before the first turn circuits are lit for what is known of the iteration before, else they are
random, as in the artifact.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

import numpy as np

from controller.schedulers.demand import Matrix
from controller.schedulers.mfabric import (
    PUBLISHED,
    NicMapping,
    Variant,
    circuits_of,
    region_circuits,
)
from topologies.errors import DemandError
from topologies.events import Event, FaultDetected, Hold, NodeDone, NodeStarted, Order, Reconfigure, View
from topologies.fabric import Fabric, Nic, Port
from topologies.light import Circuit
from topologies.mfabric import Region, regions
from topologies.packet_part import cut_off

Known = Literal["before", "start", "never"]
"""When the demand of a turn is known."""


@dataclass(frozen=True, eq=False)
class Turn:
    """An all-to-all of a region."""

    node: str
    """The node of the job."""
    demand: Matrix
    """D that circuits are made for, between the region's servers, in any unit."""
    known: Known = "before"


@dataclass(frozen=True, eq=False)
class RegionState:
    """What one controller remembers."""

    mapping: NicMapping
    """The circuits that were ordered last."""
    demand: Matrix
    """What they were ordered for."""
    next_turn: int = 0
    under_way: int = 0
    """How many turns have started and not ended."""
    faults: tuple[str, ...] = ()
    """Those that are known and had GPUs take others' places, in that order."""


Decision = tuple[RegionState, list[Order]]
"""What one controller remembers after an event, and what it orders."""


class Regional:
    """Decides the circuits of all regions; pure, each region's state apart.

    Parameters
    ----------
    fabric
        Whose regions.
    turns
        The all-to-alls of each region, by its OCS, in the order in which they start.
    before
        The demand that an OCS' circuits are lit for before the first turn, where that does not know its own.
    variant
        How Algorithm 1 is read.
    seed
        Of the circuits of the others.
    moving, moved
        The faults by which GPUs take the places of others, and what a turn carries between the region's
        servers once some of them are known, in that order; by default none do.

    Raises
    ------
    DemandError
        If an OCS has no region, or a demand is not between its servers.
    """

    def __init__(
        self,
        fabric: Fabric,
        turns: Mapping[str, Sequence[Turn]],
        *,
        before: Mapping[str, Matrix] = MappingProxyType({}),
        variant: Variant = PUBLISHED,
        seed: int = 0,
        moving: AbstractSet[str] = frozenset(),
        moved: Callable[[Turn, Sequence[str]], Matrix] = lambda turn, _faults: turn.demand,
    ) -> None:
        self._fabric, self._variant, self._seed = fabric, variant, seed
        self._moving, self._moved = moving, moved
        self._regions = {region.ocs: region for region in regions(fabric) if region.ocs in turns}
        self._turns = {ocs: tuple(own) for ocs, own in turns.items()}
        self._place = {
            turn.node: (ocs, number) for ocs, own in turns.items() for number, turn in enumerate(own)
        }
        self._known: dict[object, NicMapping] = {}
        self._most_known = len(self._place) + len(self._turns)
        """As many as a run of the job asks for: one in each region before its first turn, and one a turn."""
        for ocs, own in self._turns.items():
            if ocs not in self._regions:
                raise DemandError(f"circuits for {ocs}, which no region of the fabric has", "name its OCSes")
            demands = {turn.node: turn.demand for turn in own}
            demands |= {"what is before the job": before[ocs]} if ocs in before else {}
            self._check_shapes(ocs, demands)
        self._before = {ocs: self._state_before(ocs, before.get(ocs)) for ocs in self._regions}

    @property
    def first(self) -> dict[str, tuple[Circuit, ...]]:
        """What each OCS shows before the first turn."""
        return {
            ocs: circuits_of(self._fabric, self._regions[ocs], state.mapping).pairs
            for ocs, state in self._before.items()
        }

    def decide(self, state: object, view: View, event: Event) -> tuple[object, Sequence[Order]]:
        """Return the orders of an event: those of the region whose turn starts or ends."""
        orders: list[Order] = []
        if not isinstance(state, dict):
            state, orders = self._first(view)
        if isinstance(event, NodeStarted | NodeDone) and event.node in self._place:
            ocs, number = self._place[event.node]
            decides = self._starts if isinstance(event, NodeStarted) else self._ends
            after, more = decides(state[ocs], view, ocs, number)
            return state | {ocs: after}, [*orders, *more]
        if isinstance(event, FaultDetected):
            for ocs, own in state.items():
                after, more = self._detects(own, view, ocs, event.fault)
                state, orders = state | {ocs: after}, [*orders, *more]
        return state, orders

    def _check_shapes(self, ocs: str, demands: Mapping[str, Matrix]) -> None:
        """Refuse demands that are not between the servers of a region."""
        servers = len(self._regions[ocs].servers)
        for name, demand in demands.items():
            if demand.shape != (servers, servers):
                raise DemandError(
                    f"{name!r} has a demand of shape {demand.shape} in a region of {servers} servers",
                    "give a row and a column per server",
                )

    def _state_before(self, ocs: str, demand: Matrix | None) -> RegionState:
        """Return what a region's controller remembers before its first turn."""
        turns, servers = self._turns[ocs], self._regions[ocs].servers
        if turns and turns[0].known == "before":
            demand = turns[0].demand
        if demand is None:
            demand = np.random.default_rng([self._seed, servers[0]]).random((len(servers), len(servers)))
        return RegionState(self._mapping(self._regions[ocs], demand, (), frozenset()), demand)

    def _first(self, view: View) -> tuple[dict[str, RegionState], list[Order]]:
        """Return what is lit, and orders where NICs have failed before anything is sent."""
        state, orders = dict(self._before), list[Order]()
        for ocs, own in state.items():
            if view.failed:
                state[ocs], more = self._shown(own, view, ocs, own.demand)
                orders += more
        return state, orders

    def _starts(self, state: RegionState, view: View, ocs: str, number: int) -> Decision:
        turn, orders = self._turns[ocs][number], list[Order]()
        if turn.known == "start" and not state.under_way:
            state, orders = self._shown(state, view, ocs, self._demand(state, turn))
        after = replace(state, next_turn=number + 1, under_way=state.under_way + 1)
        return after, [*orders, Hold(turn.node, (ocs,))]

    def _ends(self, state: RegionState, view: View, ocs: str, number: int) -> Decision:
        state, following = replace(state, under_way=state.under_way - 1), self._following(state, ocs)
        if state.under_way or following is None:
            return state, []
        return self._shown(state, view, ocs, self._demand(state, following))

    def _following(self, state: RegionState, ocs: str) -> Turn | None:
        """Return the next turn of a region, if its demand is known before it starts."""
        turns = self._turns[ocs][state.next_turn : state.next_turn + 1]
        return turns[0] if turns and turns[0].known == "before" else None

    def _demand(self, state: RegionState, turn: Turn) -> Matrix:
        return self._moved(turn, state.faults) if state.faults else turn.demand

    def _detects(self, state: RegionState, view: View, ocs: str, fault: str) -> Decision:
        """Return what a fault changes at once.

        Between turns, circuits that are lit for one whose GPUs have moved; and at any time those of a server
        that needs a relay and has none.
        """
        if fault in self._moving:
            state = replace(state, faults=(*state.faults, fault))
            following = self._following(state, ocs)
            if following and not state.under_way:
                return self._shown(state, view, ocs, self._demand(state, following))
        if not self._lacks_relay(self._regions[ocs], state.mapping, view.failed):
            return state, []
        return self._shown(state, view, ocs, state.demand)

    def _shown(self, state: RegionState, view: View, ocs: str, demand: Matrix) -> Decision:
        """Return the orders that have circuits shown for a demand: none if they are there."""
        region = self._regions[ocs]
        mapping = self._mapping(region, demand, state.mapping, view.failed)
        state = replace(state, demand=demand)
        if set(mapping) == set(state.mapping):
            return state, []
        circuits = circuits_of(self._fabric, region, mapping)
        return replace(state, mapping=mapping), [Reconfigure({ocs: circuits.pairs})]

    def _mapping(
        self, region: Region, demand: Matrix, last: NicMapping, failed: AbstractSet[Port]
    ) -> NicMapping:
        """Return the circuits for a demand; what was asked lately is remembered, of its transpose too."""
        key = region.ocs, (demand + demand.T).tobytes(), last, failed
        if key not in self._known:
            if len(self._known) == self._most_known:
                del self._known[next(iter(self._known))]
            self._known[key] = self._with_relays(region, demand, last, failed)
        return self._known[key]

    def _with_relays(
        self, region: Region, demand: Matrix, last: NicMapping, failed: AbstractSet[Port]
    ) -> NicMapping:
        """Return Algorithm 1's circuits; servers without packet NICs ask for one that they have not."""
        dead = self._dead(region, failed)

        def circuits(demand: Matrix) -> NicMapping:
            return region_circuits(
                self._fabric, region, demand, last=last, failed=dead, variant=self._variant
            )

        mapping, asked, again = circuits(demand), dict[int, int](), set[int]()
        while new := self._lacks_relay(region, mapping, failed) - again:
            server, most = min(new), demand.sum() or 1.0
            place, more = region.servers.index(server), [most]
            if server in asked:  # another that asked has taken its circuit
                again.add(server)
            else:
                sizes = self._over_packets(region, demand, mapping).sum(axis=1)
                relays = self._relays(region, failed, Counter(asked.values()))
                if not relays:
                    break
                asked[server] = min(relays, key=lambda peer: (sizes[peer], peer))
                more = [sizes[place], most]
            for size in more:  # the last is the first of all
                demand = demand.copy()
                demand[place, asked[server]] += size
                mapping = circuits(demand)
                if server not in self._lacks_relay(region, mapping, failed):
                    break
        return mapping

    def _relays(self, region: Region, failed: AbstractSet[Port], serving: Mapping[int, int]) -> list[int]:
        """Return the places of servers with packet NICs and a circuit NIC that serves no server yet."""
        cut, dead = cut_off(self._fabric, frozenset(failed)), self._dead(region, failed)
        return [
            place
            for place, (peer, nics) in enumerate(zip(region.servers, region.nics, strict=True))
            if peer not in cut and len(set(nics) - dead) > serving[place]
        ]

    def _over_packets(self, region: Region, demand: Matrix, mapping: NicMapping) -> Matrix:
        """Return what pairs without a circuit carry both ways."""
        both: Matrix = demand + demand.T
        for circuit in mapping:
            i, j = (region.servers.index(end.server) for end in circuit)
            both[i, j] = both[j, i] = 0.0
        return both

    def _lacks_relay(self, region: Region, mapping: NicMapping, failed: AbstractSet[Port]) -> set[int]:
        """Return the servers that could have a circuit to one with packet NICs, need it and have none."""
        cut, dead = cut_off(self._fabric, frozenset(failed)), self._dead(region, failed)
        if cut.isdisjoint(region.servers):
            return set()
        working = [circuit for circuit in mapping if dead.isdisjoint(circuit)]
        served = {end.server for a, b in working for end, far in ((a, b), (b, a)) if far.server not in cut}
        return {
            server
            for server, nics in zip(region.servers, region.nics, strict=True)
            if server in cut - served and not dead.issuperset(nics)
        }

    def _dead(self, region: Region, failed: AbstractSet[Port]) -> frozenset[Nic]:
        """Return the circuit NICs of a region that are known to have failed."""
        nics = [nic for own in region.nics for nic in own] if failed else []
        return frozenset(nic for nic in nics if self._fabric.nic_port(nic) in failed)
