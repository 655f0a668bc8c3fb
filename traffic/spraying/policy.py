"""What a spraying policy is: proactive ones assign every chunk up front, reactive ones choose as they go.

A policy sees only the messages that leave their server. Entropy stands for what the fabric
hashes: queue pairs between the same NICs with different entropies may take different spines.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from topologies.fabric import Fabric, Nic
from traffic.messages import Chunks, Messages

ENTROPIES = 1 << 12
"""Entropies are 0 .. ENTROPIES - 1; each is a TCP source port of its own."""


@dataclass(frozen=True, slots=True)
class QueuePair:
    """One connection of a communicator, pinned to a source NIC, a destination NIC and an entropy."""

    source: Nic
    destination: Nic
    entropy: int = 0
    communicator: int = 0
    """Its number within the job (`traffic.communicators`); whoever runs the job sets it, no scheme has to."""

    def __str__(self) -> str:
        whose = f"/{self.communicator}" if self.communicator else ""
        return f"{self.source}>{self.destination}#{self.entropy}{whose}"


@dataclass(frozen=True, eq=False)
class Assignment:
    """Which queue pair carries each chunk, decided before anything is sent."""

    queue_pairs: tuple[QueuePair, ...]
    """The queue pairs in use, each once."""
    chunk_qp: NDArray[np.int64]
    """Index of each chunk's queue pair, shape (chunks,)."""
    order: NDArray[np.int64]
    """The chunks in the order in which they are posted; a queue pair carries its own in this order."""


@dataclass(frozen=True, eq=False)
class Permitted:
    """The queue pairs that a reactive policy may choose from."""

    queue_pairs: tuple[QueuePair, ...]
    """All of them, each once."""
    of_message: tuple[tuple[int, ...], ...]
    """For each message, the indices of the queue pairs that may carry its chunks."""


@dataclass(slots=True)
class QpState:
    """What a sender knows of one of its queue pairs, at real scale."""

    backlog_bytes: int
    """Posted and not yet acknowledged [bytes]."""
    rtt_s: float
    """Smoothed round-trip time of its chunks [s]; 0 before the first measurement."""
    room: bool
    """Whether the queue pair takes another chunk now."""


@runtime_checkable
class ProactivePolicy(Protocol):
    """A scheme that assigns all chunks before the first is sent.

    There is one for each communicator of a run, asked whenever messages of it may go: what it keeps in
    itself, it has for the run. One that assigns equal messages alike whenever it is asked, once it has queue
    pairs for them, may say ``steady = True``: equal parts of a job are then predicted once.

    One that has a connection for each two GPUs of a ring, on which all steps go, says so by an attribute
    ``keeps_connections = True``; else each step is assigned when it starts.
    """

    name: str

    def assign(
        self, *, fabric: Fabric, messages: Messages, chunks: Chunks, rng: np.random.Generator
    ) -> Assignment:
        """Return the queue pair of every chunk."""
        ...


@runtime_checkable
class SeesBacklogs(Protocol):
    """A policy that goes on from what the NICs have yet to deliver."""

    def goes_on_from(self, backlog_bytes: Callable[[Nic], int]) -> None:
        """Hear, before it assigns, what the communicator's queue pairs from a NIC have yet to deliver."""
        ...


@runtime_checkable
class ReactivePolicy(Protocol):
    """A scheme that chooses the queue pair of the next chunk from what it has seen, all at real scale.

    One whose messages stay on a queue pair while it is good may say so by an attribute ``settles = True``;
    it is then predicted as such (`traffic.fluid.choice`), else as one that keeps all busy.

    There is one for each communicator of a run. It is asked what it permits whenever messages may go, and a
    copy of it (`copy.copy`) chooses for these, since several exchanges may be under way, each of which counts
    its messages and queue pairs from 0. So an attribute that is set anew is of one exchange, and what is put
    into a dictionary made before is kept for the run. ``steady`` is as of `ProactivePolicy`, of ``permit``.
    """

    name: str

    def permit(self, *, fabric: Fabric, messages: Messages, rng: np.random.Generator) -> Permitted:
        """Return the queue pairs to open, and which of them each message may use."""
        ...

    def choose(self, *, message: int, states: Sequence[QpState], now: float) -> int | None:
        """Return the queue pair of a message's next chunk, or None to wait for room.

        ``states`` is indexed like ``Permitted.queue_pairs``; ``now`` is in seconds since the start.
        """
        ...

    def acknowledged(self, *, message: int, qp: int, rtt_s: float, marked: bool, now: float) -> None:
        """Record that a chunk of ``message`` on ``qp`` was acknowledged.

        ``rtt_s`` is how long this chunk took, unsmoothed [s]; ``marked`` is whether it queued for longer than
        a switch with ECN would let pass unmarked (`traffic.transports.round_trips`).
        """
        ...


@runtime_checkable
class Counts(Protocol):
    """A scheme that counts what it saw and did; the summary has the shares."""

    @property
    def counts(self) -> Mapping[str, tuple[int, int]]:
        """How many chunks were ``marked``, ``recycled`` or ``moved``, each of how many."""
        ...


@runtime_checkable
class NamesInert(Protocol):
    """A scheme that finds which of its constants could not act in what it decided."""

    @property
    def inert(self) -> Mapping[str, tuple[int, int]]:
        """By constant: how many decisions there were at most, and after how many it could act."""
        ...


def inert_in_all(said: Sequence[Mapping[str, tuple[int, int]]]) -> tuple[str, ...]:
    """Return the constants that could act in none of a run's policies, a clause each.

    Examples
    --------
    >>> inert_in_all([{"A": (3, 14), "B": (3, 5)}, {"A": (9, 14)}])
    ('A: at most 9 decisions, and it takes 14',)
    """
    names = [name for name in said[0] if all(name in each for each in said)] if said else []
    most = {name: max(each[name][0] for each in said) for name in names}
    return tuple(f"{name}: at most {most[name]} decisions, and it takes {said[0][name][1]}" for name in names)


Policy = ProactivePolicy | ReactivePolicy
