"""The fluid backend: max-min rates over links that go dark, on a clock of its own."""

import heapq
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, count, pairwise
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from testbed.run.alone import Alone, messages_of
from testbed.run.backend import (
    NOT_CONTROLLED,
    NOTHING_COMES,
    Arrived,
    Drained,
    Happening,
    NowLit,
    Shown,
    SlotLit,
    Strand,
    Switching,
)
from testbed.run.packet_paths import Paths, computed_paths, paths_over
from topologies.errors import StuckError
from topologies.events import Show, TimedCircuits
from topologies.fabric import Fabric, Nic, Path, Port
from topologies.light import Circuit
from topologies.routes import Routes
from traffic.bounds import NOTHING_LENT
from traffic.clock import NEVER, checked, ps
from traffic.effects import Daemon, DaemonState, LinkState
from traffic.fluid.choice import parcels_in_turns, settled
from traffic.fluid.network import Arrival, FluidNetwork
from traffic.fluid.rehearsal import rehearse
from traffic.path_effects import path_effects
from traffic.scheme import Choice, WhileLit
from traffic.spraying.policy import QueuePair

ROUNDING = 1e-8
"""What a schedule's slots leave over of a message counts as delivered, as part of the largest message."""


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
    by_bytes
        Whether queue pairs share links in proportion to what they have left, as the ideal transport has it,
        those of communicators fairly (`traffic.fair_weights`).
    paths
        Return the paths of queue pairs over packet switches; by default as the switches' hash gives them.
    couples
        Whether rings, and other patterns that can, run as coupled flows, which is fast and less exact: see
        `couple`. Where links have delay or loss they never do, since each step would pay the delay.
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
        by_bytes: bool = True,
        paths: Callable[[Sequence[QueuePair]], Sequence[Path]] | None = None,
        couples: bool = False,
        lent_bytes: Mapping[Port, float] = NOTHING_LENT,
    ) -> None:
        self._fabric, self._delay_s, self._lent_bytes = fabric, delay_s, lent_bytes
        self._from_rest = False
        """Whether a collective began while nothing was on its way, and buckets have not lent yet."""
        self._drawn_s = {ocs: deque(times_s) for ocs, times_s in (drawn_s or {}).items()}
        self._find_paths = paths or partial(computed_paths, fabric)
        self._ports = {port: number for number, port in enumerate(fabric.link_at)}
        rates = [link.rate_bps for link in fabric.link_at.values()]
        self._couples = couples and not fabric.impaired
        nvlink = [fabric.servers[server].nvlink_bps for server in fabric.gpu_servers] if self._couples else []
        self._first_nvlink = len(rates)
        """The link out of GPU 0, then those of the others, then those into them: for coupled flows."""
        self._network = FluidNetwork(rates + nvlink * 2, by_bytes=by_bytes)
        self._coupled: dict[tuple[int | tuple[int, int], ...], list[tuple[range, range]]] = defaultdict(list)
        """Coupled flows and their pools, by what they go over; several if more were under way at once."""
        in_series = any({link.a.node, link.b.node} <= delay_s.keys() for link in fabric.links)
        self._is_simple = not (fabric.servers_forward or in_series)
        """Whether light crosses one OCS, and is nobody's route but of the NICs at its ends."""
        self._joined: dict[int, _Joined] = {}
        """Those that are in the network, by the negative number that their strands have there."""
        self._alone = Alone()
        """Coupled flows whose links carry nothing else."""
        self._numbers: dict[QueuePair, int] = {}
        self._pairs: list[QueuePair] = []
        self._flows: list[int] = []
        """The flow of each queue pair; its pool is the queue pair's own."""
        self._pools: list[int] = []
        self._carrier_of: dict[int, int] = {}
        """The queue pair of each such pool."""
        self._paths: list[Path] = []
        """The path of each queue pair as it was opened; empty over circuits."""
        self._shared: dict[tuple[int, ...], tuple[int, range]] = {}
        """The pool of messages that may choose from the same queue pairs, and its flows."""
        self._rehearsed = False
        """Whether the scheme was asked on made-up states: once is enough."""
        self._choosing: dict[int, _Choosing] = {}
        """The messages under way that choose."""
        self._gate_of: dict[int, _Gate] = {}
        self._gates: dict[Nic, list[_Gate]] = defaultdict(list)
        """Those of the queue pairs over circuits, by the NIC that sends."""
        self._gates_to: dict[tuple[Nic, Nic], list[_Gate]] = defaultdict(list)
        """The same, by both NICs."""
        self._open: dict[Nic, list[_Gate]] = defaultdict(list)
        """Those that are open, by the NIC that sends."""
        self._lit: dict[str, set[Circuit]] = {ocs: set() for ocs in delay_s}
        self._pairs_lit: dict[str, tuple[Circuit, ...]] = dict.fromkeys(delay_s, ())
        """The same as routes are made of it."""
        self._failed: frozenset[Port] = frozenset()
        """The ports that are known to have failed."""
        self._around: Paths | None = None
        """The paths around these, once they were asked for."""
        self._shares: dict[Port, float] = {}
        """What those that failed carry, known or not, and links that are slower, as a share of their rate."""
        self._forwards = self._controlled = True
        """Whether switches do, and whether there is a controller."""
        self._silent: dict[int, int] = {}
        """The queue pairs of flows that wait until these are closed: switches dropped what was on its way."""
        self._routes = self._routes_now()
        self._showing = self._switching = 0
        """How many OCSes show programs, and how many are being switched to circuits that stay."""
        self._to_come: list[tuple[int, int, Callable[[], Happening]]] = []
        self._tickets = count()

    @property
    def now_ps(self) -> int:
        """Time since the start [ps]."""
        return self._network.now_ps

    @property
    def opened(self) -> int:
        """How many queue pairs, and sets of them that messages chose from, were opened; none is closed."""
        return self._network.pools + len(self._numbers)

    def numbers(self, queue_pairs: Sequence[QueuePair]) -> list[int]:
        """Return the number of each queue pair."""
        new = [queue_pair for queue_pair in queue_pairs if queue_pair not in self._numbers]
        if new:
            self._add(new)
        return [self._numbers[queue_pair] for queue_pair in queue_pairs]

    def begin_lit(self, circuits: Mapping[str, Sequence[Circuit]]) -> None:
        """Light circuits at once."""
        for ocs, pairs in circuits.items():
            self._shine(ocs, set(pairs))

    def begin(self) -> None:
        """Have what is posted next borrow from token buckets, if nothing is on its way."""
        self._from_rest |= bool(self._lent_bytes) and self._network.quiet and not self._alone

    def _lend(self) -> None:
        """Have what is posted leave as far as buckets let it; a gate, NVLink and an OCS have none."""
        lent_bytes = np.full(len(self._network.link_bps), np.inf)
        for port, size in self._lent_bytes.items():
            lent_bytes[self._ports[port]] = size
        self._network.lend(lent_bytes)

    def post(self, number: NDArray[np.int64], size: NDArray[np.int64], message: NDArray[np.int64]) -> None:
        """Put parcels behind what queue pairs carry."""
        self._enter(number.tolist())
        self._network.post([self._pools[each] for each in number.tolist()], size, message)

    def choose(
        self,
        numbers: Sequence[int],
        choice: Choice | WhileLit,
        size: NDArray[np.int64],
        message: NDArray[np.int64],
    ) -> None:
        """Have messages drain what they may choose, as the limit of their scheme (`traffic.fluid.choice`)."""
        permitted = choice.permitted.of_message
        if isinstance(choice, Choice) and not self._rehearsed:
            self._rehearsed = True
            rehearse(choice)
        if isinstance(choice, Choice) and getattr(choice.policy, "settles", False):
            slower = self._shares
            rates = {
                port: link.rate_bps * (slower.get(port) or 1.0) for port, link in self._fabric.link_at.items()
            }
            settled_on = settled(choice.permitted, [self._paths[number] for number in numbers], rates)
            permitted = tuple((qp,) for qp in settled_on.tolist())
        sets = [tuple(sorted(numbers[qp] for qp in qps)) for qps in permitted]
        self._enter(list(chain.from_iterable(sets)))
        self._share(sets)
        before = {among: self._network.delivered_bytes(self._shared[among][1]) for among in set(sets)}
        posted = next(self._tickets)
        for each, among, owed in zip(message.tolist(), sets, size.tolist(), strict=True):
            self._choosing[each] = _Choosing(among, before[among], owed, posted)
        pools = np.array([self._shared[among][0] for among in sets])
        order, parcels = parcels_in_turns(pools, size.astype(float))
        self._network.post(pools[order], parcels, message[order])

    def chosen(self, message: int, *, goes_on: bool = False) -> dict[int, int]:
        """Return what each queue pair carried of a message: its part of what they carried meanwhile."""
        chosen = self._choosing[message]
        if not goes_on:
            return self._parts(message, chosen.size)
        left = self.lacking(message)
        before = self._network.delivered_bytes(self._shared[chosen.among][1])
        parts = self._parts(message, chosen.size - left)
        self._choosing[message] = replace(chosen, before=before, size=left)
        return parts

    def lacking(self, message: int) -> int:
        """Return how many bytes a message lacks that takes what is lit."""
        return self._left(self._choosing[message].among).get(message, 0)

    def recall(self, messages: Sequence[int]) -> dict[int, dict[int, int]]:
        """Take back what messages lack."""
        recalled = {}
        for among in dict.fromkeys(self._choosing[message].among for message in messages):
            left, pool = self._left(among), self._shared[among][0]
            for message in sorted(self._network.held(pool) - left.keys()):
                self._at(self.now_ps, partial(Arrived, message, self.now_ps))
            self._network.withdraw(pool)
            self._speak(self._shared[among][1])
            for message, size in left.items():
                recalled[message] = self._parts(message, self._choosing[message].size - size)
        return recalled

    def _left(self, among: tuple[int, ...]) -> dict[int, int]:
        """Return what messages lack that may choose from the same queue pairs, if they lack anything.

        A pool has parcels of turns (`parcels_in_turns`): those posted together and not delivered shared each.
        """
        parcels = self._network.left(self._shared[among][0])
        sharing = Counter(self._choosing[message].posted for message in parcels)
        so_far: dict[int, float] = defaultdict(float)
        left = {}
        for message, size in parcels.items():
            posted = self._choosing[message].posted
            so_far[posted] += size / sharing[posted]
            sharing[posted] -= 1
            left[message] = max(round(so_far[posted]), 1)
        return left

    def _parts(self, message: int, delivered: int) -> dict[int, int]:
        """Return how many bytes of a message, of those delivered, each queue pair carried; forget it."""
        carried, chosen = self._carried_of(message), self._choosing.pop(message)
        if not delivered:
            return {}
        edges = np.rint(carried.cumsum() * (delivered / carried.sum())).astype(np.int64).tolist()
        parts = zip(chosen.among, pairwise([0, *edges]), strict=True)
        return {number: end - begin for number, (begin, end) in parts if end != begin}

    def _carried_of(self, message: int) -> NDArray[np.float64]:
        """Return what the queue pairs of a message have carried since it was posted [bytes]."""
        chosen = self._choosing[message]
        return self._network.delivered_bytes(self._shared[chosen.among][1]) - chosen.before

    @property
    def couples(self) -> bool:
        """Whether this run has coupled flows."""
        return self._couples

    def couple(self, flows: Sequence[Sequence[Strand]]) -> None:
        """Move coupled flows, which compete with others about as they would step by step.

        Where bytes weigh, a strand weighs by all that it has yet to carry. Step by step its queue pair holds
        less, but never nothing: all that the flow has under way piles up behind its slowest edge, while
        others there have less left from step to step. So neither ends much before the other, as if both
        weighed by their whole. Where bytes do not weigh, a flow counts as its queue pairs, each divided
        among the strands that it carries.

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
        - A strand shares with what else its queue pair carries, where a step would wait its turn; and it
          does not meet messages inside servers that are not coupled.
        """
        using = Counter(strand.over for strand in chain.from_iterable(flows))
        for flow in flows:
            weight = sum(1 / using[strand.over] for strand in flow)
            if not self._goes_alone(flow, weight):
                self._join(flow, weight)

    def _goes_alone(self, flow: Sequence[Strand], weight: float) -> bool:
        """Time a coupled flow whose links carry nothing else; return whether it is one.

        It needs no rates: it ends when its busiest link has carried its part, unless another comes.
        """
        if self._lent_bytes:
            return False
        loads: dict[int, float] = defaultdict(float)
        for _, size, over in flow:
            if isinstance(over, int) and (gate := self._gate_of.get(over)):
                if not gate.open:
                    return False
                crossed = gate.ports
            else:
                crossed = self._links_over(over)
            for link in crossed:
                loads[link] += size
        links = list(loads)
        rates = self._network.link_bps[links]
        if not rates.all() or self._alone.on(links) or self._network.uses(links):
            self._meet(links)
            return False
        lasts_s = float((8 * np.array(list(loads.values())) / rates).max())
        self._alone.add(flow, weight, links, self.now_ps, self.now_ps + ps(lasts_s))
        return True

    def _meet(self, links: Sequence[int]) -> None:
        """Have flows that were alone on some links share them from now on."""
        for left in self._alone.leave(links, self.now_ps):
            self._join(*left)

    def _join(self, flow: Sequence[Strand], weight: float, share: float = 1.0) -> None:
        """Put a coupled flow into the network, or what it has left."""
        over, size = tuple(strand.over for strand in flow), [strand.bytes * share for strand in flow]
        first, pools = self._coupled_flow(over)
        self._network.weigh(first, weight * max(size) / sum(size))
        tag = -1 - next(self._tickets)
        self._joined[tag] = _Joined(list(messages_of(flow)), len(flow))
        self._network.post(pools, size, [tag] * len(flow))

    def _coupled_flow(self, over: tuple[int | tuple[int, int], ...]) -> tuple[int, range]:
        """Return the first of idle coupled flows over queue pairs and NVLink, and their pools."""
        for flows, pools in self._coupled[over]:
            if not any(map(self._network.held, pools)):
                return flows[0], pools
        self._make_gates(each for each in over if isinstance(each, int))
        links = list(map(self._links_over, over))
        first = self._network.pools
        # Of one communicator; what stays inside servers meets no other on a NIC.
        communicator = next((self._pairs[each].communicator for each in over if isinstance(each, int)), 0)
        flows = self._network.add_flows(links, coupled_weight=1.0, communicator=communicator)
        pools = range(first, self._network.pools)
        self._coupled[over].append((flows, pools))
        for each, flow in zip(over, flows, strict=True):
            if isinstance(each, int) and each in self._gate_of:
                self._gate_of[each].flows.append(flow)
        return flows[0], pools

    def _links_over(self, over: int | tuple[int, int]) -> list[int]:
        """Return the links that a strand crosses."""
        if isinstance(over, tuple):
            return [self._first_nvlink + over[0], self._first_nvlink + self._fabric.gpus + over[1]]
        return self._links_of(over)

    def carried(self, number: int) -> set[int]:
        """Return the messages whose bytes a queue pair still carries, but for coupled flows."""
        self._make_flows([number])
        return self._network.held(self._pools[number])

    def owed(self, numbers: Sequence[int]) -> int:
        """Return what queue pairs have yet to deliver, but for coupled flows and what chose them."""
        pools = [pool for number in numbers if (pool := self._pools[number]) >= 0]
        return round(self._network.held_bytes(pools))

    def left(self, number: int) -> dict[int, int]:
        """Return what a queue pair has yet to deliver of each message."""
        self._make_flows([number])
        return {message: round(size) for message, size in self._network.left(self._pools[number]).items()}

    def withdraw(self, number: int) -> list[tuple[int, int]]:
        """Return what a queue pair did not deliver."""
        self._make_flows([number])
        self._speak([self._flows[number]])
        return [(message, round(size)) for message, size in self._network.withdraw(self._pools[number])]

    def retract(self, number: int) -> list[tuple[int, int, bool]]:
        """Return what a queue pair did not deliver: nothing is ever on its way."""
        return [(message, size, True) for message, size in self.withdraw(number)]

    def drain(self, ocs: str, numbers: Iterable[int]) -> None:
        """Report `Drained`: nothing is ever on its way."""
        self._at(self.now_ps, partial(Drained, ocs, self.now_ps))

    def resume(self, numbers: Iterable[int]) -> None:
        """Do nothing: what is lit carries."""

    def light(self, ocs: str, circuits: Sequence[Circuit]) -> None:
        """Darken the circuits that end, and light the new ones when the OCS is done."""
        self._check_controlled()
        self._switching += 1
        kept = self._lit[ocs] & set(circuits)
        self._shine(ocs, kept)
        at_ps = self.now_ps + ps(self._dark_s(ocs, len(kept), circuits))

        def done() -> Happening:
            self._switching -= 1
            self._shine(ocs, set(circuits))
            return NowLit(ocs, at_ps)

        self._at(at_ps, done)

    def show(self, order: Show) -> None:
        """Have OCSes show programs, each slot as long as it says."""
        self._check_controlled()
        for ocs, slots in order.programs:
            self._showing += 1
            self._at(self.now_ps, partial(self._switch, ocs, deque(slots), order.partial))

    def _switch(self, ocs: str, slots: deque[TimedCircuits], keeps: bool) -> Happening:
        """Darken what the next slot does not keep; it is lit when the device is done."""
        if not slots:
            self._shine(ocs, set())
            self._showing -= 1
            if not self._showing:
                self._round_off()
            return Shown(ocs, self.now_ps)
        kept = self._lit[ocs] & set(slots[0].circuits) if keeps else set()
        self._shine(ocs, kept)
        at_ps = self.now_ps + ps(self._dark_s(ocs, len(kept), slots[0].circuits))
        self._at(at_ps, partial(self._show_slot, ocs, slots, keeps))
        return Switching(ocs, tuple(sorted(kept)), self.now_ps)

    def _dark_s(self, ocs: str, kept: int, circuits: Sequence[Circuit]) -> float:
        """Return how long what is new of an OCS' circuits is dark: no time if all are kept, or none are left.

        What was drawn is of orders that have circuits (`testbed.run.light_log.drawn_s`).
        """
        drawn_s = self._drawn_s.get(ocs)
        delay_s = drawn_s.popleft() if circuits and drawn_s else self._delay_s[ocs]
        return delay_s if kept < len(circuits) else 0.0

    def _round_off(self) -> None:
        """Deliver what slots left over by rounding only."""
        largest = max((each.size for each in self._choosing.values()), default=0)
        for among in dict.fromkeys(each.among for each in self._choosing.values()):
            pool = self._shared[among][0]
            held = sorted(self._network.held(pool))
            left = max(self._network.left(pool).values(), default=0)
            if left <= ROUNDING * largest and all(self._carried_of(message).any() for message in held):
                self._network.withdraw(pool)
                for message in held:
                    self._at(self.now_ps, partial(Arrived, message, self.now_ps))

    def _show_slot(self, ocs: str, slots: deque[TimedCircuits], keeps: bool) -> Happening:
        slot = slots.popleft()
        self._shine(ocs, set(slot.circuits))
        self._at(self.now_ps + ps(slot.lit_s), partial(self._switch, ocs, slots, keeps))
        return SlotLit(ocs, slot.circuits, self.now_ps)

    def set_link(self, port: Port, state: LinkState) -> None:
        """Have the link at a port carry what a state leaves of its rate."""
        share = state.rate * (1 - state.loss) if state.up else 0.0
        self._shares.update(dict.fromkeys((port, self._fabric.peer(port)), share))
        self._set_links()

    def set_daemon(self, daemon: Daemon, state: DaemonState) -> None:
        """Have switches forward nothing without their daemon; without the controller they forward on."""
        if daemon == "switches":
            self._forwards = state.up
        else:
            self._controlled = state.up
        if daemon == "switches" and not state.up:
            self._silence()
        if self._showing or self._switching:
            self._check_controlled()
        self._set_links()

    def expects_back(self, expects: bool) -> None:
        """Do nothing: what makes no progress is found by what is to come."""

    def learn_rates(self, shares: Mapping[Nic, float]) -> None:
        """Do nothing: max-min rates are those of the links."""

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
        for among, pool, flows in [*pairs, *((among, *shared) for among, shared in self._shared.items())]:
            for number, flow in zip(among, flows, strict=True):
                if number not in self._gate_of and self._network.held(pool):
                    self._silent[flow] = number
                    self._network.set_path(flow, [*self._links_of(number), dead])

    def _speak(self, flows: Iterable[int]) -> None:
        """Have flows go on whose queue pairs are opened anew."""
        for flow in self._silent.keys() & set(flows):
            self._network.set_path(flow, self._links_of(self._silent.pop(flow)))

    def _check_controlled(self) -> None:
        if not self._controlled:
            raise StuckError(*NOT_CONTROLLED)

    def _set_links(self) -> None:
        """Have links carry their share of their rate, unless switches forward nothing."""
        rates = [
            link.rate_bps * self._shares.get(port, 1.0) * self._forwards
            for port, link in self._fabric.link_at.items()
        ]
        self._network.set_rates(range(len(rates)), rates)

    def avoid(self, ports: Collection[Port]) -> None:
        """Lead traffic around failed ports; over packets as the switches' new rules do."""
        self._failed = frozenset(ports)
        self._around = paths_over(self._fabric, self._failed)
        self._routes = self._routes_now()
        self._lead_light(self._gates)
        packet = {pair: number for pair, number in self._numbers.items() if number not in self._gate_of}
        paths = map(self._around.find, packet) if ports else self._find_paths(list(packet))
        for number, path in zip(packet.values(), paths, strict=True):
            if path:
                self._lead(number, path)

    def _lead(self, number: int, path: Path) -> None:
        """Have a queue pair over packets take a path."""
        if path != self._paths[number]:
            self._paths[number] = path
            links = [self._ports[port] for port in path]
            shared = [
                flows[among.index(number)] for among, (_, flows) in self._shared.items() if number in among
            ]
            for flow in {self._flows[number], *shared} - self._silent.keys() - {-1}:
                self._network.set_path(flow, links)

    def path(self, queue_pair: QueuePair) -> Path:
        """Return the path that a queue pair takes now; empty over circuits."""
        return self._paths[self._numbers[queue_pair]]

    def crosses(self, number: int) -> Collection[Port]:
        """Return the ports that send a queue pair's bytes and acknowledgements over packets."""
        if number in self._gate_of:
            return ()
        self._around = self._around or paths_over(self._fabric)
        return {*self._paths[number], *self._around.crossed(self._pairs[number])}

    def wait(self, until_ps: int) -> list[Happening]:
        """Let time pass until something happens."""
        if self._from_rest and not self._network.quiet:  # a delegated all-to-all goes over NVLink first
            self._lend()
            self._from_rest = False
        next_ps = self._to_come[0][0] if self._to_come else NEVER
        at_ps = min(until_ps, next_ps, self._alone.next_ps)
        if at_ps == NEVER and self._network.next_ps == at_ps:
            raise StuckError(NOTHING_COMES, "light a circuit, or add a path")
        arrived = self._network.advance(at_ps)
        if arrived:
            return sorted(chain.from_iterable(map(self._of_tag, arrived)), key=attrgetter("at_ps", "message"))
        happened: list[Happening] = [Arrived(message, at) for at, message in self._alone.ended(self.now_ps)]
        while self._to_come and self._to_come[0][0] <= self.now_ps:
            happened.append(heapq.heappop(self._to_come)[2]())
        return happened

    def _of_tag(self, arrived: Arrival) -> Iterator[Arrived]:
        """Yield what arrived: a message, or those of a coupled flow with its last strand."""
        at_ps, tag, pool = arrived
        if tag >= 0:
            yield Arrived(tag, at_ps, self._carrier_of.get(pool, -1))
            return
        joined = self._joined[tag]
        joined.strands -= 1
        if not joined.strands:
            yield from (Arrived(message, at_ps) for message in self._joined.pop(tag).messages)

    def _add(self, queue_pairs: Sequence[QueuePair]) -> None:
        """Number queue pairs; where flows are coupled, those of their own are made when they are used."""
        optical = [qp for qp in queue_pairs if self._is_optical(qp)]
        packet = [qp for qp in queue_pairs if not self._is_optical(qp)]
        paths = (
            self._find_paths(packet)
            if not self._failed
            else computed_paths(self._fabric, packet, self._failed)
        )
        first, new = len(self._flows), [*packet, *optical]
        self._numbers.update(zip(new, range(first, first + len(new)), strict=True))
        self._pairs += new
        self._paths += [*paths, *[()] * len(optical)]
        self._pools += [-1] * len(new)
        self._flows += [-1] * len(new)
        for number, queue_pair in enumerate(optical, start=first + len(packet)):
            gate = _Gate(queue_pair.destination)
            self._gates[queue_pair.source].append(gate)
            self._gates_to[queue_pair.source, queue_pair.destination].append(gate)
            self._gate_of[number] = gate
        if not self._couples:
            self._make_flows(range(first, first + len(new)))
        self._lead_light({queue_pair.source for queue_pair in optical})

    def _make_gates(self, numbers: Iterable[int]) -> None:
        """Give queue pairs over circuits that have none the link that opens and shuts."""
        for number in numbers:
            gate = self._gate_of.get(number)
            if gate and gate.link < 0:
                rate_bps = self._fabric.nic_rate_bps(self._pairs[number].source) if gate.open else 0.0
                gate.link = self._network.add_link(rate_bps)

    def _make_flows(self, numbers: Iterable[int]) -> None:
        """Give queue pairs that have none a flow and a pool of their own."""
        new = [number for number in dict.fromkeys(numbers) if self._flows[number] < 0]
        if not new:
            return
        self._make_gates(new)
        effects = path_effects([self._paths[number] for number in new], self._fabric)
        pools = self._network.pools
        flows = self._network.add_flows(
            list(map(self._links_of, new)),
            delivered=effects.delivered,
            delay_s=effects.delay_s,
            communicator=[self._pairs[number].communicator for number in new],
        )
        for place, number in enumerate(new):
            self._flows[number], self._pools[number] = flows[place], pools + place
            self._carrier_of[pools + place] = number
            if number in self._gate_of:
                self._gate_of[number].flows.append(flows[place])

    def _enter(self, numbers: Sequence[int]) -> None:
        """Get ready for bytes on queue pairs: they have flows, and meet what was alone on their links."""
        self._make_flows(numbers)
        if self._alone:
            self._meet(list(chain.from_iterable(map(self._links_of, dict.fromkeys(numbers)))))

    def _share(self, sets: Sequence[tuple[int, ...]]) -> None:
        """Make a pool for each set of queue pairs that has none."""
        new = [among for among in dict.fromkeys(sets) if among not in self._shared]
        if not new:
            return
        paths = [self._paths[number] for among in new for number in among]
        links = [self._links_of(number) for number in chain.from_iterable(new)]
        effects, first_of = path_effects(paths, self._fabric), np.cumsum([0, *map(len, new)])
        pool = self._network.pools
        flows = self._network.add_flows(
            links,
            pool=np.repeat(np.arange(pool, pool + len(new)), np.diff(first_of)),
            part_of=[self._flows[number] for among in new for number in among],
            delivered=effects.delivered,
            delay_s=np.maximum.reduceat(effects.delay_s, first_of[:-1]),
            communicator=[self._pairs[number].communicator for number in chain.from_iterable(new)],
        )
        for number, (among, first) in enumerate(zip(new, first_of.tolist(), strict=False)):
            self._shared[among] = pool + number, flows[first : first + len(among)]
            for qp, flow in zip(among, self._shared[among][1], strict=True):
                if qp in self._gate_of:
                    self._gate_of[qp].flows.append(flow)

    def _links_of(self, number: int) -> list[int]:
        """Return the links that a queue pair crosses now."""
        if number in self._gate_of:
            return self._gate_of[number].path
        return [self._ports[port] for port in self._paths[number]]

    def _is_optical(self, queue_pair: QueuePair) -> bool:
        return self._fabric.peer(self._fabric.nic_port(queue_pair.source)).node in self._delay_s

    def _shine(self, ocs: str, circuits: set[Circuit]) -> None:
        """Have an OCS carry circuits from now on."""
        if circuits == self._lit[ocs]:
            return
        moved = self._lit[ocs] ^ circuits
        self._lit[ocs] = circuits
        self._pairs_lit[ocs] = tuple(circuits)
        self._routes = self._routes_now()
        if not self._is_simple:
            self._meet(list(self._alone.links))  # any of their routes may change
            self._lead_light(self._gates)
            return
        ports = [port for a, _ in sorted(moved) if (port := Port(ocs, a)) in self._fabric.link_at]
        ends = dict.fromkeys(map(self._fabric.peer, ports))
        if self._alone:
            self._meet([self._ports[end] for end in ends])
        self._lead_light(map(self._fabric.nic_at, ends))

    def _routes_now(self) -> Routes:
        return Routes(self._fabric, self._pairs_lit, self._failed)

    def _lead_light(self, nics: Iterable[Nic]) -> None:
        """Open the gates of queue pairs that have a route now, and lead them over it; shut the others."""
        changed: dict[int, float] = {}
        for nic in nics:
            gates = self._gates[nic]
            if self._is_simple:  # few of thousands have light, or had it: the others are not looked up
                reached = self._routes.next_nic(nic)
                lit = self._gates_to[nic, reached] if reached else []
                gates = [*self._open[nic], *(gate for gate in lit if not gate.open)]
            for gate in gates:
                route = self._routes.sending(nic, gate.destination)
                opens = route is not None
                if opens != gate.open:
                    gate.open = opens
                    changed[gate.link] = self._fabric.nic_rate_bps(nic) if opens else 0.0
                ports = [self._ports[port] for port in route.ports] if route else gate.ports
                if ports != gate.ports:
                    gate.ports = ports
                    for flow in gate.flows:
                        self._network.set_path(flow, gate.path)
            self._open[nic] = [gate for gate in gates if gate.open]
        changed.pop(-1, None)  # of gates that no flow has crossed
        self._network.set_rates(list(changed), list(changed.values()))

    def _at(self, at_ps: int, action: Callable[[], Happening]) -> None:
        heapq.heappush(self._to_come, (checked(at_ps), next(self._tickets), action))


@dataclass(frozen=True, slots=True, eq=False)
class _Choosing:
    """A message that chooses."""

    among: tuple[int, ...]
    """The queue pairs that it may use."""
    before: NDArray[np.float64]
    """What these had carried before."""
    size: int
    posted: int
    """Equal for messages that were posted together."""


@dataclass(slots=True, eq=False)
class _Joined:
    """A coupled flow in the network."""

    messages: list[int]
    strands: int
    """How many have not arrived."""


class _Gate:
    """A link of its own at the head of a queue pair over circuits, which carries while it has a route."""

    def __init__(self, destination: Nic) -> None:
        self.destination, self.link, self.open = destination, -1, False
        self.ports: list[int] = []
        """The links of the route that it has, or had last."""
        self.flows: list[int] = []

    @property
    def path(self) -> list[int]:
        """All links."""
        return [self.link, *self.ports]
