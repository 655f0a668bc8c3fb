"""Captures of what a host's NIC sends and receives, as files that tcpdump and Wireshark read.

A process for each reads from the host's network. It is not tcpdump, which gives up being root first: that it
cannot in the sandbox of an ordinary user.
"""

import os
import select
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

from testbed.machine.kernel import inside_namespace
from testbed.machine.processes import beside
from testbed.network.network import Network
from topologies.addresses import interface
from topologies.errors import ScenarioError
from topologies.fabric import Fabric, Nic

HEAD_BYTES = 256
"""How much of a packet is kept: its headers, and the beginning of what it carries [bytes]."""
ETH_P_ALL = 3
SOL_PACKET, PACKET_STATISTICS = 263, 6
STATISTICS = struct.Struct("=II")
"""struct tpacket_stats: packets, and those of them that nobody had read in time."""
SO_TIMESTAMPNS = 35
TIMESPEC = struct.Struct("@ll")
FILE_HEAD = struct.pack("=IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, HEAD_BYTES, 1)
"""The head of a file: times in nanoseconds, version 2.4, packets of Ethernet (pcap-savefile(5))."""
PACKET_HEAD = struct.Struct("=IIII")
"""The head of a packet: seconds, nanoseconds, how much of it is kept, its length."""
WRITTEN_S = 0.05
"""How long it takes at most to write what was read last [s]."""
READ_S = 2.0
"""How long it may take to read what has come [s]."""


@dataclass(frozen=True)
class Capture:
    """The packets of a NIC, to be kept in a file."""

    nic: Nic
    name: str
    """Of the file in the results."""
    descriptor: int = -1
    """Of the file, once it is open."""


def captures_of(text: str, fabric: Fabric) -> tuple[Capture, ...]:
    """Return the captures that a list of NICs by commas asks for: ``h0:0,h3:1``.

    Raises
    ------
    ScenarioError
        If a word is not HOST:NIC, or the fabric has no such NIC.
    """
    words = dict.fromkeys(word.strip() for word in text.split(",") if word.strip())
    nics = [_nic(word, fabric) for word in words]
    if not nics:
        raise ScenarioError("--pcap names no NIC", "give HOST:NIC, as in h0:0")
    return tuple(
        Capture(nic, f"pcap/{fabric.servers[nic.server].name}-{interface(fabric, fabric.nic_port(nic))}.pcap")
        for nic in nics
    )


def _nic(word: str, fabric: Fabric) -> Nic:
    name, _, number = word.rpartition(":")
    server = fabric.server_index.get(name)
    if server is None or not (number.isascii() and number.isdecimal()):
        raise ScenarioError(f"--pcap {word}: that is not a NIC of {fabric.name}", "give HOST:NIC, as in h0:0")
    if int(number) >= fabric.servers[server].nics:
        raise ScenarioError(
            f"--pcap {word}: {name} has {fabric.servers[server].nics} NICs", "their numbers begin at 0"
        )
    return Nic(server, int(number))


@contextmanager
def capturing(network: Network, captures: Sequence[Capture]) -> Iterator[dict[str, int]]:
    """Capture packets while the block runs; yield what then has how many each file lacks, if it lacks any."""
    missed = dict[str, int]()
    with ExitStack() as stack:
        taps = [stack.enter_context(_opened(network, capture)) for capture in captures]
        files = [capture.descriptor for capture in captures]
        with beside(*(partial(write_packets, tap, file) for tap, file in zip(taps, files, strict=True))):
            yield missed
            _await_all_read(taps)
        for capture, tap in zip(captures, taps, strict=True):
            _, lost = STATISTICS.unpack(tap.getsockopt(SOL_PACKET, PACKET_STATISTICS, STATISTICS.size))
            if lost:
                missed[capture.name] = lost


def _opened(network: Network, capture: Capture) -> socket.socket:
    fabric = network.fabric
    with inside_namespace(network.wiring.namespaces[capture.nic.server]):
        tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        tap.bind((interface(fabric, fabric.nic_port(capture.nic)), ETH_P_ALL))
    tap.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    return tap


def write_packets(tap: socket.socket, file: int) -> None:
    """Write each packet that a socket hears to a file, for ever."""
    os.write(file, FILE_HEAD)
    head = bytearray(HEAD_BYTES)
    while True:
        length, extra, _, _ = tap.recvmsg_into([head], socket.CMSG_SPACE(TIMESPEC.size), socket.MSG_TRUNC)
        seconds, nanoseconds = TIMESPEC.unpack(extra[0][2])
        kept = min(length, HEAD_BYTES)
        os.write(file, PACKET_HEAD.pack(seconds, nanoseconds, kept, length) + head[:kept])


def _await_all_read(taps: Sequence[socket.socket]) -> None:
    """Wait until all that has come is read and written."""
    deadline_s = time.monotonic() + READ_S
    while select.select(taps, [], [], 0)[0] and time.monotonic() < deadline_s:
        time.sleep(WRITTEN_S)
    if taps:
        time.sleep(WRITTEN_S)
