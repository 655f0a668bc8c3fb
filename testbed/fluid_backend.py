"""The fluid backend: max-min rates over links that go dark, on a clock of its own."""

import heapq
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from testbed.backend import Arrived, Drained, Happening, NowLit
from testbed.predict import computed_paths
from topologies.errors import StuckError
from topologies.fabric import Fabric, Port
from topologies.light import Circuit, light_path
from traffic.fluid_network import FluidNetwork
from traffic.spraying.policy import QueuePair


class FluidBackend:
    """Moves bytes as fluids.

    Parameters
    ----------
    fabric
        Over which.
    delay_s
        How long each OCS is dark when it is reconfigured [s].
    """

    def __init__(self, fabric: Fabric, delay_s: Mapping[str, float]) -> None:
        self._fabric, self._delay_s = fabric, delay_s
        self._ports = {port: number for number, port in enumerate(fabric.link_at)}
        rates = [link.rate_bps for link in fabric.link_at.values()]
        self._network = FluidNetwork(np.array(rates), np.zeros((0, 3), dtype=np.int64), by_bytes=True)
        self._numbers: dict[QueuePair, int] = {}
        self._dark_link: dict[QueuePair, int] = {}
        self._leads: dict[QueuePair, list[int]] = {}
        self._lit: dict[str, set[Circuit]] = {ocs: set() for ocs in delay_s}
        self._coming: dict[str, set[Circuit]] = {}
        self._to_come: list[tuple[float, int, Happening]] = []
        self._count = 0

    @property
    def now_s(self) -> float:
        """Time since the start [s]."""
        return self._network.now_s

    def numbers(self, queue_pairs: Sequence[QueuePair]) -> list[int]:
        """Return the number of each queue pair."""
        new = [queue_pair for queue_pair in queue_pairs if queue_pair not in self._numbers]
        if new:
            self._open(new)
        return [self._numbers[queue_pair] for queue_pair in queue_pairs]

    def post(self, number: NDArray[np.int64], size: NDArray[np.int64], message: NDArray[np.int64]) -> None:
        """Put parcels behind what queue pairs carry."""
        self._network.post(number, size, message)

    def carried(self, number: int) -> set[int]:
        """Return the messages whose bytes a queue pair still carries."""
        return self._network.held(number)

    def withdraw(self, number: int) -> list[tuple[int, int]]:
        """Return what a queue pair did not deliver."""
        return [(message, round(size)) for message, size in self._network.withdraw(number)]

    def drain(self, ocs: str, numbers: Iterable[int]) -> None:
        """Report `Drained`: nothing is ever on its way."""
        self._report(self.now_s, Drained(ocs, self.now_s))

    def resume(self, numbers: Iterable[int]) -> None:
        """Do nothing: what is lit carries."""

    def light(self, ocs: str, circuits: Sequence[Circuit]) -> None:
        """Darken the circuits that end, and light the new ones when the OCS is done."""
        self._coming[ocs] = set(circuits)
        self._lit[ocs] &= self._coming[ocs]
        self._lead_light()
        at_s = self.now_s + self._delay_s[ocs]
        self._report(at_s, NowLit(ocs, at_s))

    def fail(self, port: Port) -> None:
        """Cut the link at a port."""
        self._network.set_rates([self._ports[port], self._ports[self._fabric.peer(port)]], 0.0)

    def wait(self, until_s: float) -> list[Happening]:
        """Let time pass until something happens."""
        at_s = min(until_s, self._to_come[0][0] if self._to_come else float("inf"))
        if at_s == float("inf") and self._network.next_s == at_s:
            raise StuckError(
                "nothing is on its way, and the job has not ended", "light a circuit, or add a path"
            )
        arrived = self._network.advance(at_s)
        if arrived:
            return [Arrived(message, at) for at, message in arrived]
        happened = []
        while self._to_come and self._to_come[0][0] <= self.now_s:
            happening = heapq.heappop(self._to_come)[2]
            if isinstance(happening, NowLit):
                self._lit[happening.ocs] = self._coming.pop(happening.ocs)
                self._lead_light()
            happened.append(happening)
        return happened

    def _open(self, queue_pairs: Sequence[QueuePair]) -> None:
        optical = [qp for qp in queue_pairs if self._is_optical(qp)]
        packet = [qp for qp in queue_pairs if not self._is_optical(qp)]
        paths = [[self._ports[port] for port in path] for path in computed_paths(self._fabric, packet)]
        for queue_pair in optical:
            self._dark_link[queue_pair] = self._network.add_link(0.0)
            paths.append([self._dark_link[queue_pair]])
        self._numbers.update(zip([*packet, *optical], self._network.add_flows(paths), strict=True))
        self._lead_light()

    def _is_optical(self, queue_pair: QueuePair) -> bool:
        return self._fabric.peer(self._fabric.nic_port(queue_pair.source)).node in self._delay_s

    def _lead_light(self) -> None:
        """Lead queue pairs over the light paths that there are now."""
        lit = {ocs: tuple(sorted(pairs)) for ocs, pairs in self._lit.items()}
        for queue_pair, dark in self._dark_link.items():
            found = light_path(self._fabric, lit, queue_pair.source)
            reaches = found.end == self._fabric.nic_port(queue_pair.destination)
            links = [self._ports[port] for port in found.ports] if reaches else [dark]
            if self._leads.get(queue_pair) != links:
                self._leads[queue_pair] = links
                self._network.set_path(self._numbers[queue_pair], links)

    def _report(self, at_s: float, happening: Happening) -> None:
        self._count += 1
        heapq.heappush(self._to_come, (at_s, self._count, happening))
