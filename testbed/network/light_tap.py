"""What leaves an OCS' ports, read off the wire with the kernel's time stamps: probes, each with its source.

A probe is a UDP datagram to `PROBE_PORT` that begins with the number of the port it was sent into.
"""

import contextlib
import socket
import struct
import threading
import time

import numpy as np
from numpy.typing import NDArray

from testbed.network.tap import ETH_P_ALL, PACKET_OUTGOING
from topologies.addresses import interface
from topologies.fabric import Fabric
from traffic.transports.packet_filter import attach_filter

PROBE_PORT = 9999
PROBE = struct.Struct("!I")
IP_AND_UDP_BYTES = 28
SO_TIMESTAMPNS = 35
SO_RCVBUFFORCE = 33
RECEIVE_BYTES = 64 << 20
PROBES_ONLY = (
    (0x30, 0, 0, 9),  # load the IP protocol
    (0x15, 0, 4, socket.IPPROTO_UDP),
    (0xB1, 0, 0, 0),  # X = length of the IP header
    (0x48, 0, 0, 2),  # load the destination port
    (0x15, 0, 1, PROBE_PORT),
    (0x06, 0, 0, 64),
    (0x06, 0, 0, 0),
)
"""Classic BPF over a packet from its IP header on, as in `testbed.network.tap`."""


class LightTap:
    """Listens at an OCS' ports; a context manager, whose `seen` is read after its block.

    Parameters
    ----------
    fabric, ocs
        Where to listen.
    """

    def __init__(self, fabric: Fabric, ocs: str) -> None:
        self._ports = {interface(fabric, port): port.number for port in fabric.used_ports(ocs)}
        self._stop = threading.Event()
        self._seen: list[tuple[float, int, int]] = []

    def __enter__(self) -> "LightTap":
        """Start to listen."""
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL))
        attach_filter(self._socket, PROBES_ONLY)
        with contextlib.suppress(PermissionError):
            self._socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BYTES)
        self._socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self._socket.settimeout(0.1)
        self._wall_to_monotonic_s = time.monotonic() - time.time()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        """Stop; what is in the socket is still read."""
        self._stop.set()
        self._thread.join()
        self._socket.close()

    @property
    def seen(self) -> "Seen":
        """All probes seen so far, in the order of time."""
        rows = sorted(self._seen)
        columns = np.array(rows, dtype=float).reshape(-1, 3).T
        return Seen(columns[0], columns[1].astype(np.int64), columns[2].astype(np.int64))

    def _listen(self) -> None:
        while True:
            try:
                packet, stamps, _, (name, _, kind, *_) = self._socket.recvmsg(64, 64)
            except TimeoutError:
                if self._stop.is_set():
                    return
                continue
            if kind == PACKET_OUTGOING and name in self._ports:
                seconds, nanoseconds = struct.unpack("=qq", stamps[0][2])
                at = seconds + nanoseconds / 1e9 + self._wall_to_monotonic_s
                self._seen.append((at, PROBE.unpack_from(packet, IP_AND_UDP_BYTES)[0], self._ports[name]))


class Seen:
    """Probes that left an OCS: parallel arrays.

    Parameters
    ----------
    at_s
        When [s, monotonic clock], rising.
    source, out
        The port each was sent into, and the port it left by.
    """

    def __init__(self, at_s: NDArray[np.float64], source: NDArray[np.int64], out: NDArray[np.int64]) -> None:
        self.at_s, self.source, self.out = at_s, source, out

    def __len__(self) -> int:
        """How many there are."""
        return len(self.at_s)

    def of(self, source: int) -> "Seen":
        """Return those of one source."""
        mine = self.source == source
        return Seen(self.at_s[mine], self.source[mine], self.out[mine])
