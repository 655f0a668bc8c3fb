"""Regions of circuits that follow a job: when their circuits change."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from controller.circuits.devices import ReconfigurationDelay
from controller.circuits.regional import Known, Regional, Turn
from controller.circuits.rule import Rule
from controller.schedulers.demand import Matrix
from controller.schedulers.mfabric import PUBLISHED, Variant
from topologies.errors import ScenarioError
from topologies.events import Event, Order, View
from topologies.fabric import Fabric
from topologies.mfabric import regions
from traffic.collectives.all_to_all import AllToAll
from traffic.faults import Moves, places_after
from traffic.job import Collective, Job

First = Literal["block", "reuse", "copilot"]
"""How an all-to-all starts whose demand is known only then."""


@dataclass(frozen=True)
class Prediction:
    """The demand of an all-to-all as it is predicted before it starts."""

    node: str
    demand: tuple[tuple[float, ...], ...]
    """Between the servers of its region, a row per source; in any unit."""


@dataclass(frozen=True)
class RegionalSetup:
    """When the circuits of regions change; times are real."""

    delay: ReconfigurationDelay
    """How long ports that change are dark; what is predicted takes the mean."""
    first: First = "block"
    """Whether a dispatch waits for circuits of its own, takes those that are lit, or has those of a
    prediction; without a prediction it waits."""
    dispatches: tuple[str, ...] = ()
    """The all-to-alls whose demand is known only when they start; that of all others is known when the one
    before them has ended."""
    predictions: tuple[Prediction, ...] = ()
    """Of the dispatches that have one."""
    before: tuple[Prediction, ...] = ()
    """The demands whose circuits are lit before the job starts: that of a region's first all-to-all as the
    iteration before had it. Regions without one begin with what their first one needs, if that is known,
    else with random circuits."""
    variant: Variant = PUBLISHED
    """How Algorithm 1 is read."""

    def bind(
        self, fabric: Fabric, job: Job, _scale: object, seed: int, moves: Mapping[str, Moves] | None = None
    ) -> Rule:
        """Return the rule, bound to a job; ScenarioError as of `RegionPlan`."""
        plan = RegionPlan(fabric, job, self, seed, moves)
        return Rule(plan, dict.fromkeys(plan.turns, self.delay), plan.circuits.first, carries="by scheme")

    @property
    def words(self) -> list[str]:
        """How tables name it."""
        return [self.first]

    @property
    def undrawn(self) -> object:
        """The same without what a seed decides: predictions, and the demands before."""
        return replace(self, predictions=(), before=())


class RegionPlan:
    """The turns of each region's OCS.

    Raises
    ------
    ScenarioError
        If the job has no all-to-all, one crosses regions, or a name is none of one.
    """

    def __init__(
        self,
        fabric: Fabric,
        job: Job,
        setup: RegionalSetup,
        seed: int,
        moves: Mapping[str, Moves] | None = None,
    ) -> None:
        self._fabric, self.setup, self._seed = fabric, setup, seed
        self._nodes = {node.name: node for node in job.collectives}
        self._moves = moves or {}
        self._region_of = {server: region for region in regions(fabric) for server in region.servers}
        self._predicted, self._before = (
            {each.node: np.array(each.demand, dtype=float) for each in known}
            for known in (setup.predictions, setup.before)
        )
        self._demands: dict[tuple[int, tuple[int, ...]], Matrix] = {}
        self.turns: dict[str, list[Turn]] = {region.ocs: [] for region in regions(fabric)}
        """The turns of each OCS, in job order."""
        for ocs, turn in self._all_turns(job):
            self.turns[ocs].append(turn)
        firsts = {turns[0].node for turns in self.turns.values() if turns}
        if strange := sorted(self._before.keys() - firsts):
            raise ScenarioError(
                f"{strange[0]!r} is not the first all-to-all of a region",
                "say what is lit before the job by the first of each",
            )
        if not any(self.turns.values()):
            raise ScenarioError(
                "circuits of regions, and no all-to-all or no OCS",
                "take an mFabric, and a job of all-to-alls",
            )

    @cached_property
    def circuits(self) -> Regional:
        """The controllers of its regions, which decide the circuits of each turn."""
        firsts = {ocs: turns[0].node for ocs, turns in self.turns.items() if turns}
        return Regional(
            self._fabric,
            self.turns,
            before={ocs: self._before[node] for ocs, node in firsts.items() if node in self._before},
            variant=self.setup.variant,
            seed=self._seed,
            moving=frozenset(self._moves),
            moved=self.moved_demand,
        )

    def decide(self, state: object, view: View, event: Event) -> tuple[object, Sequence[Order]]:
        """Return the orders of an event, as the controllers of regions have them."""
        return self.circuits.decide(state, view, event)

    def moved_demand(self, turn: Turn, faults: Sequence[str]) -> Matrix:
        """Return the demand of a turn's circuits once some faults have GPUs take others' places.

        What is predicted stays so: where a server is gone its NICs are, and without them it has no circuit.

        Parameters
        ----------
        turn
            Before any did.
        faults
            In the order in which they became known.
        """
        node, places = self._nodes[turn.node], list(range(self._fabric.gpus))
        if turn.node in self._predicted and turn.known == "before":
            return turn.demand
        for fault in faults:
            taken = places_after(self._moves.get(fault, ()), self._fabric.gpus)
            places = [taken[gpu] for gpu in places]
        assert isinstance(node.pattern, AllToAll)
        return self._between_servers(node, node.pattern.renumbered(places))[1]

    def _all_turns(self, job: Job) -> Iterator[tuple[str, Turn]]:
        late = set(self.setup.dispatches)
        for node in job.collectives:
            if not isinstance(node.pattern, AllToAll):
                continue
            ocs, demand = self._between_servers(node, node.pattern)
            known: Known = "before"
            is_late = node.name in late
            late.discard(node.name)
            if not demand.any():
                continue  # inside servers, as of tensor-parallel ranks: its circuits would be none
            if is_late:
                known = "never" if self.setup.first == "reuse" else "start"
                if self.setup.first == "copilot" and node.name in self._predicted:
                    known, demand = "before", self._predicted[node.name]
            yield ocs, Turn(node.name, demand, known)
        if late:
            raise ScenarioError(
                f"{min(late)!r} is not an all-to-all of the job {job.name!r}", "name its nodes"
            )

    def _between_servers(self, node: Collective, pattern: AllToAll) -> tuple[str, Matrix]:
        """Return the OCS of an all-to-all's region, and its demand between the region's servers.

        What goes to a server without circuits or comes from one is left out: it goes over packets.
        """
        servers = [self._fabric.gpu_servers[gpu] for gpu in pattern.ranks]
        joined = [self._region_of[server] for server in servers if server in self._region_of]
        if not joined or any(region is not joined[0] for region in joined):
            raise ScenarioError(
                f"all-to-all {node.name!r} is between {len(set(servers))} servers that are not of one region",
                "let a region's servers be those of an expert-parallel group",
            )
        region = joined[0]
        key = id(pattern.demand), tuple(pattern.ranks)
        if key not in self._demands:
            count = len(region.servers)
            place = np.array([region.servers.index(s) if s in region.servers else count for s in servers])
            demand = np.zeros((count + 1,) * 2)
            np.add.at(demand, (place[:, None], place[None, :]), pattern.demand.matrix)
            np.fill_diagonal(demand, 0.0)
            self._demands[key] = demand[:count, :count]
        return region.ocs, self._demands[key]


def regions_of(rule: Rule | None) -> RegionPlan:
    """Return the turns that a rule is made of; ScenarioError if its circuits do not follow regions."""
    if rule is None or not isinstance(rule.decides, RegionPlan):
        raise ScenarioError("there are no circuits that follow all-to-alls", "take an mFabric")
    return rule.decides
