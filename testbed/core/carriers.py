"""Carriers: the queue pairs in use, which messages go over each by which path, and what they give back.

A message is on queue pairs where it was placed, chooses among some as it goes, or takes those that are lit.
The ledger has what each carries under the path that it takes, so that is booked anew when the path changes.
A queue pair by which packets of any entropy go takes several at once: what it carried is booked by entropy.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from testbed.core.ledger import INSIDE, Ledger
from testbed.core.light import Light
from testbed.core.movers import NVLINK, Backend, Chosen
from testbed.core.movers import Left as Reported
from testbed.core.packet_paths import path_now
from topologies.addresses import ENTROPIES
from topologies.fabric import Fabric, Nic, Port
from traffic.scheme import Choice, WhileLit
from traffic.spraying.policy import SPRAYED, Lanes, QueuePair, ReactivePolicy, between_nics, each_of

Left = list[tuple[int, int]]
"""What messages lack: the number of each, and its bytes."""


class Carriers:
    """The queue pairs of one run, by the numbers that the backend gives them.

    Parameters
    ----------
    fabric, backend, ledger, light
        Of the run.
    arrived
        Told, at once but not in the middle of anything, the number of a message of which a part counts as
        arrived: what it had put together on something, or what chose.
    returned
        Told what messages lack that a queue pair gives back.
    """

    def __init__(
        self,
        fabric: Fabric,
        backend: Backend,
        ledger: Ledger,
        light: Light,
        *,
        arrived: Callable[[int], None],
        returned: Callable[[QueuePair, Left], None],
    ) -> None:
        self._fabric, self._backend, self._ledger, self._light = fabric, backend, ledger, light
        self._arrived, self._returned = arrived, returned
        self._ops = ledger.ops
        self._pairs: dict[int, QueuePair] = {}
        self._over: dict[int, int] = {}
        """What the ledger calls each with the path that it has now, or had when it was closed."""
        self._led_around: dict[int, frozenset[Port]] = {}
        """Of each by which packets of any entropy go, what its packets were led around when it was booked."""
        self.choosing: dict[int, tuple[int, ...]] = {}
        """The messages under way that choose as they go, or take what is lit; and among which."""
        self._asked: dict[int, tuple[ReactivePolicy, int]] = {}
        """The policy that chooses for each, and what it calls the message."""
        self._taking_light: set[int] = set()
        """Those of them that take what is lit."""

    def open(self, queue_pairs: Sequence[QueuePair]) -> list[int]:
        """Return the numbers of queue pairs, which are opened if they are not."""
        carriers = self._backend.open(queue_pairs)
        for carrier, queue_pair in zip(carriers, queue_pairs, strict=True):
            is_new = carrier not in self._pairs
            if is_new:
                self._pairs[carrier] = queue_pair
                self._light.use(carrier, queue_pair)
            if queue_pair.entropy == SPRAYED:
                self._led_around[carrier] = self._backend.packet_paths.failed
            elif is_new or self._light.is_routed(queue_pair):
                self._over[carrier] = self._over_now(carrier)
        return carriers

    def over(self, carriers: Iterable[int]) -> list[int]:
        """Return what the ledger calls queue pairs."""
        return [self._over[carrier] for carrier in carriers]

    def over_of(self, lane: int) -> int | None:
        """Return what the ledger calls a lane; None if it was closed."""
        return INSIDE if lane == NVLINK else self._over.get(lane)

    def are_light(self, carriers: Iterable[int]) -> list[bool]:
        """Return which of some queue pairs go over circuits."""
        return [self._light.carries(self._pairs[carrier]) for carrier in carriers]

    def backlog_bytes(self, communicator: int, nic: Nic) -> int:
        """Return what a communicator's queue pairs from a NIC have yet to deliver."""
        using = self._light.using(nic).items()
        lanes = [carrier for carrier, pair in using if pair.communicator == communicator]
        return self._backend.owed(lanes)

    # Messages that choose, or take what is lit

    def choose(
        self, placed: Choice | WhileLit, size: NDArray[np.int64], numbers: NDArray[np.int64]
    ) -> Chosen:
        """Return messages that choose among lanes as they go, or take those that are lit."""
        sprays = self._backend.packet_paths.sprays and isinstance(placed, Choice)
        lanes = self._opened(placed.lanes, between_nics if sprays else each_of)
        for number, among in zip(numbers.tolist(), lanes, strict=True):
            self.choosing[number] = among
            op = self._ops[number]
            op.pieces += 1
            op.chose_ps = self._backend.now_ps
            self._ledger.sends(op.node, op.chose_ps)
        if isinstance(placed, WhileLit):
            self._taking_light.update(numbers.tolist())
        else:
            for name, number in enumerate(numbers.tolist(), start=placed.first):
                self._asked[number] = placed.policy, name
        return Chosen(numbers, size, lanes, placed)

    def _opened(
        self, lanes: Sequence[Lanes], queue_pairs_of: Callable[[Lanes], list[QueuePair]]
    ) -> list[tuple[int, ...]]:
        """Return the numbers of the queue pairs that each message may use, opened if they are not."""
        sets = {among: queue_pairs_of(among) for among in dict.fromkeys(lanes)}
        queue_pairs = list(dict.fromkeys(each for mine in sets.values() for each in mine))
        number = dict(zip(queue_pairs, self.open(queue_pairs), strict=True))
        numbers = {among: tuple(number[each] for each in mine) for among, mine in sets.items()}
        return [numbers[among] for among in lanes]

    @property
    def taking_light(self) -> list[int]:
        """The messages under way that take what is lit, in order."""
        return sorted(self._taking_light)

    def ended(self, number: int, at_ps: int) -> None:
        """Write down what was carried of a message that has arrived, if it chose or took what is lit."""
        if number in self.choosing:
            self._forget_choice(number)
            self._carried(self._backend.stop(ops=[number]), at_ps)

    @property
    def lacking(self) -> tuple[tuple[int, int, int], ...]:
        """What messages lack that take what is lit: source and destination GPU, and bytes."""
        rows = self._backend.under_way(ops=self.taking_light)
        found = [(self._ops[each.op], each.left) for each in rows if each.lane < 0]
        return tuple((op.source, op.destination, size) for op, size in found if size)

    @property
    def _optical(self) -> list[int]:
        """The queue pairs over circuits."""
        return [carrier for carrier, queue_pair in self._pairs.items() if self._light.carries(queue_pair)]

    @property
    def over_light(self) -> dict[int, int]:
        """What messages lack, by number, that is on queue pairs over circuits or chooses among some."""
        lacks, carries = defaultdict[int, int](int), self._light.carries
        for each in self._backend.under_way(self._optical):
            if each.op not in self.choosing:
                lacks[each.op] += each.left
        among = self.choosing.items()
        choosing = [number for number, lanes in among if any(carries(self._pairs[lane]) for lane in lanes)]
        for each in self._backend.under_way(ops=choosing):
            if each.lane < 0:
                lacks[each.op] = each.left
        return lacks

    @property
    def using_light(self) -> dict[int, set[QueuePair]]:
        """The queue pairs over circuits that carry something of each message, by number."""
        using = defaultdict[int, set[QueuePair]](set)
        for each in self._backend.under_way(self._optical):
            if each.op not in self.choosing:
                using[each.op].add(self._pairs[each.lane])
        return using

    @property
    def undelivered_bytes(self) -> int:
        """What all queue pairs have yet to deliver, and messages lack that choose or take what is lit."""
        found = self._backend.under_way(list(self._pairs), list(self.choosing))
        return sum(each.left for each in found)

    def recall(self, numbers: Collection[int]) -> Left:
        """Take back what messages lack that choose, or take what is lit.

        One that has arrived lacks nothing: the backend has reported that, or is about to. One that was taken
        back, and lacks only what was rounded away, counts as arrived.
        """
        if not numbers:
            return []
        stopped = self._backend.stop(ops=sorted(numbers))
        self._carried(stopped, self._backend.now_ps)
        taken_back, left = {each.op for each in stopped if each.lane < 0}, Left()
        for number in sorted(taken_back.union(numbers)):
            self._forget_choice(number)
            op = self._ops[number]
            lacks = op.size - op.carried if number in taken_back else 0
            if lacks:
                op.pieces -= 1
                left.append((number, lacks))
            elif number in taken_back:
                self._arrived(number)
        return left

    def _forget_choice(self, number: int) -> None:
        del self.choosing[number]
        self._taking_light.discard(number)
        if number in self._asked:
            policy, message = self._asked.pop(number)
            policy.withdraw(message=message)

    def _carried(self, reported: Iterable[Reported], at_ps: int) -> None:
        """Write down what queue pairs carried of messages that chose them as they went, until now."""
        for each in reported:
            if each.carried:
                op, over = self._ops[each.op], self._over_which(each)
                op.put(over, each.carried, op.chose_ps)
                op.landed(over, at_ps)

    # Paths

    def _over_which(self, each: Reported) -> int:
        """Return what the ledger calls what carried something, by its entropy if packets of any go by it."""
        if each.entropy is None:
            return self._over[each.lane]
        queue_pair, around = self._pairs[each.lane], self._led_around[each.lane]
        path = self._backend.packet_paths.by_entropy(queue_pair, around)[each.entropy % ENTROPIES]
        return self._ledger.over(queue_pair, path, is_light=False)

    def _over_now(self, carrier: int) -> int:
        """Return what the ledger calls a queue pair; over routes as on the last one while it has none."""
        queue_pair = self._pairs[carrier]
        is_light = self._light.carries(queue_pair)
        if not self._light.is_routed(queue_pair):
            path = path_now(self._fabric, self._backend.packet_paths, queue_pair)
            return self._ledger.over(queue_pair, path, is_light=is_light)
        route = self._light.route(queue_pair)
        if route is None and carrier in self._over:
            return self._over[carrier]
        return self._ledger.over(queue_pair, route.ports if route else (), is_light=is_light)

    def rename(self, *, all_of_them: bool = False) -> None:
        """Book what queue pairs have yet to deliver under the paths that they have now.

        By default those that light leads: others change only by faults.
        """
        if not (all_of_them or self._light.leads):
            return
        for carrier, queue_pair in self._pairs.items():
            if queue_pair.entropy == SPRAYED:
                if all_of_them:
                    self._book_choosing(carrier)
                    self._led_around[carrier] = self._backend.packet_paths.failed
                continue
            before = self._over[carrier]
            changes = all_of_them or self._light.is_routed(queue_pair)
            if changes and before != (now := self._over_now(carrier)):
                self._book_choosing(carrier)
                self._over[carrier] = now
                for each in self._backend.under_way([carrier]):
                    if each.left and each.op not in self.choosing:  # what chooses was booked
                        self._ops[each.op].moved(before, now, each.left, self._backend.now_ps)

    def _book_choosing(self, carrier: int) -> None:
        """Write down what messages that may choose a queue pair have sent until now, over its path so far."""
        now_ps = self._backend.now_ps
        for number, among in self.choosing.items():
            if carrier in among and number not in self._taking_light:
                self._carried(self._backend.under_way(ops=[number]), now_ps)
                self._ops[number].chose_ps = now_ps

    # What they give back

    def is_cut(self, carrier: int, failed: Collection[Port]) -> bool:
        """Return whether a failed port is at an end of a queue pair, or on its path."""
        queue_pair = self._pairs[carrier]
        ports = set(map(self._fabric.nic_port, (queue_pair.source, queue_pair.destination)))
        if self._light.is_routed(queue_pair):
            ports |= self._light.ports(queue_pair)
        ports |= self._backend.packet_paths.crossed(queue_pair)
        return not ports.isdisjoint(failed)

    def is_dead(self, carrier: int, failed: Collection[Port]) -> bool:
        """Return whether a queue pair carries nothing: a port of it has failed, or its circuits are dark."""
        queue_pair = self._pairs[carrier]
        is_dark = self._light.carries(queue_pair) and not self._light.route(queue_pair)
        return is_dark or self.is_cut(carrier, failed)

    def take_back(
        self, is_closed: Callable[[int], bool], messages: Collection[int], lost: Collection[int]
    ) -> Left:
        """Close queue pairs; return what is left of messages on them, and of those that may choose them.

        Closed are those that are said to be, and those that carry what is lost. Messages that choose are
        taken back if they may use a closed one, are lost, or are named. Those that take what is lit keep
        theirs, and lack what these do not carry, unless they are lost.
        """
        lit = {carrier for number in self._taking_light for carrier in self.choosing[number]}
        closed = {carrier for carrier in self._pairs if carrier not in lit and is_closed(carrier)}
        left = self.recall(
            [
                number
                for number, among in self.choosing.items()
                if number in lost
                or (number not in self._taking_light and (number in messages or not closed.isdisjoint(among)))
            ]
        )
        if lost:
            closed |= {each.lane for each in self._backend.under_way(list(self._pairs)) if each.op in lost}
        for carrier in [carrier for carrier in self._pairs if carrier in closed]:
            left += self._withdraw(carrier)
        return left

    @property
    def in_the_dark(self) -> dict[int, set[int]]:
        """The queue pairs over circuits that have no route, and the messages of which each has something."""
        dark = [carrier for carrier in self._optical if not self._light.route(self._pairs[carrier])]
        found = defaultdict[int, set[int]](set)
        for each in self._backend.under_way(dark):
            found[each.lane].add(each.op)
        return found

    def without_light(self, carriers: Iterable[int]) -> Left:
        """Close those of some queue pairs whose circuits have ended; return what they did not deliver."""
        dark = [carrier for carrier in sorted(carriers) if not self._light.route(self._pairs[carrier])]
        carrying = dict.fromkeys(each.lane for each in self._backend.under_way(dark))
        return [parcel for carrier in carrying for parcel in self._withdraw(carrier)]

    def unsent(self, messages: Collection[int]) -> Left:
        """Take back what queue pairs have not sent that carry some messages; they deliver the rest."""
        left: Left = []
        carrying = self._backend.under_way(list(self._pairs))
        for carrier in dict.fromkeys(each.lane for each in carrying if each.op in messages):
            found = self._lacking(carrier, self._backend.stop([carrier], in_flight="keep"))
            self._returned(self._pairs[carrier], found)
            left += found
        return left

    def _withdraw(self, carrier: int) -> Left:
        """Close a queue pair; return what it did not deliver."""
        left = self._lacking(carrier, self._backend.stop([carrier]))
        queue_pair = self._pairs.pop(carrier)
        self._light.forget(carrier, queue_pair)
        self._returned(queue_pair, left)
        return left

    def _lacking(self, carrier: int, back: Iterable[Reported]) -> Left:
        """Record what a queue pair gives back; return what lacks.

        What was rounded away at emulated scale counts as arrived.
        """
        left = []
        for each in back:
            op, over, whole = self._ops[each.op], self._over[carrier], not each.on_the_way
            if lacks := op.returned(over, each.left, self._backend.now_ps, whole=whole):
                op.pieces -= whole
                left.append((each.op, lacks))
            elif whole:
                op.landed(over, self._backend.now_ps)
                self._arrived(each.op)
        return left
