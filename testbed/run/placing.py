"""Placing: which lanes carry the bytes of operations, the last thing decided before they move.

What may go is lowered once more by its scheme, which sees what is lit and has failed: some of it goes hop by
hop, some waits for light. The rest goes where its connection went before, or where the scheme places it.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from testbed.run.carriers import Carriers, Left
from testbed.run.ledger import INSIDE, Columns, Ledger
from testbed.run.movers import NVLINK, Backend, Chosen, Flows
from testbed.run.written import Together
from topologies.errors import ScenarioError
from topologies.events import View
from topologies.fabric import Fabric
from traffic import ops as media
from traffic.messages import Messages, crosses_network
from traffic.messages import together as one_after_another
from traffic.ops import DARK, LANES, Ops, Part
from traffic.placing import lowered_by, placed_by
from traffic.scheme import (
    FollowsBytes,
    HasLanes,
    Hop,
    KeepsConnections,
    Lowers,
    Placement,
    Scheme,
    WhileLit,
    of_communicator,
)
from traffic.spraying.policy import QueuePair

Start = Callable[[Sequence[Flows | Chosen]], None]
MOST_KNOWN = 4096
"""So many sets of queue pairs are remembered."""
NOWHERE = Placement((), *(np.zeros(0, dtype=np.int64) for _ in range(3)))
"""Where nothing is placed."""


class _Opened(NamedTuple):
    """Queue pairs in use."""

    queue_pairs: Sequence[QueuePair]
    carriers: NDArray[np.int64]
    """The number of each."""
    is_light: NDArray[np.bool_]
    """Whether it goes over circuits."""
    columns: Columns
    """Medium, lane and path of each, and of NVLink after them."""


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
        view: Callable[[int], View],
        communicators: Mapping[str, int],
        release: Callable[[Iterable[int]], None],
        may_move: bool,
    ) -> None:
        self._fabric, self._scheme, self._ledger, self._carriers = fabric, scheme, ledger, carriers
        self._backend, self._start, self._view = backend, start, view
        self._communicator, self._release = communicators, release
        self._ops = ledger.ops
        self.by_light = isinstance(scheme, HasLanes)
        """Whether the scheme has lanes by what is lit, and others for what is left when that goes dark."""
        self._lanes = scheme.lanes if isinstance(scheme, HasLanes) else scheme
        self._lowers = isinstance(scheme, Lowers)
        self._keeps = isinstance(scheme, KeepsConnections) and scheme.keeps_connections
        self._kept: dict[str, dict[int, QueuePair]] = defaultdict(dict)
        """The queue pair of each connection that a collective under way keeps."""
        self._where = scheme.follow(fabric) if may_move and isinstance(scheme, FollowsBytes) else None
        """Where bytes are that the scheme follows."""
        self._then_on: dict[int, QueuePair] = {}
        """On what goes what an operation brings over NVLink."""
        self._in_the_dark: Left = []
        """What waits until its scheme sees light."""
        self._opened: dict[tuple[int, int], _Opened] = {}
        """The lanes over which moves of each communicator went together, by the identity of their tuple."""
        self.has_rest = False
        """Whether the scheme says how to carry over packets what circuits leave over."""
        self.light_is_over = False
        """Whether what circuits leave over goes over packets, and with it all that starts."""

    # Whole operations

    def lowered(self, ops: Ops, communicator: int) -> Ops:
        """Return what the scheme makes of the operations of a collective that starts."""
        return lowered_by(self._scheme, ops, self._view(communicator))

    def admit(self, ops: Ops, first: int) -> None:
        """Follow operations, which are numbered from a first one on."""
        if self._where:
            self._where.admit(ops, first)

    def moves(self, number: int) -> Messages | None:
        """Return the moves of an operation as bytes are now; None if as it was lowered."""
        return self._where.moves(number) if self._where else None

    def placed_together(self, ops: Ops, communicator: int) -> Placement | None:
        """Return where the first moves of operations go that go together; None if they cannot.

        They can unless the scheme has them choose as they go, or a relay stores what it forwards.
        """
        moves, first = _moves_of(ops.parts)
        leaving = first.select(crosses_network(moves, self._fabric))
        if not len(leaving):
            return NOWHERE
        view = self._view(communicator)
        under_way = Ops((Part(leaving, of=np.arange(len(leaving))),))
        if lowered_by(self._scheme, under_way, view) is not under_way:
            return None
        placed = placed_by(self._scheme, view, leaving)
        return placed if isinstance(placed, Placement) else None

    def in_step(self, numbers: Sequence[int], placed: Placement) -> list[Flows]:
        """Return the flows of operations of one collective, each of which is one over NVLink and lanes.

        All steps are alike but for some bytes, so each lane carries the same part of each.

        Parameters
        ----------
        numbers
            Of the operations.
        placed
            Where the first step of what leaves its server goes.
        """
        parts = [op.moves for number in numbers if (op := self._ops[number]).moves]
        moves, first = _moves_of(parts)
        (leaving,) = np.nonzero(crosses_network(moves, self._fabric))
        (inside,) = np.nonzero(~crosses_network(moves, self._fabric))
        opened = self._open(placed.queue_pairs, self._communicator[self._ops[numbers[0]].node])
        sizes = in_proportion(moves, first, leaving[placed.message], placed.bytes)
        move = np.append(leaving[placed.message], inside)
        which = np.append(placed.qp, np.full(len(inside), len(opened.carriers)))
        sizes = np.append(sizes, moves.bytes[inside])
        order = np.argsort(move, kind="stable")
        order = order[sizes[order] > 0]
        move, which, sizes = move[order], which[order], sizes[order]
        lane = np.append(opened.carriers, NVLINK)[which]
        edges = np.cumsum([0, *(len(part.moves) for part in parts)])
        flows = list[Flows]()
        for number, begin, end in zip(numbers, edges, edges[1:], strict=False):
            mine = slice(*np.searchsorted(move, (begin, end)))
            ends = moves.source[move[mine]], moves.destination[move[mine]]
            stays = bool((lane[mine] == NVLINK).all())
            flows.append(Flows(np.full(len(ends[0]), number), sizes[mine], lane[mine], *ends, True, stays))
            carried = move[mine] - begin, sizes[mine], which[mine]
            self._go_together(number, flows[-1:], self._ledger.together(*carried, opened.columns))
        return flows

    def over_lanes(self, number: int) -> list[Flows]:
        """Return the flows of an operation that goes together over the lanes of its servers.

        Lanes over circuits share nothing with those over packets: each are one flow, which ends when its
        busiest link does. Senders whose lanes share packet NICs, or circuits that servers forward between, do
        so by what they have left, so that those on the busiest link end together; what else they cross has
        room for them.
        """
        op = self._ops[number]
        assert op.moves
        communicator = self._communicator[op.node]
        placed = placed_by(self._lanes, self._view(communicator), op.moves.moves)
        assert isinstance(placed, Placement)
        opened = self._open(placed.queue_pairs, communicator)
        lane, light = opened.carriers[placed.qp], opened.is_light[placed.qp]
        of = np.full(len(lane), number)
        if light.all() or not light.any():
            flows = [Flows(of, placed.bytes, lane, of, of, together=True)]
        else:
            flows = [
                Flows(of[each], placed.bytes[each], lane[each], of[each], of[each], together=True)
                for each in (~light, light)
            ]
        carried = self._ledger.together(placed.message, placed.bytes, placed.qp, opened.columns)
        self._go_together(number, flows, carried)
        return flows

    def _go_together(self, number: int, flows: Sequence[Flows], carried: Together) -> None:
        op = self._ops[number]
        op.pieces, op.together = len(flows), carried
        self._ledger.sends(op.node, self._backend.now_ps)

    def _open(self, queue_pairs: Sequence[QueuePair], communicator: int) -> _Opened:
        """Return queue pairs in use; the same tuple of them is looked at once, unless paths may change."""
        if len(self._opened) >= MOST_KNOWN:
            self._opened.clear()
        key = id(queue_pairs), communicator
        found = self._opened.get(key)
        if found is None or self._fabric.servers_forward:
            own = of_communicator(replace(NOWHERE, queue_pairs=tuple(queue_pairs)), communicator)
            carriers = self._carriers.open(own.queue_pairs)
            is_light = np.array(self._carriers.are_light(carriers), dtype=bool)
            columns = self._ledger.columns([*self._carriers.over(carriers), INSIDE])
            found = _Opened(queue_pairs, np.array(carriers, dtype=np.int64), is_light, columns)
            self._opened[key] = found
        return found

    # Bytes of operations

    def place(self, parcels: Left) -> None:
        """Put bytes of operations that leave their server on lanes."""
        if kept := [(number, size, qp) for number, size in parcels if (qp := self._kept_for(number))]:
            self._post_kept(kept)
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

    def again(self, left: Left) -> None:
        """Place anew what operations lack."""
        if left:
            self.place(left)

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
        ops = lowered_by(self._scheme, under_way, self._view(0))
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
                rows = zip(
                    part.of.tolist(),
                    moves.source.tolist(),
                    moves.destination.tolist(),
                    moves.bytes.tolist(),
                    strict=True,
                )
                for index, row in enumerate(rows, start=place):
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
        carriers = self._carriers.open(placed.queue_pairs)
        self._start([self._carriers.choose(carriers, placed, messages.bytes, numbers)])

    def _by_light(
        self, placed: WhileLit, communicator: int, messages: Messages, numbers: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """Return what circuits may carry now; have the scheme's rest carry the others."""
        lit = np.ones(len(messages), dtype=bool)
        if placed.rest:
            self.has_rest = True
            lit = np.array([bool(qps) and not self.light_is_over for qps in placed.permitted.of_message])
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
        self._start([on_lanes(of, placed.bytes, np.array(carriers)[placed.qp])])

    # Connections that are kept

    def _kept_for(self, number: int) -> QueuePair | None:
        op = self._ops[number]
        return self._kept[op.node].get(op.channel) if op.channel >= 0 else None

    def _post_kept(self, parcels: Sequence[tuple[int, int, QueuePair]]) -> None:
        """Put bytes of operations on the queue pairs of their connections."""
        carriers = self._carriers.open([queue_pair for *_, queue_pair in parcels])
        for (number, size, _), over in zip(parcels, self._carriers.over(carriers), strict=True):
            self._ledger.put(number, over, size, self._backend.now_ps)
        numbers, sizes = (np.array([parcel[column] for parcel in parcels]) for column in (0, 1))
        self._start([on_lanes(numbers, sizes, np.array(carriers))])

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
        (over,) = self._carriers.over([carrier])
        self._ledger.put(op.part_of, over, op.size, self._backend.now_ps)
        self._start([on_lanes(*map(np.array, ([op.part_of], [op.size], [carrier])))])

    def returned(self, lane: QueuePair, left: Left) -> None:
        """Follow what a lane gives back."""
        if self._where:
            self._where.withdraw(lane, [(self.root(number), size) for number, size in left])

    def root(self, number: int) -> int:
        """Return the number of an operation, or of the one that it brings further."""
        while (part_of := self._ops[number].part_of) >= 0:
            number = part_of
        return number


