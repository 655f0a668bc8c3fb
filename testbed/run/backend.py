"""A backend: what moves the bytes of a job, and has a clock. `testbed.run.runner` tells it what to do.

All times are real picoseconds since the start (`traffic.clock`), all sizes real bytes, whatever the
backend's own scale.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from testbed.run.packet_paths import PacketPaths
from topologies.events import Show
from topologies.fabric import Nic, Port
from topologies.light import Circuit
from topologies.routes import Routes
from traffic.clock import NEVER
from traffic.effects import Daemon, DaemonState, LinkState
from traffic.scheme import Choice, WhileLit
from traffic.spraying.policy import QueuePair

NOTHING_COMES = "nothing is on its way, and the job has not ended"
NOT_CONTROLLED = (
    "the controller was killed, and OCSes wait for its commands",
    "let it fail where nothing is switched, or over packets",
)
"""A sentence and a hint."""


@dataclass(frozen=True)
class Arrived:
    """The last byte arrived of what was posted together of a message on a queue pair."""

    message: int
    at_ps: int
    carrier: int = -1
    """The number of the queue pair, where it is one: not of what was chosen, taken or coupled."""


@dataclass(frozen=True)
class LightChanged:
    """What an OCS carries from now on, as the device has it."""

    ocs: str
    circuits: tuple[Circuit, ...]
    at_ps: int
    until_ps: int | None = NEVER
    """When that changes, as far as it is planned; None while the device moves on in a program."""


@dataclass(frozen=True)
class NowProvisioned:
    """An OCS has set circuits beside those that it shows."""

    ocs: str
    circuits: tuple[Circuit, ...]
    at_ps: int


@dataclass(frozen=True)
class Drained:
    """Nothing is on its way any more over the queue pairs that are held for a change of light."""

    change: int
    at_ps: int


Happening = Arrived | Drained | LightChanged | NowProvisioned


class Strand(NamedTuple):
    """What one queue pair, or NVLink, carries of a message that is part of a coupled flow."""

    message: int
    bytes: int
    over: int | tuple[int, int]
    """The number of the queue pair, or the source and destination GPU inside a server."""


class Backend(Protocol):
    """Moves bytes, and has a clock."""

    @property
    def now_ps(self) -> int:
        """Time since the start [ps]."""
        ...

    @property
    def packet_paths(self) -> PacketPaths:
        """The paths of its queue pairs over packet switches."""
        ...

    def numbers(self, queue_pairs: Sequence[QueuePair]) -> list[int]:
        """Return the number of each queue pair; those that are not open are opened."""
        ...

    def begin_lit(self, circuits: Mapping[str, tuple[Circuit, ...]]) -> None:
        """Have OCSes carry circuits before anything else is done; the clock stands meanwhile."""
        ...

    def begin(self) -> None:
        """Get ready for what a collective posts first: shapers lend, if nothing is on its way."""
        ...

    def post(self, number: NDArray[np.int64], size: NDArray[np.int64], message: NDArray[np.int64]) -> None:
        """Put parcels behind what queue pairs carry: the queue pair, size and message of each, in order."""
        ...

    def choose(
        self,
        numbers: Sequence[int],
        choice: Choice | WhileLit,
        size: NDArray[np.int64],
        message: NDArray[np.int64],
    ) -> None:
        """Let messages choose among queue pairs as they go, or take those that are lit.

        Parameters
        ----------
        numbers
            Of the choice's queue pairs.
        choice
            What each may use.
        size, message
            The size of each of its messages, and what `Arrived` calls it.
        """
        ...

    def chosen(self, message: int, *, goes_on: bool = False) -> dict[int, int]:
        """Return how many bytes each queue pair carried of a message that chose since it was last asked.

        It has arrived and is forgotten, unless it goes on.
        """
        ...

    def lacking(self, message: int) -> int:
        """Return how many bytes a message lacks that takes what is lit."""
        ...

    def recall(self, messages: Sequence[int]) -> dict[int, dict[int, int]]:
        """Take back those of some messages that lack bytes and choose as they go, or take what is lit.

        With those that choose, all that choose from queue pairs of theirs. Those that take what is lit are
        taken back when nothing is lit.

        Returns
        -------
        dict of message to dict of queue pair to bytes
            What each queue pair carried of each message that was taken back, by number.
        """
        ...

    def carried(self, number: int) -> set[int]:
        """Return the messages whose bytes a queue pair still carries."""
        ...

    def owed(self, numbers: Sequence[int]) -> int:
        """Return what queue pairs have yet to deliver, but for coupled flows and what chose them."""
        ...

    def left(self, number: int) -> dict[int, int]:
        """Return what a queue pair has yet to deliver of each message [bytes]."""
        ...

    def withdraw(self, number: int) -> list[tuple[int, int]]:
        """Close a queue pair; return what it did not deliver, message and bytes of what was posted together.

        Of 0 bytes is what has arrived and was not reported.
        """
        ...

    def retract(self, number: int) -> list[tuple[int, int, bool]]:
        """Take back what a queue pair has not sent; return that, message, bytes and whether none stays.

        One for each message and what was posted of it together.
        """
        ...

    def hold(self, numbers: Collection[int]) -> None:
        """Hold queue pairs until they are resumed."""
        ...

    def drain(self, change: int, numbers: Collection[int]) -> None:
        """Hold queue pairs, and report `Drained` once nothing of theirs is on its way."""
        ...

    def stop_draining(self, change: int) -> Collection[int]:
        """Wait no longer for a change's queue pairs; return those of which something is on its way."""
        ...

    def resume(self, numbers: Collection[int]) -> None:
        """Let queue pairs send again that have a route."""
        ...

    def follow(self, routes: Routes, nics: Collection[Nic] | None) -> None:
        """Have queue pairs over circuits, and servers that forward, take routes.

        Parameters
        ----------
        routes
            Over what is known to be lit and not to have failed. A queue pair without one stands.
        nics
            The NICs whose queue pairs may have others than before; None for all.
        """
        ...

    def light(self, circuits: Mapping[str, tuple[Circuit, ...]]) -> None:
        """Have OCSes carry circuits, and report `LightChanged` when each does."""
        ...

    def provision(self, ocs: str, circuits: tuple[Circuit, ...]) -> None:
        """Have an OCS set circuits beside those that it shows, and report `NowProvisioned`."""
        ...

    def flip(self, circuits: Mapping[str, tuple[Circuit, ...]]) -> None:
        """Have OCSes carry what they provisioned, which is this, and report `LightChanged` when each does."""
        ...

    def show(self, order: Show) -> None:
        """Have OCSes show programs, and report `LightChanged` for each slot and each move between two."""
        ...

    def set_link(self, port: Port, state: LinkState) -> None:
        """Have the link at a port do what a state says, from now on."""
        ...

    def set_daemon(self, daemon: Daemon, state: DaemonState) -> None:
        """Kill a process of the network, or start it again."""
        ...

    def expects_back(self, expects: bool) -> None:
        """Take whether something that is away will be back, so that bytes may make no progress until then."""
        ...

    def learn_rates(self, shares: Mapping[Nic, float]) -> None:
        """Take which NICs are known to have a share of their rate only: these are all of them."""
        ...

    def avoid(self, ports: Collection[Port]) -> None:
        """Lead traffic around ports that are known to have failed: these are all of them."""
        ...

    def wait(self, until_ps: int) -> list[Happening]:
        """Let time pass until something happens, at most until ``until_ps``."""
        ...


@runtime_checkable
class CouplingBackend(Backend, Protocol):
    """A backend that can carry coupled flows (`traffic.collectives.exchange`); the live one cannot."""

    @property
    def couples(self) -> bool:
        """Whether it does so in this run."""
        ...

    def couple(self, flows: Sequence[Sequence[Strand]]) -> None:
        """Move flows that start together, the strands of each in proportion.

        When a flow ends, `Arrived` comes once for each of its messages.
        """
        ...
