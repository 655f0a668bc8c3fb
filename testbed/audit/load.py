"""Capacity: no link carried more than it could, while it was up, in the time that its legs give it.

The legs that cross a link, or a circuit, are jobs for a machine (`testbed.audit.capacity`): released when
their bytes could go, due when the last of them had arrived. NVLink is a link out of each GPU and one into
it. A circuit is a link that is there while it is lit.

Most of it is arithmetic on whole columns. The legs of a machine are cut where none is under way. One alone
needs room between its own two times; several that were released together need room for all that was due by
each of their ends, which is what earliest deadline first comes to then. So do those that were released at a
few times, from each of these on. Only what is left is tried by earliest deadline first, job by job.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from testbed.audit.capacity import first_missed
from testbed.audit.course import Course, Integers, rows_of, seconds
from testbed.audit.finding import Found
from testbed.audit.paths import Circuit, circuits_of
from topologies.fabric import Port
from traffic.clock import NEVER, SECOND
from traffic.tables import NVLINK, PACKETS

Floats = NDArray[np.float64]
ROUNDING = 1e-6
"""Less of each leg, and a byte, has to be carried in time: times and parts are rounded."""
LIVE = 0.02
"""The same of what was emulated: what a shaper's rate may be off."""
LIVE_BYTES = 2.0
"""The same at emulated scale [bytes]: each parcel is rounded to whole ones there."""
SPLIT = 0.2
"""The same of a message's part over one of several lanes that it chose as it went, in the model: that is made
of what the lanes carried meanwhile, and was up to a tenth off."""
FEW = 32
"""From so many times of release on, job by job is as fast."""


@dataclass(frozen=True, eq=False)
class Jobs:
    """What machines have to do; parallel arrays."""

    row: Integers
    """The row of each in the table of legs, the first of what moved together."""
    machine: Integers
    released: Floats
    """When it may begin, as the bytes that its machine could have carried by then."""
    due: Floats
    sizes: Floats
    """What of it has to be done in time [bytes]."""

    def select(self, which: Integers | NDArray[np.bool_]) -> "Jobs":
        """Return some of them, in that order."""
        times = self.released[which], self.due[which]
        return Jobs(self.row[which], self.machine[which], *times, self.sizes[which])


def load(course: Course) -> Iterator[Found]:
    """Yield the first leg that a link cannot have carried in time, of NVLink's and of the others'."""
    for jobs, names, lent in (_over_nvlink(course), _over_links(course)):
        if (job := _first_missed(jobs, lent[jobs.machine])) is not None:
            yield _missed(course, int(jobs.row[job]), names[int(jobs.machine[job])])


def _over_nvlink(course: Course) -> tuple[Jobs, list[str], Floats]:
    """Return what crossed the links out of GPUs, and into them, their names, and that they lend nothing."""
    legs, inside, fabric = course.legs, course.inside, course.fabric
    rows = np.flatnonzero(legs["medium"] == NVLINK)
    rate = np.array([fabric.servers[server].nvlink_bps for server in fabric.gpu_servers])
    ends = [legs[end][rows].astype(np.int64) for end in ("from_gpu", "to_gpu")]
    machine = np.concatenate([ends[0], ends[1] + fabric.gpus, inside.gpu, inside.gpu + fabric.gpus])
    sizes = np.concatenate([legs["bytes"][rows], legs["bytes"][rows], inside.sent, inside.received])
    first_ps, last_ps, row = (
        np.concatenate([own, own, together[inside.movement], together[inside.movement]])
        for own, together in (
            (legs["first_ps"][rows], inside.first_ps),
            (legs["last_ps"][rows], inside.last_ps),
            (legs["row"][rows], inside.row),
        )
    )
    used = np.flatnonzero(sizes)
    per_ps = (np.concatenate([rate, rate]) / (8 * SECOND))[machine[used]]
    begin_ps = int(first_ps.min(initial=NEVER))
    jobs = Jobs(
        row[used],
        machine[used],
        (first_ps[used] - begin_ps) * per_ps,
        (last_ps[used] - begin_ps) * per_ps,
        np.asarray(sizes[used] * (1 - ROUNDING) - 1),
    )
    names = [f"NVLink {way} GPU {gpu}" for way in ("out of", "into") for gpu in range(fabric.gpus)]
    return jobs, names, np.zeros(len(names))


