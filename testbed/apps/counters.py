"""Bytes of links over time, and segments that hosts' TCP sent again: from the kernel's counters.

A reading is one answer of the kernel about all interfaces of a namespace and one about all queues, both at
the switches' ends of links. For 600 interfaces it takes some milliseconds.
"""

import math
import socket
import struct
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pyroute2.netlink import NLM_F_DUMP, NLM_F_REQUEST, NLMSG_DONE
from pyroute2.netlink.rtnl import RTM_GETQDISC, RTM_GETSTATS

from testbed.apps.app_record import LINKS, HostTcp
from testbed.machine.kernel import inside_namespace
from testbed.machine.netlink import HEADER, NLMSG_ERROR, TC_MESSAGE
from testbed.network.network import Network
from testbed.network.wiring import Wiring
from topologies.addresses import interface
from topologies.errors import NetworkError
from topologies.fabric import Port
from traffic.tables import empty

TICK_S = 0.1
"""How often counters are read, and the width of a tick as long as ticks are few [s]."""
MOST_TICKS = 600
"""Ticks that are kept; of more they become twice as wide."""
STATS_MESSAGE = struct.Struct("=BBHII")
"""struct if_stats_msg: family, padding, interface, which statistics."""
IFLA_STATS_LINK_64 = 1
LINK_STATS = struct.Struct("=4Q")
"""The start of struct rtnl_link_stats64: packets received and sent, bytes received and sent."""
ATTRIBUTE = struct.Struct("=HH")
TBF_KIND = b"tbf\0"
TCA_STATS2, TCA_STATS_QUEUE = 7, 3
QUEUE_STATS = struct.Struct("=III")
"""The start of struct gnet_stats_queue: packets and bytes that wait, packets dropped."""
ANSWER_BYTES = 1 << 18
SENT, PACKETS, DROPS, BACKLOG = range(4)
"""The columns of what is kept of a port in a tick."""
PROTOCOLS = {
    "snmp": {"OutSegs": "segments", "RetransSegs": "resent", "RcvbufErrors": "unread"},
    "netstat": {"TCPTimeouts": "timeouts"},
}
"""Files of /proc/net, and their counters that `HostTcp` has; UDP-Lite's have the names of UDP's."""
Reading = NDArray[np.float64]
"""A row per port: bytes, packets and drops so far, and bytes that wait."""


class _Look(NamedTuple):
    """A channel to the kernel in one namespace, and the ports that its interfaces are."""

    channel: socket.socket
    sent: Mapping[int, int]
    """The row of the port that an interface is."""
    received: Mapping[int, int]
    """The row of the NIC at the other end of its link."""


