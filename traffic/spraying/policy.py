"""What a spraying policy is: proactive ones assign every chunk up front, reactive ones choose as they go.

A policy sees only the messages that leave their server. Entropy stands for what the fabric
hashes: queue pairs between the same NICs with different entropies may take different spines.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from topologies.fabric import Fabric, Nic
from traffic.messages import Chunks, Messages
from traffic.spraying.states import LaneState as LaneState  # compiled, as protocols cannot be

ENTROPIES = 1 << 12
"""Entropies are 0 .. ENTROPIES - 1; each is a TCP source port of its own."""
SPRAYED = -1
"""Stands for the entropy of a queue pair by which packets of any go, each of its own; no scheme names it."""


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
        entropy = "*" if self.entropy == SPRAYED else self.entropy
        return f"{self.source}>{self.destination}#{entropy}{whose}"


@dataclass(frozen=True, eq=False)
class Assignment:
    """Which queue pair carries each chunk, decided before anything is sent."""

    queue_pairs: tuple[QueuePair, ...]
    """The queue pairs in use, each once."""
    chunk_qp: NDArray[np.int64]
    """Index of each chunk's queue pair, shape (chunks,)."""
    order: NDArray[np.int64]
    """The chunks in the order in which they are posted; a queue pair carries its own in this order."""


Entropies = tuple[int, ...] | range
"""Those of some lanes between two NICs."""


@dataclass(frozen=True, slots=True)
class LaneSet:
    """The lanes from each of some NICs to each of some others, by each of some entropies: said, not listed.

    Lanes count from 0: those between the first source and the first destination come first.

    Examples
    --------
    >>> lanes = LaneSet((Nic(0, 0), Nic(0, 1)), (Nic(1, 0),), range(64))
    >>> len(lanes), str(list(lanes)[65])
    (128, '0.1>1.0#1')
    """

    sources: tuple[Nic, ...]
    destinations: tuple[Nic, ...]
    entropies: Entropies = (0,)
    communicator: int = 0
    """As of `QueuePair`."""

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.sources) * len(self.destinations) * len(self.entropies)

    def __iter__(self) -> Iterator[QueuePair]:
        """Yield them in order."""
        for each in product(self.sources, self.destinations, self.entropies):
            yield QueuePair(*each, self.communicator)


Lanes = tuple[LaneSet, ...]
"""What a message may use: the lanes of several sets, which count on from one set to the next."""


def each_of(lanes: Iterable[LaneSet]) -> list[QueuePair]:
    """Return lanes one by one, for a network that has to have a connection for each."""
    return [queue_pair for each in lanes for queue_pair in each]


def between_nics(lanes: Iterable[LaneSet]) -> list[QueuePair]:
    """Return a queue pair for each two NICs, by which packets of any entropy go, in the order of the lanes.

    Examples
    --------
    >>> list(map(str, between_nics((LaneSet((Nic(0, 0), Nic(0, 1)), (Nic(1, 0),), range(64)),))))
    ['0.0>1.0#*', '0.1>1.0#*']
    """
    return [
        QueuePair(source, destination, SPRAYED, each.communicator)
        for each in lanes
        for source, destination in product(each.sources, each.destinations)
    ]


def entropies_between(lanes: Iterable[LaneSet]) -> list[Entropies]:
    """Return the entropies of each two NICs, in the order of `between_nics`."""
    return [each.entropies for each in lanes for _ in range(len(each.sources) * len(each.destinations))]


class Message(NamedTuple):
    """A message that may choose from now on."""

    number: int
    """Its own, in the communicator's run: from 0, none is used twice."""
    source: int
    destination: int
    """Its GPUs."""
    bytes: int


def each_message(messages: Messages, first: int = 0) -> list[Message]:
    """Return messages one by one, with numbers from a first one on."""
    rows = zip(messages.source.tolist(), messages.destination.tolist(), messages.bytes.tolist(), strict=True)
    return [Message(number, *row) for number, row in enumerate(rows, start=first)]


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


class Chooser(Protocol):
    """Chooses the lane of a message's next chunk, as a `ReactivePolicy` does."""

    name: str

    def choose(self, *, message: int, states: Sequence[LaneState], now: float) -> int | None:
        """Return the lane of the message's next chunk, or None to wait for room.

        ``states`` is indexed as the message's lanes are; ``now`` is in seconds since the start of the run.
        """
        ...

    def acknowledged(self, *, message: int, lane: int, rtt_s: float, marked: bool, now: float) -> None:
        """Record that a chunk of a message on one of its lanes was acknowledged.

        ``rtt_s`` is how long this chunk took, unsmoothed [s]; ``marked`` is whether it queued for longer than
        a switch with ECN would let pass unmarked (`traffic.transports.round_trips`).
        """
        ...


@runtime_checkable
class ReactivePolicy(Chooser, Protocol):
    """A scheme that chooses the lane of the next chunk from what it has seen, all at real scale.

    There is one for each communicator of a run, and it lives as long: messages of several collectives, and of
    several steps of one, may be under way at once. Lanes are counted from 0 in what `admit` returned for the
    message. ``steady`` is as of `ProactivePolicy`, of ``admit``.

    One whose messages stay on a lane while it is good may say so by an attribute ``settles = True``; it is
    then predicted as such (`traffic.fluid.choice`), else as one that keeps all busy. One that chooses
    whatever it has seen may say ``oblivious = True``: each path is sent what entropies take it, a slow one
    too.

    One with an attribute ``per_packet = True`` is asked for the lane of each packet where lanes are of
    datagrams, and "chunk" below means a packet there; else it is asked for each chunk.
    """

    def open(self, *, fabric: Fabric, rng: np.random.Generator) -> None:
        """Begin, over a fabric without what is known to have failed."""
        ...

    def admit(self, *, message: Message) -> Lanes:
        """Return what a message may use."""
        ...

    def withdraw(self, *, message: int) -> None:
        """Forget a message: it has arrived, or what is left of it is admitted anew."""
        ...


@runtime_checkable
class HearsLosses(Protocol):
    """A policy that chooses, and hears of lost packets where lanes are of datagrams.

    TCP sends again on the same connection and reports nothing.
    """

    def lost(self, *, message: int, lane: int, now: float) -> None:
        """Record that a packet of a message on one of its lanes was lost.

        It is sent again, on a lane that is chosen anew.
        """
        ...


@runtime_checkable
class CountsChunks(Protocol):
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
