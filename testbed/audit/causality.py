"""Causality: nothing begins before what it waits for has ended, and nothing takes less than it takes.

A GPU computes one thing at a time. A collective's span contains its waiting for circuits and all of its
messages, a message its legs, and of what travels step by step each step waits for the one before.
"""

from collections.abc import Iterator

import numpy as np

from testbed.audit.course import (
    Course,
    Grouped,
    Integers,
    earliest_ps,
    ends_ps,
    first_wrong,
    of_leg,
    of_message,
    of_movement,
    seconds,
)
from testbed.audit.finding import Found
from traffic.clock import NEVER, SECOND
from traffic.collectives.owed import Owed
from traffic.job import Collective, Compute


def causality(course: Course) -> Iterator[Found]:
    """Yield what began too early, or took too little."""
    yield from _spans(course)
    yield from _starts(course)
    yield from _waits(course)
    yield from _computes(course)
    yield from _one_at_a_time(course)
    yield from _messages(course)
    yield from _legs(course)
    yield from _operations(course)
    yield from _relays(course)
    yield from _steps(course)


def _spans(course: Course) -> Iterator[Found]:
    """Yield spans that end before they begin, or are of nothing that the job has."""
    spans, held = course.spans, course.spans["held_ps"] != NEVER
    order = [
        ("begins before it was let go", spans["first_ps"] < spans["released_ps"]),
        ("was let go before it was ready", spans["released_ps"] < spans["ready_ps"]),
        ("ends before it begins", spans["end_ps"] < spans["first_ps"]),
        ("was held before it was ready", held & (spans["held_ps"] < spans["ready_ps"])),
        ("was let go before it was held", held & (spans["released_ps"] < spans["held_ps"])),
    ]
    for what, wrong in order:
        yield from first_wrong(_of_span, course, wrong, what)
    known = np.array([name in course.nodes for name in course.tables.nodes], dtype=bool)
    yield from first_wrong(_of_span, course, ~known[spans["node"]], "is none of the job's nodes")


def _starts(course: Course) -> Iterator[Found]:
    """Yield nodes that began before the time from which they may."""
    own = [course.nodes[name].at_s if name in course.nodes else 0.0 for name in course.tables.nodes]
    at_ps = np.array(list(map(_ps, own)), dtype=np.int64)
    early = course.spans["ready_ps"] < at_ps[course.spans["node"]]
    yield from first_wrong(_of_span, course, early, "began before the time of its own start")


def _waits(course: Course) -> Iterator[Found]:
    """Yield nodes that were ready before one that they wait for had ended, or that never ended."""
    ended, ready = ends_ps(course), earliest_ps(course, "ready_ps")
    ends: dict[str, int] = {}
    known: dict[int, int] = {}  # many nodes wait for the same ones
    for name in course.in_order:
        after = course.awaited[name]
        if id(after) not in known:
            known[id(after)] = max(map(ends.__getitem__, after), default=0)
        free_ps = known[id(after)]
        number = course.number_of.get(name, -1)
        if number < 0 or ended[number] < 0:
            if _should_run(course, name):
                yield f"{name!r} did not run, and nothing gave it up", "spans", -1
            ends[name] = free_ps
            continue
        ends[name] = int(ended[number])
        if ready[number] < free_ps:
            row = np.flatnonzero((course.spans["node"] == number) & (course.spans["ready_ps"] < free_ps))[0]
            late = max(after, key=ends.__getitem__)
            what = f"was ready at {seconds(int(ready[number]))}, and waits for {late!r}, which ended at"
            yield _of_span(course, int(row), f"{what} {seconds(free_ps)}")


def _should_run(course: Course, name: str) -> bool:
    """Return whether a node has something to do on GPUs that are there."""
    node = course.nodes[name]
    if name in course.cancelled:
        return False
    if isinstance(node, Collective):
        return True
    moved = {gpu for each in course.revisions for gpu, _ in each.moves}
    return any(gpu not in course.gone or gpu in moved for gpu in node.gpus)


