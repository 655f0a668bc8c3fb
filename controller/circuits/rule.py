"""A rule for circuits: which are lit when, as decisions about what happens in a run.

What an experiment has (`Foreseen`, a user's own class) is bound to its fabric, job, scale and seed, and then
is a `Rule`. The simulation asks that and nothing else, whatever kind of circuits it is.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from controller.circuits.devices import ReconfigurationDelay
from topologies.events import Event, Order, View
from topologies.light import Configuration

Carries = Literal["once lit", "while lit", "by scheme"]
"""All messages, each over the circuits of its servers once there are some, as TCP over duplex circuits; or as
datagrams, whenever one is lit; or those that the experiment's scheme puts on them."""


class Decides(Protocol):
    """Decides which circuits are lit; pure, so that both backends get the same decisions."""

    def decide(self, state: object, view: View, event: Event) -> tuple[object, Sequence[Order]]:
        """Return the state after an event, and what is to be done; the first state is None."""
        ...


class JobNode(Protocol):
    """What rules read of a node of a job."""

    @property
    def name(self) -> str:
        """Unique in the job."""
        ...

    @property
    def after(self) -> tuple[str, ...]:
        """The nodes that it waits for."""
        ...

    @property
    def gpus(self) -> tuple[int, ...]:
        """The GPUs that take part."""
        ...


class HasNodes(Protocol):
    """What rules read of a job."""

    @property
    def nodes(self) -> Sequence[JobNode]:
        """All that it does."""
        ...

    @property
    def collectives(self) -> Sequence[JobNode]:
        """The nodes that exchange bytes."""
        ...


@dataclass(frozen=True, eq=False)
class Rule:
    """Which circuits of a fabric are lit when, for one job."""

    decides: Decides
    """Hears what happens, and orders."""
    delays: Mapping[str, ReconfigurationDelay]
    """How long each OCS that it uses is dark when it is reconfigured [real s]; messages cross no other."""
    first: Configuration = field(default_factory=dict)
    """What these OCSes show before the job starts; those that are not named are dark."""
    stays: bool = False
    """Whether nothing is ever reconfigured, so that no delay has to be honoured."""
    keeps: bool = False
    """Whether circuits that lead a collective's messages stay until it has ended, so that a prediction may
    move its rings as one."""
    carries: Carries = "once lit"
    """How its circuits carry messages."""
    foresees: bool = False
    """Whether it knows some faults only, and has nothing to say of others."""
    leaves: bool = False
    """Whether it leaves bytes to packets, so that the scheme has to have a rest."""
    bound_s: Callable[[], float] | None = None
    """Returns what no rule like it beats with its delays [s]; None for what no fabric does."""
    prepare: Callable[[], object] = lambda: None
    """Computes what takes long before a run, so that what is wrong with it is said early."""

    @property
    def is_alone(self) -> bool:
        """Whether circuits carry all that leaves a server, but for a scheme's rest."""
        return self.carries != "by scheme"