def _over_links(course: Course) -> tuple[Jobs, list[str], Floats]:
    """Return what crossed each port's link and each circuit, their names, and what each lends [bytes]."""
    legs, known = course.legs, course.known
    crossing = np.flatnonzero((legs["medium"] != NVLINK) & (legs["path"] >= 0))
    number: dict[Port | Circuit, int] = {}
    on_path = list[Integers]()
    for path in course.tables.paths:
        ports = [port for port in path if port in course.peers]
        on_it: list[Port | Circuit] = [*ports, *circuits_of(path, course)]
        on_path.append(np.array([number.setdefault(each, len(number)) for each in on_it], dtype=np.int64))
    crossed = [on_path[path] for path in legs["path"][crossing].tolist()]
    leg = np.repeat(crossing, list(map(len, crossed)))
    machine = np.concatenate([np.zeros(0, dtype=np.int64), *crossed])
    sizes = _to_carry(course, leg, machine)
    begin_ps, end_ps = legs["first_ps"][leg], legs["last_ps"][leg]
    lent = np.array([known.lent_bytes.get(_fed_by(each, course), 0.0) for each in number])
    rates = _Rates(course)
    fixed = np.array([rates.constant(each) for each in number])
    start_ps = int(legs["first_ps"][crossing].min()) if len(crossing) else 0
    released, due = ((at - start_ps) * (fixed[machine] / (8 * SECOND)) for at in (begin_ps, end_ps))
    changing = np.flatnonzero(fixed[machine] < 0)
    if len(changing):
        carried = _carried_over_time(
            [
                (index, at_ps, rate_bps / (8 * SECOND))
                for each, index in number.items()
                if fixed[index] < 0
                for at_ps, rate_bps in rates.over_time(each)
            ]
        )
        released[changing] = _carried_by(carried, machine[changing], begin_ps[changing])
        due[changing] = _carried_by(carried, machine[changing], end_ps[changing])
    if lent.any():
        rests_ps = _rests_ps(legs["first_ps"][crossing], legs["last_ps"][crossing])
        before = np.searchsorted(rests_ps, begin_ps, side="right")
        released += before * lent[machine]
        due += np.maximum(before, np.searchsorted(rests_ps, end_ps, side="left")) * lent[machine]
    names = [
        str(each) if isinstance(each, Port) else f"{each[0]} {each[1][0]}>{each[1][1]}" for each in number
    ]
    return Jobs(legs["row"][leg], machine, released, due, np.asarray(sizes, dtype=float)), names, lent


def _carried_over_time(changes: Sequence[tuple[int, int, float]]) -> pd.DataFrame:
    """Return what machines could have carried by each change of their rate [bytes], in order of time.

    ``changes`` has the machine, the time [ps] and the rate from then on [bytes/ps]; those of one in order.
    """
    table = pd.DataFrame(changes, columns=["machine", "at_ps", "per_ps"])
    before = table.groupby("machine").shift(fill_value=0)
    carried = (table["at_ps"] - before["at_ps"]) * before["per_ps"]
    full = carried.groupby(table["machine"]).cumsum()  # of each by itself: nothing is rounded by the others
    return table.assign(full=full, since_ps=table["at_ps"]).sort_values("at_ps", kind="stable")


def _carried_by(over_time: pd.DataFrame, machine: Integers, times_ps: Integers) -> Floats:
    """Return what a machine each could have carried by some times, since time 0 [bytes]."""
    asked = pd.DataFrame({"machine": machine, "at_ps": times_ps}).sort_values("at_ps", kind="stable")
    found = pd.merge_asof(asked, over_time, on="at_ps", by="machine").set_index(asked.index).sort_index()
    carried = found["full"] + (found["at_ps"] - found["since_ps"]) * found["per_ps"]
    return carried.to_numpy(dtype=float)


def _to_carry(course: Course, leg: Integers, machine: Integers) -> Floats:
    """Return what of each leg has to have crossed a machine in time [bytes]."""
    legs, known = course.legs, course.known
    if known.live:
        wire = known.wire
        less = LIVE_BYTES / wire.volume + (_goes_on(legs) * wire.on_the_way)[leg] if wire else 1
        return np.asarray(legs["bytes"][leg] * (1 - LIVE) - less)
    estimated = known.estimates and _is_estimated(course, leg, machine)
    slack = np.where(estimated, SPLIT, ROUNDING)
    return np.asarray(legs["bytes"][leg] * (1 - slack) - 1)


def _goes_on(legs: Mapping[str, Integers]) -> NDArray[np.bool_]:
    """Return which legs begin where another of their message ends: its path changed under way."""
    begins, ends = (pd.MultiIndex.from_arrays([legs["message"], legs[at]]) for at in ("first_ps", "last_ps"))
    return np.asarray(begins.isin(ends) & (legs["message"] >= 0))


