"""The live backend: TCP over a booted network whose controller lights circuits, on a dilated clock.

The clock stands while nothing is on its way and it is decided what comes next: connecting queue pairs and
placing messages is no part of what is emulated. What is decided while bytes move takes its time.

A queue pair over packet switches is connected before its first bytes go, and its path read off the wire
where it can be. One over circuits connects at first light, stands while it is drained, and goes on when
its light is back: nothing is sent into the dark, so TCP has nothing to repair. Where servers forward, their
kernels have the routes over what is lit before anything is sent there.
"""

import contextlib
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Self

import numpy as np
from numpy.typing import NDArray

from testbed.network.network import Network
from testbed.network.tap import Tap
from testbed.network.wiring import turn_link
from testbed.run.dilation import Dilation
from testbed.run.light_news import News
from testbed.run.live_lanes import LiveLanes
from testbed.run.live_light import LiveLight
from testbed.run.live_programs import LivePrograms
from testbed.run.movers import (
    NOTHING_COMES,
    Arrived,
    Drained,
    Happening,
    LightChanged,
    NowProvisioned,
)
from testbed.run.packet_paths import PacketPaths, computed_paths, paths_over
from topologies.errors import StuckError
from topologies.events import Show
from topologies.fabric import Fabric, Nic, Path, Port
from topologies.light import Circuit
from topologies.routes import Route, Routes
from traffic.clock import NEVER, in_seconds, ps
from traffic.effects import Daemon, DaemonState, LinkState
from traffic.faults import Fault
from traffic.packets import packet_bytes
from traffic.path_effects import path_effects
from traffic.scheme import Choice, WhileLit
from traffic.spraying.policy import Counts, NamesInert, QueuePair, ReactivePolicy, inert_in_all
from traffic.transports.circuit_engine import LEAST_MARGINS, TURN_S, Margins, Meeting
from traffic.transports.engine import STUCK_S, Engine, Health
from traffic.transports.host_settings import CREDIT
from traffic.transports.late_binding import ReactiveFeeder
from traffic.transports.registry import transport_named
from traffic.transports.round_trips import Crossing, shares_of

MOST_IDLE = 4096
"""Queue pairs that nobody uses stay connected up to so many."""


