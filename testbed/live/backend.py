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
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import Self, TypeVar

from testbed.core.backend import (
    NOTHING_COMES,
    Arrived,
    Chosen,
    Drained,
    Expect,
    Flows,
    Happening,
    InFlight,
    KnowRates,
    Lead,
    Left,
    LightChanged,
    NetworkOrder,
    NowProvisioned,
    SetCircuits,
    SetDaemon,
    SetLink,
)
from testbed.core.packet_paths import PacketPaths, paths_over
from testbed.experiment.dilation import Dilation
from testbed.live.lanes import LiveLanes
from testbed.live.news import TURN_S, News
from testbed.live.nvlink import LiveNvlink
from testbed.live.ocses import LiveLight
from testbed.live.programs import LivePrograms
from testbed.network.network import Network
from testbed.network.tap import Tap
from topologies.errors import StuckError
from topologies.events import Provision, Show
from topologies.fabric import Fabric, Nic, Path, Port
from topologies.routes import Route
from traffic.clock import NEVER, in_seconds, ps
from traffic.effects import Daemon, LinkState
from traffic.faults import Fault
from traffic.packets import packet_bytes
from traffic.scheme import Choice, WhileLit
from traffic.scheme_setup import WHILE_LIT, WhileLitSetup
from traffic.spraying.policy import SPRAYED, CountsChunks, NamesInert, QueuePair, ReactivePolicy, inert_in_all
from traffic.transports.connections import Ends, ends
from traffic.transports.datagram_engine import DatagramEngine
from traffic.transports.datagram_lane import Crossed
from traffic.transports.datagram_sockets import datagram_ends
from traffic.transports.engine import Engine
from traffic.transports.host_settings import CREDIT, TransportSetup
from traffic.transports.late_binding import ReactiveFeeder
from traffic.transports.loop import STUCK_S, Arrival, Health
from traffic.transports.packet_feeder import PacketFeeder
from traffic.transports.registry import algorithm_named
from traffic.transports.round_trips import Crossing, shares_of

