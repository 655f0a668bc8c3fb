"""The OCSes of a run: what each has lit, and reconfigurations one after the other: drain, dark, lit."""

from collections import deque
from collections.abc import Mapping

from testbed.run.backend import Backend
from topologies.fabric import Fabric
from topologies.light import Circuit, light_path
from traffic.spraying.policy import QueuePair


class Optics:
    """What is lit, and what was ordered; made for one run.

    Parameters
    ----------
    fabric, backend
        Of the run.
    carriers
        The queue pairs in use by their numbers; the runner adds and removes some.
    """

    def __init__(self, fabric: Fabric, backend: Backend, carriers: Mapping[int, QueuePair]) -> None:
        self._fabric, self._backend, self._carriers = fabric, backend, carriers
        ocses = [switch.name for switch in fabric.switches if switch.kind == "ocs"]
        self._lit: dict[str, tuple[Circuit, ...]] = dict.fromkeys(ocses, ())
        self._ordered: dict[str, deque[tuple[Circuit, ...]]] = {ocs: deque() for ocs in ocses}
        self._held: dict[str, set[int]] = {}

    @property
    def lit(self) -> dict[str, tuple[Circuit, ...]]:
        """The circuits of each OCS that carry: under a reconfiguration those that it keeps."""
        return {
            ocs: tuple(pair for pair in pairs if pair in self._ordered[ocs][0])
            if self._ordered[ocs]
            else pairs
            for ocs, pairs in self._lit.items()
        }

    def reconfigure(self, ocs: str, circuits: tuple[Circuit, ...]) -> None:
        """Have an OCS show circuits, once it shows what was ordered before."""
        self._ordered[ocs].append(circuits)
        if len(self._ordered[ocs]) == 1:
            self._drain(ocs)

    def drained(self, ocs: str) -> None:
        """Have the device move: nothing is on its way through circuits that end."""
        self._backend.light(ocs, self._ordered[ocs][0])

    def now_lit(self, ocs: str) -> None:
        """Take note that an OCS shows what was ordered."""
        self._lit[ocs] = self._ordered[ocs].popleft()
        self._backend.resume(self._held.pop(ocs))
        if self._ordered[ocs]:
            self._drain(ocs)

    def shows(self, ocs: str, circuits: tuple[Circuit, ...]) -> None:
        """Take note of what an OCS carries in its program."""
        self._lit[ocs] = circuits

    def forget(self, carrier: int) -> None:
        """Do not resume a queue pair that was closed."""
        for held in self._held.values():
            held.discard(carrier)

    def _drain(self, ocs: str) -> None:
        """Hold the queue pairs whose light crosses circuits that end."""
        ending = {(ocs, pair) for pair in set(self._lit[ocs]) - set(self._ordered[ocs][0])}
        self._held[ocs] = {
            number
            for number, queue_pair in self._carriers.items()
            if ending & set(light_path(self._fabric, self._lit, queue_pair.source).circuits)
        }
        self._backend.drain(ocs, self._held[ocs])
