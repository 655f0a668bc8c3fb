"""Bounds: no collective, and no iteration, ended sooner than the bytes of it take at best.

A collective takes what the busiest server needs to send, or to receive, over all of its NICs what is owed
between servers, and what the busiest GPU needs for what stays inside over NVLink. A job takes its longest
path of these and of its computes.
"""

from collections.abc import Iterator

import numpy as np

from testbed.audit.course import Course, Integers, earliest_ps, ends_ps, seconds
from testbed.audit.finding import Found
from topologies.fabric import Nic
from traffic.clock import SECOND
from traffic.job import Collective

ROUNDING = 1e-6
"""Less of a bound has to be kept: times and parts are rounded."""
LIVE = 0.02
"""The same of what was emulated, whose links' rates may be off."""


def bounds(course: Course) -> Iterator[Found]:
    """Yield collectives, and the job, that ended sooner than they can."""
    least_s = _Least(course)
    slack = LIVE if course.known.live else ROUNDING
    ended, let_go = ends_ps(course), earliest_ps(course, "released_ps")
    at_least: dict[str, float] = {}
    known: dict[int, float] = {}  # many nodes wait for the same ones
    for name in course.in_order:
        node, after = course.nodes[name], course.awaited[name]
        number = course.number_of.get(name, -1)
        takes_ps = 0.0
        if isinstance(node, Collective):
            if name not in course.cancelled and course.looks_at(name):
                # A ring's 2 (N - 1) steps are each of whole picoseconds.
                takes_ps = least_s.of(node) * SECOND * (1 - slack) - 2 * len(node.gpus) - 2
        elif not course.gone:
            takes_ps = max(map(node.on_gpu_s, node.gpus), default=0.0) * SECOND * (1 - ROUNDING) - 2
        if isinstance(node, Collective) and number >= 0 and ended[number] - let_go[number] < takes_ps:
            lasts = seconds(int(ended[number] - let_go[number]))
            row = int(np.flatnonzero(course.spans["node"] == number)[0])
            yield f"{name!r} took {lasts}, and takes {seconds(int(takes_ps))} at best", "spans", row
            return
        if id(after) not in known:
            known[id(after)] = max(map(at_least.__getitem__, after), default=0.0)
        at_least[name] = max(known[id(after)], node.at_s * SECOND) + max(takes_ps, 0.0)
    ends = course.spans["end_ps"]
    if (
        len(ends)
        and not course.revisions
        and int(ends.max()) < (best_ps := max(at_least.values(), default=0.0)) - 2
    ):
        lasts = seconds(int(ends.max()))
        sentence = f"the job took {lasts}, and takes {seconds(int(best_ps))} at best"
        yield sentence, "spans", int(ends.argmax())


class _Least:
    """How long patterns take at best [s]; each found once."""

    def __init__(self, course: Course) -> None:
        self._course, fabric = course, course.fabric
        rates, lent = np.zeros(len(fabric.servers)), np.zeros(len(fabric.servers))
        for nic in fabric.nics:
            port = fabric.nic_port(Nic(*nic))
            rates[nic.server] += fabric.nic_rate_bps(nic)
            lent[nic.server] += course.known.lent_bytes.get(port, 0.0)
        self._rates, self._lent = rates, lent
        self._nvlink_bps = np.array([server.nvlink_bps for server in fabric.servers])
        self._known: dict[int, float] = {}

    def of(self, node: Collective) -> float:
        """Return how long a collective takes at best; of a user's own pattern by what its messages are."""
        owed = None if self._course.gone else self._course.owed(node.pattern)
        if owed is None:
            rows = self._course.last_messages(node.name)
            found = self._course.messages
            rows = rows[~found["given_up"][rows] & (found["row"][rows] >= 0)]
            return self._takes_s(found["source"][rows], found["destination"][rows], found["bytes"][rows])
        if id(node.pattern) not in self._known:
            self._known[id(node.pattern)] = self._takes_s(owed.source, owed.destination, owed.least)
        return self._known[id(node.pattern)]

    def _takes_s(self, source: Integers, destination: Integers, sizes: Integers) -> float:
        server = self._course.fabric.server_of_gpu
        near, far = server[source], server[destination]
        leaves = near != far
        takes = [0.0]
        for end in (near, far):
            load = np.bincount(end[leaves], sizes[leaves], minlength=len(self._rates)) - self._lent
            takes.append(float((8 * load / self._rates).max()))
        return max(*takes, *(self._inside_s(gpu[~leaves], sizes[~leaves]) for gpu in (source, destination)))

    def _inside_s(self, gpu: Integers, sizes: Integers) -> float:
        if not len(gpu):
            return 0.0
        first = int(gpu.min())
        load = np.bincount(gpu - first, sizes)
        used = np.flatnonzero(load)
        rate = self._nvlink_bps[self._course.fabric.server_of_gpu[used + first]]
        return float((8 * load[used] / rate).max())
