"""A job: what GPUs compute and what they exchange, as a graph whose arrows say what waits for what."""

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from graphlib import CycleError, TopologicalSorter

from topologies.errors import DemandError
from traffic.collectives.pattern import Pattern

LONGEST_S = 1e9
"""Longest compute that a file may have, and longest time of a fault: some 30 years [s]."""


@dataclass(frozen=True)
class Compute:
    """A task on each of some GPUs; a GPU does one task at a time, the first that is ready first."""

    name: str
    gpus: tuple[int, ...]
    duration_s: float
    """How long it takes on each of them [s]; where `durations_s` is given, what those vary around."""
    after: tuple[str, ...] = ()
    """The nodes that it waits for."""
    durations_s: tuple[float, ...] = ()
    """How long it takes on each GPU of `gpus`, in that order [s]; empty if `duration_s` on all of them."""
    at_s: float = 0.0
    """It starts no earlier than this after the start of the job [s]."""

    def on_gpu_s(self, gpu: int) -> float:
        """Return how long it takes on one of its GPUs [s]."""
        return self._own_s[gpu] if self.durations_s else self.duration_s

    def by_duration(self, gpus: Sequence[int]) -> list[tuple[float, Sequence[int]]]:
        """Return how long it takes on some of its GPUs, those that take equally long together [s]."""
        if not self.durations_s:
            return [(self.duration_s, gpus)]
        is_all = len(gpus) == len(self.gpus)
        together = defaultdict[float, list[int]](list)
        for gpu, lasts_s in zip(gpus, self.durations_s if is_all else map(self.on_gpu_s, gpus), strict=True):
            together[lasts_s].append(gpu)
        return list(together.items())

    @cached_property
    def _own_s(self) -> dict[int, float]:
        return dict(zip(self.gpus, self.durations_s, strict=True))


@dataclass(frozen=True)
class Collective:
    """Bytes that GPUs exchange in a pattern."""

    name: str
    pattern: Pattern
    after: tuple[str, ...] = ()
    """The nodes that it waits for."""
    communicator: str = ""
    """Its communicator, whose queue pairs it uses, by name; by default that of all collectives of its kind of
    pattern between the same GPUs (`traffic.communicators`)."""
    at_s: float = 0.0
    """It starts no earlier than this after the start of the job [s]."""

    @property
    def gpus(self) -> tuple[int, ...]:
        """The GPUs that take part."""
        return tuple(sorted(self.pattern.gpus))


Node = Compute | Collective


@dataclass(frozen=True)
class Job:
    """Nodes and arrows; equal jobs are equal values.

    Raises
    ------
    DemandError
        If two nodes share a name, one waits for a node that is not there or for itself in the end,
        a GPU does not exist or computes twice in a node, a duration is negative or not one per GPU, or a
        start is negative or not a number.
    """

    name: str
    gpus: int
    """How many GPUs it is for; nodes number them from 0."""
    nodes: tuple[Node, ...]
    """In job order, which breaks ties between nodes that are ready at the same time."""
    note: str = ""
    """Where it comes from."""

    @cached_property
    def collectives(self) -> tuple[Collective, ...]:
        """The nodes that exchange bytes, in job order."""
        return tuple(node for node in self.nodes if isinstance(node, Collective))

    @property
    def is_chain(self) -> bool:
        """Whether each node waits for the one before it, and for no other."""
        waits = ((), *((node.name,) for node in self.nodes))
        return all(node.after == before for node, before in zip(self.nodes, waits, strict=False))

    @cached_property
    def has_starts(self) -> bool:
        """Whether a node starts at a time of its own."""
        return any(node.at_s for node in self.nodes)

    def __post_init__(self) -> None:
        """Check the graph."""
        names = Counter(node.name for node in self.nodes)
        if not names:
            raise DemandError(f"job {self.name!r} has no node", "give it one")
        for name, count in names.items():
            if count > 1:
                raise DemandError(f"{count} nodes of job {self.name!r} are named {name!r}", "name them apart")
        for text in (self.name, self.note, *names):
            _check_text(text)
        for node in self.nodes:
            self._check(node, names)
        try:
            TopologicalSorter({node.name: node.after for node in self.nodes}).prepare()
        except CycleError as error:
            circle = " > ".join(error.args[1])
            raise DemandError(f"nodes of job {self.name!r} wait for each other: {circle}") from error

    def _check(self, node: Node, names: Collection[str]) -> None:
        for name in node.after:
            if name not in names:
                raise DemandError(f"node {node.name!r} waits for {name!r}, which job {self.name!r} has not")
        outside = [gpu for gpu in node.gpus if not 0 <= gpu < self.gpus]
        if outside:
            raise DemandError(
                f"node {node.name!r} uses GPU {outside[0]}, and the job has {self.gpus} GPUs",
                "count them from 0",
            )
        if not 0 <= node.at_s < float("inf"):
            raise DemandError(
                f"node {node.name!r} starts {node.at_s:g} s after the job", "give a time of 0 or later"
            )
        if isinstance(node, Compute):
            _check_compute(node)


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DemandError(f"{text!r} is not a text in Unicode", "give names and notes that are") from error


def _check_compute(node: Compute) -> None:
    if len(node.gpus) != len(set(node.gpus)):
        raise DemandError(
            f"node {node.name!r} computes on a GPU twice", "name each GPU once, or give two nodes"
        )
    if node.durations_s and len(node.durations_s) != len(node.gpus):
        raise DemandError(
            f"node {node.name!r} has {len(node.durations_s)} durations for {len(node.gpus)} GPUs",
            "give one for each GPU, or one for all",
        )
    for duration_s in (node.duration_s, *node.durations_s):
        if not 0 <= duration_s < float("inf"):
            raise DemandError(f"node {node.name!r} computes for {duration_s:g} s")


def chain(name: str, gpus: int, nodes: tuple[Node, ...], note: str = "") -> Job:
    """Return the job in which each node waits for the one before it."""
    waits = ((), *((node.name,) for node in nodes))
    return Job(
        name,
        gpus,
        tuple(replace(node, after=before) for node, before in zip(nodes, waits, strict=False)),
        note,
    )
