"""The lanes of schemes that may choose among several: their entropies, and MPTCP's subflows."""

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

    Raises
    ------
    ScenarioError
        If more are asked for than there are entropies, or none.
    """

    def __init__(self, fabric: Fabric, rng: np.random.Generator, count: int = 1) -> None:
        if not 0 < count <= ENTROPIES:
            raise ScenarioError(f"{count} entropies between two NICs", f"ask for 1 to {ENTROPIES}")
        self._fabric, self._rng, self._count = fabric, rng, count
        self._drawn: dict[tuple[Nic, Nic], LaneSet] = {}
        self._shared: dict[tuple[int, Nic], Lanes] = {}

    def between(self, source: Nic, destination: Nic) -> LaneSet:
        """Return the lanes between two NICs."""
        ends = source, destination
        if ends not in self._drawn:
            here, there = (self._fabric.peer(self._fabric.nic_port(nic)).node for nic in ends)
            chosen = self._rng.choice(ENTROPIES, size=1 if here == there else self._count, replace=False)
            self._drawn[ends] = LaneSet((source,), (destination,), tuple(chosen.tolist()))
        return self._drawn[ends]

    def from_server(self, source: int, destination: int) -> Lanes:
        """Return those from every NIC of a GPU's server to the NIC beside another GPU."""
        server, nic = self._fabric.gpu_servers[source], self._fabric.pinned_nic(destination)
        if (server, nic) not in self._shared:
            nics = range(self._fabric.servers[server].nics)
            self._shared[server, nic] = tuple(self.between(Nic(server, index), nic) for index in nics)
        return self._shared[server, nic]
