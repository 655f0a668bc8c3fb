"""Bytes: what arrived of each message is its bytes, and a collective's messages are what its pattern owes.

What a pattern owes is said beside it, from its definition (`traffic.collectives.owed`). Of a user's own
pattern nobody else knows that; of its messages only that all of their bytes arrived is checked.
"""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from testbed.audit.course import Course, Grouped, Integers
from testbed.audit.finding import Finding
from traffic.clock import NEVER
from traffic.collectives.all_to_all import AllToAll, owed_in_all_to_all
from traffic.collectives.exchange import Pattern
from traffic.collectives.node_all_to_all import RingAllToAll, owed_in_ring_all_to_all
from traffic.collectives.owed import Owed
from traffic.collectives.point_to_point import PointToPoint, owed_point_to_point
from traffic.collectives.ring import Ring, owed_in_ring
from traffic.job import Collective

CHECK = "bytes"
DEFINITIONS: dict[type, Callable[..., Owed]] = {
    AllToAll: owed_in_all_to_all,
    PointToPoint: owed_point_to_point,
    Ring: owed_in_ring,
    RingAllToAll: owed_in_ring_all_to_all,
}
"""What each pattern owes. What a user derives from one of them is another pattern."""


def owed_by(pattern: Pattern) -> Owed | None:
    """Return what a pattern owes, from its definition; None for a user's own."""
    define = DEFINITIONS.get(type(pattern))
    return define(pattern) if define else None


def arrivals(course: Course) -> Iterator[Finding]:
    """Yield messages that did not arrive, or whose bytes are not those that are owed."""
    yield from _not_arrived(course)
    yield from _not_owed(course)
    yield from _not_carried(course)
    yield from _not_passed_on(course)


def _not_arrived(course: Course) -> Iterator[Finding]:
    """Yield messages that never ended without being given up, or were given up without reason."""
    found = course.messages
    open_ended = (found["end_ps"] == NEVER) & ~found["given_up"]
    for row in np.flatnonzero(open_ended)[:1].tolist():
        yield _of_message(course, row, "did not arrive and was not given up")
    given_up = found["given_up"] & course.is_last
    if not given_up.any():
        return
    gone = np.isin(np.stack([found["source"], found["destination"]]), list(course.gone)).any(axis=0)
    cancelled = np.isin(found["node"], [course.number_of.get(name, -1) for name in course.cancelled])
    for row in np.flatnonzero(given_up & ~gone & ~cancelled)[:1].tolist():
        yield _of_message(course, row, "was given up, and both of its GPUs are there")


def _not_owed(course: Course) -> Iterator[Finding]:
    """Yield collectives whose messages are not what their patterns owe."""
    known: dict[int, tuple[Pattern, _Pairs | None]] = {}
    """By identity, since repeated nodes share theirs; with the pattern, or another could take its number."""

    def pairs_of(pattern: Pattern) -> "_Pairs | None":
        if id(pattern) not in known:
            owed = owed_by(pattern)
            known[id(pattern)] = pattern, _Pairs.of(course, owed) if owed else None
        return known[id(pattern)][1]

    for node in course.collectives():
        rows, wrong = course.last_messages(node.name), list[Finding]()
        for form in course.forms(node):
            pattern = form.pattern if isinstance(form, Collective) else node.pattern
            pairs = pairs_of(pattern)
            finding = pairs.differs(course, node.name, rows) if pairs else None
            if finding is None:
                break
            wrong.append(finding)
        else:
            yield wrong[0]


