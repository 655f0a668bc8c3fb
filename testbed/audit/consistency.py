"""Consistency: the tables say the same as each other, as the fabric, and as what failed.

A message crosses if its GPUs are of two servers, is one row of its collective's exchange, and goes by queue
pairs of its communicator. An OCS that goes dark carries nothing that it did not before, and lights what was
ordered, one order after the other. A link does what the effects of the faults that stand leave of it, one
after the other.
"""

from collections import defaultdict, deque
from collections.abc import Iterator
from math import isclose

import numpy as np

from testbed.audit.course import Course, of_leg, of_message, rows_of
from testbed.audit.finding import Found
from topologies.fabric import Link
from traffic.clock import NEVER
from traffic.effects import LinkEffect, LinkState, applied
from traffic.faults import Fault
from traffic.tables import DARK, FAULTS, LIGHT_CHANGES, LIT, ORDERS


def consistency(course: Course) -> Iterator[Found]:
    """Yield rows that say otherwise than another table, the fabric or the faults."""
    yield from _crossing(course)
    yield from _exchanged(course)
    yield from _communicators(course)
    yield from _darkened(course)
    yield from _ordered(course)
    yield from _failed(course)


def _crossing(course: Course) -> Iterator[Found]:
    found, server = course.messages, course.fabric.server_of_gpu.astype(np.int32)
    leaves = server[found["source"]] != server[found["destination"]]
    for row in np.flatnonzero(found["crosses"] != leaves)[:1].tolist():
        yield of_message(course, row, f"{'leaves' if leaves[row] else 'stays in'} its server")


def _exchanged(course: Course) -> Iterator[Found]:
    """Yield collectives whose messages are not each one row of their exchange."""
    number = course.messages["row"]
    if not len(number):
        return
    for node in course.collectives():
        rows = course.last_messages(node.name)
        mine = number[rows]
        count = len(mine)
        if count and mine.min() >= 0 and (mine.max() >= count or int(mine.sum()) != count * (count - 1) // 2):
            yield of_message(course, int(rows[mine.argmax()]), "is not one of its collective's rows")
            return


def _communicators(course: Course) -> Iterator[Found]:
    """Yield legs over queue pairs of another communicator than their collective's."""
    legs, of_node = course.legs, np.full(len(course.tables.nodes), -1, dtype=np.int64)
    found = course.messages
    begins = np.flatnonzero(np.diff(found["node"], prepend=np.int32(-1)))
    of_node[found["node"][begins]] = found["communicator"][begins]
    crossing = np.flatnonzero(legs["lane"] >= 0)
    of_lane = np.array([lane.communicator for lane in course.tables.lanes], dtype=np.int64)
    wrong = of_lane[legs["lane"][crossing]] != of_node[legs["node"][crossing]]
    for row in crossing[wrong][:1].tolist():
        lane = course.tables.lanes[int(legs["lane"][row])]
        yield of_leg(course, row, f"goes by {lane}, a queue pair of another communicator")


def _darkened(course: Course) -> Iterator[Found]:
    """Yield OCSes that went dark and carry circuits that they did not before."""
    light = course.tables.light
    carried: dict[int, set[tuple[int, ...]]] = {}
    for row, (ocs, what, circuits) in enumerate(rows_of(light, "ocs", "what", "circuits")):
        now = set(map(tuple, circuits))
        if what == DARK and not now <= carried.get(ocs, set()):
            name = course.tables.ocses[ocs]
            yield f"OCS {name} went dark and carries new circuits", "light", row
            return
        carried[ocs] = now


def _ordered(course: Course) -> Iterator[Found]:
    """Yield OCSes that lit what was not ordered, or before it was; in an emulation slots may be left out."""
    orders, light, known = course.tables.orders, course.tables.light, course.known
    due: dict[int, deque[tuple[int, frozenset[tuple[int, ...]]]]] = defaultdict(deque)
    for ocs, at_ps, circuits in rows_of(orders, *ORDERS):
        due[ocs].append((at_ps, frozenset(map(tuple, circuits))))
    for row, (ocs, at_ps, what, circuits) in enumerate(rows_of(light, *LIGHT_CHANGES)):
        if what != LIT:
            continue
        coming, lit = due[ocs], frozenset(map(tuple, circuits))
        while known.live and coming and coming[0][1] != lit:
            coming.popleft()
        ordered_ps, ordered = coming.popleft() if coming else (NEVER, None)
        if ordered != lit or at_ps + known.late_light_ps < ordered_ps:
            sentence = f"OCS {course.tables.ocses[ocs]} lit circuits that were not ordered"
            yield sentence, "light", row
            return


def _failed(course: Course) -> Iterator[Found]:
    """Yield links that are up, or have a rate, that the faults which stand do not leave them."""
    links, ports = course.tables.links, course.tables.ports
    noted: dict[Link, list[tuple[int, float, bool, int]]] = {}
    for row, (port, at_ps, rate_bps, up) in enumerate(rows_of(links, "port", "at_ps", "rate_bps", "up")):
        noted.setdefault(course.fabric.link_at[ports[port]], []).append((at_ps, rate_bps, up, row))
    for (at_ps, link), state in _states(course).items():
        said = [found for found in noted.get(link, ()) if found[0] <= at_ps]
        _, rate_bps, up, row = said[-1] if said else (0, link.rate_bps, True, -1)
        if up != state.up:
            sentence = f"link {link.a} - {link.b} is {'up' if up else 'down'} against its faults"
        elif not isclose(rate_bps, link.rate_bps * state.rate):
            left = f"its faults leave {state.rate:g} of its rate"
            sentence = f"link {link.a} - {link.b} has {rate_bps:g} bit/s, and {left}"
        else:
            continue
        yield sentence, "links", row
        return


def _states(course: Course) -> dict[tuple[int, Link], LinkState]:
    """Return what the faults that stood left of each link of theirs, whenever one came or was over."""
    faults = course.tables.faults
    by_name = {fault.name: fault for fault in course.known.faults}
    standing: list[Fault] = []
    found: dict[tuple[int, Link], LinkState] = {}
    for name, at_ps, what in rows_of(faults, *FAULTS):
        if what not in ("failed", "back") or name not in by_name:
            continue
        fault = by_name[name]
        standing = [*standing, fault] if what == "failed" else [each for each in standing if each != fault]
        for link in dict.fromkeys(map(course.fabric.link_at.__getitem__, fault.links)):
            ends, state = {link.a, link.b}, LinkState()
            for effect in (effect for each in standing for effect in each.effects):
                if isinstance(effect, LinkEffect) and not ends.isdisjoint(effect.ports):
                    state = applied(effect, state)
            found[at_ps, link] = state
    return found
