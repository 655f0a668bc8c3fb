"""The live backend: TCP over a booted network whose controller lights circuits, on a dilated clock.

The clock stands while nothing is on its way and it is decided what comes next: connecting queue pairs and
placing messages is no part of what is emulated. What is decided while bytes move takes its time.

A queue pair over packet switches is connected before its first bytes go, and its path read off the wire
where it can be. One over circuits connects at first light, stands while it is drained, and goes on when
its light is back: nothing is sent into the dark, so TCP has nothing to repair.
"""

import contextlib
import socket
import time
from collections.abc import Iterable, Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray
from pyroute2.netlink.rtnl import RTM_NEWLINK

from controller.circuits import Circuits
from controller.programs import Day, Program
from testbed.backend import NOTHING_COMES, Arrived, Drained, Happening, NowLit
from testbed.dilation import Dilation
from testbed.netlink import IFF_UP, Batch
from testbed.network import Network
from testbed.ocs_executor import News
from testbed.packet_paths import computed_paths
from testbed.tap import Tap
from topologies.addresses import interface
from topologies.errors import StuckError
from topologies.fabric import Nic, Path, Port
from topologies.light import Circuit, light_path
from traffic.engine import STUCK_S, Engine, Health
from traffic.late_binding import ReactiveFeeder
from traffic.path_effects import path_effects
from traffic.scheme import Choice
from traffic.spraying.policy import QueuePair

LOSSY_WINDOW_PACKETS = 2
"""A queue pair's least window where links lose packets: of one packet alone TCP notices a loss late."""
MOST_IDLE = 4096
"""Queue pairs that nobody uses stay connected up to so many."""
LIT_FOR_S = 1e6
"""How long a program's day lasts: until the next is ordered."""


