"""The fluid backend: max-min rates over links that go dark, on a clock of its own."""

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from testbed.backend import Arrived, Drained, Happening, NowLit
from testbed.packet_paths import computed_paths
from topologies.errors import StuckError
from topologies.fabric import Fabric, Port
from topologies.light import Circuit, light_path
from traffic.fluid_choice import parcels_in_turns, settled
from traffic.fluid_network import FluidNetwork
from traffic.path_effects import path_effects
from traffic.scheme import Choice
from traffic.spraying.policy import QueuePair
from traffic.transfers import Path


class FluidBackend:
    """Moves bytes as fluids.

    Parameters
    ----------
    fabric
        Over which.
    delay_s
        How long each OCS is dark when it is reconfigured [s].
    by_bytes
        Whether queue pairs share links in proportion to what they have left, as the ideal transport has it.
    paths
        Return the paths of queue pairs over packet switches; by default as the switches' hash gives them.
    """

    def __init__(
        self,
        fabric: Fabric,
        delay_s: Mapping[str, float],
        *,
        by_bytes: bool = True,
        paths: Callable[[Sequence[QueuePair]], Sequence[Path]] | None = None,
    ) -> None:
        self._fabric, self._delay_s = fabric, delay_s
        self._find_paths = paths or partial(computed_paths, fabric)
        self._ports = {port: number for number, port in enumerate(fabric.link_at)}
        rates = [link.rate_bps for link in fabric.link_at.values()]
        self._network = FluidNetwork(rates, by_bytes=by_bytes)
        self._numbers: dict[QueuePair, int] = {}
        self._flows: list[int] = []
        """The flow of each queue pair; its pool is the queue pair's own."""
        self._pools: list[int] = []
        self._paths: list[Path] = []
        """The path of each queue pair as it was opened; empty over circuits."""
        self._shared: dict[tuple[int, ...], tuple[int, range]] = {}
        """The pool of messages that may choose from the same queue pairs, and its flows."""
        self._choosing: dict[int, tuple[tuple[int, ...], NDArray[np.float64], int]] = {}
        """Queue pairs that each message under way may choose, what these had carried, and its size."""
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
        self._network.post([self._pools[each] for each in number.tolist()], size, message)

    def choose(
        self, numbers: Sequence[int], choice: Choice, size: NDArray[np.int64], message: NDArray[np.int64]
    ) -> None:
        """Have messages drain what they may choose, as the limit of their scheme (`traffic.fluid_choice`)."""
        permitted = choice.permitted.of_message
        if getattr(choice.policy, "settles", False):
            rates = {port: link.rate_bps for port, link in self._fabric.link_at.items()}
            settled_on = settled(choice.permitted, [self._paths[number] for number in numbers], rates)
            permitted = tuple((qp,) for qp in settled_on.tolist())
        sets = [tuple(sorted(numbers[qp] for qp in qps)) for qps in permitted]
        self._share(sets)
        before = {among: self._network.delivered_bytes(self._shared[among][1]) for among in set(sets)}
        for each, among, owed in zip(message.tolist(), sets, size.tolist(), strict=True):
            self._choosing[each] = among, before[among], owed
        pools = np.array([self._shared[among][0] for among in sets])
        order, parcels = parcels_in_turns(pools, size.astype(float))
        self._network.post(pools[order], parcels, message[order])

    def chosen(self, message: int) -> dict[int, int]:
        """Return what each queue pair carried of a message: its part of what they carried meanwhile."""
        among, before, size = self._choosing.pop(message)
        carried = self._network.delivered_bytes(self._shared[among][1]) - before
        edges = np.rint(carried.cumsum() * (size / carried.sum())).astype(np.int64).tolist()
        parts = zip(among, pairwise([0, *edges]), strict=True)
        return {number: end - begin for number, (begin, end) in parts if end != begin}

    def carried(self, number: int) -> set[int]:
        """Return the messages whose bytes a queue pair still carries."""
        return self._network.held(self._pools[number])

    def withdraw(self, number: int) -> list[tuple[int, int]]:
        """Return what a queue pair did not deliver."""
        return [(message, round(size)) for message, size in self._network.withdraw(self._pools[number])]

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
        paths = self._find_paths(packet)
        links = [[self._ports[port] for port in path] for path in paths]
        effects = path_effects(paths, self._fabric)
        for queue_pair in optical:
            self._dark_link[queue_pair] = self._network.add_link(0.0)
            links.append([self._dark_link[queue_pair]])
        first = len(self._flows)
        self._numbers.update(zip([*packet, *optical], range(first, first + len(links)), strict=True))
        self._paths += [*paths, *[()] * len(optical)]
        self._pools += range(self._network.pools, self._network.pools + len(links))
        self._flows += self._network.add_flows(
            links,
            part_of=np.arange(first, first + len(links)),
            delivered=np.append(effects.delivered, np.ones(len(optical))),
            delay_s=np.append(effects.delay_s, np.zeros(len(optical))),
        )
        self._lead_light()

    def _share(self, sets: Sequence[tuple[int, ...]]) -> None:
        """Make a pool for each set of queue pairs that has none."""
        new = [among for among in dict.fromkeys(sets) if among not in self._shared]
        if not new:
            return
        paths = [self._paths[number] for among in new for number in among]
        effects, first_of = path_effects(paths, self._fabric), np.cumsum([0, *map(len, new)])
        pool = self._network.pools
        flows = self._network.add_flows(
            [[self._ports[port] for port in path] for path in paths],
            pool=np.repeat(np.arange(pool, pool + len(new)), np.diff(first_of)),
            part_of=[number for among in new for number in among],
            delivered=effects.delivered,
            delay_s=np.maximum.reduceat(effects.delay_s, first_of[:-1]),
        )
        for number, (among, first) in enumerate(zip(new, first_of.tolist(), strict=False)):
            self._shared[among] = pool + number, flows[first : first + len(among)]

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
                self._network.set_path(self._flows[self._numbers[queue_pair]], links)

    def _report(self, at_s: float, happening: Happening) -> None:
        self._count += 1
        heapq.heappush(self._to_come, (at_s, self._count, happening))
