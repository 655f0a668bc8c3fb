"""A fluid backend that has the shape of the live one, and a record of what it is told: equal at every run.

A booted network differs from fluids not only in how fast bytes are, but in when the core hears of
them, and in what has become of them until then. Here as there:

- time goes on with each thing that is done, and a wait ends late;
- arrivals are reported later than they came, several at once, with the times at which they came;
- light is noticed later than it is lit, with the time at which it is noticed, and so is what is provisioned;
  slots of programs begin in time and are dark late, as those of an emulation are lit longer;
- lanes that are to stand deliver for a while what they have on the way, and have drained only then;
- what lanes lack is known in whole bytes of the emulation's scale, each of which stands for many;
- of what is taken back with "keep" a little has been sent, and still arrives;
- a queue pair that was closed has another number when it is opened again.

How late something is follows from what it is, not from what came before. So a call more or less, or another
order of two, changes the record there and nowhere else.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from testbed.core.backend import (
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
    LightChanged,
    NetworkOrder,
    NowProvisioned,
    SetCircuits,
    SetDaemon,
    SetLink,
)
from testbed.model.backend import FluidBackend
from topologies.events import Provision, TimedCircuits
from topologies.light import Circuit, Configuration
from traffic.clock import NEVER
from traffic.scheme import WhileLit
from traffic.spraying.policy import SPRAYED, QueuePair

REPORTS = "reports"
"""The name in the record of all that was reported; the rest was ordered."""


@dataclass(frozen=True)
class Scale:
    """How late things are, and how coarse sizes."""

    lag_ps: int
    """Reports, drained lanes and light come up to a few times so much later."""
    grain_bytes: int
    """The real bytes that a byte of the emulation stands for."""


@dataclass(slots=True)
class _Held:
    """Something that has happened, and when it is reported."""

    at_ps: int
    what: Happening


@dataclass(slots=True)
class _Standing:
    """Lanes that are to stand for a change of light, and from when on they do."""

    at_ps: int
    lanes: set[int]
    change: int


class AsLive:
    """Moves bytes as fluids, and is late.

    Parameters
    ----------
    fluid
        The backend that moves bytes.
    scale
        How late.
    creeps
        Whether the clock goes on by a picosecond whenever it is looked at.
    """

    def __init__(self, fluid: FluidBackend, scale: Scale, *, creeps: bool = False) -> None:
        self._fluid, self._scale, self._creeps = fluid, scale, creeps
        self.packet_paths = fluid.packet_paths
        self.record: list[tuple[int, str, str]] = []
        """When what was ordered or reported, and of what."""
        self._now_ps = 0
        self._pairs: list[QueuePair] = []
        """The queue pair of each number."""
        self._numbers: dict[QueuePair, int] = {}
        """The number of each that is open."""
        self._lane: dict[int, int] = {}
        """The newest number here of each lane of the fluids."""
        self._ops: dict[int, str] = {}
        """The name of each operation in the record, in the order in which they came."""
        self._changes: dict[int, str] = {}
        self._takes_light: set[int] = set()
        self._held: list[_Held] = []
        self._reported_ps: Counter[object] = Counter()
        """When the last that happened on each lane, or to each OCS, is reported."""
        self._standing: list[_Standing] = []
        self._carried_rest: Counter[tuple[int, int, int | None]] = Counter()
        """The bytes less than a grain that were carried of each operation on a lane, by an entropy."""

    @property
    def now_ps(self) -> int:
        """Time since the start [ps]."""
        self._now_ps += self._creeps
        return self._now_ps

    # Lanes and bytes

    def open(self, queue_pairs: Sequence[QueuePair]) -> list[int]:
        """Return the number of each queue pair."""
        new = [pair for pair in dict.fromkeys(queue_pairs) if pair not in self._numbers]
        if new:
            self._ordered("open", " ".join(map(str, new)))
        for pair, below in zip(new, self._fluid.open(new), strict=True):
            self._numbers[pair] = self._lane[below] = len(self._pairs)
            self._pairs.append(pair)
        return [self._numbers[pair] for pair in queue_pairs]

    def start(self, flows: Sequence[Flows | Chosen], *, first: bool = False) -> None:
        """Have bytes move."""
        for each in flows:
            words = self._chosen(each) if isinstance(each, Chosen) else self._flows(each)
            self._ordered("start", f"{'first ' * first}{words}")
        self._fluid.start([self._below(each) for each in flows], first=first)
        for each in flows:
            if isinstance(each, Chosen) and isinstance(each.among, WhileLit):
                self._takes_light.update(each.op.tolist())

    def stop(
        self, lanes: Sequence[int] = (), ops: Sequence[int] = (), *, in_flight: InFlight = "drop"
    ) -> list[Left]:
        """Take back what was not delivered, but for what was sent if that is kept."""
        self._ordered(f"stop, {in_flight}", " ".join([*map(self._name, lanes), *map(self._op, ops)]))
        take_back = self._withdraw if in_flight == "drop" else self._retract
        left = [each for lane in lanes for each in take_back(lane)]
        if ops:
            left += self._recalled(ops, self._fluid.stop(ops=ops))
        return left

    def under_way(self, lanes: Sequence[int] = (), ops: Sequence[int] = ()) -> list[Left]:
        """Report what lanes have yet to deliver, and what has become of operations that choose."""
        left = list[Left]()
        for lane in lanes:
            early = self._unsaid(lane)
            rows = [] if self._is_closed(lane) else self._fluid.under_way([self._fluid_lane(lane)])
            stands = any(lane in each.lanes for each in self._standing)
            left += [
                each._replace(lane=lane, on_the_way=stands or each.on_the_way)
                for each in map(self._rounded, rows)
            ]
            left += [Left(op, lane) for op in early if op not in {each.op for each in rows}]
        if ops:
            self._ordered("under way", " ".join(map(self._op, ops)))
            left += map(self._rounded, self._fluid.under_way(ops=ops))
        return left

    def carried(self, ops: Sequence[int]) -> list[Left]:
        """Report what lanes have carried of operations that choose since this was last asked."""
        self._ordered("under way", " ".join(map(self._op, ops)))
        over = {each.op for each in self._fluid.under_way(ops=ops) if not each.left}
        return [self._since(each, whole=each.op in over) for each in self._fluid.carried(ops)]

    def owed(self, lanes: Sequence[int]) -> int:
        """Return the bytes that lanes have yet to deliver in all."""
        return self._grains(self._fluid.owed(list(map(self._fluid_lane, lanes))))

    def _withdraw(self, lane: int) -> list[Left]:
        """Close a lane; what has arrived and was not reported lacks nothing, and is not reported any more."""
        early = self._unsaid(lane)
        self._held = [
            each for each in self._held if not (isinstance(each.what, Arrived) and each.what.lane == lane)
        ]
        for standing in self._standing:
            standing.lanes.discard(lane)
        left = self._fluid.stop([self._fluid_lane(lane)])
        if self._numbers.get(self._pairs[lane]) == lane:
            del self._numbers[self._pairs[lane]]
        return [
            *(Left(op, lane) for op in early),
            *(self._rounded(each)._replace(lane=lane) for each in left),
        ]

    def _retract(self, lane: int) -> list[Left]:
        """Take back what a lane has not sent; the first grains of it were."""
        below, sent = self._fluid_lane(lane), 8 * self._scale.grain_bytes
        back, stays = list[Left](), list[tuple[int, int]]()
        for each in self._fluid.stop([below]):
            kept = min(each.left, sent)
            sent -= kept
            if kept:
                stays.append((each.op, kept))
            if each.left > kept:
                taken = self._rounded(each._replace(left=each.left - kept))
                back.append(taken._replace(lane=lane, on_the_way=bool(kept)))
            elif not kept:
                self._hold(Arrived(each.op, self._now_ps, lane))
        for op, size in stays:
            one = np.array([op]), np.array([size]), np.array([below]), np.array([op]), np.array([op])
            self._fluid.start([Flows(*one)])
        return back

    def _recalled(self, ops: Sequence[int], rows: Iterable[Left]) -> list[Left]:
        """Return the rows of operations that are taken back, or have arrived."""
        own: dict[int, list[Left]] = {op: [] for op in ops}
        for each in rows:
            own.setdefault(each.op, []).append(self._since(each, whole=True))
        for key in [key for key in self._carried_rest if key[0] in own]:
            op, lane, entropy = key
            own[op].insert(0, Left(op, lane, self._carried_rest.pop(key), entropy=entropy))
        return list(chain.from_iterable(map(self._coarse, own.values())))

    def _coarse(self, rows: list[Left]) -> list[Left]:
        """Return the rows of an operation in whole grains; what lacks less lacks nothing."""
        if not rows or rows[-1].lane >= 0:
            return rows
        *carried, last = rows
        grain = self._scale.grain_bytes
        if carried and last.left < grain:
            *others, most = carried
            return [*others, most._replace(carried=most.carried + last.left), last._replace(left=0)]
        coarse = [each._replace(carried=each.carried // grain * grain) for each in carried]
        off = sum(each.carried for each in carried) - sum(each.carried for each in coarse)
        return [*coarse, last._replace(left=last.left + off)]

    def _since(self, each: Left, *, whole: bool = False) -> Left:
        """Return a row of what was carried in whole grains, and keep the rest for the next one."""
        below, each = each.lane, each._replace(lane=self._lane.get(each.lane, -1))
        if below < 0:
            return each
        key = each.op, each.lane, each.entropy
        carried = each.carried + self._carried_rest.pop(key, 0)
        if not whole:
            self._carried_rest[key] = carried % self._scale.grain_bytes
            carried -= self._carried_rest[key]
        return each._replace(carried=carried)

    def _unsaid(self, lane: int) -> list[int]:
        """Return the operations of which something has arrived by a lane that was not reported."""
        arrived = [each.what for each in self._held if isinstance(each.what, Arrived)]
        return [each.op for each in arrived if each.lane == lane]

    def _grains(self, size: int) -> int:
        grain = self._scale.grain_bytes
        return max(round(size / grain), 1) * grain if size else 0

    def _rounded(self, each: Left) -> Left:
        return each._replace(left=self._grains(each.left))

    # Light and faults

    def pause(self, lanes: Collection[int], change: int | None = None) -> None:
        """Have lanes stand, from when on what they have on the way has arrived if a change waits for that."""
        if change is None:
            for lane in sorted(lanes, key=self._name):
                self._ordered("pause", f"too {self._name(lane)}")
            self._fluid.pause(set(map(self._fluid_lane, lanes)))
            return
        words = self._change(change)
        self._ordered("pause", " ".join([words, *sorted(map(self._name, lanes))]))
        at_ps = self._now_ps + (self._late_ps("drain", words) if lanes else 0)
        self._standing.append(_Standing(at_ps, set(lanes), change))

    def resume(self, lanes: Collection[int]) -> None:
        """Let lanes send again."""
        if lanes:
            self._ordered("resume", " ".join(sorted(map(self._name, lanes))))
        over = [each for each in self._standing if each.lanes and each.lanes <= set(lanes)]
        self._standing = [each for each in self._standing if each not in over]
        for each in self._standing:
            each.lanes.difference_update(lanes)
        self._fluid.resume(set(map(self._fluid_lane, lanes)))

    def carry_out(self, order: NetworkOrder) -> None:
        """Do something to the network."""
        self._ordered(type(order).__name__, self._words(order))
        self._fluid.carry_out(order)

    # Time

    def advance(self, to_ps: int) -> list[Happening]:
        """Let time pass until something is reported."""
        while not self._due and self._now_ps < to_ps:
            self._pass_some(min([to_ps, *(each.at_ps for each in self._held)]))
        if not self._due:
            self._spend("advance", "", late=4)
        due = self._due
        self._held = [each for each in self._held if each not in due]
        reported = [self._noticed(each.what) for each in sorted(due, key=lambda each: each.at_ps)]
        for each in reported:
            came = f" at {each.at_ps}" if isinstance(each, Arrived) else ""
            self.record.append((self._now_ps, REPORTS, self._report(each) + came))
        return reported

    @property
    def _due(self) -> list[_Held]:
        """All that is to be reported by now."""
        return [each for each in self._held if each.at_ps <= self._now_ps]

    def _noticed(self, what: Happening) -> Happening:
        """Return a report with the time of now, but for an arrival."""
        if isinstance(what, LightChanged) and what.until_ps is not None:
            return replace(what, at_ps=self._now_ps, until_ps=max(what.until_ps, self._now_ps + 1))
        return what if isinstance(what, Arrived) else replace(what, at_ps=self._now_ps)

    def _ordered(self, name: str, words: str) -> None:
        """Record that something is done, which takes its time."""
        self._spend(name, words)
        self.record.append((self._now_ps, name, words))

    def _spend(self, name: str, words: str, late: int = 400) -> None:
        """Let a little time pass: at most one of so many parts of a lag."""
        to_ps = self._now_ps + 1 + self._late_ps(name, words) // late
        while self._now_ps < to_ps:
            self._pass_some(to_ps)

    def _pass_some(self, to_ps: int) -> None:
        """Let time pass until something happens that is to be reported later, or lanes stand."""
        standing = min([each.at_ps for each in self._standing], default=NEVER)
        happened = self._fluid.advance(max(min(to_ps, standing), self._fluid.now_ps))
        self._now_ps = max(self._now_ps, self._fluid.now_ps)
        for each in happened:
            self._hold(each)
        if not happened and standing <= self._fluid.now_ps:
            (first, *_) = [each for each in self._standing if each.at_ps == standing]
            self._standing.remove(first)
            self._fluid.pause(set(map(self._fluid_lane, first.lanes)), first.change)

    def _hold(self, what: Happening) -> None:
        """Keep what has happened until it is reported: some arrivals at once, news of an OCS in turn."""
        if isinstance(what, Arrived) and what.lane is not None and what.lane != NVLINK:
            what = replace(what, lane=self._lane[what.lane])
        in_time = isinstance(what, LightChanged) and what.until_ps not in (None, NEVER)
        at_ps = what.at_ps + (0 if in_time else self._late_ps(REPORTS, self._report(what)))
        if isinstance(what, Arrived):
            lag_ps = self._scale.lag_ps
            self._held.append(_Held(self._in_turn(what.lane, -(-at_ps // lag_ps) * lag_ps), what))
        elif isinstance(what, Drained):
            self._held.append(_Held(at_ps, what))
        else:
            self._held.append(_Held(self._in_turn(what.ocs, at_ps + 1), what))

    def _in_turn(self, of: object, at_ps: int) -> int:
        """Return when something is reported: not before what was reported of the same lane or OCS."""
        self._reported_ps[of] = max(at_ps, self._reported_ps[of])
        return self._reported_ps[of]

    def _late_ps(self, name: str, words: str) -> int:
        """Return how much later something is than it would be, which nothing but its words decides."""
        drawn = int.from_bytes(blake2b(f"{name} {words}".encode(), digest_size=4).digest(), "big")
        return self._scale.lag_ps * drawn >> 32

    # Words

    def _name(self, lane: int) -> str:
        return "NVLink" if lane == NVLINK else str(self._pairs[lane])

    def _op(self, op: int) -> str:
        return self._ops.setdefault(op, f"op{len(self._ops)}")

    def _change(self, change: int) -> str:
        return self._changes.setdefault(change, f"change{len(self._changes)}")

    def _flows(self, flows: Flows) -> str:
        columns = (
            column.tolist() for column in (flows.op, flows.bytes, flows.lane, flows.source, flows.destination)
        )
        kind = f"{'together ' * flows.together}{'inside ' * flows.inside}"
        over = {True: "{0}>{1}", False: "{2}"}
        rows = (
            f"{self._op(op)} {size} {over[lane == NVLINK].format(near, far, self._name(lane))}"
            for op, size, lane, near, far in zip(*columns, strict=True)
        )
        return f"{kind}{', '.join(rows)}"

    def _chosen(self, chosen: Chosen) -> str:
        kind = "lit" if isinstance(chosen.among, WhileLit) else type(chosen.among.policy).__name__
        rows = zip(chosen.op.tolist(), chosen.bytes.tolist(), chosen.lanes, strict=True)
        words = (f"{self._op(op)} {size} {' '.join(map(self._name, lanes))}" for op, size, lanes in rows)
        return f"{kind}: {', '.join(words)}"

    def _words(self, order: NetworkOrder) -> str:
        if isinstance(order, SetCircuits):
            return f"{'first ' * order.first}{'flips ' * order.flips}{_configuration(order.circuits)}"
        if isinstance(order, Provision):
            return _configuration({order.ocs: order.circuits})
        if isinstance(order, Lead):
            return self._led(order)
        if isinstance(order, SetLink):
            return f"{order.port} {order.state}"
        if isinstance(order, SetDaemon):
            return f"{order.daemon} {order.state}"
        if isinstance(order, Expect):
            return str(order.back)
        if isinstance(order, KnowRates):
            return " ".join(f"{nic}={share:.6g}" for nic, share in sorted(order.shares.items()))
        kind = f"{'partial ' * order.partial}{'exact ' * order.exact}"
        return kind + " ".join(f"{ocs} {_slots(slots)}" for ocs, slots in sorted(order.programs))

    def _led(self, order: Lead) -> str:
        """Return the routes of the lanes that are open and may have others, and what is avoided."""
        words = list[str]()
        for pair in sorted(self._numbers, key=str):
            if pair.entropy != SPRAYED and (order.nics is None or pair.source in order.nics):
                route = order.routes.sending(pair.source, pair.destination)
                words += [f"{pair} {','.join(map(str, route.ports))}"] if route else []
        if order.failed is not None:
            words.append(f"around {' '.join(map(str, sorted(order.failed)))}")
        return "; ".join(words)

    def _report(self, what: Happening) -> str:
        if isinstance(what, Arrived):
            over = "" if what.lane is None else f" {self._name(what.lane)}"
            return f"{self._op(what.op)} arrived{over}"
        if isinstance(what, Drained):
            return f"{self._change(what.change)} drained"
        kind = "provisioned" if isinstance(what, NowProvisioned) else "shows"
        return f"{what.ocs} {kind} {_circuits(what.circuits)}"

    # What the fluids call it

    def _fluid_lane(self, lane: int) -> int:
        (below,) = self._fluid.open([self._pairs[lane]])
        return below

    def _is_closed(self, lane: int) -> bool:
        return self._numbers.get(self._pairs[lane]) != lane

    def _below(self, each: Flows | Chosen) -> Flows | Chosen:
        if isinstance(each, Chosen):
            return replace(each, lanes=[tuple(map(self._fluid_lane, lanes)) for lanes in each.lanes])
        return replace(each, lane=self._lanes_below(each.lane))

    def _lanes_below(self, lanes: NDArray[np.int64]) -> NDArray[np.int64]:
        below = [lane if lane == NVLINK else self._fluid_lane(lane) for lane in lanes.tolist()]
        return np.array(below, dtype=np.int64)


def _circuits(circuits: Iterable[Circuit]) -> str:
    return ",".join(f"{a}>{b}" for a, b in circuits) or "-"


def _configuration(circuits: Configuration) -> str:
    return " ".join(f"{ocs} {_circuits(pairs)}" for ocs, pairs in sorted(circuits.items()))


def _slots(slots: Iterable[TimedCircuits]) -> str:
    return " ".join(f"{_circuits(slot.circuits)} for {slot.lit_s:.9g}" for slot in slots)
