"""Paths: a leg begins at a NIC of its source's server, ends at one of its destination's, joined all along.

Whether each circuit was lit, and each link up, for as many bytes as crossed it, is the capacity's business
(`testbed.audit.load`): what is dark has no capacity.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from testbed.audit.course import Course, Integers, first_wrong, of_leg
from testbed.audit.finding import Found
from topologies.fabric import Fabric, Path, Port
from traffic.tables import LIGHT, NVLINK, PACKETS

Circuit = tuple[str, tuple[int, int]]
"""An OCS, and the input port and the output port that it joins."""


class Ends(NamedTuple):
    """What a path joins."""

    near: int
    """The server whose NIC sends; -1 if there is none."""
    far: int
    """The server whose NIC receives."""
    medium: int
    broken: str
    """Why nothing can go over it; empty if something can."""


def paths(course: Course) -> Iterator[Found]:
    """Yield legs over paths that do not join their GPUs."""
    for row in course.inside.leaves[:1].tolist():
        yield "a leg goes over NVLink, and leaves its server", "legs", row
    legs, server = course.legs, course.fabric.server_of_gpu
    if not len(legs["node"]):
        return
    near, far = server[legs["from_gpu"]], server[legs["to_gpu"]]
    inside = legs["medium"] == NVLINK
    yield from first_wrong(of_leg, course, inside & (near != far), "goes over NVLink, and leaves its server")
    yield from first_wrong(of_leg, course, ~inside & (legs["path"] < 0), "leaves its server without a path")
    ends = [_ends_of(path, course) for path in course.tables.paths]
    crossing = np.flatnonzero(~inside & (legs["path"] >= 0))
    if not len(crossing):
        return
    path = legs["path"][crossing]
    broken = np.array([bool(each.broken) for each in ends])
    for row in crossing[broken[path]][:1].tolist():
        yield of_leg(course, row, f"goes {_text(course, row)}: {ends[int(legs['path'][row])].broken}")
    begins, leads, medium = (np.array([each[column] for each in ends]) for column in range(3))
    wrong = (begins[path] != near[crossing]) | (leads[path] != far[crossing])
    for row in crossing[wrong & ~broken[path]][:1].tolist():
        yield of_leg(course, row, f"goes {_text(course, row)}, which does not join their servers")
    wrong = medium[path] != legs["medium"][crossing]
    for row in crossing[wrong & ~broken[path]][:1].tolist():
        yield of_leg(course, row, f"goes {_text(course, row)}, and is not of that medium")
    yield from _off_lane(course, crossing)
    yield from _elsewhere(course)


def _ends_of(path: Path, course: Course) -> Ends:
    """Return what a path joins: each port sends to the node of the next, the first and the last to NICs."""
    if not path:
        return Ends(-1, -1, PACKETS, "it has no port")
    fabric, peers, servers, medium = course.fabric, course.peers, course.fabric.server_index, PACKETS
    for port in path:
        if port not in peers:
            return Ends(-1, -1, PACKETS, f"{port} has no link")
    near, far = servers.get(path[0].node, -1), servers.get(peers[path[-1]].node, -1)
    for port, then in pairwise(path):
        at = peers[port].node
        if at != then.node:
            return Ends(near, far, medium, f"{port} sends to {at}, not to {then.node}")
        if at in servers and not fabric.servers_forward:
            return Ends(near, far, medium, f"{at} forwards, and servers do not here")
        if at in course.ocses:
            medium = LIGHT
    broken = "" if near >= 0 and far >= 0 else "it does not begin and end at NICs"
    return Ends(near, far, medium, broken)


def circuits_of(path: Path, course: Course) -> Iterator[Circuit]:
    """Yield the circuits that a path crosses."""
    for port, then in pairwise(path):
        if then.node in course.ocses:
            yield then.node, (course.peers[port].number, then.number)


def _off_lane(course: Course, crossing: Integers) -> Iterator[Found]:
    """Yield legs of a queue pair over a path that does not join its NICs."""
    legs, fabric, lanes = course.legs, course.fabric, course.tables.lanes
    on_lane = crossing[legs["lane"][crossing] >= 0]
    both = np.unique(
        legs["lane"][on_lane].astype(np.int64) * len(course.tables.paths) + legs["path"][on_lane]
    )
    wrong = set[tuple[int, int]]()
    for code in both.tolist():
        lane, path = divmod(code, len(course.tables.paths))
        ports = course.tables.paths[path]
        if not ports or ports[-1] not in course.peers:
            continue
        ends = ports[0], course.peers[ports[-1]]
        pair = lanes[lane]
        if ends != (_port(fabric, *pair.source), _port(fabric, *pair.destination)):
            wrong.add((lane, path))
    if wrong:
        lane, path = min(wrong)
        row = on_lane[(legs["lane"][on_lane] == lane) & (legs["path"][on_lane] == path)][0]
        yield of_leg(course, int(row), f"is of queue pair {lanes[lane]}, and goes {_text(course, int(row))}")


def _port(fabric: Fabric, server: int, nic: int) -> Port | None:
    return Port(fabric.servers[server].name, nic) if 0 <= server < len(fabric.servers) else None


def _elsewhere(course: Course) -> Iterator[Found]:
    """Yield legs between other servers than those of their message, but for relayed ones."""
    legs, found, server = course.legs, course.messages, course.fabric.server_of_gpu
    own = np.flatnonzero(legs["message"] >= 0)
    message = legs["message"][own]
    relayed = np.zeros(len(found["node"]), dtype=bool)
    relayed[message[legs["hop"][own] > 0]] = True
    other = (server[legs["from_gpu"][own]] != server[found["source"][message]]) | (
        server[legs["to_gpu"][own]] != server[found["destination"][message]]
    )
    for row in own[other & ~relayed[message]][:1].tolist():
        of = int(legs["message"][row])
        ends = f"from GPU {found['source'][of]} to GPU {found['destination'][of]}"
        yield of_leg(course, row, f"is of a message {ends}, between other servers")
    for row in own[legs["node"][own] != found["node"][message]][:1].tolist():
        yield of_leg(course, row, "is of a message of another node")


def _text(course: Course, row: int) -> str:
    return "over " + ",".join(map(str, course.tables.paths[int(course.legs["path"][row])]))
