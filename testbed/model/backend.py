"""The fluid backend: max-min rates over links that go dark, on a clock of its own."""

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import chain, count
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from controller.packet.flow_table import Hashing
from testbed.core.backend import (
    NOTHING_COMES,
    NVLINK,
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
    NetworkOrder,
    SetDaemon,
    SetLink,
)
from testbed.core.packet_paths import PacketPaths
from testbed.model.choices import FluidChoices
from testbed.model.gates import Gate, Gates
from testbed.model.nvlink import MOST_KNOWN, NvlinkPaths, nvlink_rates_bps
from testbed.model.ocses import FluidLight
from testbed.model.ways import FluidWays, divided
from topologies.errors import StuckError
from topologies.fabric import Fabric, Path, Port
from topologies.own_routing import CheckedRouting
from traffic.bounds import NOTHING_LENT
from traffic.clock import NEVER, checked
from traffic.effects import Daemon, DaemonState, LinkState
from traffic.fluid.bundles import Bundle, Bundles, CrossedLinks, Over, crossed
from traffic.fluid.choice import settled
from traffic.fluid.network import FluidNetwork, PoolArrival
from traffic.path_effects import path_effects
from traffic.scheme import Choice, WhileLit
from traffic.spraying.policy import SPRAYED, QueuePair


