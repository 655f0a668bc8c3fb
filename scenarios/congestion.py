"""Permutations, incasts, and mice beside an elephant, under several congestion controls."""

import _checkout  # first: runs this file under the checkout's Python

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

import numpy as np

from scenarios.spray_permutation import FLOW_BYTES, derangement
from scenarios.spray_permutation import flows as permutation
from testbed.study.study_options import run_file
from topologies.fabric import Fabric
from traffic.collectives.point_to_point import PointToPoint
from traffic.job import Collective, Job

US = 1e-6
ELEPHANT_BYTES, MOUSE_BYTES, MOUSE_EVERY_S = 10 * FLOW_BYTES, 200_000, 50 * US
UNIFORM_BYTES = 125_000
LATE_BYTES, LATE_S = 500_000, 60 * US
"""Sizes of flows [bytes], and starts: those of the runs of htsim that the study is compared with."""
PatternName = Literal[
    "permutation", "incast_8", "incast_15", "two_incasts", "elephant_mice", "uniform", "late_incast"
]


class Flow(NamedTuple):
    """A message of its own."""

    source: int
    destination: int
    bytes: int
    at_s: float = 0.0


def flows(fabric: Fabric, seed: int, *, pattern: PatternName) -> Job:
    """Return flows between servers of one NIC each.

    Parameters
    ----------
    fabric, seed
        The servers, and what draws a permutation.
    pattern
        permutation: every server sends 2 MB to one, as in htsim's file where that is found; incast_8 and
        incast_15: so many send 2 MB to server 0; two_incasts: 7 to server 0 and 7 to server 8; elephant_mice:
        20 MB to server 0, and every 50 us 200 kB from another server; uniform: 125 kB from each to each;
        late_incast: a permutation, and from 60 us on 500 kB of 7 servers to server 0.
    """
    if pattern == "permutation":
        return permutation(fabric, seed)
    made, note = MADE[pattern]
    listed = made(fabric.gpus, np.random.default_rng(seed))
    return job_of(pattern.replace("_", " "), listed, fabric.gpus, f"synthetic: {note}")


def job_of(name: str, flows: list[Flow], gpus: int, note: str) -> Job:
    """Return a job of flows: those that start together are a node."""
    by_start = defaultdict[float, list[tuple[int, int, int]]](list)
    for source, destination, size, at_s in flows:
        by_start[at_s].append((source, destination, size))
    nodes = []
    for at_s, messages in sorted(by_start.items()):
        said = f"from {at_s / US:g} us"
        # A communicator of its own: flows that start later share no source with those before.
        nodes.append(Collective(said, PointToPoint(tuple(messages)), communicator=said, at_s=at_s))
    used = 1 + max(max(source, destination) for source, destination, *_ in flows)
    return Job(name, max(gpus, used), tuple(nodes), note)


def _incast_8(_servers: int, _rng: np.random.Generator) -> list[Flow]:
    return [Flow(source, 0, FLOW_BYTES) for source in range(4, 12)]


def _incast_15(_servers: int, _rng: np.random.Generator) -> list[Flow]:
    return [Flow(source, 0, FLOW_BYTES) for source in range(1, 16)]


def _two_incasts(_servers: int, _rng: np.random.Generator) -> list[Flow]:
    return [
        *(Flow(source, 0, FLOW_BYTES) for source in range(9, 16)),
        *(Flow(source, 8, FLOW_BYTES) for source in range(1, 8)),
    ]


def _elephant_mice(_servers: int, _rng: np.random.Generator) -> list[Flow]:
    mice = [Flow(source, 0, MOUSE_BYTES, (source - 4) * MOUSE_EVERY_S) for source in range(5, 16)]
    return [Flow(4, 0, ELEPHANT_BYTES), *mice]


def _uniform(servers: int, _rng: np.random.Generator) -> list[Flow]:
    return [
        Flow(source, (source + step) % servers, UNIFORM_BYTES)
        for source in range(servers)
        for step in range(1, servers)
    ]


def _late_incast(servers: int, rng: np.random.Generator) -> list[Flow]:
    sent = enumerate(derangement(servers, rng).tolist())
    late = [Flow(source, 0, LATE_BYTES, LATE_S) for source in (2, 4, 6, 9, 11, 13, 15)]
    return [*(Flow(source, destination, FLOW_BYTES) for source, destination in sent), *late]


MADE: Mapping[PatternName, tuple[Callable[[int, np.random.Generator], list[Flow]], str]] = {
    "incast_8": (_incast_8, "8 servers send 2 MB to server 0"),
    "incast_15": (_incast_15, "15 servers send 2 MB to server 0"),
    "two_incasts": (_two_incasts, "7 servers send 2 MB to server 0, and 7 to server 8"),
    "elephant_mice": (_elephant_mice, "20 MB to server 0, and 200 kB of another server every 50 us"),
    "uniform": (_uniform, "every server sends 125 kB to each other"),
    "late_incast": (
        _late_incast,
        "every server sends 2 MB to another, drawn by the seed, and 7 from 60 us on 500 kB to server 0",
    ),
}
"""The flows of each pattern, of so many servers and a random generator, and the note of their job."""


if __name__ == "__main__":
    run_file(__file__)