class _Pairs:
    """What each GPU owes each other one, edges between the same two together."""

    def __init__(
        self, codes: Integers, least: Integers, most: Integers, total: int, *, servers: bool
    ) -> None:
        self._codes, self._least, self._most, self._total = codes, least, most, total
        self._by_server: _Pairs | None = None
        self._servers = servers
        self._order: Integers | None = None
        """The order of rows that was right last: repeated nodes have theirs alike."""

    @classmethod
    def of(cls, course: Course, owed: Owed, *, servers: bool = False) -> "_Pairs":
        """Return what is owed; with ``servers`` what leaves one is from and to the first GPUs of both."""
        codes = _codes(course, owed.source, owed.destination, servers=servers)
        codes, edge = np.unique(codes, return_inverse=True)
        least, most = (
            np.bincount(edge, size, minlength=len(codes)).astype(np.int64) for size in (owed.least, owed.most)
        )
        found = cls(codes, least, most, owed.total, servers=servers)
        if not servers:
            found._by_server = cls.of(course, owed, servers=True)
        return found

    def differs(self, course: Course, name: str, rows: Integers) -> Finding | None:
        """Return how the messages of a collective differ from it; None if they do not."""
        found = course.messages
        whole = found["row"][rows] < 0
        if whole.any() and self._by_server and _is_all_to_all(course, name):
            return self._by_server.differs_by(course, name, rows)
        return self.differs_by(course, name, rows)

    def differs_by(self, course: Course, name: str, rows: Integers) -> Finding | None:
        """Return the first pair of GPUs that sent something else than they owe."""
        found = course.messages
        codes = _codes(course, found["source"][rows], found["destination"][rows], servers=self._servers)
        sizes = found["bytes"][rows]
        if len(codes) == len(self._codes):
            if self._order is None or not np.array_equal(codes[self._order], self._codes):
                self._order = np.argsort(codes, kind="stable")
            codes, sizes, rows = codes[self._order], sizes[self._order], rows[self._order]
        if not np.array_equal(codes, self._codes):
            all_rows = rows
            codes, first, pair = np.unique(codes, return_index=True, return_inverse=True)
            sizes = np.bincount(pair, sizes, minlength=len(codes)).astype(np.int64)
            rows = all_rows[first]
        if not np.array_equal(codes, self._codes):
            return self._other_pairs(course, name, codes, rows)
        wrong = np.flatnonzero((sizes < self._least) | (sizes > self._most))
        if len(wrong):
            at = int(wrong[0])
            bytes_owed = _range(int(self._least[at]), int(self._most[at]))
            row = int(rows[at])
            source, destination = found["source"][row], found["destination"][row]
            return Finding(
                CHECK,
                f"GPU {source} sent GPU {destination} {int(sizes[at])} bytes in {name!r}, and owes "
                f"{bytes_owed}",
                "messages",
                row,
            )
        if int(sizes.sum()) != self._total:
            return Finding(
                CHECK,
                f"{name!r} sent {int(sizes.sum())} bytes, and its pattern owes {self._total}",
                "messages",
                int(rows[0]) if len(rows) else -1,
            )
        return None

    def _other_pairs(self, course: Course, name: str, codes: Integers, rows: Integers) -> Finding:
        gpus = course.fabric.gpus
        if len(extra := np.flatnonzero(~np.isin(codes, self._codes))):
            source, destination = divmod(int(codes[extra[0]]), gpus)
            sentence = f"GPU {source} sent GPU {destination} bytes in {name!r}, and owes it none"
            return Finding(CHECK, sentence, "messages", int(rows[extra[0]]))
        lacking = np.flatnonzero(~np.isin(self._codes, codes))[0]
        source, destination = divmod(int(self._codes[lacking]), gpus)
        size = int(self._least[lacking])
        sentence = f"GPU {source} owes GPU {destination} {size} bytes in {name!r}, and sent none"
        return Finding(CHECK, sentence, "messages", -1)


def _is_all_to_all(course: Course, name: str) -> bool:
    node = course.nodes[name]
    return isinstance(node, Collective) and isinstance(node.pattern, AllToAll)


def _codes(course: Course, source: Integers, destination: Integers, *, servers: bool) -> Integers:
    """Return a number for each pair of GPUs."""
    source, destination = source.astype(np.int64), destination.astype(np.int64)
    if servers:
        first, server = np.asarray(course.fabric.gpu_offsets), course.fabric.server_of_gpu
        leaves = server[source] != server[destination]
        source = np.where(leaves, first[server[source]], source)
        destination = np.where(leaves, first[server[destination]], destination)
    return np.asarray(source * course.fabric.gpus + destination)


def _not_carried(course: Course) -> Iterator[Finding]:
    """Yield messages whose legs do not sum to their bytes."""
    legs, found = course.legs, course.messages
    own = legs["message"] >= 0
    if not len(found["node"]):
        return
    message, sizes, hop = (
        legs[name] if own.all() else legs[name][own] for name in ("message", "bytes", "hop")
    )
    arrived = np.bincount(message, sizes, minlength=len(found["node"]))
    if hop.any():
        relayed = np.zeros(len(arrived), dtype=bool)
        relayed[message[hop > 0]] = True
        arrived = np.where(relayed, _net(course, own), arrived)
    has_legs = np.bincount(message, minlength=len(found["node"])) > 0
    together = np.zeros(len(course.tables.nodes) + 1, dtype=bool)
    together[legs["node"][~own]] = True
    checked = has_legs | ~together[found["node"]]
    wrong = checked & np.where(found["given_up"], arrived > found["bytes"], arrived != found["bytes"])
    for row in np.flatnonzero(wrong)[:1].tolist():
        yield _of_message(
            course, row, f"has {int(found['bytes'][row])} bytes, and {int(arrived[row])} of it arrived"
        )


