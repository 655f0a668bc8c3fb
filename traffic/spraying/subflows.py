"""The lanes of schemes that may choose among several: their entropies, and MPTCP's subflows."""

from itertools import accumulate

import numpy as np

from topologies.errors import ScenarioError
from topologies.fabric import Fabric, Nic
from traffic.spraying.policy import ENTROPIES, Lanes, LaneSet


class Subflows:
    """Lanes between NICs, of random entropies that are drawn once and kept.

    Parameters
    ----------
    fabric
        The network.
    rng
        Where the entropies are drawn from.
    count
        How many between two NICs, all different; one where a single switch joins them: there is one way.
    among
        How many entropies there are: they are numbers from 0 to below it. If all are asked for, they come in
        order and nothing is drawn.

    Raises
    ------
    ScenarioError
        If more are asked for than there are entropies, or none.
    """

    def __init__(
        self, fabric: Fabric, rng: np.random.Generator, count: int = 1, among: int = ENTROPIES
    ) -> None:
        if not 0 < count <= among:
            raise ScenarioError(f"{count} entropies between two NICs", f"ask for 1 to {among}")
        self._fabric, self._rng, self._count, self._among = fabric, rng, count, among
        self._drawn: dict[tuple[Nic, Nic], LaneSet] = {}
        self._shared: dict[tuple[int, Nic], Lanes] = {}

    def between(self, source: Nic, destination: Nic) -> LaneSet:
        """Return the lanes between two NICs."""
        ends = source, destination
        if ends not in self._drawn:
            here, there = (self._fabric.peer(self._fabric.nic_port(nic)).node for nic in ends)
            entropies = self._entropies(1 if here == there else self._count)
            self._drawn[ends] = LaneSet((source,), (destination,), entropies)
        return self._drawn[ends]

    def from_server(self, source: int, destination: int) -> Lanes:
        """Return those from every NIC of a GPU's server to the NIC beside another GPU."""
        server, nic = self._fabric.gpu_servers[source], self._fabric.pinned_nic(destination)
        if (server, nic) not in self._shared:
            nics = range(self._fabric.servers[server].nics)
            self._shared[server, nic] = tuple(self.between(Nic(server, index), nic) for index in nics)
        return self._shared[server, nic]

    def _entropies(self, count: int) -> tuple[int, ...] | range:
        if count == self._among:
            return range(count)
        return tuple(self._rng.choice(self._among, size=count, replace=False).tolist())


def by_nic(lanes: Lanes) -> list[range]:
    """Return which lanes leave by each NIC, where each set of lanes has a NIC of its own.

    Examples
    --------
    >>> near, far = (LaneSet((Nic(0, rail),), (Nic(1, 0),), range(4**rail)) for rail in (0, 1))
    >>> by_nic((near, far))
    [range(0, 1), range(1, 5)]
    """
    ends = list(accumulate(map(len, lanes)))
    return [range(end - len(each), end) for end, each in zip(ends, lanes, strict=True)]