class FluidBackend:
    """Moves bytes as fluids.

    Parameters
    ----------
    fabric
        Over which.
    delay_s
        How long each OCS is dark when it is reconfigured [s].
    drawn_s
        How long each was dark before each of the slots of its programs, as far as that is known; else as
        ``delay_s`` says [s].
    flip_s
        How long each OCS is dark when it flips to what it provisioned [s]; 0 for those that are not named.
    by_bytes
        Whether queue pairs share links in proportion to what they have left, as the ideal transport has it,
        those of communicators fairly (`traffic.fair_weights`).
    paths
        Those of queue pairs over packet switches that are known; others are as the switches' hash gives them.
    routing
        By which ports switches send on before the shortest path; by default nothing else.
    datagrams
        Whether packets have their entropy in the destination's address, so that what chooses does so for each
        packet; else a port has that of a connection.
    hashing
        Whose hash chooses paths that are not known.
    grants
        Whether receivers grant: bytes are announced, and leave when the grant has come, a round trip later.
    lent_bytes
        What each port lets through at once after a pause, at real scale [bytes]; those that are not named
        have no shaper: an emulation's shapers are token buckets, which are full whenever a collective begins
        while nothing is on its way. Steps inside a collective follow too soon for that.

    Notes
    -----
    A bucket lends all that it holds, whatever the number of hops: each hop's is as full, and a packet
    leaves whole as soon as its bucket has the tokens, so that storing and forwarding takes no time.
    Measured against the wire time of 9014 bytes for 8948 of payload, of one flow over two hops:

    ======  ============  ==============
    rate    bucket holds  came earlier by
    ======  ============  ==============
    3       48.1          47.3 - 47.5
    10      14.4          13.8 - 14.0
    40      4.0           3.3 - 3.5
    Mbit/s  ms            ms
    ======  ============  ==============
    """

    def __init__(
        self,
        fabric: Fabric,
        delay_s: Mapping[str, float],
        *,
        drawn_s: Mapping[str, Sequence[float]] | None = None,
        flip_s: Mapping[str, float] | None = None,
        by_bytes: bool = True,
        paths: dict[QueuePair, Path] | None = None,
        routing: CheckedRouting | None = None,
        datagrams: bool = False,
        hashing: Hashing = "openvswitch",
        grants: bool = False,
        lent_bytes: Mapping[Port, float] = NOTHING_LENT,
    ) -> None:
        self._fabric, self._lent_bytes = fabric, lent_bytes
        self._crossings = 3 if grants else 1
        """How often a path is crossed until bytes arrive: by an announcement, a grant, and them."""
        self._ocses = frozenset(delay_s)
        self._from_rest = False
        """Whether a collective began while nothing was on its way, and buckets have not lent yet."""
        self.packet_paths = PacketPaths(fabric, routing, datagrams=datagrams, hashing=hashing, seen=paths)
        """The paths of its queue pairs over packet switches."""
        self._ports = {port: number for number, port in enumerate(fabric.link_at)}
        rates = [link.rate_bps for link in fabric.link_at.values()]
        self._network = FluidNetwork([*rates, *nvlink_rates_bps(fabric)], by_bytes=by_bytes)
        self._nvlink = NvlinkPaths(len(rates), fabric.gpus)
        self._inside: set[int] = set()
        """The pools of what stays inside servers."""
        self._bundles = Bundles(self._network, self._add_coupled)
        """What moves together, and what stays inside servers."""
        self._crossed: dict[int, tuple[Flows, CrossedLinks, Sequence[Gate]]] = {}
        """The links that moves together cross, and their gates, by the identity of their lanes, kept here."""
        self._numbers: dict[QueuePair, int] = {}
        self._pairs: list[QueuePair] = []
        self._flows: list[int] = []
        """The flow of each queue pair; its pool is the queue pair's own."""
        self._pools: list[int] = []
        self._carrier_of: dict[int, int] = {}
        """The queue pair of each such pool."""
        self._ways = FluidWays(self._pairs, self.packet_paths, self.open)
        """What queue pairs by which packets of many entropies go are made of."""
        self._choices = FluidChoices(self._network, self._has_arrived)
        """The messages under way that choose."""
        self._takes_light: set[int] = set()
        """Those of them that take what is lit."""
        self._gates = Gates(fabric, self._network, self._ports, self._bundles.meet)
        """Those of the queue pairs over circuits."""
        self._draining: dict[int, set[int]] = {}
        """The queue pairs that keep each change of light from beginning: their links carry nothing."""
        self._shares: dict[Port, float] = {}
        """What those links carry that failed or are slower, known or not, as a share of their rate."""
        self._forwards = True
        """Whether switches do."""
        self._silent: dict[int, int] = {}
        """The queue pairs of flows that wait until these are closed: switches dropped what was on its way."""
        self._to_come: list[tuple[int, int, Callable[[], Happening]]] = []
        self._tickets = count()
        self._light = FluidLight(
            delay_s,
            drawn_s or {},
            flip_s or {},
            now_ps=lambda: self.now_ps,
            at=self._at,
            shown=self._choices.round_off,
        )

    @property
    def now_ps(self) -> int:
        """Time since the start [ps]."""
        return self._network.now_ps

    @property
    def next_ps(self) -> int:
        """When something arrives if nothing changes [ps]; `NEVER` if nothing is on its way."""
        return min(self._bundles.next_ps, self._network.next_ps)

    @property
    def opened(self) -> int:
        """How many queue pairs, and sets of them that messages chose from, were opened; none is closed."""
        return self._network.pools + len(self._numbers)

    def open(self, queue_pairs: Sequence[QueuePair]) -> list[int]:
        """Return the number of each queue pair."""
        new = [queue_pair for queue_pair in queue_pairs if queue_pair not in self._numbers]
        if new:
            self._add(new)
        return [self._numbers[queue_pair] for queue_pair in queue_pairs]

    # Bytes

    def start(self, flows: Sequence[Flows | Chosen], *, first: bool = False) -> None:
        """Have bytes move; those that move together compete with others as `_couple` says."""
        self._from_rest |= first and bool(self._lent_bytes) and self._network.quiet_but(self._inside)
        together = list[Flows]()
        for each in flows:
            if isinstance(each, Chosen):
                self._choose(each)
            elif each.inside:
                self._bundles.start(self._nvlink.bundles(each), may_be_alone=True)
            elif each.together:
                together.append(each)
            else:
                self._enter(each.lane.tolist())
                pools = [self._pools[lane] for lane in each.lane.tolist()]
                self._network.post(pools, each.bytes, each.op)
        if together:
            self._couple(together)

    def _lend(self) -> None:
        """Have what is posted leave as far as buckets let it; a gate, NVLink and an OCS have none."""
        lent_bytes = np.full(len(self._network.link_bps), np.inf)
        nvlink = slice(len(self._ports), len(self._ports) + 2 * self._fabric.gpus)
        lent_bytes[nvlink] = 0.0  # it stands meanwhile
        for port, size in self._lent_bytes.items():
            lent_bytes[self._ports[port]] = size
        self._network.lend(lent_bytes)

    def _choose(self, chosen: Chosen) -> None:
        """Have operations drain what they may choose, as their scheme's limit (`traffic.fluid.choice`)."""
        choice = chosen.among
        each_way = cache(self._ways.of)
        lanes = [each_way(*each) for each in zip(chosen.lanes, choice.lanes, strict=True)]
        if isinstance(choice, Choice) and getattr(choice.policy, "oblivious", False):
            self._post(*self._in_shares(chosen, choice))
            return
        if isinstance(choice, Choice) and getattr(choice.policy, "settles", False):
            slower = self._shares
            rates = {
                port: link.rate_bps * (slower.get(port) or 1.0) for port, link in self._fabric.link_at.items()
            }
            paths = {lane: self._path(lane) for lane in chain.from_iterable(lanes)}
            lanes = [(lane,) for lane in settled(lanes, paths, rates)]
        self._post([tuple(sorted(among)) for among in lanes], chosen.bytes, chosen.op)
        self._takes_light.update(chosen.op.tolist() if isinstance(choice, WhileLit) else ())

    def _in_shares(
        self, chosen: Chosen, choice: Choice
    ) -> tuple[list[tuple[int, ...]], NDArray[np.int64], NDArray[np.int64]]:
        """Return way, bytes and operation of the shares of what goes over all ways, as entropies take them.

        By each NIC they go as fast as it is now.
        """
        shares = cache(partial(self._ways.shares, nic_bps=self._nic_bps))
        ways = [shares(*each) for each in zip(chosen.lanes, choice.lanes, strict=True)]
        messages = zip(chosen.op.tolist(), chosen.bytes.tolist(), ways, strict=True)
        rows = [(way, part, op) for op, size, own in messages for way, part in divided(size, own).items()]
        over, parts, ops = np.array(rows, dtype=np.int64).reshape(-1, 3).T
        return [(way,) for way in over.tolist()], parts, ops

    def _nic_bps(self, lane: int) -> float:
        """Return how fast the NIC is now that sends on a lane [bit/s]."""
        nic = self._pairs[lane].source
        return self._fabric.nic_rate_bps(nic) * self._shares.get(self._fabric.nic_port(nic), 1.0)

    def _post(self, sets: Sequence[tuple[int, ...]], size: NDArray[np.int64], op: NDArray[np.int64]) -> None:
        """Have operations, or shares of them, drain by sets of queue pairs."""
        self._enter(list(chain.from_iterable(sets)))
        self._share([among for among in dict.fromkeys(sets) if among not in self._choices.pools])
        self._choices.post(sets, size, op, next(self._tickets))

    def _has_arrived(self, message: int) -> None:
        self._at(self.now_ps, partial(Arrived, message, self.now_ps))

    def _couple(self, flows: Sequence[Flows]) -> None:
        """Move flows that go together, which compete with others about as they would step by step.

        A strand is what goes over one lane, or between two GPUs. Where bytes weigh, it weighs by all that it
        has yet to carry. Step by step its queue pair holds less, but never nothing: all that the flow has
        under way piles up behind its slowest edge, while others there have less left from step to step. So
        neither ends much before the other, as if both weighed by their whole. Where bytes do not weigh, a
        flow counts as its queue pairs, each divided among the strands that it carries.

        Notes
        -----
        A flow ends when its slowest strand has carried its bytes. Against rings step by step this is exact
        for a ring whose links carry nothing else, and for rings on links of their own. Rings in different
        orders over the same NICs end up to 8 % early, as steps that meet on one link and not on the next
        leave gaps. Rings beside other traffic came within 1 % mostly and 10 % at worst, long messages
        beside them likewise. Not modelled, and far off:

        - Where others of its communicator slow down all edges alike nothing piles up, so those others end
          first: a uniform all-to-all beside a ring over all GPUs took 4 times as long as it would step by
          step. Those of other communicators share fairly, as they would.
        - Others that are short beside what the ring has under way take as long as if they were long.
        - A strand shares with what else its queue pair carries, where a step would wait its turn.
        """
        using = Counter[Hashable]()
        for flow in flows:
            over = partial(_over, flow)

            def weight(over: Callable[[], Over] = over) -> float:
                if not using:
                    using.update(each for flow in flows for each in _over(flow))
                return sum(1 / using[each] for each in over())

            crossing, gates = self._crossed_by(flow)
            is_open = all(gate.open for gate in gates)
            ops = tuple(dict.fromkeys(flow.op.tolist()))
            bundle = Bundle(ops, flow.bytes, crossing, over, weight)
            self._bundles.start([bundle], may_be_alone=is_open and not self._lent_bytes)

    def _crossed_by(self, flow: Flows) -> tuple[CrossedLinks, Sequence[Gate]]:
        """Return the links that what goes together crosses, but for gates, and these.

        Lanes that are the same array are looked at once, unless light leads them.
        """
        if (found := self._crossed.get(id(flow.lane))) is None:
            over = _over(flow)
            gates = [self._gates[each] for each in over if each in self._gates]
            paths = [
                self._gates[each].ports if each in self._gates else self._links_over(each) for each in over
            ]
            if len(self._crossed) >= MOST_KNOWN:
                self._crossed.clear()
            found = flow, crossed(paths), gates
            if not (gates and self._gates.leads) and all(paths):
                self._crossed[id(flow.lane)] = found
        return found[1:]

    def _add_coupled(self, several: Sequence[Over]) -> list[tuple[range, range]]:
        """Return flows and pools of new bundles: of one, or of many that are a strand inside a server each.

        What stays inside shares as if each bundle were a communicator.
        """
        strands = list(chain.from_iterable(several))
        lanes = [each for each in strands if isinstance(each, int)]
        self._gates.make_links(lanes)
        paths, first = list(map(self._links_over, strands)), self._network.pools
        pools = range(first, first + len(strands))
        if not lanes:
            self._inside.update(pools)
        if not lanes and len(several[0]) == 1:
            flows = self._network.add_flows(paths, communicator=[-1 - pool for pool in pools])
            return [(flows[at : at + 1], pools[at : at + 1]) for at in range(len(several))]
        communicator = self._pairs[lanes[0]].communicator if lanes else -1 - first
        flows = self._network.add_flows(paths, coupled_weight=1.0, communicator=communicator)
        self._gates.cross(strands, flows)
        return [(flows, pools)]

    def _links_over(self, over: Hashable) -> list[int]:
        """Return the links that a strand crosses: of a queue pair, or between two GPUs of a server."""
        return self._links_of(over) if isinstance(over, int) else self._nvlink.path(*over)  # type: ignore[misc]

    # What is under way

    def stop(
        self,
        lanes: Sequence[int] = (),
        ops: Sequence[int] = (),
        *,
        in_flight: InFlight = "drop",
    ) -> list[Left]:
        """Take back what was not delivered: nothing is ever on its way."""
        left = [each for lane in lanes for each in self._withdraw(lane)]
        self._takes_light.difference_update(ops)
        lacks = list[int]()
        for op in ops:
            if self._choices.has_arrived(op):
                left += self._ways.carried(op, self._choices.chosen(op, goes_on=False))
            else:
                lacks.append(op)
        recalled, flows = self._choices.recall(lacks)
        self._speak(flows)
        for op, (sizes, lacking) in recalled.items():
            left += [*self._ways.carried(op, sizes), Left(op, -1, left=lacking)]
        return left

    def under_way(self, lanes: Sequence[int] = (), ops: Sequence[int] = ()) -> list[Left]:
        """Report what lanes have yet to deliver, and what operations lack that choose."""
        pools = {pool: lane for lane in lanes if (pool := self._pools[lane]) >= 0}
        stuck = {lane for lane in lanes if lane in self._gates and self._is_stuck(lane)}
        left = list[Left]()
        for pool in self._network.filled(list(pools)):
            lane, sizes = pools[pool], self._network.left(pool)
            left += [
                Left(message, lane, left=round(sizes.get(message, 0.0)), on_the_way=lane in stuck)
                for message in sorted(self._network.held(pool))
            ]
        return left + [Left(op, -1, left=self._choices.lacking(op)) for op in ops]

    def carried(self, ops: Sequence[int]) -> list[Left]:
        """Report what lanes have carried of operations that choose since this was last asked."""
        found = ((op, self._choices.chosen(op, goes_on=True)) for op in ops)
        return [each for op, sizes in found for each in self._ways.carried(op, sizes)]

    def owed(self, lanes: Sequence[int]) -> int:
        """Return what lanes have yet to deliver, but for what moves together and what chose them."""
        return round(self._network.held_bytes([pool for lane in lanes if (pool := self._pools[lane]) >= 0]))

    def _withdraw(self, lane: int) -> list[Left]:
        """Close a queue pair, which is opened anew when it is used again."""
        if self._pairs[lane].entropy == SPRAYED:
            return []
        self._make_flows([lane])
        self._speak([self._flows[lane]])
        left = [
            Left(message, lane, left=round(size))
            for message, size in self._network.withdraw(self._pools[lane])
        ]
        self._look_for_drained()
        return left

    def pause(self, lanes: Collection[int], change: int | None = None) -> None:
        """Have lanes over circuits stand, and report `Drained` at once but for what dead links hold back.

        Nothing is ever on its way here. What TCP had on its way over a link when that failed is neither lost
        nor delivered until the link is back or the queue pair is closed.
        """
        self._gates.hold(lanes, stands=True)
        if change is not None:
            self._draining[change] = set(lanes)
            self._look_for_drained()

    def resume(self, lanes: Collection[int]) -> None:
        """Let lanes send again that have a route."""
        for change, draining in list(self._draining.items()):
            draining.difference_update(lanes)
            if not draining:
                del self._draining[change]
        self._gates.hold(lanes, stands=False)

    def _look_for_drained(self) -> None:
        for change, numbers in list(self._draining.items()):
            stuck = {number for number in numbers if self._is_stuck(number)}
            self._draining[change] = stuck
            if not stuck:
                del self._draining[change]
                self._at(self.now_ps, partial(Drained, change, self.now_ps))

    def _is_stuck(self, number: int) -> bool:
        """Return whether a queue pair over circuits owes something that links do not carry."""
        pool, rates_bps = self._pools[number], self._network.link_bps[self._gates[number].ports]
        return pool >= 0 and not rates_bps.all() and bool(self._network.held(pool))

    def carry_out(self, order: NetworkOrder) -> None:
        """Do something to the network; rates are those of links, whatever is known of them."""
        if isinstance(order, Lead):
            self._gates.follow(order.routes, order.nics)
            if order.failed is not None:
                self._avoid(order.failed)
            return
        if isinstance(order, SetLink):
            self._set_link(order.port, order.state)
        elif isinstance(order, SetDaemon):
            self._set_daemon(order.daemon, order.state)
        elif not isinstance(order, Expect | KnowRates):
            self._light.carry_out(order)

    def _set_link(self, port: Port, state: LinkState) -> None:
        """Have the link at a port carry what a state leaves of its rate."""
        share = state.rate * (1 - state.loss) if state.up else 0.0
        self._shares.update(dict.fromkeys((port, self._fabric.peer(port)), share))
        self._set_links()

    def _set_daemon(self, daemon: Daemon, state: DaemonState) -> None:
        """Have switches forward nothing without their daemon; without the controller they forward on."""
        if daemon == "controller":
            return
        self._forwards = state.up
        if not state.up:
            self._silence()
        self._set_links()

    def _silence(self) -> None:
        """Have what carries something over packet switches wait until it is closed.

        TCP repeats only after timeouts what switches dropped that stopped forwarding.
        """
        dead = self._network.add_link(0.0)
        pairs = [
            ((number,), pool, [flow])
            for number, (pool, flow) in enumerate(zip(self._pools, self._flows, strict=True))
            if flow >= 0
        ]
        shared = [(among, *pool_and_flows) for among, pool_and_flows in self._choices.pools.items()]
        for among, pool, flows in [*pairs, *shared]:
            for number, flow in zip(among, flows, strict=True):
                if number not in self._gates and self._network.held(pool):
                    self._silent[flow] = number
                    self._network.set_path(flow, [*self._links_of(number), dead])

    def _speak(self, flows: Iterable[int]) -> None:
        """Have flows go on whose queue pairs are opened anew."""
        for flow in self._silent.keys() & set(flows):
            self._network.set_path(flow, self._links_of(self._silent.pop(flow)))

    def _set_links(self) -> None:
        """Have links carry their share of their rate, unless switches forward nothing."""
        rates = [
            link.rate_bps * self._shares.get(port, 1.0) * self._forwards
            for port, link in self._fabric.link_at.items()
        ]
        self._network.set_rates(range(len(rates)), rates)
        self._look_for_drained()

    def _avoid(self, ports: frozenset[Port]) -> None:
        """Lead traffic over packets around failed ports, as the switches' new rules do."""
        self._ways.clear()
        self._crossed.clear()
        for queue_pair, path in self.packet_paths.avoid(ports).items():
            number, links = self._numbers[queue_pair], [self._ports[port] for port in path]
            for flow in {self._flows[number], *self._choices.flows_over(number)} - self._silent.keys() - {-1}:
                self._network.set_path(flow, links)

    # Time

    def advance(self, to_ps: int) -> list[Happening]:
        """Let time pass until something happens."""
        if self._from_rest and not self._network.quiet:
            self._lend()
            self._from_rest = False
        next_ps = self._to_come[0][0] if self._to_come else NEVER
        at_ps = min(to_ps, next_ps, self._bundles.next_ps)
        if at_ps == NEVER and self._network.next_ps == at_ps:
            raise StuckError(NOTHING_COMES, "light a circuit, or add a path")
        of_tags = chain.from_iterable(map(self._of_tag, self._network.advance(at_ps)))
        happened: list[Happening] = [*sorted(of_tags, key=attrgetter("at_ps", "op"))]
        for ended_ps, bundle in self._bundles.ended():
            happened += [Arrived(op, ended_ps, bundle.lane) for op in bundle.ops]
        if not happened:  # else devices move when all is dealt with that has arrived
            while self._to_come and self._to_come[0][0] <= self.now_ps:
                happened.append(heapq.heappop(self._to_come)[2]())
        return happened

    def _of_tag(self, arrived: PoolArrival) -> Iterator[Arrived]:
        """Yield what arrived: a message, or those of a coupled flow with its last strand."""
        at_ps, tag, pool = arrived
        if tag >= 0:
            if self._choices.landed(tag, pool):
                yield Arrived(tag, at_ps, self._carrier_of.get(pool))
            return
        if bundle := self._bundles.arrived(tag):
            yield from (Arrived(op, at_ps, bundle.lane) for op in bundle.ops)

    def _add(self, queue_pairs: Sequence[QueuePair]) -> None:
        """Number queue pairs; their flows are made when they are used."""
        optical = [qp for qp in queue_pairs if self._is_optical(qp)]
        packet = [qp for qp in queue_pairs if not self._is_optical(qp)]
        self.packet_paths.open([qp for qp in packet if qp.entropy != SPRAYED])
        first, new = len(self._flows), [*packet, *optical]
        self._numbers.update(zip(new, range(first, first + len(new)), strict=True))
        self._pairs += new
        self._pools += [-1] * len(new)
        self._flows += [-1] * len(new)
        ends = [(queue_pair.source, queue_pair.destination) for queue_pair in optical]
        self._gates.add(range(first + len(packet), len(self._flows)), ends)

    def _make_flows(self, numbers: Iterable[int]) -> None:
        """Give queue pairs that have none a flow and a pool of their own."""
        new = [number for number in dict.fromkeys(numbers) if self._flows[number] < 0]
        if not new:
            return
        self._gates.make_links(new)
        effects = path_effects(list(map(self._path, new)), self._fabric)
        pools = self._network.pools
        flows = self._network.add_flows(
            list(map(self._links_of, new)),
            delivered=effects.delivered,
            delay_s=self._crossings * effects.delay_s,
            communicator=[self._pairs[number].communicator for number in new],
        )
        for place, number in enumerate(new):
            self._flows[number], self._pools[number] = flows[place], pools + place
            self._carrier_of[pools + place] = number
        self._gates.cross(new, flows)

    def _enter(self, numbers: Sequence[int]) -> None:
        """Get ready for bytes on queue pairs: they have flows, and meet what was alone on their links."""
        self._make_flows(numbers)
        self._bundles.meet(list(chain.from_iterable(map(self._links_of, dict.fromkeys(numbers)))))

    def _share(self, sets: Sequence[tuple[int, ...]]) -> None:
        """Make a pool for each of some sets of queue pairs."""
        if not sets:
            return
        numbers = list(chain.from_iterable(sets))
        firsts = list(map(self._ways.first, numbers))
        self._make_flows(firsts)
        effects = path_effects(list(map(self._path, numbers)), self._fabric)
        first_of, pool = np.cumsum([0, *map(len, sets)]), self._network.pools
        flows = self._network.add_flows(
            list(map(self._links_of, numbers)),
            pool=np.repeat(np.arange(pool, pool + len(sets)), np.diff(first_of)),
            part_of=[self._flows[first] for first in firsts],
            delivered=effects.delivered,
            delay_s=self._crossings * np.maximum.reduceat(effects.delay_s, first_of[:-1]),
            communicator=[self._pairs[number].communicator for number in numbers],
        )
        self._choices.add_pools(pool, sets, flows)
        self._gates.cross(numbers, flows)

    def _links_of(self, number: int) -> list[int]:
        """Return the links that a queue pair crosses now."""
        if number in self._gates:
            return self._gates[number].path
        return [self._ports[port] for port in self._path(number)]

    def _path(self, number: int) -> Path:
        """Return the path of a queue pair over packet switches; empty over circuits."""
        return self.packet_paths[self._pairs[number]]

    def _is_optical(self, queue_pair: QueuePair) -> bool:
        return self._fabric.peer(self._fabric.nic_port(queue_pair.source)).node in self._ocses

    def _at(self, at_ps: int, action: Callable[[], Happening]) -> None:
        heapq.heappush(self._to_come, (checked(at_ps), next(self._tickets), action))


def _over(flow: Flows) -> Over:
    """Return what each strand of a flow goes over."""
    rows = zip(flow.lane.tolist(), flow.source.tolist(), flow.destination.tolist(), strict=True)
    return tuple((source, to) if lane == NVLINK else lane for lane, source, to in rows)
