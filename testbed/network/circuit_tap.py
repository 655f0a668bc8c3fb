"""Which circuits carried packets and when, read off the wire: what leaves the ports of OCSes.

The kernel writes the head of each packet into memory that it shares with this process (``PACKET_RX_RING``,
packet_mmap.rst of its documentation), and a thread reads them from there twenty times a second, as arrays:
a run of some ten thousand packets a second is hardly disturbed. A packet's source address says into which
port of the OCS it was sent, its interface by which it left. Of a frame of 128 bytes 20 are kept
(`CrossingLog`): 10 minutes at 20,000 packets a second are 240 MB.
"""

import contextlib
import mmap
import socket
import struct
import threading
from collections.abc import Mapping, Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray

from controller.circuits.status import LogEntry
from testbed.machine.wall_clock import wall_ahead_s
from testbed.network.tap import ETH_P_ALL, PACKET_OUTGOING
from topologies.addresses import interface
from topologies.fabric import Fabric, Port
from traffic.transports.packet_filter import attach_filter

SOL_PACKET = 263
PACKET_RX_RING, PACKET_STATISTICS, PACKET_VERSION = 5, 6, 10
TPACKET_V2 = 1
TO_USER = 1
"""The bit of a frame's status that says whose turn it is."""
HEAD = 66
"""Where the kernel puts a packet's Ethernet header in a frame."""
FRAME_BYTES, FRAMES, BLOCK_BYTES = 128, 1 << 16, 1 << 16
FRAME = np.dtype(
    {
        "names": ["status", "bytes", "s", "ns", "interface", "server", "nic"],
        "formats": ["u4", "u4", "u4", "u4", "i4", ">u2", "u1"],
        # struct tpacket2_hdr, sockaddr_ll behind it, and the source of the Ethernet header.
        "offsets": [0, 4, 16, 20, 36, HEAD + 8, HEAD + 11],
        "itemsize": FRAME_BYTES,
    }
)
ETHERNET_BYTES = 14
CROSSING = np.dtype([("at_s", "f8"), ("source", "i4"), ("out", "i4"), ("bytes", "u4")])
"""What is kept of a packet: when it left an OCS [s, monotonic clock]; the port that it was sent into, -1 if
no NIC on the OCS has its address; the port by which it left; its size without the Ethernet header."""
Crossings = NDArray[np.void]
"""Packets that crossed an OCS, in the order in which the kernel saw them: an array of `CROSSING`."""
ROUND_S = 0.05
"""How often frames are read [s]."""
CLOCK_S = 0.0002
"""How far the time stamps of the wire and of a log may be apart [s]."""


class CrossingLog:
    """What is kept of the packets that crossed the OCSes of a fabric, `CROSSING` each.

    Parameters
    ----------
    fabric
        Whose OCSes; its NICs on them are servers'.
    ports
        The port of each interface that packets may leave by, by the kernel's number for it.
    clock_s
        What is added to the times of frames [s].
    """

    def __init__(self, fabric: Fabric, ports: Mapping[int, Port], clock_s: float) -> None:
        ocses = [switch.name for switch in fabric.switches if switch.kind == "ocs"]
        self._kept = {ocs: bytearray() for ocs in ocses}
        self._clock_s = clock_s
        self._interfaces = np.array(sorted(ports))
        left_by = [ports[index] for index in sorted(ports)]
        self._out = np.array([port.number for port in left_by])
        self._ocs = np.array([ocses.index(port.node) for port in left_by])
        peers = [(nic, fabric.peer(fabric.nic_port(nic))) for nic in fabric.nics]  # sorted by their addresses
        self._addresses = np.array([nic.server << 8 | nic.nic for nic, port in peers if port.node in ocses])
        self._sources = np.array([port.number for _, port in peers if port.node in ocses])

    def add(self, frames: NDArray[np.void]) -> None:
        """Keep what is needed of frames, an array of `FRAME`."""
        crossings = np.empty(len(frames), CROSSING)
        crossings["at_s"] = frames["s"] + frames["ns"] / 1e9 + self._clock_s
        crossings["bytes"] = frames["bytes"] - ETHERNET_BYTES
        address = frames["server"].astype(int) << 8 | frames["nic"]
        near = np.searchsorted(self._addresses, address).clip(max=len(self._addresses) - 1)
        crossings["source"] = np.where(self._addresses[near] == address, self._sources[near], -1)
        at = np.searchsorted(self._interfaces, frames["interface"])
        crossings["out"] = self._out[at]
        for number, kept in enumerate(self._kept.values()):
            kept += crossings[self._ocs[at] == number].tobytes()

    @property
    def crossings(self) -> dict[str, Crossings]:
        """What crossed each OCS, as views of what is kept: nothing can be added as long as they exist."""
        return {ocs: np.frombuffer(packets, CROSSING) for ocs, packets in self._kept.items()}