def on_lanes(op: NDArray[np.int64], size: NDArray[np.int64], lane: NDArray[np.int64]) -> Flows:
    """Return bytes of operations on lanes between servers."""
    return Flows(op, size, lane, op, op)


def _moves_of(parts: Sequence[Part]) -> tuple[Messages, Messages]:
    """Return the moves of parts one after the other, and the same with the bytes by which they are placed."""
    moves = parts[0].moves if len(parts) == 1 else one_after_another(*(part.moves for part in parts))
    if not any(len(part.placed_as) for part in parts):
        return moves, moves
    sizes = [part.placed_as if len(part.placed_as) else part.moves.bytes for part in parts]
    return moves, Messages(moves.source, moves.destination, np.concatenate(sizes))


def in_proportion(
    moves: Messages, placed_as: Messages, move: NDArray[np.int64], size: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Divide the bytes of each move as those that were placed of it are; in the end exactly all.

    Parameters
    ----------
    moves, placed_as
        The moves, with all their bytes and with those by which they were placed.
    move, size
        Of each parcel that was placed.

    Examples
    --------
    >>> whole, first = (Messages(np.array([0]), np.array([2]), np.array([size])) for size in (10, 4))
    >>> in_proportion(whole, first, np.array([0, 0, 0]), np.array([1, 2, 1])).tolist()
    [2, 5, 3]
    """
    total, part = moves.bytes.tolist(), placed_as.bytes.tolist()  # whole numbers whose products may be large
    so_far, before = defaultdict[int, int](int), defaultdict[int, int](int)
    sizes = []
    for number, parcel in zip(move.tolist(), size.tolist(), strict=True):
        so_far[number] += parcel
        end = total[number] * so_far[number] // part[number]
        sizes.append(end - before[number])
        before[number] = end
    return np.array(sizes, dtype=np.int64)