_Feeder = TypeVar("_Feeder", ReactiveFeeder, PacketFeeder)
_By = tuple[int, int | None]
"""A queue pair, and the entropy if packets of any go by it."""
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
        What moves bytes over packet switches.
    stuck_s
        A queue pair that owes bytes and makes no progress for so long is an error, unless it waits for an
        OCS [s, emulated]; longer where faults are known late (`patience_s`).
    skips
        Whether time in which nothing is on its way, compute's for instance, is skipped: the clock shows
        that it has passed at once.
    sending
        How datagrams over programs are sent, and what their slots are longer for.
    faults
        What is to fail: the paths around it are computed while the clock stands.
    seed
        Decides what is random in a congestion control.
    """

    def __init__(
        self,
        network: Network,
        dilation: Dilation,
        *,
        transport: TransportSetup = CREDIT,
        stuck_s: float = STUCK_S,
        skips: bool = False,
        sending: WhileLitSetup = WHILE_LIT,
        faults: Sequence[Fault] = (),
        seed: int = 0,
    ) -> None:
        self._faults = tuple(faults)
        self._foreseen = _foreseen(network.fabric, faults)
        """The ports that will have failed, one fault after the other."""
        self._network, self._dilation, self._fabric = network, dilation, network.fabric
        self._skips = skips
        self._nic_shares: dict[Nic, float] = {}
        """What NICs are known to have of their rate, where that is not all."""
        self._packet_bytes, self._seed = packet_bytes(network.mtu), seed
        self._sprays = transport.sprays is not None
        """Whether packets are datagrams, each of an entropy of its own."""
        self._engine = self._engine_of(transport, patience_s(stuck_s, faults, dilation))
        self._numbers: dict[QueuePair, int] = {}
        self.packet_paths = PacketPaths(
            self._fabric, network.routing, datagrams=self._sprays, hashing=network.hashing
        )
        """The paths of its queue pairs over packet switches, as they were seen where that was possible."""
        self._nvlink = LiveNvlink(self._fabric)
        self._light = LiveLight(network, self._engine.loop)
        self._lanes = LiveLanes(self._fabric, self._engine, network.routes, self._crosses_light)
        self._choosing: dict[int, ReactiveFeeder | PacketFeeder] = {}
        self.on_the_way = 0
        """The most that a lane, or a message that chooses, had on its way when asked [real bytes]."""
        self._told: dict[int, dict[_By, int]] = {}
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
            network, dilation, self._lanes.ocs_of, sending, self._nic_rate_bps, exact=bool(faults)
        )
        """The programs, and the lanes of messages that take those that are lit."""
        self._least_ps = 0
        self._start = 0.0
        self._starts: list[tuple[float, float]] = []
        """The start before each change of it, and when that was [s, monotonic]."""
        self._arrived_at = 0.0
        """When bytes arrived last [s, monotonic]."""
        self._stands_at: float | None = None
        """Where the clock stands, if it does [s, monotonic]."""

    def _engine_of(self, transport: TransportSetup, stuck_s: float) -> Engine | DatagramEngine:
        """Return what moves bytes over packet switches, and over circuits on queue pairs."""
        network = self._network

        def is_excused() -> bool:
            return bool(self._light.ordered) or self._expects_back

        if transport.sprays:
            return DatagramEngine(
                network.datagram_endpoints,
                self._nic_rate_bps,
                algorithm=algorithm_named(transport.name),
                packet_bytes=self._packet_bytes,
                seed=self._seed,
                switches_mark=transport.marks == "switches",
                ack_packets=transport.ack_packets,
                check=network.check_alive,
                stuck_s=stuck_s,
                excused=is_excused,
            )
        return Engine(network.endpoints, check=network.check_alive, stuck_s=stuck_s, excused=is_excused)

    def __enter__(self) -> Self:
        """Get ready."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._engine)
            self._news = stack.enter_context(News(self._network.directory / "light.sock"))
            self._engine.loop.watch(self._news.fileno(), lambda _event: self._read_news())
            stack.callback(self._light.close)
            stack.enter_context(self.programs.lanes)
            self._stack = stack.pop_all()
        self._start = self._stands_at = time.monotonic()
        return self

    def __exit__(self, kind: object, *_error: object) -> None:
        """Close everything, mend what was broken, and end what is left of programs."""
        with self._stack:
            for port in sorted(self._links):
                self._set_link(port, LinkState())
            if kind is None and self._faults:
                self._network.mend()
            if kind is None:
                self._light.settle()
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
    def datagrams(self) -> DatagramEngine | None:
        """The engine of datagrams; None where TCP carries bytes."""
        return self._engine if isinstance(self._engine, DatagramEngine) else None

    # Queue pairs

    def open(self, queue_pairs: Sequence[QueuePair]) -> list[int]:
        """Return the number of each queue pair; one that is new is connected, or begins to be."""
        new = [queue_pair for queue_pair in dict.fromkeys(queue_pairs) if queue_pair not in self._numbers]
        if new and self._quiet and not self._sprays and len(self._numbers) + len(new) > MOST_IDLE:
            for queue_pair in self._numbers.keys() - set(queue_pairs):
                self._withdraw(self._numbers[queue_pair])
        self._numbers.update((queue_pair, self._engine.add(queue_pair)) for queue_pair in new)
        self._lanes.add({self._numbers[pair]: pair for pair in new if self._lanes.carries(pair)})
        if packet := [queue_pair for queue_pair in new if not self._lanes.carries(queue_pair)]:
            self._connect(packet)
        return [self._numbers[queue_pair] for queue_pair in queue_pairs]

    def stop(
        self, lanes: Sequence[int] = (), ops: Sequence[int] = (), *, in_flight: InFlight = "drop"
    ) -> list[Left]:
        """Take back what was not delivered; the clock stands if nothing else moves."""
        take_back = self._withdraw if in_flight == "drop" else self._retract
        left = [each for lane in lanes for each in take_back(lane)]
        if ops:
            left += self._recall(ops)
            if self._quiet and self._stands_at is None:
                self._stands_at = time.monotonic()
        return left

    def under_way(self, lanes: Sequence[int] = (), ops: Sequence[int] = ()) -> list[Left]:
        """Report what lanes have yet to deliver, and what operations lack that choose."""
        left = list[Left]()
        for lane in lanes:
            if carried := self._engine.carried(lane):
                sizes, moves = self._engine.left(lane), not self._engine.drained(lane)
                sent = round(self._engine.on_the_way(lane) / self._dilation.volume)
                self.on_the_way = max(self.on_the_way, sent)
                left += [
                    Left(
                        op,
                        lane,
                        left=self._real_bytes(sizes[op]) if op in sizes else 0,
                        on_the_way=moves,
                    )
                    for op in sorted(carried)
                ]
        for op in ops:
            if feeder := self._choosing.get(op):
                self.on_the_way = max(self.on_the_way, feeder.on_the_way(op))
                lacks = feeder.real_bytes(op) - sum(feeder.carried(op).values())
                left.append(Left(op, -1, left=lacks))
            else:
                left.append(Left(op, -1, left=self.programs.lanes.lacking(op)))
        return left

    def carried(self, ops: Sequence[int]) -> list[Left]:
        """Report what lanes have carried of operations that choose since this was last asked."""
        found = [(op, self._choosing[op]) for op in ops]
        self.on_the_way = max([self.on_the_way, *(feeder.on_the_way(op) for op, feeder in found)])
        return [
            each for op, feeder in found for each in self._since_asked(op, feeder.carried(op), goes_on=True)
        ]

    def owed(self, lanes: Sequence[int]) -> int:
        """Return how many real bytes lanes have yet to deliver, but for what chose them."""
        return round(sum(map(self._engine.owed, lanes)) / self._dilation.volume)

    def _withdraw(self, lane: int) -> list[Left]:
        """Reset a queue pair; return what it did not deliver, in real bytes."""
        left = self._engine.withdraw(lane)
        self._forget(lane)
        return [Left(op, lane, left=self._real_bytes(size) if size else 0) for op, size in left]

    def _retract(self, lane: int) -> list[Left]:
        """Take back what a queue pair has not sent, in real bytes."""
        return [
            Left(op, lane, left=self._real_bytes(size), on_the_way=not whole)
            for op, size, whole in self._engine.retract(lane)
        ]

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
        of = [self._sample(queue_pair) for queue_pair in queue_pairs]
        if self._quiet:
            # A SYN that is lost costs a second, and its path would be seen in part only.
            self._network.impair(self._dilation.time, loss=False)
            with Tap(self._network.wiring) as tap:
                self._engine.connect(numbers)
                paths: Sequence[Path] = tap.paths(of, self._ends)
            self.packet_paths.saw(of, paths)
            self._network.impair(self._dilation.time)
            # Each message's end asks for the paths of its lanes, which would take 10 ms then.
            for queue_pair in filter(_is_sprayed, queue_pairs):
                self.packet_paths.by_entropy(queue_pair, frozenset())
        else:
            paths = self.packet_paths.open(of)
            for number in numbers:
                self._engine.dial(number)
        for failed in self._foreseen:
            network = self._network
            network.foresee(failed)
            around = paths_over(self._fabric, failed, network.routing, self._sprays, network.hashing)
            for queue_pair in queue_pairs:
                around.crossed(queue_pair)
            for queue_pair in filter(_is_sprayed, queue_pairs):
                around.by_entropy(queue_pair)
        for number, path in zip(numbers, paths, strict=True):
            self._crosses(number, path)

    def _sample(self, queue_pair: QueuePair) -> QueuePair:
        """Return one whose path is looked at: of those of many entropies, that of the first."""
        return replace(queue_pair, entropy=0) if _is_sprayed(queue_pair) else queue_pair

    def _ends(self, queue_pair: QueuePair) -> Ends:
        """Return how the packets of a queue pair are addressed."""
        if self._sprays:
            return datagram_ends(self._fabric, queue_pair)
        return ends(queue_pair, self._network.endpoints)

    def _crosses(self, number: int, path: Path, forwarding_s: float = 0.0, *, returns: bool = True) -> None:
        """Have datagrams reckon with what links do on the path of their queue pair; TCP finds out itself."""
        if not isinstance(self._engine, DatagramEngine):
            return
        links = [self._fabric.link_at[port] for port in path]
        slowest_bps = min(link.rate_bps for link in links) * self._dilation.rate
        delay_s = self._dilation.emulated_s(sum(link.delay_s for link in links))
        lossy = any(link.loss for link in links)
        crossed = Crossed(slowest_bps / 8, delay_s, forwarding_s, len(links), lossy, returns)
        self._engine.crosses(number, crossed)

    def _crosses_light(self, number: int, route: Route) -> None:
        """Do the same for a route over circuits, on which servers pass packets on."""
        nics = [self._fabric.nic_at(path.ports[0]) for path in route.light[1:]]
        forwarding_s = sum(8 * self._packet_bytes / self._nic_rate_bps(nic) for nic in nics)
        self._crosses(number, route.ports, forwarding_s, returns=False)

    def _light_first(self, order: SetCircuits) -> None:
        """Have OCSes light circuits, and wait for it while the clock stands."""
        self._light.carry_out(order, self._news.path)
        while self._light.ordered:
            self._engine.serve(TURN_S)
            self._light.check_due()
        self._happened.clear()
        self._start = self._stands_at = time.monotonic()

    # Bytes

    def start(self, flows: Sequence[Flows | Chosen], *, first: bool = False) -> None:
        """Put bytes behind what queue pairs carry, at emulated scale; inside servers they are modelled.

        With ``first`` the clock stands, if nothing is on its way, until shapers lend all they can, which is
        what is predicted. Else what they lend would depend on how long a decision takes here.

        Sockets are served after each order: to decide on a message takes 0.8 ms, and of 48 rings in step as
        many begin at once. NICs had nothing to send for 16 % of the time when all were decided on before.
        """
        if inside := [each for each in flows if isinstance(each, Flows) and each.inside]:
            self._nvlink.start(inside, self.now_ps)
        if first and self._quiet and self._stands_at is not None:
            self._engine.loop.rest(self._arrived_at + self._network.wiring.refill_s - time.monotonic())
        for each in flows:
            if isinstance(each, Chosen):
                self._choose(each)
            elif not each.inside:
                self._engine.post(each.lane, self._dilation.emulated_bytes(each.bytes), each.op)
                self._lanes.post(each.lane.tolist())
                self._go_on()
        if self._stands_at is None and not self._quiet:
            self._take(self._engine.serve(0.0))

    def _choose(self, chosen: Chosen) -> None:
        """Let operations choose among queue pairs as they go, each chunk when its NIC can send it."""
        choice, ops = chosen.among, chosen.op.tolist()
        if isinstance(choice, WhileLit):
            self.programs.lanes.post(chosen.lanes, choice.lanes, chosen.bytes, ops)
            self._go_on()
            return
        if not any(choice.policy is each for each in self._policies):
            self._policies.append(choice.policy)
        self._go_on()
        if isinstance(self._engine, DatagramEngine):
            self._engine.feed(self._feeder(PacketFeeder, choice, chosen.lanes, ops))
        else:
            kind = partial(ReactiveFeeder, crossing=self._crossing)
            self._engine.feed(self._feeder(kind, choice, chosen.lanes, ops))

    def _feeder(
        self,
        kind: Callable[..., _Feeder],
        choice: Choice,
        numbers: Sequence[tuple[int, ...]],
        ops: Sequence[int],
    ) -> _Feeder:
        """Return what chooses an entropy for each packet, or a connection for each chunk."""
        feeder = kind(
            choice,
            self._dilation.emulated_bytes(choice.chunks.bytes),
            self._nic_rate_bps,
            numbers=numbers,
            names=ops,
            began_at=time.monotonic(),
            real_s=self._real_s,
            packet=self._packet_bytes,
            volume=self._dilation.volume,
            time=self._dilation.time,
        )
        self._choosing.update(dict.fromkeys(ops, feeder))
        return feeder

    def _since_asked(self, op: int, carried: Mapping[_By, int], *, goes_on: bool) -> list[Left]:
        """Report what was carried of an operation since it last was, by queue pair and entropy."""
        told = self._told.pop(op, {})
        if goes_on:
            self._told[op] = dict(carried)
        since = {by: size - told.get(by, 0) for by, size in carried.items()}
        return [Left(op, lane, carried=size, entropy=e) for (lane, e), size in since.items() if size > 0]

    def _recall(self, ops: Sequence[int]) -> list[Left]:
        """Take back operations that lack bytes; forget those that have arrived."""
        left, lacking = list[Left](), list[int]()
        for op in ops:
            if op in self._choosing and self._choosing[op].lacks(op):
                lacking.append(op)
            elif op in self._choosing:
                feeder = self._choosing.pop(op)
                feeder.forget([op])
                left += self._since_asked(op, feeder.carried(op), goes_on=False)
            else:
                left += self.programs.lanes.stop(op)
        return left + self._take_back(lacking)

    def _take_back(self, ops: Sequence[int]) -> list[Left]:
        """Take back operations that choose; over TCP with those of the same queue pairs, which are reset."""
        back = list[Left]()
        for feeder in dict.fromkeys(self._choosing[op] for op in ops):
            if isinstance(feeder, PacketFeeder):
                assert isinstance(self._engine, DatagramEngine)
                own = [op for op in ops if self._choosing.get(op) is feeder]
                for op in own:
                    back += self._given_back(feeder, op, feeder.carried(op))
                self._engine.recall(feeder, own)
                continue
            names, numbers = feeder.sharing(ops)
            lacking: Counter[tuple[int, int]] = Counter()
            for number in numbers:
                for name, size in self._engine.withdraw(number):
                    lacking[name, number] += size
                self._forget(number)
            for name in names:
                carried = {
                    by: max(size - (lacks and self._real_bytes(lacks)), 0)
                    for by, size in feeder.carried(name).items()
                    for lacks in [lacking[name, by[0]]]
                }
                back += self._given_back(feeder, name, carried)
            assert isinstance(self._engine, Engine)
            self._engine.forget(feeder, names)
        return back

    def _given_back(
        self, feeder: ReactiveFeeder | PacketFeeder, op: int, carried: Mapping[_By, int]
    ) -> list[Left]:
        """Forget an operation that is taken back; report what was carried of it, and what it lacks."""
        del self._choosing[op]
        lacks = feeder.real_bytes(op) - sum(carried.values())
        return [*self._since_asked(op, carried, goes_on=False), Left(op, -1, left=lacks)]

    @property
    def shares(self) -> dict[str, float]:
        """What reactive policies counted, as shares (`traffic.spraying.policy.CountsChunks`)."""
        return shares_of([policy.counts for policy in self._policies if isinstance(policy, CountsChunks)])

    @property
    def inert(self) -> tuple[str, ...]:
        """Which constants of reactive policies could act in none of them (`NamesInert`)."""
        return inert_in_all([policy.inert for policy in self._policies if isinstance(policy, NamesInert)])

    def _crossing(self, queue_pair: QueuePair) -> Crossing:
        """Return the path of a queue pair; where none was seen, its NIC is the slowest link of it."""
        links = [
            self._fabric.link_at[port] for port in self.packet_paths.seen.get(self._sample(queue_pair), ())
        ]
        rates_bps = [self._fabric.nic_rate_bps(queue_pair.source), *(link.rate_bps for link in links)]
        nic_bps, slowest_bps = rates_bps[0] * self._dilation.rate, min(rates_bps) * self._dilation.rate
        delay_s = self._dilation.emulated_s(sum(link.delay_s for link in links))
        return Crossing(queue_pair.source, nic_bps, slowest_bps, 2 * delay_s)

    def _nic_rate_bps(self, nic: Nic) -> float:
        return self._fabric.nic_rate_bps(nic) * self._dilation.rate * self._nic_shares.get(nic, 1.0)

    # Light and faults

    def pause(self, lanes: Collection[int], change: int | None = None) -> None:
        """Have lanes over circuits stand, and report when all that they sent has arrived."""
        self._lanes.hold(lanes, change)
        self._look_for_drained()

    def resume(self, lanes: Collection[int]) -> None:
        """Let lanes send again that have a route."""
        self._lanes.resume(lanes)

    def carry_out(self, order: NetworkOrder) -> None:
        """Do something to the network."""
        if isinstance(order, SetCircuits | Provision | Show):
            with self._standing():  # a controller's start takes no time of the run
                self._network.await_controller()
        if isinstance(order, Lead):
            self._lead(order)
        elif isinstance(order, SetLink):
            self._set_link(order.port, order.state)
        elif isinstance(order, SetDaemon) and order.state.up:
            self._revive(order.daemon)
        elif isinstance(order, SetDaemon):
            self._kill(order.daemon)
        elif isinstance(order, Expect):
            self._expects_back = order.back
        elif isinstance(order, KnowRates):
            self._nic_shares = dict(order.shares)
            self._engine.rates_changed()
            self.programs.lanes.rates_changed()
        elif isinstance(order, SetCircuits) and order.first:
            self._light_first(order)
        elif isinstance(order, Show):
            self._show(order)
        else:
            self._go_on()
            self._light.carry_out(order, self._news.path)

    def _lead(self, order: Lead) -> None:
        """Have servers and lanes over circuits take other routes, and switches lead around failures."""
        self._lanes.follow(order.routes)
        if order.failed is not None:
            self.programs.avoid(order.failed)
            self._network.follow(self._cut)  # switches go around a cut that nobody has been told of, too
            self.packet_paths.avoid(order.failed)

    def _show(self, order: Show) -> None:
        """Have the controller step OCSes through programs; the clock stands until they begin."""
        self._light.leave(ocs for ocs, _ in order.programs)
        begins_at = self.programs.show(order, self._news)
        if self._stands_at is not None:
            self._least_ps = self.now_ps
            self._set_start(self._start + begins_at - self._stands_at)
            self._stands_at = None

    def _set_link(self, port: Port, state: LinkState) -> None:
        """Shape the link at a port, and take it down or up from the switch's side."""
        before = self._links.get(port, LinkState())
        self._links[port] = state
        if (state.rate, state.loss) != (before.rate, before.loss):
            self._network.shape_link(port, state.rate, state.loss)
        if state.up != before.up:
            (self._cut.discard if state.up else self._cut.add)(port)
            if state.up:
                self._engine.excuse()
            self._network.turn_link(port, works=state.up)

    def _kill(self, daemon: Daemon) -> None:
        self._light.settle()
        self._network.kill(daemon, for_good=not self._expects_back)
        if daemon == "switches":
            self._light.lose_switches()

    def _revive(self, daemon: Daemon) -> None:
        """Start a daemon; the clock stands until switches forward and OCSes are lit: nothing moves before."""
        with self._standing():
            self._network.revive(daemon)
            if daemon == "switches":
                late = self._light.light_again(self._news)
                self._happened += [LightChanged(ocs, lit, self.now_ps) for ocs, lit in late.items()]
                self._engine.excuse()

    def _read_news(self) -> None:
        for notice in self._news.read():
            if notice.ocs in self.programs.showing:
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

    def advance(self, to_ps: int) -> list[Happening]:
        """Let time pass until something happens; what has arrived inside servers counts from then on."""
        happened = self._serve(min(to_ps, self._nvlink.due_ps))
        return [*happened, *self._nvlink.advance(self.now_ps)]

    def _serve(self, to_ps: int) -> list[Happening]:
        """Let time pass until something happens between servers; to the moment if nothing is on its way."""
        idle_ps = max(to_ps, self.now_ps) if self._quiet and not self._happened else None
        self._go_on()
        if self._quiet and not self._happened:
            if to_ps == NEVER:
                raise StuckError(NOTHING_COMES, "light a circuit, or add a path")
            if self._skips:
                self._set_start(self._start - self._left_s(to_ps))
        is_due = False
        while not (self._happened or is_due):
            left_s = self._left_s(to_ps)
            is_due = not left_s  # sockets are served all the same: NVLink's rings always have something due
            if self.programs.showing or self._light.setting:
                left_s = min(left_s, 0.0 if self.programs.lanes.is_behind else TURN_S)
            arrived = self._engine.serve(left_s)
            if self.programs.showing:
                landed, ended = self.programs.turn()
                arrived += landed
                self._happened += [LightChanged(ocs, (), self.now_ps) for ocs in ended]
            self._take(arrived)
            self._look_for_drained()
            self._light.check_due()
            if to_ps == NEVER and not arrived:
                self._check_for_light()
        if self._quiet:
            self._stands_at = time.monotonic()
            if idle_ps is not None and not self._happened:
                # A wait ends up to a millisecond late: six times what a step over NVLink takes.
                self._stands_at = min(self._stands_at, self._start + self._emulated_s(idle_ps))
                self._least_ps = idle_ps
        happened, self._happened = self._happened, []
        return happened

    def _take(self, arrived: Sequence[Arrival]) -> None:
        """Report what has arrived."""
        self._happened += [Arrived(message, self._at_ps(at), number) for message, at, number in arrived]
        self._arrived_at = max([self._arrived_at, *(each.at for each in arrived)])

    def _check_for_light(self) -> None:
        """Raise StuckError if all that is left waits for light, and none is ordered."""
        if self._moves or self.programs.showing or self._happened:
            return
        waiting = self._engine.waiting and f"queue pair {self._engine.waiting} waits"
        if self._engine.quiet and self.programs.lanes.owes:
            waiting = "what takes circuits of programs waits"
        if waiting:
            raise StuckError(f"{waiting} for light, and none is to come", "light a circuit")

    @property
    def _quiet(self) -> bool:
        """Whether nothing is on its way, nor ordered."""
        return self._engine.quiet and not (self._moves or self.programs.lanes.owes)

    @property
    def _moves(self) -> bool:
        """Whether light is to change: lanes drain for it, or OCSes have not done what was ordered."""
        return self._lanes.drains or bool(self._light.ordered or self._light.setting)

    def _go_on(self) -> None:
        """Have the clock go on if it stands."""
        if self._stands_at is not None:
            self._set_start(self._start + time.monotonic() - self._stands_at)
            self._stands_at = None

    @contextlib.contextmanager
    def _standing(self) -> Iterator[None]:
        """Have the clock stand for a block."""
        stood = self._stands_at is not None
        self._stands_at = self._stands_at or time.monotonic()
        yield
        if not stood:
            self._go_on()

    def _set_start(self, start: float) -> None:
        """Count time from another start; what was before is still known for times before."""
        self._starts.append((time.monotonic(), self._start))
        self._start = start

    def past_ps(self, at: float) -> int:
        """Return the run's time at a time [s, monotonic]."""
        change = bisect_right(self._starts, at, key=itemgetter(0))
        start = self._starts[change][1] if change < len(self._starts) else self._start
        return max(ps(self._dilation.real_s(at - start)), 0)

    def _left_s(self, until_ps: int) -> float:
        """Return how long it is until a time [s, emulated]."""
        return max(self._emulated_s(until_ps - self.now_ps), 0.0) if until_ps < NEVER else float("inf")

    def _emulated_s(self, lasts_ps: int) -> float:
        return self._dilation.emulated_s(in_seconds(lasts_ps))

    def _at_ps(self, at: float) -> int:
        return ps(self._real_s(at))

    def _real_s(self, at: float) -> float:
        return self._dilation.real_s(at - self._start)


def _is_sprayed(queue_pair: QueuePair) -> bool:
    return queue_pair.entropy == SPRAYED


def patience_s(stuck_s: float, faults: Sequence[Fault], dilation: Dilation) -> float:
    """Return after how long bytes are stuck that make no progress: a fault stops them until it is known."""
    return stuck_s + max((dilation.emulated_s(fault.detect_s) for fault in faults), default=0.0)


def _foreseen(fabric: Fabric, faults: Sequence[Fault]) -> list[frozenset[Port]]:
    """Return what will have failed, at both ends of links: nothing, by one fault, by all of them."""
    alone = [fabric.both_ends(fault.ports) for fault in faults]
    together = frozenset[Port]().union(*alone)
    return list(dict.fromkeys([frozenset(), *alone, together])) if together else []