class LiveBackend:
    """Moves bytes over a network; a context manager, whose clock starts when it is first told what to do.

    Parameters
    ----------
    network
        Booted at the dilation's rate, its OCSes told how long they are dark.
    dilation
        The scale of bytes and time.
    transport
        What moves bytes over packet switches, by name (`traffic.transports.registry`).
    stuck_s
        A queue pair that owes bytes and makes no progress for so long is an error, unless it waits for an
        OCS [s, emulated].
    skips
        Whether time in which nothing is on its way, compute's for instance, is skipped: the clock shows
        that it has passed at once.
    meeting
        How senders meet the dark in programs.
    margins
        What slots of programs are longer for.
    faults
        What is to fail: the paths around it are computed while the clock stands.
    """

    def __init__(
        self,
        network: Network,
        dilation: Dilation,
        *,
        transport: str = CREDIT.name,
        stuck_s: float = STUCK_S,
        skips: bool = False,
        meeting: Meeting = "drain",
        margins: Margins = LEAST_MARGINS,
        faults: Sequence[Fault] = (),
    ) -> None:
        self._faults = tuple(faults)
        self._foreseen = _foreseen(network.fabric, faults)
        """The ports that will have failed, one fault after the other."""
        self._network, self._dilation, self._fabric = network, dilation, network.fabric
        self._skips = skips
        self._nic_shares: dict[Nic, float] = {}
        """What NICs are known to have of their rate, where that is not all."""
        self._packet_bytes = packet_bytes(network.mtu)
        self._engine = Engine(
            network.endpoints,
            transport=transport_named(transport)(self._nic_rate_bps, self._packet_bytes),
            check=network.check_alive,
            stuck_s=stuck_s,
            excused=lambda: self._light.moves or self._expects_back,
        )
        self._numbers: dict[QueuePair, int] = {}
        self.packet_paths = PacketPaths(self._fabric, partial(computed_paths, self._fabric))
        """The paths of its queue pairs over packet switches, as they were seen where that was possible."""
        self.paths: dict[QueuePair, Path] = {}
        """The path of each queue pair over packet switches that was connected while nothing had failed."""
        self._light = LiveLight(network)
        self._lanes = LiveLanes(self._fabric, self._engine, network.routes, self._forwarding_s)
        self._choosing: dict[int, ReactiveFeeder] = {}
        self._told: dict[int, dict[int, int]] = {}
        """What was said to have been carried of each that goes on, by queue pair."""
        self._policies: list[ReactivePolicy] = []
        """Those that have chosen."""
        self._happened: list[Happening] = []
        self._cut: set[Port] = set()
        """Where links are down."""
        self._links: dict[Port, LinkState] = {}
        """What was made of links that changed."""
        self._expects_back = False
        """Whether something that has failed will be back."""
        self.programs = LivePrograms(
            network, dilation, self._lanes.ocs_of, meeting, margins, exact=bool(faults)
        )
        """What carries messages that take what is lit."""
        self._least_ps = 0
        self._start = 0.0
        self._arrived_at = 0.0
        """When bytes arrived last [s, monotonic]."""
        self._stands_at: float | None = None
        """Where the clock stands, if it does [s, monotonic]."""

    def __enter__(self) -> Self:
        """Get ready."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._engine)
            self._news = stack.enter_context(News(self._network.directory / "light.sock"))
            self._engine.watch(self._news.fileno(), lambda _event: self._read_news())
            self._stack = stack.pop_all()
        self._start = self._stands_at = time.monotonic()
        return self

    def __exit__(self, kind: object, *_error: object) -> None:
        """Close everything, mend what was broken, and end what is left of programs."""
        with self._stack:
            for port in sorted(self._links):
                self.set_link(port, LinkState())
            if kind is None and self._faults:
                self._network.mend()
            if kind is None:
                self.programs.darken()

    @property
    def now_ps(self) -> int:
        """Time since the start [real ps]."""
        at_ps = self._at_ps(time.monotonic() if self._stands_at is None else self._stands_at)
        return max(at_ps, self._least_ps)

    @property
    def health(self) -> Health:
        """How all went until now, at emulated scale."""
        return self._engine.health

    @property
    def grants(self) -> list[tuple[QueuePair, int, int]]:
        """What each queue pair or group was granted and has sent (`Engine.grants`) [emulated bytes]."""
        return [
            (self._engine.queue_pair(number), granted, sent) for number, granted, sent in self._engine.grants
        ]

    # Queue pairs

    def numbers(self, queue_pairs: Sequence[QueuePair]) -> list[int]:
        """Return the number of each queue pair; one that is new is connected, or begins to be."""
        new = [queue_pair for queue_pair in dict.fromkeys(queue_pairs) if queue_pair not in self._numbers]
        if new and self._quiet and len(self._numbers) + len(new) > MOST_IDLE:
            for queue_pair in self._numbers.keys() - set(queue_pairs):
                self.withdraw(self._numbers[queue_pair])
        self._numbers.update((queue_pair, self._engine.add(queue_pair)) for queue_pair in new)
        self._lanes.add({self._numbers[pair]: pair for pair in new if self._lanes.carries(pair)})
        if packet := [queue_pair for queue_pair in new if not self._lanes.carries(queue_pair)]:
            self._connect(packet)
        return [self._numbers[queue_pair] for queue_pair in queue_pairs]

    def carried(self, number: int) -> set[int]:
        """Return the messages whose bytes a queue pair still carries."""
        return self._engine.carried(number)

    def owed(self, numbers: Sequence[int]) -> int:
        """Return how many real bytes queue pairs have yet to deliver."""
        return round(sum(map(self._engine.owed, numbers)) / self._dilation.volume)

    def left(self, number: int) -> dict[int, int]:
        """Return what a queue pair has yet to deliver of each message, in real bytes."""
        return {message: self._real_bytes(size) for message, size in self._engine.left(number).items()}

    def withdraw(self, number: int) -> list[tuple[int, int]]:
        """Reset a queue pair; return what it did not deliver, in real bytes."""
        left = self._engine.withdraw(number)
        self._forget(number)
        return [(message, self._real_bytes(size) if size else 0) for message, size in left]

    def retract(self, number: int) -> list[tuple[int, int, bool]]:
        """Take back what a queue pair has not sent, in real bytes."""
        back = self._engine.retract(number)
        return [(message, self._real_bytes(size), whole) for message, size, whole in back]

    def _forget(self, number: int) -> None:
        """Open a queue pair of these ends anew when there is one again."""
        self._lanes.forget(number)
        queue_pair = self._engine.queue_pair(number)
        if self._numbers.get(queue_pair) == number:
            del self._numbers[queue_pair]

    def _real_bytes(self, size: int) -> int:
        return max(round(size / self._dilation.volume), 1)

    def _connect(self, queue_pairs: Sequence[QueuePair]) -> None:
        """Connect queue pairs: before bytes go by themselves, seeing their paths, else beside what goes."""
        numbers = [self._numbers[queue_pair] for queue_pair in queue_pairs]
        if self._quiet:
            # A SYN that is lost costs a second, and its path would be seen in part only.
            self._network.impair(self._dilation.time, loss=False)
            with Tap(self._fabric) as tap:
                self._engine.connect(numbers)
                paths: Sequence[Path] = tap.paths(queue_pairs)
            self.packet_paths.saw(queue_pairs, paths)
            self._network.impair(self._dilation.time)
        else:
            paths = self.packet_paths.open(queue_pairs)
            for number in numbers:
                self._engine.dial(number)
        if not self.packet_paths.are_led_around:
            self.paths.update(zip(queue_pairs, paths, strict=True))
        for failed in self._foreseen:
            around = paths_over(self._fabric, failed)
            for queue_pair in queue_pairs:
                around.crossed(queue_pair)
        effects = path_effects(paths, self._fabric)
        round_trips_s, lossy = effects.round_trip_s * self._dilation.time, effects.delivered < 1
        for number, round_trip_s, loses in zip(numbers, round_trips_s.tolist(), lossy.tolist(), strict=True):
            self._engine.crosses(number, round_trip_s, lossy=loses)

    def _forwarding_s(self, route: Route) -> float:
        """Return how long servers on a route take to pass a packet on [s, emulated]."""
        nics = [self._fabric.nic_at(path.ports[0]) for path in route.light[1:]]
        return sum(8 * self._packet_bytes / self._nic_rate_bps(nic) for nic in nics)

    def begin_lit(self, circuits: Mapping[str, tuple[Circuit, ...]]) -> None:
        """Have OCSes light circuits, and wait for it while the clock stands."""
        self.light(circuits)
        while self._light.moves:
            self._engine.serve(TURN_S)
            self._light.check_due()
        self._happened.clear()
        self._start = self._stands_at = time.monotonic()

    # Bytes

    def begin(self) -> None:
        """Wait, if nothing is on its way, until shapers lend all they can, which is what is predicted.

        The clock stands meanwhile. Else what they lend would depend on how long a decision takes here.
        """
        if self._quiet and self._stands_at is not None:
            self._engine.rest(self._arrived_at + self._network.wiring.refill_s - time.monotonic())

    def post(self, number: NDArray[np.int64], size: NDArray[np.int64], message: NDArray[np.int64]) -> None:
        """Put parcels behind what queue pairs carry, at emulated scale."""
        self._engine.post(number, self._dilation.emulated_bytes(size), message)
        self._lanes.post(number.tolist())
        self._go_on()

    def choose(
        self,
        numbers: Sequence[int],
        choice: Choice | WhileLit,
        size: NDArray[np.int64],
        message: NDArray[np.int64],
    ) -> None:
        """Let messages choose among queue pairs as they go, each chunk when its NIC can send it."""
        if isinstance(choice, WhileLit):
            if not self.programs.circuits.attached:
                self.programs.attach(self._engine, self._stack)
            self.programs.post(numbers, choice.permitted, size.tolist(), message.tolist())
            self._go_on()
            return
        feeder = ReactiveFeeder(
            choice.policy,
            choice.permitted,
            choice.chunks,
            self._dilation.emulated_bytes(choice.chunks.bytes),
            self._nic_rate_bps,
            numbers=numbers,
            names=message.tolist(),
            began_at=time.monotonic(),
            packet=self._packet_bytes,
            crossings=[self._crossing(queue_pair) for queue_pair in choice.queue_pairs],
            volume=self._dilation.volume,
            time=self._dilation.time,
        )
        self._policies.append(choice.policy)
        self._choosing.update(dict.fromkeys(message.tolist(), feeder))
        self._go_on()
        self._engine.feed(feeder)

    def chosen(self, message: int, *, goes_on: bool = False) -> dict[int, int]:
        """Return how many bytes each queue pair carried of a message that chose since it was last asked."""
        if message not in self._choosing:
            return self.programs.carried(message)
        feeder = self._choosing[message] if goes_on else self._choosing.pop(message)
        return self._since_asked(message, feeder.carried(message), goes_on=goes_on)

    def _since_asked(self, message: int, carried: Mapping[int, int], *, goes_on: bool) -> dict[int, int]:
        """Return what was carried of a message since it was last asked, by queue pair."""
        told = self._told.pop(message, {})
        if goes_on:
            self._told[message] = dict(carried)
        since = {number: size - told.get(number, 0) for number, size in carried.items()}
        return {number: size for number, size in since.items() if size > 0}

    def lacking(self, message: int) -> int:
        """Return how many bytes a message lacks that takes what is lit."""
        return self.programs.lacking(message)

    def recall(self, messages: Sequence[int]) -> dict[int, dict[int, int]]:
        """Take back messages that lack bytes; the clock stands if nothing else moves."""
        recalled = self.programs.recall([message for message in messages if message not in self._choosing])
        recalled |= self._take_back([message for message in messages if message in self._choosing])
        if self._quiet and self._stands_at is None:
            self._stands_at = time.monotonic()
        return recalled

    def _take_back(self, messages: Sequence[int]) -> dict[int, dict[int, int]]:
        """Take back messages that choose, with those that may use the same queue pairs, which are reset."""
        back: dict[int, dict[int, int]] = {}
        for feeder in dict.fromkeys(self._choosing[message] for message in messages):
            names, numbers = feeder.sharing(messages)
            lacking: Counter[tuple[int, int]] = Counter()
            for number in numbers:
                for name, size in self._engine.withdraw(number):
                    lacking[name, number] += size
                self._forget(number)
            for name in names:
                carried = {
                    number: max(size - (lacks and self._real_bytes(lacks)), 0)
                    for number, size in feeder.carried(name).items()
                    for lacks in [lacking[name, number]]
                }
                back[name] = self._since_asked(name, carried, goes_on=False)
                del self._choosing[name]
            self._engine.forget(feeder, names)
        return back

    @property
    def shares(self) -> dict[str, float]:
        """What reactive policies counted, as shares (`traffic.spraying.policy.Counts`)."""
        return shares_of([policy.counts for policy in self._policies if isinstance(policy, Counts)])

    @property
    def inert(self) -> tuple[str, ...]:
        """Which constants of reactive policies could act in none of them (`NamesInert`)."""
        return inert_in_all([policy.inert for policy in self._policies if isinstance(policy, NamesInert)])

    def _crossing(self, queue_pair: QueuePair) -> Crossing:
        """Return the path of a queue pair; where none was seen, its NIC is the slowest link of it."""
        links = [self._fabric.link_at[port] for port in self.paths.get(queue_pair, ())]
        rates_bps = [self._fabric.nic_rate_bps(queue_pair.source), *(link.rate_bps for link in links)]
        nic_bps, slowest_bps = rates_bps[0] * self._dilation.rate, min(rates_bps) * self._dilation.rate
        delay_s = self._dilation.emulated_s(sum(link.delay_s for link in links))
        return Crossing(queue_pair.source, nic_bps, slowest_bps, 2 * delay_s)

    def _nic_rate_bps(self, nic: Nic) -> float:
        return self._fabric.nic_rate_bps(nic) * self._dilation.rate * self._nic_shares.get(nic, 1.0)

    # Light and faults

    def hold(self, numbers: Collection[int]) -> None:
        """Hold queue pairs over circuits."""
        self._lanes.hold(numbers)

    def drain(self, change: int, numbers: Collection[int]) -> None:
        """Hold queue pairs, and report when all that was sent has arrived."""
        self._lanes.drain(change, numbers)
        self._look_for_drained()

    def stop_draining(self, change: int) -> Collection[int]:
        """Wait no longer for a change's queue pairs; return those of which something is on its way."""
        return self._lanes.stop_draining(change)

    def resume(self, numbers: Collection[int]) -> None:
        """Let queue pairs send again that have a route."""
        self._lanes.resume(numbers)

    def follow(self, routes: Routes, nics: Collection[Nic] | None) -> None:
        """Have servers and queue pairs over circuits take other routes."""
        self._lanes.follow(routes)

    def light(self, circuits: Mapping[str, tuple[Circuit, ...]]) -> None:
        """Have OCSes light circuits until the next order."""
        self._go_on()
        self._light.light(circuits, self._news.path)

    def provision(self, ocs: str, circuits: tuple[Circuit, ...]) -> None:
        """Have an OCS set circuits beside those that it shows."""
        self._go_on()
        self._light.provision(ocs, circuits)

    def flip(self, circuits: Mapping[str, tuple[Circuit, ...]]) -> None:
        """Have OCSes light what they provisioned."""
        self._go_on()
        self._light.flip(circuits, self._news.path)

    def show(self, order: Show) -> None:
        """Have the controller step OCSes through programs; the clock stands until they begin."""
        self._light.check_controlled()
        begins_at = self.programs.show(order, self._news)
        if self._stands_at is not None:
            self._least_ps = self.now_ps
            self._start += begins_at - self._stands_at
            self._stands_at = None

    def set_link(self, port: Port, state: LinkState) -> None:
        """Shape the link at a port, and take it down or up from the switch's side."""
        before = self._links.get(port, LinkState())
        self._links[port] = state
        if (state.rate, state.loss) != (before.rate, before.loss):
            self._network.shape_link(port, state.rate, state.loss)
        if state.up != before.up:
            (self._cut.discard if state.up else self._cut.add)(port)
            if state.up:
                self._engine.excuse()
            turn_link(self._fabric, port, works=state.up)

    def set_daemon(self, daemon: Daemon, state: DaemonState) -> None:
        """Kill a process of the network, or start it again."""
        if state.up:
            self._revive(daemon)
        else:
            self._kill(daemon)

    def _kill(self, daemon: Daemon) -> None:
        self._network.kill(daemon, for_good=not self._expects_back)
        if daemon == "controller":
            self._light.control(works=False, needed=self.programs.showing)

    def _revive(self, daemon: Daemon) -> None:
        """Start a daemon; the clock stands until switches forward, since nothing moves before."""
        began_at = time.monotonic()
        self._network.revive(daemon)
        if daemon == "switches":
            self._start += time.monotonic() - began_at
            self._engine.excuse()
        if daemon == "controller":
            self._light.control(works=True, needed=False)

    def expects_back(self, expects: bool) -> None:
        """Excuse queue pairs that make no progress while something is away that will be back."""
        self._expects_back = expects

    def learn_rates(self, shares: Mapping[Nic, float]) -> None:
        """Have transports reckon with what NICs are known to have of their rate."""
        self._nic_shares = dict(shares)
        self._engine.rates_changed()

    def avoid(self, ports: Collection[Port]) -> None:
        """Lead traffic around failed ports, once the switches have their rules for it."""
        failed = frozenset(ports)
        self.programs.avoid(failed)
        self._network.follow(self._cut)  # switches go around a cut that nobody has been told of, too
        self.packet_paths.avoid(failed)

    def _read_news(self) -> None:
        for notice in self._news.read():
            if self.programs.shows(notice.ocs):
                until_ps = None if notice.until_s is None else self._at_ps(notice.until_s)
                self._happened += self.programs.heard(notice, self.now_ps, until_ps)
            elif (lit := self._light.heard(notice)) is not None:
                self._engine.excuse()
                self._happened.append(LightChanged(notice.ocs, lit, self.now_ps))

    def _look_for_drained(self) -> None:
        self._happened += [Drained(change, self.now_ps) for change in self._lanes.drained()]
        self._happened += [
            NowProvisioned(ocs, circuits, self.now_ps) for ocs, circuits in self._light.provisioned()
        ]

    # The clock

    def wait(self, until_ps: int) -> list[Happening]:
        """Let time pass until something happens; it passes to the moment while nothing is on its way."""
        idle_ps = max(until_ps, self.now_ps) if self._quiet and not self._happened else None
        self._go_on()
        if self._quiet and not self._happened:
            if until_ps == NEVER:
                raise StuckError(NOTHING_COMES, "light a circuit, or add a path")
            if self._skips:
                self._start -= self._left_s(until_ps)
        is_due = False
        while not (self._happened or is_due):
            left_s = self._left_s(until_ps)
            is_due = not left_s  # sockets are served all the same: NVLink's rings always have something due
            if self.programs.showing or self._light.sets:
                left_s = min(left_s, TURN_S)
            arrived = self._engine.serve(left_s)
            if self.programs.showing:
                landed, ended = self.programs.turn()
                arrived += landed
                self._happened += [LightChanged(ocs, (), self.now_ps) for ocs in ended]
            self._happened += [Arrived(message, self._at_ps(at), number) for message, at, number in arrived]
            self._arrived_at = max([self._arrived_at, *(each.at for each in arrived)])
            self._look_for_drained()
            self._light.check_due()
            if until_ps == NEVER and not arrived:
                self._check_for_light()
        if self._quiet:
            self._stands_at = time.monotonic()
            if idle_ps is not None and not self._happened:
                # A wait ends up to a millisecond late: six times what a step over NVLink takes.
                self._stands_at = min(self._stands_at, self._start + self._emulated_s(idle_ps))
                self._least_ps = idle_ps
        happened, self._happened = self._happened, []
        return happened

    def _check_for_light(self) -> None:
        """Raise StuckError if all that is left waits for light, and none is ordered."""
        if self._moves or self.programs.showing or self._happened:
            return
        waiting = self._engine.waiting and f"queue pair {self._engine.waiting} waits"
        if self._engine.quiet and self.programs.owes:
            waiting = "what takes circuits of programs waits"
        if waiting:
            raise StuckError(f"{waiting} for light, and none is to come", "light a circuit")

    @property
    def _quiet(self) -> bool:
        """Whether nothing is on its way, nor ordered."""
        return self._engine.quiet and not (self._moves or self.programs.owes)

    @property
    def _moves(self) -> bool:
        """Whether light is to change: lanes drain for it, or OCSes have not done what was ordered."""
        return self._lanes.drains or self._light.moves or self._light.sets

    def _go_on(self) -> None:
        """Have the clock go on if it stands."""
        if self._stands_at is not None:
            self._start += time.monotonic() - self._stands_at
            self._stands_at = None

    def _left_s(self, until_ps: int) -> float:
        """Return how long it is until a time [s, emulated]."""
        return max(self._emulated_s(until_ps - self.now_ps), 0.0) if until_ps < NEVER else float("inf")

    def _emulated_s(self, lasts_ps: int) -> float:
        return self._dilation.emulated_s(in_seconds(lasts_ps))

    def _at_ps(self, at: float) -> int:
        return ps(self._dilation.real_s(at - self._start))


def _foreseen(fabric: Fabric, faults: Sequence[Fault]) -> list[frozenset[Port]]:
    """Return what will have failed, at both ends of links: nothing, by one fault, by all of them."""
    alone = [fabric.both_ends(fault.ports) for fault in faults]
    together = frozenset[Port]().union(*alone)
    return list(dict.fromkeys([frozenset(), *alone, together])) if together else []
