"""Communicators: groups of GPUs with a purpose, each with queue pairs of its own.

As in NCCL the collectives of one communicator share its connections, and those of another, which may be
between the same GPUs, have theirs. A NIC serves queue pairs fairly, so a short collective does not wait for
the backlog of a long one.
"""

from collections.abc import Hashable

from traffic.job import Collective, Job


class Communicators:
    """The numbers of a job's communicators, from 0, in the order in which its nodes name them first.

    Parameters
    ----------
    job
        Its collectives are numbered at once, so that equal ones have equal numbers whatever runs first; those
        that a revision adds, when they are asked for. A collective whose GPUs move keeps its number.
    shared
        Whether all are one, number 0, which shares its queue pairs.

    Examples
    --------
    >>> from traffic.collectives.ring import Ring
    >>> edges = (0, 1), (2, 3), (0, 1)
    >>> rings = [Collective(f"ring {n}", Ring((gpus,), 8)) for n, gpus in enumerate(edges)]
    >>> numbers = Communicators(Job("three rings", 4, tuple(rings)))
    >>> [numbers.number(ring) for ring in rings]
    [0, 1, 0]
    """

    def __init__(self, job: Job, *, shared: bool = False) -> None:
        self._shared = shared
        self._numbers: dict[Hashable, int] = {}
        for node in job.collectives:
            self.number(node)

    def number(self, node: Collective) -> int:
        """Return the number of a collective's communicator.

        That has its name where the collective has one; else all collectives of one kind of pattern between
        the same GPUs are of one, and those of other kinds or GPUs of others.
        """
        if self._shared:
            return 0
        communicator = node.communicator or (type(node.pattern), node.pattern.gpus)
        return self._numbers.setdefault(communicator, len(self._numbers))