def _computes(course: Course) -> Iterator[Found]:
    """Yield computes that took another time than they take, on other GPUs, or not on all of them."""
    spans = course.spans
    takes = np.full(len(course.tables.nodes), -1, dtype=np.int64)
    expected = np.full(len(course.tables.nodes), -1, dtype=np.int64)
    varied = list[Compute]()
    for node in course.nodes.values():
        number = course.number_of.get(node.name, -1)
        if number < 0:
            continue
        if isinstance(node, Collective):
            expected[number] = 1
            continue
        if not course.gone:
            expected[number] = len(node.gpus)
        if node.durations_s:
            varied += [node] * course.looks_at(node.name)
        else:
            takes[number] = _ps(node.duration_s)
    off = spans["end_ps"] - spans["first_ps"]
    off -= takes[spans["node"]]
    wrong = (np.abs(off, out=off) > 1) & (spans["gpu"] >= 0) & (takes >= 0)[spans["node"]]
    for row in np.flatnonzero(wrong)[:1].tolist():
        yield _takes_wrong(course, row, int(takes[spans["node"][row]]))
    for node in varied:
        yield from _varied(course, node)
    counts = np.bincount(spans["node"], minlength=len(expected))
    for number in np.flatnonzero((expected >= 0) & (counts != expected) & (counts > 0))[:1].tolist():
        row = int(np.flatnonzero(spans["node"] == number)[-1])
        what = f"has {int(counts[number])} spans, and {int(expected[number])} of it run"
        yield _of_span(course, row, what)


def _varied(course: Course, node: Compute) -> Iterator[Found]:
    spans = course.spans
    rows = course.spans_by_node[course.number_of[node.name]]
    own = dict(zip(node.gpus, node.durations_s, strict=True))
    for form in course.forms(node):
        own |= dict(zip(form.gpus, node.durations_s, strict=True))
    for row in rows.tolist():
        should = _ps(own.get(int(spans["gpu"][row]), -1.0))
        if abs(int(spans["end_ps"][row] - spans["first_ps"][row]) - should) > 1:
            yield _takes_wrong(course, row, should)
            return


def _takes_wrong(course: Course, row: int, should: int) -> Found:
    lasts = int(course.spans["end_ps"][row] - course.spans["first_ps"][row])
    return _of_span(course, row, f"took {seconds(lasts)} to compute, and takes {seconds(should)}")


def _ps(lasts_s: float) -> int:
    return max(round(lasts_s * SECOND), int(lasts_s > 0))


def _one_at_a_time(course: Course) -> Iterator[Found]:
    """Yield a compute that began on a GPU while another ran there."""
    spans = course.spans
    order = np.lexsort((spans["end_ps"], spans["first_ps"], spans["gpu"]))
    gpu, first, end = (spans[name][order] for name in ("gpu", "first_ps", "end_ps"))
    wrong = (gpu[1:] >= 0) & (gpu[1:] == gpu[:-1]) & (first[1:] < end[:-1])
    for place in np.flatnonzero(wrong)[:1].tolist():
        other = course.tables.nodes[int(spans["node"][order[place]])]
        what = f"began to compute on GPU {gpu[place]} while {other!r} did"
        yield _of_span(course, int(order[place + 1]), what)


def _messages(course: Course) -> Iterator[Found]:
    """Yield messages outside of the span of their collective."""
    found, spans = course.messages, course.spans
    collectives = spans["gpu"] < 0
    ready, end = (np.full(len(course.tables.nodes), NEVER, dtype=np.int64) for _ in range(2))
    ready[spans["node"][collectives]] = spans["ready_ps"][collectives]
    end[spans["node"][collectives]] = spans["end_ps"][collectives]
    released = found["released_ps"]
    for row in np.flatnonzero(released < ready[found["node"]])[:1].tolist():
        at = seconds(int(released[row]))
        yield of_message(course, row, f"was released at {at}, before its collective was ready")
    yield from _owed_since(course, ready)
    late = (found["end_ps"] != NEVER) & (found["end_ps"] > end[found["node"]])
    for row in np.flatnonzero(late)[:1].tolist():
        at = seconds(int(found["end_ps"][row]))
        yield of_message(course, row, f"ended at {at}, after its collective had")
    early = (found["end_ps"] < released) & (released != NEVER)
    yield from first_wrong(of_message, course, early, "ended before it was released")


