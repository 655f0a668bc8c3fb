"""Strands: what queue pairs and NVLink carry of coupled flows, found from the placement of one step."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from testbed.run.backend import Strand
from traffic.collectives.exchange import CoupledFlows
from traffic.scheme import Placement


def strands_of(
    coupled: CoupledFlows,
    crossing: NDArray[np.bool_],
    placed: Placement | None,
    carriers: Sequence[int],
    first: int,
) -> list[list[Strand]]:
    """Return the strands of each flow.

    All steps are alike but for some bytes, so that each queue pair carries the same part of every step.

    Parameters
    ----------
    coupled
        The flows.
    crossing
        Which of their messages leave their server, shape (messages,).
    placed
        Where a scheme places a step of those; None if there are none.
    carriers
        The number of each of its queue pairs.
    first
        The number of the first message.

    Examples
    --------
    >>> from traffic.messages import Messages
    >>> edge = Messages(np.array([0]), np.array([2]), np.array([10]))
    >>> coupled = CoupledFlows(edge, np.array([0]), np.array([4]))
    >>> placed = Placement((), np.array([0, 1, 0]), np.zeros(3, dtype=int), np.array([1, 2, 1]))
    >>> [tuple(strand) for strand in strands_of(coupled, np.array([True]), placed, [5, 6], 0)[0]]
    [(0, 5, 5), (0, 5, 6)]
    """
    step: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    if placed is not None:
        message = np.flatnonzero(crossing)[placed.message]
        for number, qp, size in zip(message.tolist(), placed.qp.tolist(), placed.bytes.tolist(), strict=True):
            step[number][carriers[qp]] += size
    rows = zip(
        coupled.messages.source.tolist(),
        coupled.messages.destination.tolist(),
        coupled.messages.bytes.tolist(),
        coupled.flow.tolist(),
        strict=True,
    )
    flows: list[list[Strand]] = [[] for _ in range(int(coupled.flow.max()) + 1)]
    for number, (source, destination, size, flow) in enumerate(rows):
        if number in step:
            flows[flow] += _in_proportion(first + number, size, step[number])
        else:
            flows[flow].append(Strand(first + number, size, (source, destination)))
    return flows


def _in_proportion(message: int, size: int, step: dict[int, int]) -> Iterator[Strand]:
    """Divide the bytes of a message as those of a step are; in the end exactly all."""
    step_bytes, before, placed = sum(step.values()), 0, 0
    for carrier, part in step.items():
        placed += part
        end = size * placed // step_bytes
        yield Strand(message, end - before, carrier)
        before = end
