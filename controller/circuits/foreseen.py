"""Circuits that are foreseen: what is lit from the start, and what changes later.

That is when nodes of the job have ended, or once faults are known.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import chain

from controller.circuits.circuits import Circuits, Pair
from controller.circuits.devices import ReconfigurationDelay
from controller.circuits.rule import Rule
from topologies.errors import ScenarioError
from topologies.events import Event, FaultDetected, FaultOver, NodeDone, Order, Reconfigure, View
from topologies.fabric import Fabric

OcsCircuits = tuple[str, tuple[Pair, ...]]
"""An OCS, and all circuits that it shows."""


@dataclass(frozen=True)
class ForeseenChange:
    """What is reconfigured once some faults are known."""

    faults: tuple[str, ...]
    """The names of all faults that are known then, in any order."""
    circuits: tuple[OcsCircuits, ...]
    """The OCSes that change, and what each shows from then on."""


@dataclass(frozen=True)
class Foreseen:
    """Circuits that were computed before a run; as decisions they reconfigure what a known fault changes.

    Raises
    ------
    ScenarioError
        If two changes are for the same faults, what stays changes, or the delay varies.
    """

    first: tuple[OcsCircuits, ...]
    """What OCSes show from the start; those that are not named are dark."""
    changes: tuple[ForeseenChange, ...]
    """One for each set of faults that may be known together."""
    delay: ReconfigurationDelay
    """How long an OCS is dark when it is reconfigured [real s]."""
    after: tuple[tuple[str, tuple[OcsCircuits, ...]], ...] = ()
    """What is reconfigured when a node of the job has ended: its name, and what OCSes show from then on."""
    stays: bool = False
    """Whether nothing is ever reconfigured, whatever fails: there are no changes, and no delay to honour."""

    def __post_init__(self) -> None:
        """Refuse changes that contradict each other."""
        known = [frozenset(change.faults) for change in self.changes]
        if len(set(known)) < len(known):
            raise ScenarioError("two changes of circuits are foreseen for the same faults", "keep one")
        if self.delay.varies:
            raise ScenarioError("the delay of foreseen circuits varies", "give its mean")
        if self.stays and (self.changes or self.after):
            raise ScenarioError("circuits stay, and changes of them are foreseen", "give one of the two")

    def decide(self, state: object, view: View, event: Event) -> tuple[object, Sequence[Order]]:
        """Return the orders of an event; the state is the set of faults that are known.

        Raises
        ------
        ScenarioError
            If no change is foreseen for these faults together.
        """
        known = state if isinstance(state, frozenset) else frozenset[str]()
        if isinstance(event, NodeDone):
            ended = [shown for name, circuits in self.after if name == event.node for shown in circuits]
            return known, _shown(ended)
        if isinstance(event, FaultOver):
            return known - {event.fault}, []
        if self.stays or not isinstance(event, FaultDetected):
            return known, []
        known |= {event.fault}
        for change in self.changes:
            if frozenset(change.faults) == known:
                return known, _shown(change.circuits)
        asked, *foreseen = (_together(faults) for faults in (known, *(each.faults for each in self.changes)))
        raise ScenarioError(
            f"no circuits are foreseen for {asked}", f"foreseen are: {'; '.join(foreseen) or 'none'}"
        )

    def bind(self, fabric: Fabric, _job: object, _scale: object, _seed: int, _moves: object) -> Rule:
        """Return what the runner asks, whatever the job and its scale.

        Raises
        ------
        ScenarioError
            For an OCS that is not there, or circuits that it does not permit.
        """
        ocses = {switch.name: switch for switch in fabric.switches if switch.kind == "ocs"}
        later = [*(change.circuits for change in self.changes), *(circuits for _, circuits in self.after)]
        for ocs, pairs in (*self.first, *chain.from_iterable(later)):
            if ocs not in ocses:
                raise ScenarioError(
                    f"circuits are foreseen for {ocs!r}, which is not an OCS of {fabric.name!r}"
                )
            shown = Circuits(ocses[ocs].ports, pairs)
            if not ocses[ocs].permits(shown.pairs):
                raise ScenarioError(f"OCS {ocs} does not permit the circuits {shown} that are foreseen")
        delays = dict.fromkeys(ocses, self.delay)
        return Rule(self, delays, dict(self.first), stays=self.stays, foresees=not self.stays)

    @property
    def words(self) -> list[str]:
        """How tables name it."""
        return ["fixed" if self.stays else "foreseen"]

    @property
    def undrawn(self) -> object:
        """What of it no seed decides: the devices, and not which circuits they show."""
        return self.delay, self.stays


def _shown(circuits: Collection[OcsCircuits]) -> Sequence[Order]:
    """Return the order that has OCSes show circuits, all at once; none if nothing changes."""
    return [Reconfigure(dict(circuits))] if circuits else []


def _together(faults: Collection[str]) -> str:
    return " and ".join(sorted(faults)) + " together" * (len(set(faults)) > 1)