def _owed_since(course: Course, ready: Integers) -> Iterator[Found]:
    """Yield collectives whose messages are all owed since later than they: a CCT would lack the wait."""
    found = course.messages
    first = np.full(len(ready), NEVER, dtype=np.int64)
    np.minimum.at(first, found["node"], found["released_ps"])
    for number in np.flatnonzero((first != NEVER) & (ready != NEVER) & (first > ready))[:1].tolist():
        row = int(np.flatnonzero(found["node"] == number)[0])
        times = seconds(int(first[number])), seconds(int(ready[number]))
        yield of_message(course, row, f"is owed since {times[0]}, and its collective since {times[1]}")


def _legs(course: Course) -> Iterator[Found]:
    """Yield legs outside of the time of their message, or before their collective was let go."""
    legs, found = course.legs, course.messages
    if not len(legs["node"]):
        return
    yield from first_wrong(of_leg, course, legs["last_ps"] < legs["first_ps"], "ends before it begins")
    yield from first_wrong(of_leg, course, legs["bytes"] < 0, "has less than no byte")
    own = legs["message"] >= 0
    rows = np.flatnonzero(own)
    message = legs["message"] if own.all() else legs["message"][rows]
    first, last = (legs[name] if own.all() else legs[name][rows] for name in ("first_ps", "last_ps"))
    for row in rows[first < found["released_ps"][message]][:1].tolist():
        yield of_leg(course, row, "begins before its message was released")
    for row in rows[last > found["end_ps"][message]][:1].tolist():
        at = seconds(int(legs["last_ps"][row]))
        yield of_leg(course, row, f"ends at {at}, after its message had arrived")
    yield from _outside(course)


def _outside(course: Course) -> Iterator[Found]:
    """Yield legs, and what moved over NVLink, before their collective was let go or after it had ended."""
    legs, inside, spans = course.legs, course.inside, course.spans
    of = spans["gpu"] < 0
    let_go, end = (np.zeros(len(course.tables.nodes), dtype=np.int64) for _ in range(2))
    let_go[spans["node"][of]] = spans["released_ps"][of]
    end[spans["node"][of]] = spans["end_ps"][of]
    # What was on NVLink when its collective was given up arrives, whoever asks for it.
    end[[course.number_of[name] for name in course.given_up if name in course.number_of]] = NEVER
    early, late = "begins before its collective was let go", "ends after its collective"
    yield from first_wrong(of_leg, course, legs["first_ps"] < let_go[legs["node"]], early)
    yield from first_wrong(of_leg, course, legs["last_ps"] > end[legs["node"]], late)
    yield from first_wrong(of_movement, course, inside.first_ps < let_go[inside.node], early)
    yield from first_wrong(of_movement, course, inside.last_ps > end[inside.node], late)


