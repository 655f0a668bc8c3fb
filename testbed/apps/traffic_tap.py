"""Traffic on the wire while applications run: bytes between hosts over time, flows, and their paths.

Every packet is read where it comes off its host's NIC, and some packets at every port that they leave
(`testbed.apps.path_log`). Nothing is assumed of who sends.
"""

import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from itertools import pairwise
from threading import Lock
from typing import Self

import numpy as np
import pandas as pd

from testbed.apps.app_record import TapCounts
from testbed.apps.path_log import FOLLOWED, PathLog
from testbed.apps.traffic_log import HEAD_BYTES, HEADS, SYN, TCP, UDP, TrafficLog
from testbed.machine.wall_clock import wall_ahead_s
from testbed.network.packet_ring import FRAMES, Frames, PacketRing
from testbed.network.tap import PACKET_OUTGOING
from testbed.network.wiring import Wiring
from topologies.addresses import interface
from topologies.fabric import Fabric, Port
from traffic.transports.packet_filter import Program

ROUND_S = 0.25
"""How often packets are read [s]: the ring holds several times what a machine forwards in that time."""
ETH_P_IP = 0x0800
PACKET_KIND, INTERFACE = 0xFFFFF004, 0xFFFFF008
"""Where to load a packet's direction and its interface's index from (SKF_AD_PKTTYPE, SKF_AD_IFINDEX)."""
IS_FOLLOWED = (
    (0xB1, 0, 0, 14),  # X = length of the IP header
    (0x30, 0, 0, 23),  # load the IP protocol
    (0x15, 2, 0, UDP),
    (0x15, 3, 0, TCP),
    (0x06, 0, 0, 0),
    (0x48, 0, 0, 14 + 6),  # load UDP's checksum
    (0x05, 0, 0, 3),
    (0x50, 0, 0, 14 + 13),  # load TCP's flags
    (0x45, 6, 0, SYN),
    (0x48, 0, 0, 14 + 16),  # load TCP's checksum
    (0x07, 0, 0, 0),  # X = the checksum
    (0x28, 0, 0, 18),  # load the IP header's identification
    (0x0C, 0, 0, 0),  # add X
    (0x54, 0, 0, FOLLOWED - 1),
    (0x15, 0, 1, 0),
    (0x06, 0, 0, HEAD_BYTES),
    (0x06, 0, 0, 0),
)
"""Classic BPF over a packet from its Ethernet header on (linux/filter.h): `is_followed`."""
IS_LEAVING = (
    (0x28, 0, 0, 12),  # load the Ethernet header's type
    (0x15, 1, 0, ETH_P_IP),
    (0x06, 0, 0, 0),
    (0x20, 0, 0, PACKET_KIND),
    (0x15, 0, len(IS_FOLLOWED), PACKET_OUTGOING),
)
"""The same before it: IP packets; what does not leave goes on behind it."""
FEWER = 4
"""By how much fewer frames a ring has where each switch that routes has one of its own."""
MOST_RANGES = 1000
"""The kernel takes 4,096 instructions."""