class LinkCounters:
    """Reads what every port of a fabric has sent, many times a second; a context manager.

    Parameters
    ----------
    wiring
        Where the switches' ports are.
    """

    def __init__(self, wiring: Wiring) -> None:
        self._wiring, self._ports = wiring, [*wiring.fabric.link_at]
        self._rows = {port: row for row, port in enumerate(self._ports)}
        self._stop = threading.Event()
        self._failure: Exception | None = None

    def __enter__(self) -> Self:
        """Begin to read."""
        switches = self._wiring.fabric.switch_index
        with ExitStack() as stack:
            self._looks = [
                self._looking(stack, ports)
                for ports in self._wiring.together(port for port in self._ports if port.node in switches)
            ]
            self._stack = stack.pop_all()
        self._origin_s = time.monotonic()
        self.ticks = LinkTicks(self._origin_s, self._read())
        """All readings so far."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: object, *_error: object) -> None:
        """Read a last time, and stop. Raise what kept counters from being read."""
        self._stop.set()
        self._thread.join()
        self._stack.close()
        if self._failure and kind is None:
            raise self._failure

    @property
    def tick_s(self) -> float:
        """Width of the ticks [s]."""
        return self.ticks.tick_s

    def links(self, start_s: float) -> pd.DataFrame:
        """Return `testbed.apps.app_record.LINKS` since a time [s, monotonic clock]; once it has stopped."""
        return self.ticks.table([str(port) for port in self._ports], start_s)

    def _looking(self, stack: ExitStack, ports: Sequence[Port]) -> "_Look":
        """Return how ports are looked at whose interfaces are in one namespace."""
        fabric = self._wiring.fabric
        with self._wiring.inside(ports[0].node):
            channel = stack.enter_context(
                socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
            )
            indices = {port: socket.if_nametoindex(interface(fabric, port)) for port in ports}
        channel.bind((0, 0))
        channel.settimeout(30.0)
        peers = {index: fabric.peer(port) for port, index in indices.items()}
        return _Look(
            channel,
            {index: self._rows[port] for port, index in indices.items()},
            {index: self._rows[peer] for index, peer in peers.items() if peer.node in fabric.server_index},
        )

    def _run(self) -> None:
        try:
            self._read_often()
        except (OSError, NetworkError) as error:
            self._failure = error

    def _read_often(self) -> None:
        over, number = False, 1
        while not over:
            over = self._stop.wait(max(self._origin_s + number * TICK_S - time.monotonic(), 0.0))
            reading = self._read()
            now_s = time.monotonic()
            self.ticks.add(now_s, reading)
            number = math.floor((now_s - self._origin_s) / TICK_S) + 1

    def _read(self) -> Reading:
        reading = np.zeros((len(self._ports), 4))
        for look in self._looks:
            for index, (packets_in, packets_out, bytes_in, bytes_out) in _link_stats(look.channel):
                if (row := look.sent.get(index)) is not None:
                    reading[row, [SENT, PACKETS]] = bytes_out, packets_out
                if (row := look.received.get(index)) is not None:
                    reading[row, [SENT, PACKETS]] = bytes_in, packets_in
            for index, (_, waiting_bytes, drops) in _queue_stats(look.channel):
                if (row := look.sent.get(index)) is not None:
                    reading[row, [DROPS, BACKLOG]] = drops, waiting_bytes
        return reading


class LinkTicks:
    """Bytes that ports sent in each tick of time.

    Parameters
    ----------
    origin_s
        Where the first tick begins [s, monotonic clock].
    reading
        What was read then.
    """

    def __init__(self, origin_s: float, reading: Reading) -> None:
        self.tick_s = TICK_S
        """Width of the ticks [s]."""
        self._origin_s, self._before_s, self._before = origin_s, origin_s, reading
        self._ticks: list[Reading] = []

    def add(self, now_s: float, reading: Reading) -> None:
        """Add a reading; what was sent since the one before is spread evenly over the time between them."""
        took_s = now_s - self._before_s
        if took_s <= 0:
            return
        while self._tick_of(now_s) >= MOST_TICKS:
            self._widen()
        change = np.maximum(reading - self._before, 0)  # a counter that began anew counts from there
        for number in range(self._tick_of(self._before_s), self._tick_of(now_s) + 1):
            while len(self._ticks) <= number:
                self._ticks.append(np.zeros_like(reading))
            begin_s = self._origin_s + number * self.tick_s
            within_s = min(now_s, begin_s + self.tick_s) - max(self._before_s, begin_s)
            tick = self._ticks[number]
            tick[:, :BACKLOG] += change[:, :BACKLOG] * max(within_s, 0.0) / took_s
            tick[:, BACKLOG] = np.maximum(tick[:, BACKLOG], reading[:, BACKLOG])
        self._before_s, self._before = now_s, reading

    def _tick_of(self, at_s: float) -> int:
        return int((at_s - self._origin_s) / self.tick_s)

    def _widen(self) -> None:
        """Have ticks that are twice as wide."""
        pairs = [self._ticks[first : first + 2] for first in range(0, len(self._ticks), 2)]
        self._ticks = [
            np.column_stack([sum(each[:, :BACKLOG] for each in pair), np.maximum.reduce(pair)[:, BACKLOG]])
            for pair in pairs
        ]
        self.tick_s *= 2

    def table(self, ports: list[str], start_s: float) -> pd.DataFrame:
        """Return `testbed.apps.app_record.LINKS` of ports by their names, since a time [s, monotonic clock].

        Counts are whole, and those of a port add up to what it sent.
        """
        if not self._ticks:
            return empty(LINKS)
        ticks = np.array(self._ticks)
        counts = np.diff(np.rint(ticks[..., :BACKLOG].cumsum(axis=0)), axis=0, prepend=0)
        ticks = np.concatenate([counts, ticks[..., BACKLOG:]], axis=2).astype(np.int64)
        tick, row = np.nonzero(ticks.any(axis=2))
        names = pd.Series(ports, dtype="str")
        table = pd.DataFrame({"port": names.iloc[row].to_numpy()})
        table["at_s"] = self._origin_s - start_s + tick * self.tick_s
        for name, column in (
            ("bytes", SENT),
            ("packets", PACKETS),
            ("drops", DROPS),
            ("backlog_bytes", BACKLOG),
        ):
            table[name] = ticks[tick, row, column]
        return table[list(LINKS)].astype(LINKS)


def host_counts(network: Network) -> tuple[HostTcp, ...]:
    """Return the counts of each host's kernel so far; `since` makes a run's of two of them."""
    return tuple(_host_counts(host, namespace) for host, namespace in enumerate(network.wiring.namespaces))


def since(before: tuple[HostTcp, ...], after: tuple[HostTcp, ...]) -> tuple[HostTcp, ...]:
    """Return the counts of hosts between two readings."""
    return tuple(
        HostTcp(
            late.host,
            late.segments - early.segments,
            late.resent - early.resent,
            late.timeouts - early.timeouts,
            late.nic_drops - early.nic_drops,
            late.unread - early.unread,
        )
        for early, late in zip(before, after, strict=True)
    )


def _host_counts(host: int, namespace: int) -> HostTcp:
    with inside_namespace(namespace):
        # /proc/net is that of the process' first thread, which need not be in the namespace.
        counts = {file: Path(f"/proc/thread-self/net/{file}").read_text() for file in PROTOCOLS}
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as channel:
            channel.bind((0, 0))
            drops = sum(dropped for _, (_, _, dropped) in _queue_stats(channel))
    return HostTcp(host, **tcp_counts(counts), nic_drops=drops)


def tcp_counts(files: Mapping[str, str]) -> dict[str, int]:
    """Return the counters of `PROTOCOLS` from the texts of its files."""
    found: dict[str, int] = {}
    for file, counters in PROTOCOLS.items():
        lines = files[file].splitlines()
        for names, values in zip(lines[::2], lines[1::2], strict=True):
            if names.startswith("UdpLite:"):
                continue
            counted = dict(zip(names.split(), values.split(), strict=True))
            found |= {ours: int(counted[name]) for name, ours in counters.items() if name in counted}
    return found


def _link_stats(channel: socket.socket) -> Iterator[tuple[int, tuple[int, int, int, int]]]:
    """Yield `LINK_STATS` of each interface, with its index."""
    request = STATS_MESSAGE.pack(0, 0, 0, 0, 1 << IFLA_STATS_LINK_64 - 1)
    for message in _dump(channel, RTM_GETSTATS, request):
        index = STATS_MESSAGE.unpack_from(message)[3]
        for kind, value in _attributes(message, STATS_MESSAGE.size):
            if kind == IFLA_STATS_LINK_64:
                yield index, LINK_STATS.unpack_from(value)


def _queue_stats(channel: socket.socket) -> Iterator[tuple[int, tuple[int, int, int]]]:
    """Yield `QUEUE_STATS` of each shaper, with its interface's index."""
    for message in _dump(channel, RTM_GETQDISC, TC_MESSAGE.pack(0, 0, 0, 0)):
        at = TC_MESSAGE.size + ATTRIBUTE.size  # the kind comes first
        if message[at : at + len(TBF_KIND)] == TBF_KIND:
            index = TC_MESSAGE.unpack_from(message)[0]
            for kind, value in _attributes(message, TC_MESSAGE.size):
                if kind == TCA_STATS2:
                    yield (
                        index,
                        next(
                            QUEUE_STATS.unpack_from(inner)
                            for number, inner in _attributes(value, 0)
                            if number == TCA_STATS_QUEUE
                        ),
                    )


def _dump(channel: socket.socket, kind: int, body: bytes) -> Iterator[memoryview]:
    """Yield the body of each message of what the kernel answers to a question about everything."""
    channel.send(HEADER.pack(HEADER.size + len(body), kind, NLM_F_REQUEST | NLM_F_DUMP, 1, 0) + body)
    while True:
        answer = memoryview(channel.recv(ANSWER_BYTES))
        while answer:
            length, kind, _, _, _ = HEADER.unpack_from(answer)
            if kind == NLMSG_DONE:
                return
            if kind == NLMSG_ERROR:
                raise NetworkError("the kernel does not say what links have carried", "run it again")
            yield answer[HEADER.size : length]
            answer = answer[(length + 3) & ~3 :]


def _attributes(message: memoryview, at: int) -> Iterator[tuple[int, memoryview]]:
    """Yield the attributes of a message from a place on: number and value."""
    while at < len(message):
        length, kind = ATTRIBUTE.unpack_from(message, at)
        yield kind, message[at + ATTRIBUTE.size : at + length]
        at += (length + 3) & ~3
