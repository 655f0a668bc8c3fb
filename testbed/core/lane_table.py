"""Lanes: the queue pairs in use, by the numbers that the backend gives them."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from testbed.core.record import Columns
from topologies.fabric import Fabric, Nic, Port
from topologies.routes import light_leads
from traffic.spraying.policy import SPRAYED, QueuePair

MOST_KNOWN = 4096
"""How many sets of queue pairs are remembered."""


@dataclass(slots=True, eq=False)
class Lane:
    """A queue pair in use."""

    number: int
    pair: QueuePair
    is_light: bool
    """True if it goes over circuits."""
    is_routed: bool
    """True if its path depends on more circuits than the one at its NIC."""
    around: frozenset[Port] = frozenset()
    """Of a lane by which packets of any entropy go: the failed ports around which they were led when it was
    booked last."""
    held_by: set[int] = field(default_factory=set)
    """The numbers of the changes for which it stands."""
    was_dark: bool = False
    """True if it had no route when circuits were lit last."""

    @property
    def is_sprayed(self) -> bool:
        """Whether packets of any entropy go by it."""
        return self.pair.entropy == SPRAYED


class LaneTable:
    """The lanes of a run.

    Parameters
    ----------
    fabric
        Says which NICs are on OCSes.
    """

    def __init__(self, fabric: Fabric) -> None:
        ocses = {switch.name for switch in fabric.switches if switch.kind == "ocs"}
        self._light_nics = frozenset(
            nic for nic in fabric.nics if ocses and fabric.peer(fabric.nic_port(nic)).node in ocses
        )
        self._leads = light_leads(fabric)
        self.open: dict[int, Lane] = {}
        """Those in use, in the order in which they were opened."""
        self.light: dict[int, Lane] = {}
        """Those of them that go over circuits."""
        self._from: dict[Nic, dict[int, Lane]] = defaultdict(dict)
        self.over: dict[int, int] = {}
        """The number of each with the path that it has now, or had when it was closed
        (`testbed.core.record.Overs`)."""
        self.sets: dict[tuple[int, int], OpenedLanes] = {}
        """Those of sets of queue pairs that go together, by the identity of a set and by communicator."""

    def __getitem__(self, number: int) -> Lane:
        """Return the lane of a number."""
        return self.open[number]

    def add(self, number: int, pair: QueuePair) -> Lane:
        """Return a new lane in use."""
        is_light = pair.source in self._light_nics
        lane = self.open[number] = Lane(number, pair, is_light, is_light and self._leads)
        self._from[pair.source][number] = lane
        if is_light:
            self.light[number] = lane
        return lane

    def close(self, lane: Lane) -> None:
        """Remove a lane; what it went over last stays known."""
        del self.open[lane.number], self._from[lane.pair.source][lane.number]
        self.light.pop(lane.number, None)

    def sent_by(self, nic: Nic) -> Iterable[Lane]:
        """Return the lanes from a NIC."""
        return self._from[nic].values() if nic in self._from else ()


@dataclass(slots=True, eq=False)
class OpenedLanes:
    """A set of lanes in use, opened together."""

    queue_pairs: Sequence[QueuePair]
    lanes: NDArray[np.int64]
    """The number of each."""
    is_light: NDArray[np.bool_]
    """True of each that goes over circuits."""
    columns: Columns
    """Medium, lane and path of each, and of NVLink after them."""
    last: tuple[NDArray[np.int64], list[tuple[NDArray[np.int64], NDArray[np.bool_]]]] | None = None
    """The parcels that were looked at last, and their lanes over packets and over circuits."""

    def apart(
        self, qp: NDArray[np.int64], size: NDArray[np.int64]
    ) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Return the lanes and bytes of parcels over packets and of those over circuits, if there are any."""
        if self.last is None or self.last[0] is not qp:
            light = self.is_light[qp]
            self.last = qp, [(self.lanes[qp[of]], of) for of in (~light, light) if of.any()]
        return [(lane, size[of]) for lane, of in self.last[1]]
