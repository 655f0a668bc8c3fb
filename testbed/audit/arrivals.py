"""Bytes: what arrived of each message is its bytes, and a collective's messages are what its pattern owes.

What a pattern owes is said beside it, from its definition (`traffic.collectives.owed`). Of a user's own
pattern nobody else knows that; of its messages only that all of their bytes arrived is checked.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from testbed.audit.course import Course, Grouped, Integers, first_wrong, of_message
from testbed.audit.finding import Found
from traffic.clock import NEVER
from traffic.collectives.all_to_all import AllToAll
from traffic.collectives.owed import Owed
from traffic.job import Collective


def arrivals(course: Course) -> Iterator[Found]:
    """Yield messages that did not arrive, or whose bytes are not those that are owed."""
    yield from _not_arrived(course)
    yield from _not_owed(course)
    yield from _not_carried(course)
    yield from _not_passed_on(course)


def _not_arrived(course: Course) -> Iterator[Found]:
    """Yield messages that never ended without being given up, or were given up without reason."""
    found = course.messages
    open_ended = (found["end_ps"] == NEVER) & ~found["given_up"]
    yield from first_wrong(of_message, course, open_ended, "did not arrive and was not given up")
    given_up = found["given_up"] & course.is_last
    if not given_up.any():
        return
    gone = np.isin(np.stack([found["source"], found["destination"]]), list(course.gone)).any(axis=0)
    cancelled = np.isin(found["node"], [course.number_of.get(name, -1) for name in course.cancelled])
    wrong = given_up & ~gone & ~cancelled
    yield from first_wrong(of_message, course, wrong, "was given up, and both of its GPUs are there")


def _not_owed(course: Course) -> Iterator[Found]:
    """Yield collectives whose messages are not what their patterns owe."""
    known: dict[tuple[int, bool], _Pairs] = {}
    for node in course.collectives():
        rows, pattern = course.last_messages(node.name), course.pattern(node)
        if not (owed := course.owed(pattern)):
            continue
        servers = isinstance(pattern, AllToAll) and bool((course.messages["row"][rows] < 0).any())
        if (id(owed), servers) not in known:
            known[id(owed), servers] = _Pairs(course, owed, servers=servers)
        if finding := known[id(owed), servers].differs(course, node.name, rows):
            yield finding


class _Pairs:
    """What each GPU owes each other one, edges between the same two together.

    With ``servers`` what leaves one is from and to the first GPUs of both.
    """

    def __init__(self, course: Course, owed: Owed, *, servers: bool) -> None:
        codes = _codes(course, owed.source, owed.destination, servers=servers)
        least, most = owed.least, owed.most
        if (codes[1:] <= codes[:-1]).any():
            codes, edge = np.unique(codes, return_inverse=True)
            least, most = (
                np.bincount(edge, size, minlength=len(codes)).astype(np.int64) for size in (least, most)
            )
        self._codes, self._least, self._most, self._total = codes, least, most, owed.total
        self._servers = servers
        self._order: Integers | None = None
        """The order of rows that was right last: repeated nodes have theirs alike."""

    def differs(self, course: Course, name: str, rows: Integers) -> Found | None:
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
            sent = f"GPU {source} sent GPU {destination} {int(sizes[at])} bytes in {name!r}"
            return f"{sent}, and owes {bytes_owed}", "messages", row
        if int(sizes.sum()) != self._total:
            sentence = f"{name!r} sent {int(sizes.sum())} bytes, and its pattern owes {self._total}"
            return sentence, "messages", int(rows[0]) if len(rows) else -1
        return None

    def _other_pairs(self, course: Course, name: str, codes: Integers, rows: Integers) -> Found:
        gpus = course.fabric.gpus
        if len(extra := np.flatnonzero(~np.isin(codes, self._codes))):
            source, destination = divmod(int(codes[extra[0]]), gpus)
            sentence = f"GPU {source} sent GPU {destination} bytes in {name!r}, and owes it none"
            return sentence, "messages", int(rows[extra[0]])
        lacking = np.flatnonzero(~np.isin(self._codes, codes))[0]
        source, destination = divmod(int(self._codes[lacking]), gpus)
        size = int(self._least[lacking])
        sentence = f"GPU {source} owes GPU {destination} {size} bytes in {name!r}, and sent none"
        return sentence, "messages", -1


def _codes(course: Course, source: Integers, destination: Integers, *, servers: bool) -> Integers:
    """Return a number for each pair of GPUs."""
    source, destination = source.astype(np.int64), destination.astype(np.int64)
    if servers:
        near, far = course.first_gpus[source], course.first_gpus[destination]
        leaves = near != far
        source, destination = np.where(leaves, near, source), np.where(leaves, far, destination)
    return np.asarray(source * course.fabric.gpus + destination)


def _not_carried(course: Course) -> Iterator[Found]:
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
    together = np.zeros(len(course.tables.nodes), dtype=bool)
    together[legs["node"][~own]] = True
    together[course.inside.node] = True
    checked = course.looked_at[found["node"]] & (has_legs | ~together[found["node"]])
    wrong = checked & np.where(found["given_up"], arrived > found["bytes"], arrived != found["bytes"])
    for row in np.flatnonzero(wrong)[:1].tolist():
        yield of_message(
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


def _not_passed_on(course: Course) -> Iterator[Found]:
    """Yield GPUs that did not keep what is theirs where legs carry several messages together."""
    legs, inside, count = course.legs, course.inside, len(course.tables.nodes)
    together = np.zeros(count, dtype=bool)
    together[legs["node"][legs["message"] < 0]] = True
    together[inside.node] = True
    if not together.any():
        return
    legs_of, loads_of = Grouped(legs["node"], count), Grouped(inside.node[inside.movement], count)
    for number in np.flatnonzero(together).tolist():
        name = course.tables.nodes[number]
        if name in course.cancelled or not isinstance(node := course.nodes.get(name), Collective):
            continue
        since_ps = max(course.given_up.get(name, (0,)))
        rows, loads = legs_of[number], loads_of[number]
        rows = rows[legs["first_ps"][rows] >= since_ps]
        loads = loads[inside.first_ps[inside.movement[loads]] >= since_ps]
        if finding := _keeps_wrong(course, node, rows, loads):
            yield finding


def _keeps_wrong(course: Course, node: Collective, rows: Integers, loads: Integers) -> Found | None:
    """Return a GPU that did not keep what it should; of what is relayed, the first GPU of a server."""
    owed = course.owed(course.pattern(node))
    if owed is None:
        return None
    legs, inside = course.legs, course.inside
    sizes = legs["bytes"][rows]
    sent = (_stands_at(course, rows, "from_gpu"), inside.gpu[loads], owed.destination)
    received = (_stands_at(course, rows, "to_gpu"), inside.gpu[loads], owed.source)
    amounts = (
        np.concatenate([sizes, inside.sent[loads], owed.least]),
        np.concatenate([sizes, inside.received[loads], owed.least]),
    )
    out_of, into = np.concatenate(sent), np.concatenate(received)
    if legs["hop"][rows].any():
        out_of, into = (course.first_gpus[gpus] for gpus in (out_of, into))  # relays pass on from any
    first = int(min(out_of.min(initial=course.fabric.gpus), into.min(initial=course.fabric.gpus)))
    count = int(max(out_of.max(initial=-1), into.max(initial=-1))) - first + 1
    # What it owes counts as received, and what it is owed as sent: then all is even.
    lacks = np.bincount(out_of - first, amounts[0], minlength=count) - np.bincount(
        into - first, amounts[1], minlength=count
    )
    for place in np.flatnonzero(lacks).tolist():
        gpu, lack = place + first, int(lacks[place])
        # What GPUs send each other on the way is a sum of parts of messages, and rounded to whole bytes.
        if abs(lack) > 2 * course.fabric.servers[course.fabric.gpu_servers[gpu]].gpus:
            break
    else:
        return None
    touching = rows[(sent[0] == gpu) | (received[0] == gpu)]
    what = f"lacks {lack} bytes of its own" if lack > 0 else f"kept {-lack} bytes of others"
    row = int(legs["row"][touching[0]]) if len(touching) else -1
    return f"GPU {gpu} {what} in {node.name!r}", "legs", row


def _stands_at(course: Course, rows: Integers, end: str) -> Integers:
    """Return the GPU at an end of legs: of what crosses, the GPU that its NIC belongs to."""
    legs = course.legs
    gpus = legs[end][rows].astype(np.int64)
    crosses = (legs["lane"][rows] >= 0) & (legs["message"][rows] < 0)
    gpus[crosses] = course.lane_gpus[end][legs["lane"][rows][crosses]]
    return gpus


def _range(least: int, most: int) -> str:
    return f"{least}" if least == most else f"{least} to {most}"