def _is_estimated(course: Course, leg: Integers, machine: Integers) -> NDArray[np.bool_]:
    """Return which legs are an estimated part of a message that chose its lanes as it went.

    Its legs have the same times. What crosses a machine by all of them is no estimate.
    """
    legs, estimated = course.legs, np.zeros(len(leg), dtype=bool)
    lane = np.flatnonzero((legs["medium"] == PACKETS) & (legs["message"] >= 0))
    if len(lane) == len(np.unique(legs["message"][lane])):
        return estimated
    times = np.stack([legs["message"][lane], legs["first_ps"][lane], legs["last_ps"][lane]])
    _, group, together = np.unique(times, axis=1, return_inverse=True, return_counts=True)
    group_of = np.full(len(legs["lane"]), -1, dtype=np.int64)
    group_of[lane] = np.where(together[group.ravel()] > 1, group.ravel(), -1)
    mine = np.flatnonzero(group_of[leg] >= 0)
    code = group_of[leg[mine]] * (int(machine.max(initial=0)) + 1) + machine[mine]
    _, at, crossing = np.unique(code, return_inverse=True, return_counts=True)
    estimated[mine] = crossing[at] < together[group_of[leg[mine]]]
    return estimated


def _fed_by(each: Port | Circuit, course: Course) -> Port:
    """Return the port whose bucket lends to a link, or to a circuit."""
    if isinstance(each, Port):
        return each
    entry = Port(each[0], each[1][0])
    return course.fabric.peer(entry) if entry in course.fabric.link_at else entry


def _rests_ps(first_ps: Integers, last_ps: Integers) -> Integers:
    """Return when legs began while no others were under way: the clock may have stood, and buckets filled."""
    order = np.argsort(first_ps, kind="stable")
    before = np.maximum.accumulate(last_ps[order])
    begins = first_ps[order]
    return np.concatenate([begins[:1], begins[1:][begins[1:] >= before[:-1]]])


class _Rates:
    """The rate of each link and circuit over time."""

    def __init__(self, course: Course) -> None:
        self._course = course
        links, ports = course.tables.links, course.tables.ports
        self._changes: dict[Port, list[tuple[int, float]]] = defaultdict(list)
        """Of each link that changed, by both of its ports: from when on it had which rate."""
        for port, at_ps, rate_bps, up in rows_of(links, "port", "at_ps", "rate_bps", "up"):
            for end in course.fabric.both_ends([ports[port]]):
                self._change(end, at_ps, rate_bps if up else 0.0)
        self._lit = _lit_over_time(course)

    def _change(self, end: Port, at_ps: int, rate_bps: float) -> None:
        """Note the rate of a link from a time on; it may have gone on faster a little longer."""
        changes, late_ps = self._changes[end], self._course.known.late_light_ps
        before_bps = changes[-1][1] if changes else self._course.fabric.link_at[end].rate_bps
        if changes and changes[-1][0] > at_ps:
            changes[-1] = at_ps, before_bps
        changes.append((at_ps + (late_ps if rate_bps < before_bps else 0), rate_bps))

    def constant(self, each: Port | Circuit) -> float:
        """Return the rate of what always had one; -1 if it changed [bit/s]."""
        if not isinstance(each, Port) or each in self._changes:
            return -1.0
        return self._course.fabric.link_at[each].rate_bps

    def over_time(self, each: Port | Circuit) -> list[tuple[int, float]]:
        """Return from when on it had which rate [ps, bit/s], the first from 0 on."""
        if isinstance(each, Port):
            whole = (0, self._course.fabric.link_at[each].rate_bps)
            return sorted([whole, *self._changes[each]], key=lambda change: change[0])
        ocs, ends = each
        full = max(self._course.fabric.link_at[Port(ocs, end)].rate_bps for end in ends)
        changes = [(0, 0.0)]
        for begin_ps, end_ps in self._lit.get(each, ()):
            changes += [(begin_ps, full), (end_ps, 0.0)]
        return changes


