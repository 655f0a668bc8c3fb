"""What circuits do, once more and apart: OCSes side by side, and messages each alone on a circuit.

Changes are made in the order in which they were given, each when its OCSes have made those before, and a flip
when its OCSes have provisioned. From its begin on only circuits carry that it keeps; from when the last of
its OCSes is done, all that it has. Nothing here is of the program but the orders.
"""

import heapq
from collections.abc import Mapping, Sequence
from itertools import count

from topologies.events import Flip, Order, Provision, Reconfigure
from topologies.light import Circuit

Pairs = frozenset[Circuit]
Message = tuple[str, Circuit]
"""The OCS that a message goes over, and the circuit."""


class Change:
    """What some OCSes are to show, by name; of a flip that is found when it begins."""

    def __init__(self, circuits: Mapping[str, Sequence[Circuit]], *, flips: bool) -> None:
        self.circuits = {ocs: frozenset(pairs) for ocs, pairs in circuits.items()}
        self.flips, self.begun = flips, False


class Reference:
    """OCSes with a delay and a time of flips each [s], and what messages lack [s of their circuit]."""

    def __init__(self, delay_s: Mapping[str, float], flip_s: Mapping[str, float]) -> None:
        self.delay_s, self.flip_s, self.now_s = delay_s, flip_s, 0.0
        self.lit: dict[str, Pairs] = dict.fromkeys(delay_s, frozenset())
        self.beside: dict[str, Pairs] = {}
        self.ready: set[str] = set()
        self.changes: list[Change] = []
        self.events: list[tuple[float, int, object]] = []
        self.tickets = count()

    def ends_s(
        self, orders: Sequence[tuple[float, Order]], messages: Sequence[Message], lasts_s: float
    ) -> list[float]:
        """Return when each message has had its circuit for as long as it takes."""
        for at_s, order in orders:
            self.later(at_s, order)
        left, ends_s = dict.fromkeys(range(len(messages)), lasts_s), [0.0] * len(messages)
        while self.events:
            at_s, _, what = heapq.heappop(self.events)
            for number in [each for each in left if messages[each][1] in self.lit[messages[each][0]]]:
                ends_s[number] = self.now_s + left[number]
                left[number] -= at_s - self.now_s
                if left[number] <= 0:
                    del left[number]
            self.now_s = at_s
            self.happens(what)
            if left and not self.events:
                self.later(at_s + lasts_s, None)
                assert what is not None, "some circuit is never lit for long enough"
        return ends_s

    def later(self, at_s: float, what: object) -> None:
        """Have something happen."""
        heapq.heappush(self.events, (at_s, next(self.tickets), what))

    def happens(self, what: object) -> None:
        """Go on when an order is given, a change is done, or an OCS has provisioned."""
        if isinstance(what, Change):
            self.lit |= what.circuits
            self.changes.remove(what)
        elif isinstance(what, Provision):
            self.beside[what.ocs] = frozenset(what.circuits)
            self.later(self.now_s + self.delay_s[what.ocs], what.ocs)
        elif isinstance(what, Reconfigure):
            self.changes.append(Change(what.circuits, flips=False))
        elif isinstance(what, Flip):
            self.changes.append(Change(dict.fromkeys(what.ocses, ()), flips=True))
        elif isinstance(what, str):
            self.ready.add(what)
        busy = set[str]()
        for change in self.changes:
            can = not change.flips or self.ready.issuperset(change.circuits)
            if can and not change.begun and busy.isdisjoint(change.circuits):
                self.begin(change)
            busy.update(change.circuits)

    def begin(self, change: Change) -> None:
        """Darken what ends, and have all be lit when the last OCS is done."""
        change.begun, dark_s = True, 0.0
        for ocs, pairs in change.circuits.items():
            before = self.lit[ocs]
            if change.flips:
                change.circuits[ocs], self.beside[ocs] = self.beside[ocs], before
                dark_s = max(dark_s, self.flip_s[ocs])
            elif pairs - before:
                dark_s = max(dark_s, self.delay_s[ocs])
            self.lit[ocs] = before & change.circuits[ocs]
        self.later(self.now_s + dark_s, change)
