"""The paths that flows took, from packets that were seen on every link that they crossed.

Some packets are followed, about one of sixteen, and all that open a connection: the same ones at every port,
by what they carry (trajectory sampling, Duffield and Grossglauser, SIGCOMM 2000).
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from testbed.apps.app_record import PATHS
from testbed.apps.traffic_log import PLAIN_IP, SYN, TCP, UDP, Numbers, numbers_of
from testbed.network.packet_ring import Frames
from topologies.fabric import Fabric, Port

FOLLOWED = 16
"""One of so many packets is followed."""
ABROAD_S = 2.0
"""A packet is not on its way for longer: it waits in a queue of a few megabytes at each hop [s]."""
MOST_WAITING = 20_000
"""Rows of followed packets that wait to be put together."""
MOST_STRETCHES = 200_000
"""Most rows of `PATHS`; further changes of path are counted, not kept."""
UNKNOWN = -1
FOLLOWED_AT = "addresses", "ports", "mark", "port", "flow", "at_s"
"""The columns that are noted of a packet at a port; the first three tell packets apart."""


class PathLog:
    """The path of each flow over time.

    Parameters
    ----------
    fabric
        Whose ports packets cross.
    ports
        What the numbers of ports stand for.
    """

    def __init__(self, fabric: Fabric, ports: Sequence[Port]) -> None:
        self._fabric, self._ports = fabric, ports
        self._parts: list[Sequence[NDArray[Any]]] = []
        """`FOLLOWED_AT` of followed packets that are not put together yet."""
        self._waiting = 0
        self._paths: dict[tuple[int, ...], int] = {}
        """The number of the path of each set of ports; `UNKNOWN` if it is not a path from end to end."""
        self._texts: list[str] = []
        self._now: dict[int, list[float]] = {}
        """Of each flow the stretch that goes on: first, last [s], packets, number of the path."""
        self._stretches: list[tuple[int, float, float, int, int]] = []
        self.unkept = 0
        """Changes of path that were not kept."""

    def add(self, frames: Frames, at_s: NDArray[np.float64], port: Numbers, flow: Numbers) -> None:
        """Note packets at ports.

        Parameters
        ----------
        frames
            An array of `testbed.apps.traffic_log.HEADS`.
        at_s, port
            When each left which port [s, monotonic clock].
        flow
            The number of its flow at its host's NIC, -1 at other ports.
        """
        kept = np.flatnonzero(is_followed(frames))
        addresses, ports = numbers_of(frames[kept])
        mark = frames["id"][kept].astype(np.int64) << 32 | frames["sequence"][kept]
        self._parts.append((addresses, ports, mark, port[kept], flow[kept], at_s[kept]))
        self._waiting += len(kept)
        if self._waiting > MOST_WAITING:
            self._put_together(float(at_s[-1]) - ABROAD_S)

    def path_table(self, start_s: float) -> pd.DataFrame:
        """Return `PATHS`; times since ``start_s`` [s, monotonic clock]."""
        self._put_together(np.inf)
        going_on = [(flow, first, last, int(count), int(path))
                    for flow, (first, last, count, path) in self._now.items()]  # fmt: skip
        rows = sorted([*self._stretches, *going_on])
        table = pd.DataFrame(rows, columns=["flow", "first_s", "last_s", "packets", "path"])
        table["path"] = [self._texts[number] for number in table["path"]]
        table[["first_s", "last_s"]] -= start_s
        return table[list(PATHS)].astype(PATHS)

    def _put_together(self, until_s: float) -> None:
        """Note the path of each packet that was first seen before a time."""
        if not self._parts:
            return
        columns = map(np.concatenate, zip(*self._parts, strict=True))
        rows = pd.DataFrame(dict(zip(FOLLOWED_AT, columns, strict=True)))
        packet = rows.groupby(list(FOLLOWED_AT[:3]), sort=False)
        numbered = rows.assign(packet=packet.ngroup(), began_s=packet["at_s"].transform("min"))
        later = numbered["began_s"] > until_s
        self._parts = [[rows[name].to_numpy()[later] for name in FOLLOWED_AT]]
        self._waiting = int(later.sum())
        ready = numbered[~later].sort_values(["began_s", "packet", "port"], kind="stable")
        packets, port = ready["packet"].to_numpy(), ready["port"].to_numpy()
        starts = np.flatnonzero(np.diff(packets, prepend=-1))
        flows = np.maximum.reduceat(ready["flow"].to_numpy(), starts) if len(starts) else starts
        began_s = ready["began_s"].to_numpy()[starts]
        for (start, end), flow, at_s in zip(
            pairwise([*starts.tolist(), len(ready)]), flows.tolist(), began_s.tolist(), strict=True
        ):
            if flow >= 0:
                self._note(flow, self._path(tuple(port[start:end].tolist())), at_s)

    def _note(self, flow: int, path: int, at_s: float) -> None:
        if path == UNKNOWN:
            return
        now = self._now.setdefault(flow, [at_s, at_s, 0, path])
        if now[3] != path:
            if len(self._stretches) < MOST_STRETCHES:
                self._stretches.append((flow, now[0], now[1], int(now[2]), int(now[3])))
            else:
                self.unkept += 1
            now[:] = at_s, at_s, 0, path
        now[1] = max(now[1], at_s)
        now[2] += 1

    def _path(self, ports: tuple[int, ...]) -> int:
        """Return the number of the path that some ports are."""
        number = self._paths.get(ports)
        if number is None:
            path = path_through(self._fabric, [self._ports[port] for port in ports])
            number = self._paths[ports] = len(self._texts) if path else UNKNOWN
            if path:
                self._texts.append(" ".join(map(str, path)))
        return number


def path_through(fabric: Fabric, ports: Sequence[Port]) -> tuple[Port, ...]:
    """Return ports in the order in which a packet crosses them, from server to server; none if it cannot."""
    onward = {port.node: port for port in ports}
    led_to = {fabric.peer(port).node for port in ports}
    first = [port for port in ports if port.node in fabric.server_index and port.node not in led_to]
    if len(first) != 1 or len(onward) < len(ports):
        return ()
    path = [first[0]]
    while (port := onward.get(fabric.peer(path[-1]).node)) is not None:
        path.append(port)
    is_whole = len(path) == len(ports) and fabric.peer(path[-1]).node in fabric.server_index
    return tuple(path) if is_whole else ()


def is_followed(frames: Frames) -> NDArray[np.bool_]:
    """Return whether each packet is among those that are followed."""
    tcp, plain = frames["protocol"] == TCP, frames["version"] == PLAIN_IP
    total = np.where(tcp, frames["segment_sum"], frames["datagram_sum"]).astype(np.int64)
    chosen = (total + frames["id"]) % FOLLOWED == 0
    opens = tcp & (frames["flags"] & SYN > 0)
    return np.asarray(plain & (tcp | (frames["protocol"] == UDP)) & (opens | chosen))
