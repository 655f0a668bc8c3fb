"""Shards: each job has circuits of its own, and those of the next one are set while others run.

A cluster's servers face one of two patch panels (`topologies.patch_panel.sharded_panel_fabric`). A job of k
servers is a *shard*: its circuits join these servers and no others. The sequence of jobs is known, and so

    provision    the circuits of a shard are set on the panel that its servers do not face, once the shards
                 before it on that panel are over: it takes minutes, in the background
    flip         once all servers of a shard are free, their 1x2 switches turn to its panel together

A server faces one panel and has circuits prepared on the other, so it takes part in at most two topologies.
Each shard has a *side*, one of the panels, other than those of the shards that it follows on its servers.
Where no choice of sides allows that, or servers are free before the panel is done, the shard waits for it.

A panel makes one change after the other, each of all circuits that are due; those of other shards stay lit
and carry. One panel with a second configuration beside that which it shows (`Provision`, `Flip`) would leave
them lit too. But that configuration is of all its ports: when one shard has flipped to it, what was prepared
of another has to be set once more. So sides belong to servers, as their 1x2 switches do.

References
----------
TopoOpt, section 3 and appendix C.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from controller.circuits.circuits import Circuits, Pair
from controller.circuits.devices import ReconfigurationDelay
from controller.circuits.rule import HasNodes, Rule
from controller.circuits.shard_order import Shard, followed, sides_of
from topologies.errors import ScenarioError
from topologies.events import (
    Event,
    Hold,
    Lit,
    NodeDone,
    NodeStarted,
    Order,
    Reconfigure,
    SetTimer,
    TimerFired,
    View,
)
from topologies.fabric import Fabric
from topologies.patch_panel import PANELS, SHARDED_PANEL, facing, flip_name

NEXT = "next circuits of panels"
"""The timer after which a panel that is lit makes its next change: what was held for it goes on first."""


@dataclass(frozen=True)
class Shards:
    """Circuits of a cluster in shards, as an experiment has them.

    Raises
    ------
    ScenarioError
        If there is no shard, two start with the same node, or one has no end or no circuit.
    """

    shards: tuple[Shard, ...]
    """All that run, in any order: the job says which waits for which."""
    panel_s: float
    """How long a panel takes to set circuits [real s]."""
    flip_s: float
    """How long 1x2 switches are dark when they turn [real s]."""

    def __post_init__(self) -> None:
        """Make shards of what a file has, and refuse what makes none."""
        made = tuple(Shard(*each) for each in self.shards)
        object.__setattr__(self, "shards", made)
        if not made:
            raise ScenarioError("a cluster in shards has no shard", "give it one")
        for shard in made:
            if not (shard.ends and shard.circuits):
                raise ScenarioError(f"shard {shard.starts!r} has no end or no circuit", "give it both")
        if len({shard.starts for shard in made}) < len(made):
            raise ScenarioError("two shards start with the same node", "give each a first node of its own")

    def bind(self, fabric: Fabric, job: HasNodes, scale: object, seed: int, moves: object = None) -> Rule:
        """Return what the runner asks; the shards that follow no other are lit before the job starts.

        Raises
        ------
        ScenarioError
            If the fabric does not have two panels, the job lacks a shard's node, or a shard ends before it
            starts or shares a server with another at the same time.
        DemandError
            If a panel cannot have the circuits of a shard.
        """
        decides = Sharded(fabric, self.shards, job)
        panel, flip = (
            ReconfigurationDelay(name, delay_s)
            for name, delay_s in (("patch panel", self.panel_s), ("1x2 switch", self.flip_s))
        )
        delays = {each.name: panel if each.name in PANELS else flip for each in fabric.switches}
        return Rule(decides, delays, decides.first, keeps=True)

    @property
    def words(self) -> list[str]:
        """How tables name it."""
        return ["shards"]

    @property
    def undrawn(self) -> object:
        """What of it no seed decides: all."""
        return self


@dataclass(frozen=True)
class ShardsState:
    """What has been ordered, and what is over; shards by their numbers."""

    provisioned: frozenset[int]
    """Whose circuits a panel was ordered to set."""
    flipped: frozenset[int]
    """Whose servers were ordered to face their panel."""
    ended: frozenset[str] = frozenset()
    """The nodes that free servers, of those that have ended."""
    moving: frozenset[str] = frozenset()
    """The panels and 1x2 switches that do not yet show what they were ordered."""


class Sharded:
    """Decides the circuits of shards; pure.

    Parameters
    ----------
    fabric
        With two panels.
    shards
        As of `Shards`.
    job
        All that runs.
    """

    def __init__(self, fabric: Fabric, shards: Sequence[Shard], job: HasNodes) -> None:
        if fabric.name != SHARDED_PANEL:
            raise ScenarioError(
                f"shards over {fabric.name!r}, which does not have two patch panels",
                "take topologies.patch_panel.sharded_panel_fabric",
            )
        self._fabric, self._shards = fabric, tuple(shards)
        self._nodes = {node.name: node for node in job.nodes}
        self._nics = fabric.servers[0].nics
        for shard in shards:
            Circuits(len(fabric.nics), shard.circuits)
        self.servers = tuple(
            frozenset(port // self._nics for circuit in shard.circuits for port in circuit)
            for shard in shards
        )
        """The servers of each shard."""
        self._before = followed(self._shards, self.servers, job)
        """The shards that each follows, on any of its servers."""
        self.sides = sides_of(self.servers, self._before)
        """The side of each shard: the number of its panel."""
        self._frees = frozenset(node for shard in shards for node in shard.ends)
        self._initial = frozenset(number for number, before in enumerate(self._before) if not before)

    @property
    def first(self) -> Mapping[str, tuple[Pair, ...]]:
        """What is lit before the job starts; servers without a shard face panel 0."""
        lit: dict[str, tuple[Pair, ...]] = dict.fromkeys(PANELS, ())
        lit |= {flip_name(server): facing(self._nics, 0) for server in range(len(self._fabric.servers))}
        for number in sorted(self._initial):
            lit[PANELS[self.sides[number]]] += self._shards[number].circuits
            lit |= self._faces(number)
        return lit

    def decide(self, state: object, view: View, event: Event) -> tuple[object, Sequence[Order]]:
        """Return the orders of an event; before the first, panels begin to set what comes next."""
        orders = list[Order]()
        if not isinstance(state, ShardsState):
            state, orders = self._provision(ShardsState(self._initial, self._initial), view)
        if isinstance(event, NodeDone) and event.node in self._frees:
            state, flips = self._flip(replace(state, ended=state.ended | {event.node}), view)
            state, more = self._provision(state, view)
            return state, [*orders, *flips, *more]
        if isinstance(event, NodeStarted):
            return state, [*orders, *self._held(state, view, event.node)]
        if isinstance(event, Lit) and (lit := state.moving.intersection(event.ocses)):
            return replace(state, moving=state.moving - lit), [*orders, SetTimer(NEXT, 0.0)]
        if event == TimerFired(NEXT):
            return self._provision(state, view)
        return state, orders

    def is_over(self, state: ShardsState, number: int) -> bool:
        """Return whether a shard's servers are free again."""
        return state.ended.issuperset(self._shards[number].ends)

    def _flip(self, state: ShardsState, view: View) -> tuple[ShardsState, list[Order]]:
        """Have servers face the panels of the shards that follow none which is not over."""
        free = [
            number
            for number, before in enumerate(self._before)
            if number not in state.flipped and all(self.is_over(state, each) for each in before)
        ]
        orders = list[Order]()
        for number in free:
            turned = {
                flip: faces for flip, faces in self._faces(number).items() if view.ordered[flip] != faces
            }
            orders += [Reconfigure(turned)] if turned else []
            state = replace(state, moving=state.moving.union(turned))
        return replace(state, flipped=state.flipped.union(free)), orders

    def _provision(self, state: ShardsState, view: View) -> tuple[ShardsState, list[Order]]:
        """Have panels that do not move set the circuits of all shards that are due there."""
        orders = list[Order]()
        for side, panel in enumerate(PANELS):
            due = [] if panel in state.moving else self._due(state, side)
            if not due:
                continue
            taken = frozenset[int]().union(*(self.servers[number] for number in due))
            kept = (
                circuit
                for circuit in view.ordered[panel]
                if taken.isdisjoint(port // self._nics for port in circuit)
            )
            circuits = (*kept, *(pair for number in due for pair in self._shards[number].circuits))
            orders.append(Reconfigure({panel: circuits}))
            state = replace(state, provisioned=state.provisioned.union(due), moving=state.moving | {panel})
        return state, orders

    def _due(self, state: ShardsState, side: int) -> list[int]:
        """Return the shards that a panel may set.

        Those before it there are over, and its servers have turned to those on the other side: lanes between
        them would else stand for the panel, and not for the flip only.
        """
        return [
            number
            for number, before in enumerate(self._before)
            if self.sides[number] == side
            and number not in state.provisioned
            and all(
                self.is_over(state, each) if self.sides[each] == side else each in state.flipped
                for each in before
            )
            and state.moving.isdisjoint(map(flip_name, self.servers[number]))
        ]

    def _held(self, state: ShardsState, view: View, node: str) -> list[Order]:
        """Hold a collective that begins before its shard is lit."""
        found = self._nodes.get(node)
        if not (view.light_is_coming and found and hasattr(found, "pattern")):
            return []
        server = self._fabric.gpu_servers[found.gpus[0]]
        for number in state.flipped:
            if server in self.servers[number] and not self.is_over(state, number):
                panel = PANELS[self.sides[number]]
                is_set = set(view.lit[panel]).issuperset(self._shards[number].circuits)
                return [Hold(node, (*self._faces(number), *([] if is_set else [panel])))]
        return []

    def _faces(self, number: int) -> dict[str, tuple[Pair, ...]]:
        """Return what the 1x2 switches of a shard's servers show while it runs."""
        faces = facing(self._nics, self.sides[number])
        return {flip_name(server): faces for server in sorted(self.servers[number])}