def _lit_over_time(course: Course) -> dict[Circuit, list[tuple[int, int]]]:
    """Return from when until when each circuit was lit, as far as the log of light may be late."""
    light, ocses, late_ps = course.tables.light, course.tables.ocses, course.known.late_light_ps
    found: dict[Circuit, list[tuple[int, int]]] = defaultdict(list)
    since: dict[str, dict[tuple[int, int], int]] = defaultdict(dict)
    for number, at_ps, circuits in rows_of(light, "ocs", "at_ps", "circuits"):
        ocs, now = ocses[number], set(map(tuple, circuits))
        for circuit in [circuit for circuit in since[ocs] if circuit not in now]:
            _lit_until(found[ocs, circuit], since[ocs].pop(circuit), at_ps + late_ps)
        for circuit in now - since[ocs].keys():
            since[ocs][circuit] = max(at_ps - late_ps, 0)
    for ocs, open_ended in since.items():
        for circuit, begin_ps in open_ended.items():
            _lit_until(found[ocs, circuit], begin_ps, NEVER)
    return found


def _lit_until(intervals: list[tuple[int, int]], begin_ps: int, end_ps: int) -> None:
    """Add an interval to those before; they do not overlap."""
    if intervals and intervals[-1][1] >= begin_ps:
        intervals[-1] = (intervals[-1][0], end_ps)
    else:
        intervals.append((begin_ps, end_ps))


def _first_missed(jobs: Jobs, lent: Floats) -> int | None:
    """Return a job that its machine cannot have done in time; None if there is none."""
    if not len(jobs.row):
        return None
    order = np.lexsort((jobs.released, jobs.machine))
    jobs, lent = jobs.select(order), lent[order]
    due = jobs.due + lent
    cluster = _clusters(jobs, due)
    counts = np.bincount(cluster)
    alone = counts[cluster] == 1
    missed = alone & (jobs.sizes > due - jobs.released)
    if missed.any():
        return int(order[np.flatnonzero(missed)[0]])
    rest = np.flatnonzero(~alone)
    if not len(rest):
        return None
    found = _first_in_clusters(jobs.select(rest), due[rest], cluster[rest])
    return None if found is None else int(order[rest[found]])


def _clusters(jobs: Jobs, due: Floats) -> Integers:
    """Return a number for each job, which those share that a machine has without a pause between them."""
    until = pd.Series(due).groupby(jobs.machine).cummax().to_numpy()
    new = np.ones(len(jobs.row), dtype=bool)
    new[1:] = (jobs.machine[1:] != jobs.machine[:-1]) | (jobs.released[1:] >= until[:-1])
    return np.asarray(np.cumsum(new) - 1)


def _first_in_clusters(jobs: Jobs, due: Floats, cluster: Integers) -> int | None:
    """Return a job of those that share their machine which cannot have been done in time."""
    start = np.flatnonzero(np.diff(cluster, prepend=-1))
    counts = np.diff(np.append(start, len(cluster)))
    part = np.repeat(np.arange(len(start)), counts)
    changes = np.ones(len(cluster), dtype=bool)
    changes[1:] = (jobs.released[1:] != jobs.released[:-1]) | (part[1:] != part[:-1])
    releases = np.add.reduceat(changes.astype(np.int64), start)
    turn = np.cumsum(changes) - 1
    turn -= np.repeat(turn[start], counts)
    by_due, first_of_turn = np.lexsort((due, part)), start.copy()
    for least in range(int(releases[releases <= FEW].max(initial=0))):
        # Of each cluster what is released from one of its times on: all of it due by a job's end has to fit.
        begins = np.flatnonzero(changes & (turn == least))
        first_of_turn[part[begins]] = begins
        mine = by_due[(turn[by_due] >= least) & (releases[part[by_due]] <= FEW)]
        at = part[mine]
        due_by_then = pd.Series(jobs.sizes[mine]).groupby(at).cumsum()
        missed = np.flatnonzero(due_by_then > due[mine] - jobs.released[first_of_turn[at]])
        if len(missed):
            return int(mine[missed[0]])
    for index in np.flatnonzero(releases > FEW).tolist():
        which = slice(int(start[index]), int(start[index] + counts[index]))
        found = first_missed(jobs.released[which], due[which], jobs.sizes[which])
        if found is not None:
            return int(start[index]) + found
    return None


def _missed(course: Course, row: int, machine: str) -> Found:
    """Return that a machine cannot have carried what a row of the table of legs says, or begins to say."""
    leg = course.tables.legs.iloc[row]
    node = course.tables.nodes[int(leg["node"])]
    times = seconds(int(leg["first_ps"])), seconds(int(leg["last_ps"]))
    sentence = (
        f"{machine} cannot have carried {int(leg['bytes'])} bytes of {node!r} from {times[0]} to {times[1]} "
        "beside what else it had to carry by then"
    )
    return sentence, "legs", row
