"""A third backend, as somebody else would write it: each lane has one fixed rate, and nothing contends."""

import heapq
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, count, pairwise

from testbed.core import backend as physics
from testbed.core.backend import NVLINK, Arrived, Flows, Left
from testbed.core.packet_paths import PacketPaths
from testbed.model.ocses import FluidLight
from topologies.errors import StuckError
from topologies.fabric import Fabric, Port
from topologies.routes import Routes
from traffic.clock import NEVER, SECOND
from traffic.spraying.policy import QueuePair


@dataclass(eq=False)
class Piece:
    """What was started together of operations; together they all need their lanes, else one that works."""

    ops: list[int]
    lanes: list[int]
    left: float
    reports: int | None
    together: bool = False
    carried: dict[int, float] = field(default_factory=lambda: defaultdict(float))


class ToyBackend:
    """Moves bytes at a fixed rate."""

    def __init__(self, fabric: Fabric, delay_s: dict[str, float], bytes_s: float) -> None:
        self.now_ps, self._fabric, self._ocses, self._bytes_s = 0, fabric, set(delay_s), bytes_s
        self.packet_paths = PacketPaths(fabric)
        self._numbers: dict[QueuePair, int] = {}
        self._pieces, self._chosen = list[Piece](), dict[int, Piece]()
        self._paused, self._down, self._forwards = set[int](), set[Port](), True
        self._routes = Routes(fabric, {})
        self._to_come, self._tickets = list[tuple[int, int, object]](), count()
        self._light = FluidLight(delay_s, {}, {}, now_ps=lambda: self.now_ps, at=self._at, shown=lambda: None)

    def _at(self, at_ps: int, action: object) -> None:
        heapq.heappush(self._to_come, (at_ps, next(self._tickets), action))

    def open(self, queue_pairs: Sequence[QueuePair]) -> list[int]:
        self.packet_paths.open([pair for pair in queue_pairs if not self._is_light(pair)])
        return [self._numbers.setdefault(pair, len(self._numbers)) for pair in queue_pairs]

    def start(self, flows: Sequence[Flows | physics.Chosen], *, first: bool = False) -> None:
        for each in flows:
            ops, sizes = each.op.tolist(), each.bytes.tolist()
            if isinstance(each, physics.Chosen):
                for op, size, own in zip(ops, sizes, each.lanes, strict=True):
                    self._chosen[op] = Piece([op], list(own), size, None)
                self._pieces += [self._chosen[op] for op in ops]
            elif each.together:
                lanes = sorted(set(each.lane.tolist()))
                reports = NVLINK if lanes == [NVLINK] else None
                self._pieces.append(Piece(sorted(set(ops)), lanes, max(sizes), reports, together=True))
            else:
                total = defaultdict[tuple[int, int], int](int)
                for op, lane, size in zip(ops, each.lane.tolist(), sizes, strict=True):
                    total[op, lane] += size
                self._pieces += [Piece([op], [lane], size, lane) for (op, lane), size in total.items()]

    def advance(self, to_ps: int) -> list[physics.Happening]:
        moving = {piece: lanes for piece in self._pieces if (lanes := self._working(piece))}
        ends_ps = [self.now_ps + round(piece.left / self._bytes_s * SECOND) for piece in moving]
        at_ps = max(min([to_ps, *ends_ps, *(each[0] for each in self._to_come[:1])]), self.now_ps)
        if at_ps == NEVER:
            raise StuckError("nothing moves in the toy", "light a circuit")
        for piece, end_ps in zip(moving, ends_ps, strict=True):
            moved = piece.left if end_ps <= at_ps else (at_ps - self.now_ps) / SECOND * self._bytes_s
            piece.left -= moved
            piece.carried[moving[piece][0]] += moved
        self.now_ps = at_ps
        ended = [piece for piece, end_ps in zip(moving, ends_ps, strict=True) if end_ps <= at_ps]
        self._pieces = [piece for piece in self._pieces if piece not in ended]
        happened: list[physics.Happening] = []
        happened += [Arrived(op, at_ps, each.reports) for each in ended for op in each.ops]
        while not ended and self._to_come and self._to_come[0][0] <= at_ps:
            happened.append(heapq.heappop(self._to_come)[2]())  # type: ignore[operator]
        return happened

    def _working(self, piece: Piece) -> list[int]:
        lanes = [lane for lane in piece.lanes if lane == NVLINK or self._works(lane)]
        return lanes if not piece.together or len(lanes) == len(piece.lanes) else []

    def _works(self, lane: int) -> bool:
        pair = list(self._numbers)[lane]
        if not self._is_light(pair):
            return self._forwards and self._down.isdisjoint(self.packet_paths[pair])
        route = self._routes.sending(pair.source, pair.destination)
        return route is not None and lane not in self._paused and self._down.isdisjoint(route.ports)

    def _is_light(self, pair: QueuePair) -> bool:
        return self._fabric.peer(self._fabric.nic_port(pair.source)).node in self._ocses

    def stop(
        self, lanes: Sequence[int] = (), ops: Sequence[int] = (), *, in_flight: str = "drop"
    ) -> list[Left]:
        left = [*self.under_way(lanes), *self.carried(ops)]
        chosen = [self._chosen.pop(op) for op in ops]
        left += [Left(piece.ops[0], -1, left=round(piece.left)) for piece in chosen if piece in self._pieces]
        self._pieces = [piece for piece in self._pieces if piece not in (*chosen, *self._on(lanes))]
        return left

    def carried(self, ops: Sequence[int]) -> list[Left]:
        left = list[Left]()
        for op, carried in [(op, self._chosen[op].carried) for op in ops]:
            edges = [round(size) for size in accumulate(carried.values(), initial=0.0)]
            sizes = [end - begin for begin, end in pairwise(edges)]
            left += [Left(op, lane, carried=size) for lane, size in zip(carried, sizes, strict=True)]
            carried.clear()
        return left

    def _on(self, lanes: Sequence[int]) -> list[Piece]:
        return [piece for piece in self._pieces if piece.reports is not None and piece.reports in lanes]

    def under_way(self, lanes: Sequence[int] = (), ops: Sequence[int] = ()) -> list[Left]:
        found = [Left(piece.ops[0], piece.lanes[0], left=round(piece.left)) for piece in self._on(lanes)]
        return [*found, *(Left(op, -1, left=round(self._chosen[op].left)) for op in ops)]

    def owed(self, lanes: Sequence[int]) -> int:
        return sum(each.left for each in self.under_way(lanes))

    def pause(self, lanes: Collection[int], change: int | None = None) -> None:
        self._paused |= set(lanes)
        if change is not None:
            self._at(self.now_ps, partial(physics.Drained, change, self.now_ps))

    def resume(self, lanes: Collection[int]) -> None:
        self._paused -= set(lanes)

    def carry_out(self, order: physics.NetworkOrder) -> None:
        if isinstance(order, physics.Lead):
            self._routes = order.routes
            if order.failed is not None:
                self.packet_paths.avoid(order.failed)
        elif isinstance(order, physics.SetLink):
            ends = {order.port, self._fabric.peer(order.port)}
            self._down = self._down - ends if order.state.up else self._down | ends
        elif isinstance(order, physics.SetDaemon) and order.daemon == "switches":
            self._forwards = order.state.up
        elif not isinstance(order, physics.Expect | physics.KnowRates | physics.SetDaemon):
            self._light.carry_out(order)