class CircuitTap:
    """Listens to what leaves all OCSes of a fabric; a context manager.

    Parameters
    ----------
    fabric
        Whose OCSes; its NICs on them are servers'.
    """

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric
        self._stop = threading.Event()
        self.missed = 0
        """How many packets came faster than they were read."""
        self.stepped_s = 0.0
        """The most by which the wall clock was set meanwhile, whose times packets have [s]."""

    def __enter__(self) -> Self:
        """Start to listen."""
        switches = [switch.name for switch in self._fabric.switches if switch.kind == "ocs"]
        used = [port for ocs in switches for port in self._fabric.used_ports(ocs)]
        ports = {socket.if_nametoindex(interface(self._fabric, port)): port for port in used}
        self._ahead_s = wall_ahead_s()
        with contextlib.ExitStack() as stack:
            every = socket.htons(ETH_P_ALL)
            self._socket = stack.enter_context(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, every))
            attach_filter(self._socket, _leaving(list(ports)))
            self._socket.setsockopt(SOL_PACKET, PACKET_VERSION, TPACKET_V2)
            ring = struct.pack("IIII", BLOCK_BYTES, FRAMES * FRAME_BYTES // BLOCK_BYTES, FRAME_BYTES, FRAMES)
            self._socket.setsockopt(SOL_PACKET, PACKET_RX_RING, ring)
            self._memory = stack.enter_context(mmap.mmap(self._socket.fileno(), FRAMES * FRAME_BYTES))
            self._log = CrossingLog(self._fabric, ports, -self._ahead_s)
            self._stack = stack.pop_all()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        """Stop; what has left by now is still read."""
        self._stop.set()
        self._thread.join()
        _, self.missed = struct.unpack("II", self._socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))
        self._stack.close()

    @property
    def crossings(self) -> dict[str, Crossings]:
        """What crossed each OCS, but for what was missed; once it has stopped."""
        return self._log.crossings

    def _listen(self) -> None:
        frames = np.frombuffer(self._memory, FRAME)
        at, over = 0, False
        while not over:
            over = self._stop.wait(ROUND_S)
            self.stepped_s = max(self.stepped_s, abs(wall_ahead_s() - self._ahead_s))
            while ready := _leading((frames["status"][at:] & TO_USER).astype(bool)):
                self._log.add(frames[at : at + ready])
                frames["status"][at : at + ready] = 0  # the kernel's again
                at = (at + ready) % FRAMES


def lit_by(seen: Crossings, log: Sequence[LogEntry]) -> NDArray[np.int64]:
    """Return which entry of an OCS' log had the circuit lit that each packet took, -1 if none had.

    Parameters
    ----------
    seen
        The packets that left the OCS.
    log
        What the OCS did, in order. What went dark between two entries is lit until the dark was on the wire,
        and what is new once the device's delay is over.
    """
    dark_s = np.array([entry.dark_s for entry in log], dtype=float)
    lit_s = dark_s + [entry.delay_s for entry in log]
    newest = np.searchsorted(lit_s, seen["at_s"] + CLOCK_S) - 1
    found = np.full(len(seen), -1)
    pairs = seen["source"].astype(np.int64) << 32 | seen["out"]
    circuits = [np.array([a << 32 | b for a, b in entry.circuits], dtype=np.int64) for entry in log]
    for number, own in enumerate(circuits):
        lit = (newest == number) & np.isin(pairs, own)
        if number + 1 < len(log):
            is_over = seen["at_s"] - CLOCK_S > dark_s[number + 1]
            lit &= ~is_over | np.isin(pairs, circuits[number + 1])  # it is kept
        found[lit] = number
    return found


def _leading(ready: NDArray[np.bool_]) -> int:
    """Return how many an array begins with that are true."""
    return len(ready) if ready.all() else int(ready.argmin())


def _leaving(indices: Sequence[int]) -> list[tuple[int, int, int, int]]:
    """Return a filter of classic BPF that takes what leaves by some interfaces, an Ethernet header of it."""
    program = [(0x30, 0, 0, 0xFFFFF004), (0x15, 1, 0, PACKET_OUTGOING), (0x06, 0, 0, 0)]
    program.append((0x20, 0, 0, 0xFFFFF008))  # load the interface's index (SKF_AD_IFINDEX)
    for index in indices:
        program += [(0x15, 0, 1, index), (0x06, 0, 0, ETHERNET_BYTES)]
    return [*program, (0x06, 0, 0, 0)]
