"""Which path each queue pair took, read off the wire: its first packet, seen on every link.

A ``select`` group keeps a connection on one path, so that of its SYN is that of all its
data; so it keeps datagrams of one entropy. Nothing is assumed of the switch's hash, its version or its
datapath.
"""

import contextlib
import ipaddress
import select
import socket
import struct
import threading
from collections.abc import Callable, Sequence

from testbed.network.wiring import Wiring
from topologies.addresses import DATAGRAM_PORT, interface
from topologies.errors import NetworkError
from topologies.fabric import Path, Port
from traffic.spraying.policy import QueuePair
from traffic.transports.connections import Ends, is_service
from traffic.transports.packet_filter import attach_filter

ETH_P_ALL = 3
PACKET_OUTGOING = 4
QUIET_S = 0.02
SO_RCVBUFFORCE = 33
BUFFER_BYTES = 16 << 20
FIRST_PACKETS = (
    (0x30, 0, 0, 0xFFFFF004),  # load the packet's type (SKF_AD_PKTTYPE)
    (0x15, 0, 10, PACKET_OUTGOING),
    (0xB1, 0, 0, 0),  # X = length of the IP header
    (0x30, 0, 0, 9),  # load the IP protocol
    (0x15, 4, 0, socket.IPPROTO_UDP),
    (0x15, 0, 6, socket.IPPROTO_TCP),
    (0x50, 0, 0, 13),  # load TCP's flags
    (0x54, 0, 0, 0x12),  # SYN and ACK of them
    (0x15, 2, 3, 0x02),  # SYN alone
    (0x48, 0, 0, 2),  # load UDP's destination port
    (0x15, 0, 1, DATAGRAM_PORT),
    (0x06, 0, 0, 64),
    (0x06, 0, 0, 0),
)
"""Classic BPF over a packet from its IP header on (see bpf(4) of BSD, linux/filter.h): SYNs and datagrams."""


class Tap:
    """Listens on all switches' ports for connections being made, and for datagrams; a context manager.

    Parameters
    ----------
    wiring
        Where the ports are.
    """

    def __init__(self, wiring: Wiring) -> None:
        self._wiring, self._fabric = wiring, wiring.fabric
        self._sending = {
            interface(self._fabric, port): port
            for port in self._fabric.link_at
            if port.node in self._fabric.switch_index
        }

    def __enter__(self) -> "Tap":
        """Start to listen."""
        self._poll, self._sockets = select.epoll(), dict[int, socket.socket]()
        for ports in self._wiring.together(self._sending.values()):
            with self._wiring.inside(ports[0].node):
                self._listen()
        self._seen: dict[Ends, set[Port]] = {}
        self._enough = threading.Event()
        # As they come: an ordinary user's socket has room for some hundreds only.
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(self, *_error: object) -> None:
        """Stop."""
        self.close()

    def close(self) -> None:
        """Stop to listen: what comes now is not looked at."""
        self._enough.set()
        self._reader.join()
        self._poll.close()
        for each in self._sockets.values():
            each.close()

    def paths(self, queue_pairs: Sequence[QueuePair], ends: Callable[[QueuePair], Ends]) -> tuple[Path, ...]:
        """Return the path of each queue pair that sent its first packet while the tap was open, and close it.

        Parameters
        ----------
        queue_pairs
            Each was connected, or sent a datagram.
        ends
            How the packets of a queue pair are addressed.

        Raises
        ------
        NetworkError
            If a queue pair's path was not seen from end to end.
        """
        self.close()
        return tuple(self._path(queue_pair, ends(queue_pair)) for queue_pair in queue_pairs)

    def _listen(self) -> None:
        """Open a socket in this thread's network namespace."""
        heard = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL))
        self._sockets[heard.fileno()] = heard
        attach_filter(heard, FIRST_PACKETS)
        with contextlib.suppress(PermissionError):
            heard.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
        self._poll.register(heard, select.EPOLLIN)

    def _read(self) -> None:
        while (ready := self._poll.poll(QUIET_S)) or not self._enough.is_set():
            for descriptor, _ in ready:
                self._note(*self._sockets[descriptor].recvfrom(64))

    def _note(self, packet: bytes, where: Sequence[str]) -> None:
        """Note which of the switches' ports sends a queue pair's packet, by its addresses and ports."""
        header = 4 * (packet[0] & 0xF)
        source, destination = struct.unpack_from("!HH", packet, header)
        if where[0] in self._sending and (destination == DATAGRAM_PORT or is_service(destination)):
            key = _address(packet[12:16]), source, _address(packet[16:20]), destination
            self._seen.setdefault(key, set()).add(self._sending[where[0]])

    def _path(self, queue_pair: QueuePair, ends: Ends) -> Path:
        fabric = self._fabric
        path, seen = [fabric.nic_port(queue_pair.source)], set(self._seen.get(ends, ()))
        # Link by link: on two CPUs a packet may be noted at the second before it is at the first.
        while onward := {port for port in seen if port.node == fabric.peer(path[-1]).node}:
            path.append(onward.pop())
            seen.remove(path[-1])
        if seen or fabric.peer(path[-1]) != fabric.nic_port(queue_pair.destination):
            raise NetworkError(
                f"the path of queue pair {queue_pair} was seen in part only, or two of it: "
                f"{', '.join(map(str, [*path, *seen]))}",
                "run it again",
            )
        return tuple(path)


def _address(packed: bytes) -> str:
    return str(ipaddress.IPv4Address(packed))
