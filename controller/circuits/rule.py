"""A rule for circuits: which are lit when, as decisions about what happens in a run.

What an experiment has (`Foreseen`, a user's own class) is bound to its fabric, job, scale and seed, and then
is a `Rule`. The runner asks that and nothing else, whatever kind of circuits it is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from controller.circuits.devices import ReconfigurationDelay
from topologies.events import Event, Order, View
from topologies.light import Circuit


class Decides(Protocol):
    """Decides which circuits are lit; pure, so that both backends get the same decisions."""

    def decide(self, state: object, view: View, event: Event) -> tuple[object, Sequence[Order]]:
        """Return the state after an event, and what is to be done; the first state is None."""
        ...


@dataclass(frozen=True, eq=False)
class Rule:
    """Which circuits of a fabric are lit when, for one job."""

    decides: Decides
    """Hears what happens, and orders."""
    delays: Mapping[str, ReconfigurationDelay]
    """How long each OCS that it uses is dark when it is reconfigured [real s]; messages cross no other."""
    first: Mapping[str, tuple[Circuit, ...]] = field(default_factory=dict)
    """What these OCSes show before the job starts; those that are not named are dark."""
    stays: bool = False
    """Whether nothing is ever reconfigured, so that no delay has to be honoured."""
    alone: bool = True
    """Whether its circuits carry all that leaves a server, each message directly once it has one; else the
    experiment's scheme says what goes over circuits and what over packets."""
    foresees: bool = False
    """Whether it knows some faults only, and has nothing to say of others."""
