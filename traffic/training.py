"""A training step as a job: which ranks form which groups, and what all groups of a kind do at once.

All groups of a kind (all tensor-parallel ones, say) do the same at the same time, as they do in
training, so a call of a collective is a node per group, and what follows waits for all of them.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np

from traffic.collectives.all_to_all import AllToAll
from traffic.collectives.pattern import Pattern
from traffic.collectives.ring import Operation, Ring
from traffic.demand import Demand
from traffic.job import Collective, Compute, Job, Node
from traffic.workloads.gating import apportioned

GroupKind = Literal["tp", "dp", "ep", "dp_ep", "pp", "all"]
"""Tensor-, data- and expert-parallel ranks, those that hold the same experts, pipeline stages, all."""
Call = Operation | Literal["all-to-all"]
"""What a group does."""
Item = TypeVar("Item", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Layout:
    """How ranks are numbered into groups, Megatron's way: tp first, then ep, then the rest of dp, then pp.

    References
    ----------
    Megatron-LM, core/parallel_state.py.
    """

    tp: int
    """Tensor-parallel ranks, neighbours."""
    dp: int
    """Data-parallel ranks."""
    ep: int = 1
    """Expert-parallel ranks of a group; they are data-parallel ranks."""
    pp: int = 1
    """Pipeline stages, each of ``tp * dp`` ranks that follow each other."""

    @property
    def gpus(self) -> int:
        """How many GPUs."""
        return self.tp * self.dp * self.pp

    def groups(self, kind: GroupKind) -> list[range]:
        """Return the ranks of each group of a kind, a partition of all ranks."""
        stride, size = {
            "tp": (1, self.tp),
            "dp": (self.tp, self.dp),
            "ep": (self.tp, self.ep),
            "dp_ep": (self.tp * self.ep, self.dp // self.ep),
            "pp": (self.tp * self.dp, self.pp),
            "all": (1, self.gpus),
        }[kind]
        block = stride * size
        return [
            range(first + lane, first + lane + block, stride)
            for first in range(0, self.gpus, block)
            for lane in range(stride)
        ]


def calls(
    name: str, call: Call, groups: Sequence[Sequence[int]], size_bytes: int, after: tuple[str, ...]
) -> tuple[Collective, ...]:
    """Return what groups do at once, a node per group; none where nothing is to be sent.

    Parameters
    ----------
    name
        Of the call; where there are several groups a node has its group's number behind it.
    call
        What each group does.
    groups
        The ranks of each; a group of one has nothing to send.
    size_bytes
        The whole array, S of nccl-tests: of an all-to-all what each GPU splits evenly over its group, itself
        included; of a ring as `traffic.collectives.ring` says. A ring sends a byte per chunk at least.
    after
        What the nodes wait for.
    """
    sending = [group for group in groups if len(group) > 1] if size_bytes else []
    return tuple(
        Collective(
            name if len(sending) == 1 else f"{name} {number}", _pattern(call, group, size_bytes), after
        )
        for number, group in enumerate(sending)
    )


def _pattern(call: Call, group: Sequence[int], size_bytes: int) -> Pattern:
    if call == "all-to-all":
        cells = apportioned(size_bytes, np.full(len(group), 1 / len(group)))
        matrix = np.stack([np.roll(cells, rank) for rank in range(len(group))])
        return AllToAll(Demand("uniform", matrix), tuple(group))
    return Ring((tuple(group),), max(size_bytes, len(group)), call)


@dataclass(frozen=True, slots=True)
class StepPhase:
    """What all GPUs compute, and what all groups of a kind exchange when that has ended."""

    name: str
    """Unlike any other of the step."""
    compute_s: float = 0.0
    """How long all GPUs compute [s]; 0 for no compute."""
    call: Call | None = None
    """What is exchanged; None for nothing."""
    kind: GroupKind = "all"
    """Between which groups."""
    size_bytes: int = 0
    """The whole array, as of `calls` [bytes]."""
    blocks: bool = True
    """Whether the next phase waits for the exchange; those that do not block go one after the other."""
    forward: bool = False
    """Whether it is of a forward pass, in which gates decide."""


@dataclass(frozen=True)
class Phases:
    """A training step, of a file or made up."""

    name: str
    layout: Layout
    """Which ranks form which groups."""
    phases: tuple[StepPhase, ...]
    """In order."""
    note: str = ""
    """Where it comes from, and what was left out."""


Sent = Callable[[str, StepPhase, tuple[str, ...]], tuple[Collective, ...]]
"""What gives the collectives of a phase, by their name, the phase and what they wait for."""


def job_of_phases(step: Phases, *, least_bytes: int = 0, sent: Sent | None = None) -> Job:
    """Return phases that follow each other as a job.

    Parameters
    ----------
    step
        The phases; its note becomes the job's.
    least_bytes
        Exchanges of less than that are left out, and the note says how many [bytes].
    sent
        What gives the collectives of a phase; by default `calls` between its groups.

    Raises
    ------
    DemandError
        If nothing is left to do, or two phases share a name.
    """
    layout, nodes = step.layout, list[Node]()
    ready: tuple[str, ...] = ()
    behind: tuple[str, ...] = ()
    small = sum(1 for phase in step.phases if phase.call and 0 < phase.size_bytes < least_bytes)
    for phase in step.phases:
        if phase.compute_s:
            nodes.append(Compute(phase.name, tuple(range(layout.gpus)), phase.compute_s, ready))
            ready = (phase.name,)
        if phase.call is None or phase.size_bytes < least_bytes:
            continue
        waits = ready if phase.blocks else tuple(dict.fromkeys((*ready, *behind)))
        label = f"{phase.name} {phase.call}"
        if sent is None:
            found = calls(label, phase.call, layout.groups(phase.kind), phase.size_bytes, waits)
        else:
            found = sent(label, phase, waits)
        nodes += found
        names = tuple(node.name for node in found)
        ready, behind = (names or ready, behind) if phase.blocks else (ready, names or behind)
    left = f"left out: collectives under {least_bytes:g} bytes ({small})" if small else ""
    return Job(step.name, layout.gpus, tuple(nodes), "; ".join(filter(None, (step.note, left))))


def in_turn(which: Iterable[bool]) -> list[int]:
    """Return 0 and 1 in turn where something is so, and 0 elsewhere.

    Examples
    --------
    >>> in_turn([True, False, True, True])
    [0, 0, 1, 0]
    """
    turns, count = list[int](), 0
    for is_so in which:
        turns.append(count % 2 * is_so)
        count += is_so
    return turns


def first_alike(
    items: Iterable[Item], most: int | None, key: Callable[[Item], Hashable] | None = None
) -> list[Item]:
    """Return the items that have fewer than ``most`` alike before them; all if ``most`` is None.

    Parameters
    ----------
    items, most
        Of what, and how many.
    key
        What is equal of items that are alike; by default the items.
    """
    seen: Counter[Hashable] = Counter()
    taken = []
    for item in items:
        of_item = item if key is None else key(item)
        seen[of_item] += 1
        if most is None or seen[of_item] <= most:
            taken.append(item)
    return taken
