"""Nodes of a job as they run: when each was ready, held and released, and its pieces that have not ended."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from traffic.clock import NEVER
from traffic.spraying.policy import QueuePair


@dataclass(slots=True, eq=False)
class NodeRow:
    """One node; times in ps, `NEVER` until they come."""

    name: str
    number: int
    ready_ps: int = NEVER
    """When all that it waits for had ended, and its own time had come."""
    since_ps: int = NEVER
    """Since when its operations are owed: its start, or when it began again."""
    held_ps: int = NEVER
    """When it began to wait for OCSes."""
    released_ps: int = NEVER
    first_ps: int = NEVER
    """When bytes of it could go first."""
    pieces: int = 0
    """How many GPUs of it have yet to compute, or operations to end, once it has started."""
    ops: range = range(0)
    """The operations of a collective under way."""
    has_sent: bool = False
    """True of a collective that has, or had, operations."""
    nothing_left: bool = False
    """True of a collective that has begun and of which nothing has left a server yet."""
    communicator: int = -1
    """The number of a collective's communicator; -1 until it is asked for."""
    unfinished: bool = False
    """True of a collective that has sent all, while it is not known that GPUs of it are gone."""
    kept: dict[int, QueuePair] = field(default_factory=dict)
    """The queue pair of each connection that it keeps while it is under way."""

    def sends(self, at_ps: int) -> None:
        """Note that bytes of it may go from now on, if none could before."""
        if self.first_ps == NEVER:
            self.first_ps = at_ps


class NodeTable(dict[str, NodeRow]):
    """The nodes of a run by name, numbered in the order in which they were added."""

    def __init__(self, names: Iterable[str]) -> None:
        super().__init__()
        self.rows: list[NodeRow] = []
        """The same nodes, by number."""
        self.awaited: dict[str, tuple[str, ...]] = {}
        """The OCSes that each collective waits for that is held, in the order in which they began to wait."""
        for name in names:
            self[name]

    def __missing__(self, name: str) -> NodeRow:
        row = self[name] = NodeRow(name, len(self))
        self.rows.append(row)
        return row
