"""A controller per region: which circuits its OCS shows, decided as a job's all-to-alls come and go.

The all-to-alls of a region follow each other, each a *turn*. What its turn carries is known

    before      the one before has ended, so that circuits change while GPUs compute
    start       only when it starts: it is held until its circuits are lit
    never       in time: it takes what is lit

Circuits are Algorithm 1's for the demand of a turn, those that stay keep their NICs, and only what changes
goes dark. They change between turns, when nothing is on its way over them; a turn that starts before they are
lit is held. What is known to have failed gets no circuit from the next decision on.

References
----------
mFabric, sections 4.2 (a controller per region), 5.1, 5.2 and appendix B.2 (when demands are known). The
circuits before the first turn are random, as in the artifact.
"""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
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
from topologies.mfabric import Region, regions

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


@dataclass(frozen=True)
class RegionState:
    """What one controller remembers."""

    mapping: NicMapping
    """The circuits that were ordered last."""
    next_turn: int = 0
    under_way: int = 0
    """How many turns have started and not ended."""
    faults: tuple[str, ...] = ()
    """Those that are known and had GPUs take others' places, in that order."""


class Regional:
    """Decides the circuits of all regions; pure, each region's state apart.

    Parameters
    ----------
    fabric
        Whose regions.
    turns
        The all-to-alls of each region, by its OCS, in the order in which they start.
    variant
        How Algorithm 1 is read.
    seed
        Of the circuits before the first turn.
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
        for ocs, own in self._turns.items():
            if ocs not in self._regions:
                raise DemandError(f"circuits for {ocs}, which no region of the fabric has", "name its OCSes")
            servers = len(self._regions[ocs].servers)
            wrong = [turn for turn in own if turn.demand.shape != (servers, servers)]
            if wrong:
                raise DemandError(
                    f"{wrong[0].node!r} has a demand of shape {wrong[0].demand.shape} in a region of "
                    f"{servers} servers",
                    "give a row and a column per server",
                )

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
        if isinstance(event, FaultDetected) and event.fault in self._moving:
            return {
                ocs: replace(own, faults=(*own.faults, event.fault)) for ocs, own in state.items()
            }, orders
        return state, orders

    def _first(self, view: View) -> tuple[dict[str, RegionState], list[Order]]:
        """Return the circuits of all regions before anything is sent: of the first turn, if it is known."""
        state, orders = {}, list[Order]()
        for ocs, region in self._regions.items():
            turns, servers = self._turns[ocs], len(region.servers)
            if turns and turns[0].known == "before":
                demand = turns[0].demand
            else:
                demand = np.random.default_rng([self._seed, region.servers[0]]).random((servers, servers))
            state[ocs], more = self._shown(RegionState(()), view, ocs, demand)
            orders += more
        return state, orders

    def _starts(
        self, state: RegionState, view: View, ocs: str, number: int
    ) -> tuple[RegionState, Sequence[Order]]:
        turn, orders = self._turns[ocs][number], list[Order]()
        if turn.known == "start" and not state.under_way:
            state, orders = self._shown(state, view, ocs, self._demand(state, turn))
        after = replace(state, next_turn=number + 1, under_way=state.under_way + 1)
        return after, [*orders, Hold(turn.node, ocs)]

    def _ends(
        self, state: RegionState, view: View, ocs: str, number: int
    ) -> tuple[RegionState, Sequence[Order]]:
        state = replace(state, under_way=state.under_way - 1)
        following = self._turns[ocs][state.next_turn : state.next_turn + 1]
        if state.under_way or not following or following[0].known != "before":
            return state, []
        return self._shown(state, view, ocs, self._demand(state, following[0]))

    def _demand(self, state: RegionState, turn: Turn) -> Matrix:
        return self._moved(turn, state.faults) if state.faults else turn.demand

    def _shown(
        self, state: RegionState, view: View, ocs: str, demand: Matrix
    ) -> tuple[RegionState, list[Order]]:
        """Return the orders that have circuits shown for a demand: none if they are there."""
        region = self._regions[ocs]
        mapping = self._mapping(region, demand, state.mapping, view.failed)
        if set(mapping) == set(state.mapping):
            return state, []
        circuits = circuits_of(self._fabric, region, mapping)
        return replace(state, mapping=mapping), [Reconfigure(ocs, circuits.pairs)]

    def _mapping(
        self, region: Region, demand: Matrix, last: NicMapping, failed: AbstractSet[Port]
    ) -> NicMapping:
        """Return the circuits for a demand; what was asked before is remembered, of its transpose too."""
        key = region.ocs, (demand + demand.T).tobytes(), last, failed
        if key not in self._known:
            dead = frozenset[Nic]()
            if failed:
                owned = zip(region.servers, region.nics, strict=True)
                nics = [Nic(server, nic) for server, own in owned for nic in own]
                dead = frozenset(nic for nic in nics if self._fabric.nic_port(nic) in failed)
            self._known[key] = region_circuits(
                self._fabric, region, demand, last=last, failed=dead, variant=self._variant
            )
        return self._known[key]