class LiveBackend:
    """Moves bytes over a network; a context manager, whose clock starts when it is first told what to do.

    Parameters
    ----------
    network
        Booted at the dilation's rate, its OCSes told how long they are dark.
    dilation
        The scale of bytes and time.
    stuck_s
        A queue pair that owes bytes and makes no progress for so long is an error, unless it waits for an
        OCS [s, emulated].
    skips
        Whether time in which nothing is on its way, compute's for instance, is skipped: the clock shows
        that it has passed at once.
    """

    def __init__(
        self, network: Network, dilation: Dilation, *, stuck_s: float = STUCK_S, skips: bool = False
    ) -> None:
        self._network, self._dilation, self._fabric = network, dilation, network.fabric
        self._skips = skips
        self._engine = Engine(
            network.endpoints,
            nic_rate_bps=self._nic_rate_bps,
            check=network.check_alive,
            stuck_s=stuck_s,
            excused=lambda: bool(self._ordered),
            least_packets=LOSSY_WINDOW_PACKETS if self._fabric.lossy else 1,
        )
        self._numbers: dict[QueuePair, int] = {}
        self.paths: dict[QueuePair, Path] = {}
        """The path of each queue pair over packet switches that was connected."""
        self._choosing: dict[int, ReactiveFeeder] = {}
        self._happened: list[Happening] = []
        self._draining: dict[str, set[int]] = {}
        self._lit: dict[str, tuple[Circuit, ...]] = {
            s.name: () for s in self._fabric.switches if s.kind == "ocs"
        }
        self._ordered: dict[str, tuple[Circuit, ...]] = {}
        self._dark: set[int] = set()
        """Queue pairs that connect when their circuits are lit first."""
        self._start = 0.0
        self._stands_at: float | None = None
        """Where the clock stands, if it does [s, monotonic]."""

    def __enter__(self) -> Self:
        """Get ready."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._engine)
            self._news = stack.enter_context(News(tuple(self._lit)))
            self._engine.watch(self._news.fileno(), lambda _event: self._read_news())
            self._stack = stack.pop_all()
        self._start = self._stands_at = time.monotonic()
        return self

    def __exit__(self, *_error: object) -> None:
        """Close everything."""
        self._stack.close()

    @property
    def now_s(self) -> float:
        """Time since the start [real s]."""
        return self._at_s(time.monotonic() if self._stands_at is None else self._stands_at)

    @property
    def health(self) -> Health:
        """How all went until now, at emulated scale."""
        return self._engine.health

    # Queue pairs

    def numbers(self, queue_pairs: Sequence[QueuePair]) -> list[int]:
        """Return the number of each queue pair; one that is new is connected, or begins to be."""
        new = [queue_pair for queue_pair in queue_pairs if queue_pair not in self._numbers]
        if new and self._quiet and len(self._numbers) + len(new) > MOST_IDLE:
            for queue_pair in self._numbers.keys() - set(queue_pairs):
                self.withdraw(self._numbers[queue_pair])
        self._numbers.update((queue_pair, self._engine.add(queue_pair)) for queue_pair in new)
        self._dark.update(self._numbers[queue_pair] for queue_pair in new if self._is_optical(queue_pair))
        self._dial_lit()
        if packet := [queue_pair for queue_pair in new if not self._is_optical(queue_pair)]:
            self._connect(packet)
        return [self._numbers[queue_pair] for queue_pair in queue_pairs]

    def carried(self, number: int) -> set[int]:
        """Return the messages whose bytes a queue pair still carries."""
        return self._engine.carried(number)

    def withdraw(self, number: int) -> list[tuple[int, int]]:
        """Reset a queue pair; return what it did not deliver, in real bytes."""
        self._dark.discard(number)
        left = self._engine.withdraw(number)
        self._numbers = {qp: each for qp, each in self._numbers.items() if each != number}
        return [(message, max(round(size / self._dilation.volume), 1)) for message, size in left]

    def _connect(self, queue_pairs: Sequence[QueuePair]) -> None:
        """Connect queue pairs: before bytes go by themselves, seeing their paths, else beside what goes."""
        numbers = [self._numbers[queue_pair] for queue_pair in queue_pairs]
        if self._quiet:
            # A SYN that is lost costs a second, and its path would be seen in part only.
            self._network.impair(self._dilation.time, loss=False)
            with Tap(self._fabric) as tap:
                self._engine.connect(numbers)
                paths = tap.paths(queue_pairs)
            self._network.impair(self._dilation.time)
        else:
            paths = computed_paths(self._fabric, queue_pairs)
            for number in numbers:
                self._engine.dial(number)
        self.paths.update(zip(queue_pairs, paths, strict=True))
        for number, round_trip_s in zip(numbers, self._round_trips_s(queue_pairs).tolist(), strict=True):
            self._engine.crosses(number, round_trip_s)

    def _round_trips_s(self, queue_pairs: Sequence[QueuePair]) -> NDArray[np.float64]:
        """Return how long the links of each queue pair's path take there and back [s, emulated]."""
        paths = [self.paths.get(queue_pair, ()) for queue_pair in queue_pairs]
        return path_effects(paths, self._fabric).round_trip_s * self._dilation.time

    def _is_optical(self, queue_pair: QueuePair) -> bool:
        return self._fabric.peer(self._fabric.nic_port(queue_pair.source)).node in self._lit

    def _dial_lit(self) -> None:
        """Connect queue pairs whose light there is now: a SYN in the dark is repeated only after a second."""
        for queue_pair, number in self._numbers.items():
            if number in self._dark:
                light = light_path(self._fabric, self._lit, queue_pair.source)
                if light.end == self._fabric.nic_port(queue_pair.destination):
                    self._dark.discard(number)
                    self._engine.dial(number)

    # Bytes

    def post(self, number: NDArray[np.int64], size: NDArray[np.int64], message: NDArray[np.int64]) -> None:
        """Put parcels behind what queue pairs carry, at emulated scale."""
        self._engine.post(number, self._dilation.emulated_bytes(size), message)
        self._go_on()

    def choose(
        self, numbers: Sequence[int], choice: Choice, size: NDArray[np.int64], message: NDArray[np.int64]
    ) -> None:
        """Let messages choose among queue pairs as they go, each chunk when its NIC can send it."""
        feeder = ReactiveFeeder(
            choice.policy,
            choice.permitted,
            choice.chunks,
            self._dilation.emulated_bytes(choice.chunks.bytes),
            self._nic_rate_bps,
            numbers=numbers,
            names=message.tolist(),
            began_at=time.monotonic(),
            round_trip_s=self._round_trips_s(choice.queue_pairs),
        )
        self._choosing.update(dict.fromkeys(message.tolist(), feeder))
        self._go_on()
        self._engine.feed(feeder)

    def chosen(self, message: int) -> dict[int, int]:
        """Return how many bytes each queue pair carried of a message that chose."""
        return self._choosing.pop(message).carried(message)

    def _nic_rate_bps(self, nic: Nic) -> float:
        return self._fabric.nic_rate_bps(nic) * self._dilation.rate

    # Light and faults

    def drain(self, ocs: str, numbers: Iterable[int]) -> None:
        """Hold queue pairs, and report when all that was sent has arrived."""
        self._draining[ocs] = set(numbers)
        self._engine.hold(self._draining[ocs])
        self._look_for_drained()

    def resume(self, numbers: Iterable[int]) -> None:
        """Let queue pairs send again."""
        self._engine.resume(numbers)

    def light(self, ocs: str, circuits: Sequence[Circuit]) -> None:
        """Have an OCS light circuits until it is told otherwise."""
        self._go_on()
        ports = self._fabric.switches[self._fabric.switch_index[ocs]].ports
        self._ordered[ocs] = tuple(sorted(circuits))
        self._lit[ocs] = tuple(pair for pair in self._lit[ocs] if pair in circuits)
        program = Program((Day(Circuits(ports, tuple(circuits)), LIT_FOR_S),))
        self._network.northbound.show(ocs, program, None, self._news.path)

    def fail(self, port: Port) -> None:
        """Take the link at a port down, from the switch's side."""
        end = port if port.node in self._fabric.switch_index else self._fabric.peer(port)
        batch = Batch()
        index = socket.if_nametoindex(interface(self._fabric, end))
        batch.add(f"take {end} down", RTM_NEWLINK, {"index": index, "flags": 0, "change": IFF_UP})
        batch.commit()

    def _read_news(self) -> None:
        ocses = tuple(self._lit)
        for light in self._news.read():
            ocs, circuits = ocses[light.ocs], tuple(sorted(light.outputs.items()))
            if light.until_s is None or self._ordered.get(ocs) != circuits:
                continue
            del self._ordered[ocs]
            self._lit[ocs] = circuits
            self._engine.excuse()
            self._dial_lit()
            self._happened.append(NowLit(ocs, self.now_s))

    def _look_for_drained(self) -> None:
        for ocs, numbers in list(self._draining.items()):
            if all(map(self._engine.drained, numbers)):
                del self._draining[ocs]
                self._happened.append(Drained(ocs, self.now_s))

    # The clock

    def wait(self, until_s: float) -> list[Happening]:
        """Let time pass until something happens."""
        self._go_on()
        if self._quiet and not self._happened:
            if until_s == float("inf"):
                raise StuckError(NOTHING_COMES, "light a circuit, or add a path")
            if self._skips:
                self._start -= max(self._dilation.emulated_s(until_s - self.now_s), 0.0)
        while not self._happened:
            left_s = self._dilation.emulated_s(until_s - self.now_s)
            if left_s <= 0:
                break
            for message, at in self._engine.serve(left_s):
                self._happened.append(Arrived(message, self._at_s(at)))
            self._look_for_drained()
        if self._quiet:
            self._stands_at = time.monotonic()
        happened, self._happened = self._happened, []
        return happened

    @property
    def _quiet(self) -> bool:
        """Whether nothing is on its way, nor ordered."""
        return self._engine.quiet and not self._draining and not self._ordered

    def _go_on(self) -> None:
        """Have the clock go on if it stands."""
        if self._stands_at is not None:
            self._start += time.monotonic() - self._stands_at
            self._stands_at = None

    def _at_s(self, at: float) -> float:
        return self._dilation.real_s(at - self._start)
