"""The record of a run: events of nodes, light, links and faults, in their order.

Tables are made of it when a run has ended (`testbed.core.tables`); nothing is decided by it.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from testbed.core.nodes import NodeRow
from testbed.core.run_tables import Integers, Rows
from topologies.fabric import Link, Path, Port
from topologies.light import Circuit
from traffic.clock import NEVER
from traffic.spraying.policy import QueuePair
from traffic.tables import DARK, LIGHT, LIT, NVLINK, PACKETS, SPANS

Columns = tuple[Integers, Integers, Integers]
"""Medium, lane and path of each of some things that legs go over."""


class Over(NamedTuple):
    """NVLink, or a lane with a path: one of them carries each leg."""

    medium: int
    lane: int
    path: int


class Numbers(dict[str, int]):
    """Names by number, in the order in which they are first asked for."""

    def __missing__(self, name: str) -> int:
        self[name] = len(self)
        return self[name]


class Overs:
    """All lanes with each path that they had, and NVLink, numbered from 0: legs go over one of them."""

    def __init__(self) -> None:
        self.lanes: dict[QueuePair, int] = {}
        self.paths: dict[Path, int] = {}
        self._all = [Over(NVLINK, -1, -1)]
        self._numbers = {self._all[0]: 0}

    def __getitem__(self, number: int) -> Over:
        """Return one."""
        return self._all[number]

    def number(self, queue_pair: QueuePair, path: Path, *, is_light: bool) -> int:
        """Return the number of a lane with the path that it has now."""
        lane = self.lanes.setdefault(queue_pair, len(self.lanes))
        over = Over(LIGHT if is_light else PACKETS, lane, self.paths.setdefault(path, len(self.paths)))
        if over not in self._numbers:
            self._numbers[over] = len(self._all)
            self._all.append(over)
        return self._numbers[over]

    def columns(self, numbers: Sequence[int]) -> Columns:
        """Return the columns of some, by their numbers."""
        rows = np.array([self._all[number] for number in numbers], dtype=np.int32).reshape(-1, 3)
        medium, lane, path = rows.T
        return medium, lane, path


class Record:
    """All that happened in one run; times in ps."""

    def __init__(self) -> None:
        self.overs = Overs()
        self.spans = Rows(SPANS)
        self.events: list[tuple[int, str, str]] = []
        self.faults: list[tuple[str, int, str]] = []
        self.light: list[tuple[int, int, int, tuple[Circuit, ...]]] = []
        self.orders: list[tuple[int, int, tuple[Circuit, ...]]] = []
        self.ocses = Numbers()
        self.slots: dict[str, list[tuple[int, Sequence[Circuit] | None]]] = defaultdict(list)
        """The circuits of each OCS' slots, and since when [ps]; None between two slots."""
        self.links: list[tuple[int, int, float, bool, bool]] = []
        self.ports: dict[Port, int] = {}
        self._last: dict[int, tuple[float, bool, bool]] = {}
        """The last state of each link: rate, whether it is up, whether that is known."""

    def note(self, at_ps: int, what: str, which: str) -> None:
        """Note an event."""
        self.events.append((at_ps, what, which))

    def fault(self, at_ps: int, what: str, name: str) -> None:
        """Note that a fault has begun, is known, or is over."""
        self.faults.append((name, at_ps, what))
        self.note(at_ps, what, name)

    def shown(
        self, at_ps: int, what: str, ocs: str, circuits: Sequence[Circuit], *, in_program: bool = False
    ) -> None:
        """Note the circuits that an OCS carries from now on, under the name of what happened to it."""
        if in_program:
            self.slots[ocs].append((at_ps, circuits if what == "lit" else None))
        dark_or_lit = LIT if what == "lit" else DARK
        self.light.append((self.ocses[ocs], at_ps, dark_or_lit, tuple(circuits)))
        pairs = " ".join(f"{a}>{b}" for a, b in circuits)
        self.note(at_ps, what, f"{ocs} {pairs or '-'}" if what in ("lit", "switching") else ocs)

    def ordered(self, at_ps: int, ocs: str, circuits: Sequence[Circuit]) -> None:
        """Note the circuits that an OCS is to carry next."""
        self.orders.append((self.ocses[ocs], at_ps, tuple(circuits)))

    def link(self, link: Link, at_ps: int, *, rate_bps: float, up: bool, known: bool) -> None:
        """Note the state of a link, if it is new."""
        number = self.ports.setdefault(link.a, len(self.ports))
        state = rate_bps, up, known
        if self._last.get(number, (link.rate_bps, True, True)) != state:
            self._last[number] = state
            self.links.append((number, at_ps, *state))

    def computed(self, node: NodeRow, gpus: Sequence[int], first_ps: int, end_ps: int) -> None:
        """Note that GPUs computed together."""
        gpu = np.fromiter(gpus, np.int64, len(gpus))
        ready_ps = node.ready_ps
        self.spans.block(len(gpus), node.number, gpu, ready_ps, NEVER, ready_ps, first_ps, end_ps)

    def ended(self, node: NodeRow, at_ps: int) -> None:
        """Note that a collective has ended."""
        released_ps = node.ready_ps if node.released_ps == NEVER else node.released_ps
        first_ps = released_ps if node.first_ps == NEVER else node.first_ps
        self.spans.add(node.number, -1, node.ready_ps, node.held_ps, released_ps, first_ps, at_ps)
