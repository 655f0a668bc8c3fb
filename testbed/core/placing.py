"""Placing: which lanes carry the bytes of operations, the last thing decided before they move.

What may go is lowered once more by its scheme, which sees what is lit and has failed: some of it goes hop by
hop, some waits for light. The rest goes where its connection went before, or where the scheme places it.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from testbed.core.carriers import Carriers, Left
from testbed.core.ledger import INSIDE, Ledger
from testbed.core.movers import NVLINK, Backend, Chosen, Flows
from testbed.core.together import NOWHERE, Together, moves_of
from topologies.errors import ScenarioError
from topologies.events import View
from topologies.fabric import Fabric, Nic
from traffic import ops as media
from traffic.collectives.pattern import Pattern
from traffic.gathered import FollowsBytes, Hop
from traffic.messages import Messages, crosses_network
from traffic.ops import DARK, LANES, Ops, Part
from traffic.placing import lowered_by, placed_by
from traffic.scheme import (
    Lowers,
    OverLight,
    Placement,
    Scheme,
    WhileLit,
    keeps_connections,
    of_communicator,
)
from traffic.spraying.policy import QueuePair

Start = Callable[[Sequence[Flows | Chosen]], None]


class Placing:
    """Where the bytes of one run go.

    Parameters
    ----------
    fabric, scheme, ledger, carriers
        Of the run.
    backend
        Whose clock counts.
    start
        Has flows move.
    arrived
        Told, at once but in the middle of nothing, that an operation has nothing to move on a lane.
    view
        Returns what is known, for operations of a communicator.
    communicators
        The number of the communicator of each collective that has begun.
    release
        Starts operations that bring others further.
    may_move
        Whether lanes may change after bytes are ready for them.
    """

    def __init__(
        self,
        fabric: Fabric,
        scheme: Scheme,
        ledger: Ledger,
        carriers: Carriers,
        backend: Backend,
        *,
        start: Start,
        arrived: Callable[[int, int], None],
        view: Callable[[int], View],
        communicators: Mapping[str, int],
        release: Callable[[Iterable[int]], None],
        may_move: bool,
    ) -> None:
        self._fabric, self._scheme, self._ledger, self._carriers = fabric, scheme, ledger, carriers
        self._backend, self._start, self._arrived, self._view = backend, start, arrived, view
        self._communicator, self._release = communicators, release
        self._ops = ledger.ops
        self.by_light = isinstance(scheme, FollowsBytes)
        """Whether the scheme has lanes by what is lit, and others for what is left when that goes dark."""
        self._follows = scheme if isinstance(scheme, OverLight) else None
        """The scheme, if it places what is left anew when circuits change."""
        self.follows_light = self._follows is not None
        """Whether what is left of a message is placed anew when circuits change."""
        self.spreads = self._follows is not None and self._follows.spreads
        """Whether it is spread anew over more lanes."""
        self._lanes = scheme.lanes if isinstance(scheme, FollowsBytes) else scheme
        self._lowers = scheme if isinstance(scheme, Lowers) else None
        """The scheme, if it lowers operations."""
        self._keeps = keeps_connections(scheme)
        self._kept: dict[str, dict[int, QueuePair]] = defaultdict(dict)
        """The queue pair of each connection that a collective under way keeps."""
        self._where = scheme.follow(fabric) if may_move and isinstance(scheme, FollowsBytes) else None
        """Where bytes are that the scheme follows."""
        self._then_on: dict[int, QueuePair] = {}
        """On what goes what an operation brings over NVLink."""
        self._in_the_dark: Left = []
        """What waits until its scheme sees light."""
        self._together = Together(fabric, ledger, carriers, backend, communicators)
        self.has_rest = False
        """Whether the scheme says how to carry over packets what circuits leave over."""
        self.light_is_over = False
        """Whether what circuits leave over goes over packets, and with it all that starts."""

    # Operations that start

    def lowered(self, pattern: Pattern, communicator: int, *, coupled: bool) -> tuple[Ops, Placement | None]:
        """Return the operations of a collective that starts, and where those go that are in step.

        Operations in step are so only if all are, none waits for another, and the scheme places them; else
        the pattern has them step by step.
        """
        view = self._view(communicator)
        if coupled:
            ops = self._lowered(pattern.lower(view, coupled=True), view)
            in_step = [part.together and part.medium == media.ANY for part in ops.parts]
            if not any(in_step):
                return ops, None
            is_one = all(in_step) and not len(ops.after)
            if placed := self._placed_in_step(ops, view) if is_one else None:
                return ops, placed
        return self._lowered(pattern.lower(view), view), None

    def _lowered(self, ops: Ops, view: View) -> Ops:
        return lowered_by(self._lowers, ops, view) if self._lowers else ops

    def admit(self, ops: Ops, first: int) -> None:
        """Follow operations, which are numbered from a first one on."""
        if self._where:
            self._where.admit(ops, first)

    def start(self, numbers: Iterable[int], placed: Placement | None = None) -> None:
        """Start operations; ``placed`` is where those in step go."""
        servers = self._fabric.gpu_servers
        inside, leaving, in_step = Left(), Left(), list[int]()
        for number in numbers:
            op = self._ops[number]
            if op.moves and op.medium == media.INSIDE:
                self._together_inside(number)
            elif op.moves and op.medium == LANES:
                self._start(self._over_lanes(number, op.moves.moves))
            elif op.moves:
                in_step.append(number)
            elif servers[op.source] == servers[op.destination]:
                inside.append((number, op.size))
            else:
                leaving.append((number, op.size))
        if inside:
            self._stay_inside(inside)
        if in_step and placed:
            self._start(self._together.in_step(in_step, placed))
        if leaving:
            self.place(leaving)

    def _over_lanes(self, number: int, moves: Messages) -> list[Flows]:
        view = self._view(self._communicator[self._ops[number].node])
        placed = placed_by(self._lanes, view, moves)
        assert isinstance(placed, Placement)  # as lanes do
        return self._together.over_lanes(number, placed)

    def _together_inside(self, number: int) -> None:
        """Send moves that go together over NVLink, from where their bytes are."""
        op = self._ops[number]
        assert op.moves
        if self._where and (moved := self._where.moves(number)) is not None:
            op.moves, op.size = replace(op.moves, moves=moved), int(moved.bytes.sum())
        moves = op.moves.moves
        self._ledger.put(number, INSIDE, op.size, op.start_ps)
        if len(moves):
            self._start([_over_nvlink(np.full(len(moves), number), moves, together=True)])
        else:
            self._arrived(number, NVLINK)

    def _stay_inside(self, parcels: Left) -> None:
        """Send operations of one move over NVLink."""
        for number, size in parcels:
            self._ledger.put(number, INSIDE, size, self._ops[number].start_ps)
        self._start([_over_nvlink(*self._messages_of(parcels))])

    def _placed_in_step(self, ops: Ops, view: View) -> Placement | None:
        """Return where the first moves of operations go that are in step; None if they cannot be.

        They can unless the scheme has them choose as they go, or a relay stores what it forwards.
        """
        moves, first = moves_of(ops.parts)
        leaving = first.select(crosses_network(moves, self._fabric))
        if not len(leaving):
            return NOWHERE
        under_way = Ops((Part(leaving, of=np.arange(len(leaving))),))
        if self._lowered(under_way, view) is not under_way:
            return None
        placed = placed_by(self._scheme, view, leaving)
        return placed if isinstance(placed, Placement) else None

    # Bytes of operations

    def place(self, parcels: Left) -> None:
        """Put bytes of operations that leave their server on lanes."""
        if kept := [(number, size, qp) for number, size in parcels if (qp := self._kept_for(number))]:
            self._post_on(kept)
            parcels = [parcel for parcel in parcels if not self._kept_for(parcel[0])]
        over_lanes = [each for each in parcels if self._ops[each[0]].medium == LANES] if self.by_light else []
        others = [each for each in parcels if self._ops[each[0]].medium != LANES] if over_lanes else parcels
        for scheme, medium, mine in ((self._scheme, media.ANY, others), (self._lanes, LANES, over_lanes)):
            if self._lowers and mine:
                mine = self._lower(mine, medium)
            if mine:
                self._place_by(scheme, mine)

    def _place_by(self, scheme: Scheme, parcels: Left) -> None:
        numbers, messages = self._messages_of(parcels)
        of = np.array([self._communicator[self._ops[number].node] for number in numbers.tolist()])
        for communicator in dict.fromkeys(of.tolist()):
            mine = of == communicator
            self._cross(scheme, communicator, messages.select(mine), numbers[mine])

    def lacking_lanes(self, using: Mapping[int, set[QueuePair]]) -> list[int]:
        """Return the operations that would be placed on more lanes now than those that they use."""
        if not self.spreads:
            return []
        return [
            number
            for number, lanes in self._lanes_now(using).items()
            if not set(map(_ends, using[number])).issuperset(map(_ends, lanes))
        ]

    def can_go(self, numbers: Iterable[int]) -> set[int]:
        """Return the operations that would be placed on some lane now."""
        return {number for number, lanes in self._lanes_now(numbers).items() if lanes}

    def _lanes_now(self, numbers: Iterable[int]) -> dict[int, Sequence[QueuePair]]:
        wanted = list(numbers)
        if self._follows is None or not wanted:
            return {}
        placed, messages = self._messages_of([(number, 1) for number in wanted])
        return dict(zip(placed.tolist(), self._follows.lanes_now(self._view(0), messages), strict=True))

    def wait(self, parcels: Left) -> None:
        """Have bytes wait until more is lit."""
        self._in_the_dark += parcels

    def waiting(self) -> Left:
        """Return what waited for light, and waits no more."""
        waiting, self._in_the_dark = self._in_the_dark, []
        return waiting

    def _messages_of(self, parcels: Left) -> tuple[NDArray[np.int64], Messages]:
        """Return the numbers of operations, and the messages that are to be sent of each."""
        numbers, sizes = np.array(parcels, dtype=np.int64).reshape(-1, 2).T
        ends = [(self._ops[number].source, self._ops[number].destination) for number in numbers.tolist()]
        source, destination = np.array(ends, dtype=np.int64).T
        return numbers, Messages(source, destination, sizes)

    def _lower(self, parcels: Left, medium: int) -> Left:
        """Return what goes all the way now; some goes hop by hop, and some waits for light."""
        numbers, messages = self._messages_of(parcels)
        under_way = Ops((Part(messages, medium=medium, of=numbers),))
        ops = self._lowered(under_way, self._view(0))
        if ops is under_way:
            return parcels
        directly: Left = []
        for part in ops.parts:
            mine = list(zip(part.of.tolist(), part.moves.bytes.tolist(), strict=True))
            if part.hop < 0:
                (self._in_the_dark if part.medium == DARK else directly).extend(mine)
        self.split(ops)
        return directly

    def split(self, ops: Ops) -> None:
        """Have operations brought further by the hops among others."""
        brought, number = list[int](), dict[int, int]()
        place = 0
        for part in ops.parts:
            if part.hop >= 0:
                moves = part.moves
                rows = np.stack([part.of, moves.source, moves.destination, moves.bytes], axis=1)
                for index, row in enumerate(rows.tolist(), start=place):
                    number[index] = self._ledger.bring(*row, medium=part.medium, hop=part.hop)
                    brought.append(number[index])
                    self._ops[row[0]].pieces += part.hop == 0
            place += len(part)
        for before, then in ops.after.tolist():
            self._ops[number[before]].then.append(number[then])
            self._ops[number[then]].waits += 1
        self._release(each for each in brought if not self._ops[each].waits)

    def _cross(
        self, scheme: Scheme, communicator: int, messages: Messages, numbers: NDArray[np.int64]
    ) -> None:
        """Have a scheme place operations of a communicator that leave their server."""
        placed = of_communicator(placed_by(scheme, self._view(communicator), messages), communicator)
        if isinstance(placed, Placement):
            self._post(self._there(placed, numbers), numbers)
            return
        if isinstance(placed, WhileLit):
            if self._fabric.servers_forward:
                raise ScenarioError(
                    "messages that take whichever circuit is lit go as datagrams, which servers do not"
                    " forward",
                    "take a scheme that places them on queue pairs, such as Routed",
                )
            lit = self._by_light(placed, communicator, messages, numbers)
            if not lit.any():
                return
            placed, messages, numbers = placed.select(lit), messages.select(lit), numbers[lit]
        self._start([self._carriers.choose(placed, messages.bytes, numbers)])

    def _by_light(
        self, placed: WhileLit, communicator: int, messages: Messages, numbers: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """Return what circuits may carry now; have the scheme's rest carry the others."""
        lit = np.ones(len(messages), dtype=bool)
        if placed.rest:
            self.has_rest = True
            lit = np.array([bool(each) and not self.light_is_over for each in placed.lanes])
            if not lit.all():
                self._cross(placed.rest, communicator, messages.select(~lit), numbers[~lit])
        return lit

    def _post(self, placed: Placement, numbers: NDArray[np.int64]) -> None:
        """Put parcels of operations on queue pairs; ``numbers`` has those of the placement's messages."""
        carriers = self._carriers.open(placed.queue_pairs)
        self._keep(placed, numbers)
        if not len(placed.bytes):
            return  # all of it crosses NVLink first
        of, over, now_ps = numbers[placed.message], self._carriers.over(carriers), self._backend.now_ps
        leg, of_leg = np.unique(of * len(over) + placed.qp, return_inverse=True)
        sizes = np.bincount(of_leg, placed.bytes).astype(np.int64)
        for code, size in zip(leg.tolist(), sizes.tolist(), strict=True):
            number, qp = divmod(code, len(over))
            self._ledger.put(number, over[qp], size, now_ps)
        self._start([_on_lanes(of, placed.bytes, np.array(carriers)[placed.qp])])

    # Connections that are kept

    def _kept_for(self, number: int) -> QueuePair | None:
        op = self._ops[number]
        return self._kept[op.node].get(op.channel) if op.channel >= 0 else None

    def _post_on(self, parcels: Sequence[tuple[int, int, QueuePair]]) -> None:
        """Put bytes of operations on queue pairs that are known: those of their connections, as a rule."""
        carriers = self._carriers.open([queue_pair for *_, queue_pair in parcels])
        for (number, size, _), over in zip(parcels, self._carriers.over(carriers), strict=True):
            self._ledger.put(number, over, size, self._backend.now_ps)
        numbers, sizes = (np.array([parcel[column] for parcel in parcels]) for column in (0, 1))
        self._start([_on_lanes(numbers, sizes, np.array(carriers))])

    def _keep(self, placed: Placement, numbers: NDArray[np.int64]) -> None:
        """Remember the queue pairs of connections that are kept: of operations that go whole on one."""
        if not self._keeps:
            return
        carrying = defaultdict[int, set[int]](set)
        for qp, number in zip(placed.qp.tolist(), numbers[placed.message].tolist(), strict=True):
            carrying[number].add(qp)
        for number, qps in carrying.items():
            op = self._ops[number]
            if op.channel >= 0 and len(qps) == 1:
                self._kept[op.node][op.channel] = placed.queue_pairs[qps.pop()]

    def forget_connections(self, name: str | None = None) -> None:
        """Place anew what connections carry, of one collective or of all."""
        if name is None:
            self._kept.clear()
        else:
            self._kept.pop(name, None)

    # Where bytes are

    def _there(self, placed: Placement, numbers: NDArray[np.int64]) -> Placement:
        """Return what of operations is where their lanes begin; have the rest cross NVLink first."""
        if self._where is None:
            return placed
        own = numbers.tolist()
        there, hops = self._where.put(placed, own, list(map(self.root, own)))
        self._through_server(hops)
        return there

    def _through_server(self, hops: Iterable[Hop]) -> None:
        """Send bytes over NVLink, from the GPU that has them to a new lane's, or from there."""
        brought = list[int]()
        for number, source, destination, size, then in hops:
            brought.append(self._ledger.bring(number, source, destination, size))
            self._ops[number].pieces += 1
            if then:
                self._then_on[brought[-1]] = then
        self._release(brought)

    def goes_on(self, number: int, is_dark: Callable[[int], bool]) -> None:
        """Put on its lane what an operation brought over NVLink; place it anew if that carries no more."""
        if not (lane := self._then_on.pop(number, None)):
            return
        op = self._ops[number]
        (carrier,) = self._carriers.open([lane])
        if is_dark(carrier):
            self.returned(lane, [(op.part_of, op.size)])
            self.place([(op.part_of, op.size)])
            return
        self._post_on([(op.part_of, op.size, lane)])

    def returned(self, lane: QueuePair, left: Left) -> None:
        """Follow what a lane gives back."""
        if self._where:
            self._where.withdraw(lane, [(self.root(number), size) for number, size in left])

    def root(self, number: int) -> int:
        """Return the number of an operation, or of the one that it brings further."""
        while (part_of := self._ops[number].part_of) >= 0:
            number = part_of
        return number


def _ends(lane: QueuePair) -> tuple[Nic, Nic]:
    return lane.source, lane.destination


def _over_nvlink(op: NDArray[np.int64], moves: Messages, *, together: bool = False) -> Flows:
    lane = np.full(len(op), NVLINK)
    return Flows(op, moves.bytes, lane, moves.source, moves.destination, together, inside=True)


def _on_lanes(op: NDArray[np.int64], size: NDArray[np.int64], lane: NDArray[np.int64]) -> Flows:
    """Return bytes of operations on lanes between servers."""
    return Flows(op, size, lane, op, op)