class TrafficTap:
    """Listens to all that hosts of a fabric send; a context manager.

    Parameters
    ----------
    wiring
        Where the switches' ports are.
    """

    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring
        self._one_at_a_time = Lock()

    def __enter__(self) -> Self:
        """Start to listen."""
        fabric = self._wiring.fabric
        self._log = TrafficLog(fabric, time.monotonic())
        self._paths = PathLog(fabric, list[Port](fabric.link_at))
        switch_ports = [port for port in fabric.link_at if port.node in fabric.switch_index]
        groups = self._wiring.together(switch_ports)
        room = FRAMES if len(groups) == 1 else FRAMES // FEWER
        with ExitStack() as stack:
            self._rings = [self._ring(stack, ports, room) for ports in groups]
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        """Stop; what has been sent by now is still read."""
        self._stack.__exit__(*error)  # type: ignore[arg-type]  # as it was given

    def _ring(self, stack: ExitStack, ports: Sequence[Port], room: int) -> PacketRing:
        """Have packets read at ports whose interfaces are in one namespace."""
        with self._wiring.inside(ports[0].node):
            place = _Place(self._wiring.fabric, ports)
            ring = PacketRing(taken(place.from_nics), HEADS, partial(self._add, place), ROUND_S, room)
            return stack.enter_context(ring)

    @property
    def wire_bytes(self) -> int:
        """IP lengths of all that hosts have sent so far, as far as it is read [bytes]."""
        return self._log.wire_bytes

    @property
    def stepped_s(self) -> float:
        """The most by which the wall clock was set meanwhile, whose times packets have [s]."""
        return max(ring.stepped_s for ring in self._rings)

    @property
    def counts(self) -> TapCounts:
        """How the tap fared; once it has stopped."""
        missed, cpu_s = sum(ring.missed for ring in self._rings), sum(ring.cpu_s for ring in self._rings)
        return TapCounts(self._log.packets, missed, cpu_s, self._log.bin_s)

    def traffic(self, start_s: float) -> pd.DataFrame:
        """Return `testbed.apps.app_record.TRAFFIC` since a time [s, monotonic clock]; once it has stopped."""
        return self._log.traffic(start_s)

    def flows(self, start_s: float) -> pd.DataFrame:
        """Return `testbed.apps.app_record.FLOWS` since a time [s, monotonic clock]; once it has stopped."""
        return self._log.flow_table(start_s)

    def paths(self, start_s: float) -> pd.DataFrame:
        """Return `testbed.apps.app_record.PATHS` since a time [s, monotonic clock]; once it has stopped."""
        return self._paths.path_table(start_s)

    def _add(self, place: "_Place", frames: Frames) -> None:
        at = np.searchsorted(place.interfaces, frames["interface"]).clip(max=len(place.interfaces) - 1)
        at_s = frames["s"] + frames["ns"] / 1e9 - place.ahead_s
        leaves = frames["kind"] == PACKET_OUTGOING
        # Bridges have interfaces of their own; what comes off another switch has been seen as it left that.
        known = (place.interfaces[at] == frames["interface"]) & (leaves | (place.server[at] >= 0))
        flow = np.full(len(frames), -1)
        came = np.flatnonzero(known & ~leaves)
        port = np.where(leaves, place.out[at], place.come_by[at])
        shown = np.flatnonzero(known)
        with self._one_at_a_time:  # each ring has a thread
            flow[came] = self._log.add(frames[came], at_s[came], place.server[at[came]])
            if len(shown):
                self._paths.add(frames[shown], at_s[shown], port[shown], flow[shown])


class _Place:
    """The interfaces of this network namespace, in the order of their numbers.

    Parameters
    ----------
    fabric
        Whose.
    ports
        Of switches, whose interfaces they are.
    """

    def __init__(self, fabric: Fabric, ports: Sequence[Port]) -> None:
        named = {socket.if_nametoindex(interface(fabric, port)): port for port in ports}
        indices = sorted(named)
        number_of = {port: number for number, port in enumerate(fabric.link_at)}
        peers = [fabric.peer(named[index]) for index in indices]
        self.interfaces = np.array(indices)
        self.out = np.array([number_of[named[index]] for index in indices])
        """The port that each is."""
        self.come_by = np.array([number_of[peer] for peer in peers])
        """The port at the other end of its link."""
        self.server = np.array([fabric.server_index.get(peer.node, -1) for peer in peers])
        """The server there; -1 if there is a switch."""
        self.from_nics = [index for index, server in zip(indices, self.server, strict=True) if server >= 0]
        self.ahead_s = wall_ahead_s()
        """How far the times of frames are ahead of the monotonic clock [s]."""


def taken(from_nics: Sequence[int]) -> Program:
    """Return a filter that takes all IP packets from NICs, and those that are followed where they leave.

    Parameters
    ----------
    from_nics
        Interfaces at whose other end is a NIC, in ascending order. Where they are too scattered, those
        between them count too.
    """
    gaps = [(low, high) for low, high in pairwise(from_nics) if high > low + 1]
    edges = [*from_nics[:1], *(index for gap in gaps for index in gap), *from_nics[-1:]]
    if len(gaps) >= MOST_RANGES:
        edges = [from_nics[0], from_nics[-1]]
    program = [*IS_LEAVING, *IS_FOLLOWED, (0x20, 0, 0, INTERFACE)]
    for low, high in zip(edges[::2], edges[1::2], strict=True):
        program += [(0x35, 0, 2, low), (0x25, 1, 0, high), (0x06, 0, 0, HEAD_BYTES)]
    return [*program, (0x06, 0, 0, 0)]
