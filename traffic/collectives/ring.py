"""Ring collectives, step by step as NCCL runs them: a rank passes on what its predecessor gave it.

With n ranks a ring cuts its bytes into n chunks. In each step every rank sends one chunk to the next
rank. Reduce-scatter takes n - 1 steps, after which rank i holds the sum of chunk i + 1; all-gather
takes n - 1 more, in which the sums travel on; AllReduce is one after the other. Each step of a rank
waits for the chunk that its predecessor sent in the step before, and for nothing else: there is no
barrier. Several rings share the bytes evenly and do not wait for each other.

``bytes`` is S of nccl-tests, its column *size*: the whole array. AllReduce starts and ends with S
bytes on each rank; reduce-scatter starts with S on each and leaves S / n; all-gather starts with
S / n on each and leaves S. With B bytes per second out of and into each rank, one ring's reduce-scatter
or all-gather takes (n - 1) / n S / B, its AllReduce twice that; no number of rings takes less.

A slow edge holds back the others after at most a round, since there are no more chunks than ranks. So a
ring can be one operation, over all its edges together (`Ring.lower`): it ends when its slowest edge has
carried what it carries in all steps.

References
----------
P. Patarasuk and X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations",
JPDC 69(2), 2009. NCCL, src/device/all_reduce.h (runRing). nccl-tests, doc/PERFORMANCE.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from topologies.errors import DemandError
from topologies.events import View
from traffic.collectives.owed import Owed
from traffic.messages import Messages
from traffic.ops import Ops, Part, each_alone

Operation = Literal["all-reduce", "reduce-scatter", "all-gather"]
FIRST_SENT: dict[Operation, tuple[int, ...]] = {
    "all-reduce": (0, 1),
    "reduce-scatter": (0,),
    "all-gather": (1,),
}
"""The chunk that rank 0 sends first in each phase; rank i sends the i-th after it, then those before."""


@dataclass(frozen=True)
class Ring:
    """A collective over one or more rings.

    Raises
    ------
    DemandError
        If there is no ring, a ring has fewer than two GPUs or one twice, rings are of different GPUs,
        or a chunk would have no byte.
    """

    rings: tuple[tuple[int, ...], ...]
    """The GPUs of each ring in the order in which bytes travel."""
    bytes: int
    """The whole array [bytes]: what each GPU holds before AllReduce and reduce-scatter, and after
    AllReduce and all-gather."""
    operation: Operation = "all-reduce"

    def __post_init__(self) -> None:
        """Check that the rings are rings over the same GPUs."""
        members = {frozenset(ring) for ring in self.rings}
        if len(members) != 1 or any(len(ring) != len(set(ring)) or len(ring) < 2 for ring in self.rings):
            raise DemandError(
                f"the rings {str(self.rings)[:80]} are not rings over the same GPUs",
                "give each two or more GPUs, each once, the same ones in every ring",
            )
        if self.bytes < len(self.rings) * len(self.rings[0]):
            raise DemandError(
                f"{self.bytes} bytes make no {len(self.rings)} x {len(self.rings[0])} chunks",
                "give at least a byte per ring and rank",
            )

    @property
    def name(self) -> str:
        """The pattern as tables name it."""
        return f"ring {self.operation}"

    @property
    def gpus(self) -> frozenset[int]:
        """The GPUs of the rings."""
        return frozenset(self.rings[0])

    def lower(self, view: View | None = None, *, coupled: bool = False) -> Ops:
        """Return the messages of all rings step by step, or each ring as one operation.

        That has a move per edge, of the bytes of all steps, and is placed as in the first.
        """
        rings, chunk = np.array(self.rings), self._chunks()
        onwards, phases = np.roll(rings, -1, axis=1), FIRST_SENT[self.operation]
        if coupled:
            # In a phase a rank sends all chunks but the one behind its first: not listed step by step.
            sent = sum(
                chunk.sum(axis=1, keepdims=True) - np.roll(chunk, -1 - first, axis=1) for first in phases
            )
            edges = zip(rings, onwards, sent, np.roll(chunk, -phases[0], axis=1), strict=True)
            return Ops(
                tuple(Part(Messages(*each), True, placed_as=first) for *each, first in edges), coupled=True
            )
        rank, steps = np.arange(rings.shape[1]), range(rings.shape[1] - 1)
        sent = [chunk[:, (rank + first - step) % len(rank)] for first in phases for step in steps]
        source, to = (np.tile(end.ravel(), len(sent)) for end in (rings, onwards))
        messages = Messages(source, to, np.concatenate([sizes.ravel() for sizes in sent]))
        edge = np.tile(np.arange(rings.size), len(sent))  # NCCL connects each once
        return each_alone(messages, waits_around(len(sent), *rings.shape), edge)

    def _chunks(self) -> NDArray[np.int64]:
        """Return the size of each chunk, shape (rings, ranks) [bytes]; they differ by a byte at most."""
        rings, ranks = len(self.rings), len(self.rings[0])
        ends = np.arange(rings * ranks + 1, dtype=np.int64) * self.bytes // (rings * ranks)
        return np.diff(ends).reshape(rings, ranks)

    def renumbered(self, gpus: Sequence[int]) -> "Ring":
        """Return the same collective over rings of other GPUs: ``gpus[k]`` takes the part of GPU k."""
        return replace(self, rings=tuple(tuple(gpus[gpu] for gpu in ring) for ring in self.rings))


def owed_in_ring(pattern: Ring) -> Owed:
    """Return (n - 1) / n S on each edge of a ring, for AllReduce twice that; R rings have S / R each."""
    rings = np.array(pattern.rings, dtype=np.int64)
    count, ranks = rings.shape
    steps = (ranks - 1) * (2 if pattern.operation == "all-reduce" else 1)
    chunk, rest = divmod(pattern.bytes, count * ranks)
    edge = np.arange(count * ranks).reshape(count, ranks)
    each = np.full(count * ranks, steps, dtype=np.int64)
    return Owed(
        source=rings.ravel(),
        destination=np.concatenate([rings[:, 1:], rings[:, :1]], axis=1).ravel(),
        least=each * chunk,
        most=each * (chunk + (rest > 0)),
        total=steps * pattern.bytes,
        follows=np.concatenate([edge[:, -1:], edge[:, :-1]], axis=1).ravel(),
        steps=steps,
    )


def waits_around(steps: int, rings: int, ranks: int) -> NDArray[np.int64]:
    """Return that each rank's message waits for the one its predecessor sent a step before."""
    number = np.arange(steps * rings * ranks).reshape(steps, rings, ranks)
    first = np.roll(number[:-1], 1, axis=2)
    return np.stack([first.ravel(), number[1:].ravel()], axis=1)
