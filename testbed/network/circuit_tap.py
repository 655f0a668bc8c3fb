"""Which circuits carried packets and when, read off the wire: what leaves the ports of OCSes.

A packet's source address says into which port of the OCS it was sent, its interface by which it left. Of what
`testbed.network.packet_ring` reads of a packet 20 bytes are kept (`CrossingLog`): 10 minutes at 20,000
packets a second are 240 MB.
"""

import socket
from collections.abc import Mapping, Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray

from controller.circuits.status import LogEntry
from testbed.network.packet_ring import ETHERNET_BYTES, Frames, PacketRing, frame_of
from testbed.network.tap import PACKET_OUTGOING
from topologies.addresses import interface
from topologies.fabric import Fabric, Port

FRAME = frame_of(server=(">u2", 8), nic=("u1", 11))
"""A frame with the source of its Ethernet header."""
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

    def add(self, frames: Frames) -> None:
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

    def __enter__(self) -> Self:
        """Start to listen."""
        switches = [switch.name for switch in self._fabric.switches if switch.kind == "ocs"]
        used = [port for ocs in switches for port in self._fabric.used_ports(ocs)]
        ports = {socket.if_nametoindex(interface(self._fabric, port)): port for port in used}
        self._ring = PacketRing(_leaving(list(ports)), FRAME, self._add, ROUND_S)
        self._log = CrossingLog(self._fabric, ports, -self._ring.ahead_s)
        self._ring.__enter__()
        return self

    def __exit__(self, kind: object, *_error: object) -> None:
        """Stop; what has left by now is still read."""
        self._ring.__exit__(kind)

    def _add(self, frames: Frames) -> None:
        self._log.add(frames)

    @property
    def missed(self) -> int:
        """How many packets came faster than they were read; once it has stopped."""
        return self._ring.missed

    @property
    def stepped_s(self) -> float:
        """The most by which the wall clock was set meanwhile, whose times packets have [s]."""
        return self._ring.stepped_s

    @property
    def crossings(self) -> dict[str, Crossings]:
        """What crossed each OCS, but for what was missed; once it has stopped."""
        return self._log.crossings


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


def _leaving(indices: Sequence[int]) -> list[tuple[int, int, int, int]]:
    """Return a filter of classic BPF that takes what leaves by some interfaces, an Ethernet header of it."""
    program = [(0x30, 0, 0, 0xFFFFF004), (0x15, 1, 0, PACKET_OUTGOING), (0x06, 0, 0, 0)]
    program.append((0x20, 0, 0, 0xFFFFF008))  # load the interface's index (SKF_AD_IFINDEX)
    for index in indices:
        program += [(0x15, 0, 1, index), (0x06, 0, 0, ETHERNET_BYTES)]
    return [*program, (0x06, 0, 0, 0)]