def _net(course: Course, own: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return what came to each message's destination; -1 if that is not what left its source."""
    legs, found, server = course.legs, course.messages, course.fabric.server_of_gpu
    message, sizes = legs["message"][own], legs["bytes"][own]
    near, far = server[legs["from_gpu"][own]], server[legs["to_gpu"][own]]
    net = []
    for end, sign in (("destination", 1), ("source", -1)):
        at = server[found[end]][message]
        into = sizes * ((far == at).astype(np.int64) - (near == at))
        net.append(sign * np.bincount(message, into, minlength=len(found["node"])))
    came, left = net
    return np.asarray(np.where(found["given_up"] | (came == left), came, -1.0))


def _not_passed_on(course: Course) -> Iterator[Finding]:
    """Yield GPUs that did not keep what is theirs where legs carry several messages together."""
    legs = course.legs
    together = legs["message"] < 0
    if not together.any():
        return
    by_node = Grouped.of(legs["node"], len(course.tables.nodes))
    begun_again = {name: max(times_ps) for name, times_ps in course.given_up.items()}
    for number in np.unique(legs["node"][together]).tolist():
        name = course.tables.nodes[number]
        if name in course.cancelled or not isinstance(node := course.nodes.get(name), Collective):
            continue
        rows = by_node[number]
        rows = rows[legs["first_ps"][rows] >= begun_again.get(name, 0)]
        forms = [form for form in course.forms(node) if isinstance(form, Collective)]
        wrong = [_keeps_wrong(course, form, rows) for form in forms]
        if all(wrong) and wrong[0]:
            yield wrong[0]


def _keeps_wrong(course: Course, node: Collective, rows: Integers) -> Finding | None:
    """Return a GPU that did not keep what it should; of what is relayed, the first GPU of a server."""
    owed = owed_by(node.pattern)
    if owed is None:
        return None
    legs = course.legs
    at = _places(course, relayed=bool(legs["hop"][rows].any()))
    ends = [at[_stands_at(course, rows, end)] for end in ("from_gpu", "to_gpu")]
    should = [at[owed.source], at[owed.destination]]
    first = min(int(gpus.min(initial=len(at))) for gpus in (*ends, *should))
    count = max(int(gpus.max(initial=-1)) for gpus in (*ends, *should)) - first + 1

    def kept_of(of: Integers, to: Integers, sizes: Integers) -> NDArray[np.float64]:
        into, out_of = (np.bincount(gpus - first, sizes, minlength=count) for gpus in (to, of))
        return np.asarray(into - out_of)

    kept, owes = kept_of(ends[0], ends[1], legs["bytes"][rows]), kept_of(should[0], should[1], owed.least)
    wrong = np.flatnonzero(kept != owes)
    if not len(wrong):
        return None
    gpu = int(wrong[0]) + first
    touching = rows[(ends[0] == gpu) | (ends[1] == gpu)]
    return Finding(
        CHECK,
        f"GPU {gpu} received {int(kept[wrong[0]])} bytes more than it sent in {node.name!r}, and should have "
        f"received {int(owes[wrong[0]])}",
        "legs",
        int(touching[0]) if len(touching) else -1,
    )


def _places(course: Course, *, relayed: bool) -> Integers:
    """Return the GPU that stands for each: itself or, where relays pass bytes on, its server's first."""
    if not relayed:
        return np.arange(course.fabric.gpus)
    return np.asarray(course.fabric.gpu_offsets, dtype=np.int64)[course.fabric.server_of_gpu]


def _stands_at(course: Course, rows: Integers, end: str) -> Integers:
    """Return the GPU at an end of legs: of what crosses, the GPU that its NIC belongs to."""
    legs = course.legs
    gpus = legs[end][rows].astype(np.int64)
    crosses = (legs["lane"][rows] >= 0) & (legs["message"][rows] < 0)
    gpus[crosses] = course.lane_gpus[end][legs["lane"][rows][crosses]]
    return gpus


def _of_message(course: Course, row: int, what: str) -> Finding:
    found = course.messages
    node = course.tables.nodes[int(found["node"][row])]
    ends = f"from GPU {found['source'][row]} to GPU {found['destination'][row]}"
    return Finding(CHECK, f"the message {ends} of {node!r} {what}", "messages", row)


def _range(least: int, most: int) -> str:
    return f"{least}" if least == most else f"{least} to {most}"