def _operations(course: Course) -> Iterator[Found]:
    """Yield stages of gathered all-to-alls that begin before the one before has ended."""
    legs, inside = course.legs, course.inside
    if course.known.pipelined or not (legs["op"].any() or inside.op.any()):
        return
    again = np.zeros(len(course.tables.nodes), dtype=bool)
    again[[course.number_of[name] for name in course.given_up if name in course.number_of]] = True
    rows = np.flatnonzero((legs["message"] < 0) & ~again[legs["node"]])
    moved = np.flatnonzero(~again[inside.node])
    op = np.concatenate([legs["op"][rows], inside.op[moved]])
    node = np.concatenate([legs["node"][rows], inside.node[moved]])
    first_ps = np.concatenate([legs["first_ps"][rows], inside.first_ps[moved]])
    last_ps = np.concatenate([legs["last_ps"][rows], inside.last_ps[moved]])
    row = np.concatenate([legs["row"][rows], inside.row[moved]])
    last = np.zeros((3, len(again)), dtype=np.int64)
    np.maximum.at(last, (op, node), last_ps)
    last = np.maximum.accumulate(last)
    for place in np.flatnonzero((op > 0) & (first_ps < last[op - 1, node]))[:1].tolist():
        name, before = course.tables.nodes[int(node[place])], ("gathered", "sent")[int(op[place]) - 1]
        sentence = f"{name!r} goes on at {seconds(int(first_ps[place]))}, before all was {before}"
        yield sentence, "legs", int(row[place])


def _relays(course: Course) -> Iterator[Found]:
    """Yield legs that bring more further than had come to the relay."""
    legs = course.legs
    server = course.fabric.server_of_gpu
    onward = np.flatnonzero((legs["hop"] > 0) & (legs["bytes"] > 0))
    into: dict[tuple[int, int, int], list[int]] = {}
    for row in np.flatnonzero(np.isin(legs["message"], np.unique(legs["message"][onward]))).tolist():
        key = int(legs["node"][row]), int(legs["message"][row]), int(server[legs["to_gpu"][row]])
        into.setdefault(key, []).append(row)
    for row in onward.tolist():
        key = int(legs["node"][row]), int(legs["message"][row]), int(server[legs["from_gpu"][row]])
        come = into.get(key, [])
        if not come or min(int(legs["last_ps"][one]) for one in come) > legs["first_ps"][row]:
            yield of_leg(course, row, "goes on before anything had come to the relay")
            return


def _steps(course: Course) -> Iterator[Found]:
    """Yield messages of a step that were released before what they pass on had arrived."""
    for node in course.collectives():
        if course.attempts.get(node.name) or course.gone:
            continue
        found = course.owed(node.pattern)
        rows = course.last_messages(node.name)
        if found and len(found.follows) and len(rows) == len(found.source) * found.steps and found.steps > 1:
            row = _early_step(course, found, rows)
            if row is not None:
                yield of_message(course, row, "was released before the step before it had arrived")
                return


def _early_step(course: Course, owed: Owed, rows: Integers) -> int | None:
    """Return a message that is released when fewer steps have arrived than it needs.

    Edges between the same two GPUs cannot be told apart: of all their messages but the first ones, the k-th
    that is released comes after the k-th that arrives of those that they follow.
    """
    gpus, found = course.fabric.gpus, course.messages
    pairs, pair_of_edge, edges = np.unique(
        owed.source * gpus + owed.destination, return_inverse=True, return_counts=True
    )
    codes = found["source"][rows].astype(np.int64) * gpus + found["destination"][rows]
    pair = np.minimum(np.searchsorted(pairs, codes), len(pairs) - 1)
    if (pairs[pair] != codes).any() or (np.bincount(pair, minlength=len(pairs)) != owed.steps * edges).any():
        return None  # other pairs: the bytes' business
    rows_of = Grouped(pair, len(pairs))
    followed = Grouped(pair_of_edge, len(pairs))
    for number, first in enumerate(edges.tolist()):
        mine = rows[rows_of[number]]
        later = mine[np.argsort(found["released_ps"][mine], kind="stable")][first:]
        before = np.unique(pair_of_edge[owed.follows[followed[number]]]).tolist()
        arrived = np.sort(np.concatenate([found["end_ps"][rows[rows_of[each]]] for each in before]))
        early = np.flatnonzero(found["released_ps"][later] < arrived[: len(later)])
        if len(early):
            return int(later[early[0]])
    return None


def _of_span(course: Course, row: int, what: str) -> Found:
    return f"{course.tables.nodes[int(course.spans['node'][row])]!r} {what}", "spans", row
