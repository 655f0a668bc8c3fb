"""The sockets of datagrams, one of each NIC to send by and one of each server to receive with, and addresses.

The entropy is in the destination address (`topologies.addresses`), and all datagrams go from one port to one.

A server's NICs receive with one socket, whatever their number, since a packet says what it is. Whose packets
are not of this run the kernel drops before they take room in the socket: a run has a token of its own, which
a filter looks at.
"""

import contextlib
import fcntl
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from termios import TIOCOUTQ

from topologies.addresses import DATAGRAM_PORT, DATAGRAM_SOURCE_PORT, entropy_ip, nic_ip
from topologies.fabric import Fabric, Nic
from traffic.spraying.policy import QueuePair
from traffic.transports.connections import Ends
from traffic.transports.packet_filter import attach_filter

HEADER = struct.Struct("!QIIII")
"""The run's token; the lane, and the packet's number on it; a message, and the packet's number in it."""
CONTROL = struct.Struct("!QIIB5x")
"""Of a packet that is shorter: the run's token; a line, how many things were ever sent on it, and whether it
is sent again (`traffic.transports.ack_packets`)."""
PROBE = 0xFFFFFFFF
"""The number of a packet that carries nothing, on any lane."""
SEND_BUFFER_BYTES, RECEIVE_BUFFER_BYTES = 4 << 20, 16 << 20
"""What a NIC has to send, and what all NICs of a server were granted, twice over."""
UNMARKABLE, MARKABLE, MARKED, ECN_BITS = 0, 2, 3, 3
"""Whether a packet may be marked, and is (ECN, RFC 3168); and which bits of its type of service say so."""
EXPEDITED = 46 << 2
"""The type of service of what is to leave before data: expedited forwarding (RFC 3246)."""
ANCILLARY_BYTES = socket.CMSG_SPACE(4)
FORCE = {socket.SO_SNDBUF: 32, socket.SO_RCVBUF: 33}
"""The options that exceed a system's limits, for who may."""
UDP_HEADER_BYTES = 8
Address = tuple[str, int]


@dataclass(frozen=True)
class DatagramEndpoints:
    """How sockets of a fabric's servers are made and addressed."""

    open_sender: Callable[[Nic], socket.socket]
    """Make a UDP socket that is bound to a NIC's address."""
    open_receiver: Callable[[int], socket.socket]
    """Make a UDP socket that receives what is for a server's NICs, by the server's index."""
    address: Callable[[Nic, int], Address]
    """The address of a NIC for an entropy, and the port."""
    open_control: Callable[[Nic], socket.socket]
    """Make another UDP socket of a NIC, for acknowledgements."""


def datagram_ends(fabric: Fabric, queue_pair: QueuePair) -> Ends:
    """Return the addresses and ports of a queue pair's datagrams; they leave from the NIC's own address."""
    near = nic_ip(fabric, queue_pair.source)
    far = entropy_ip(fabric, queue_pair.destination, queue_pair.entropy)
    return str(near), DATAGRAM_SOURCE_PORT, str(far), DATAGRAM_PORT


def enlarge(endpoint: socket.socket, *, send_bytes: int = 0, receive_bytes: int = 0) -> None:
    """Give a socket larger buffers; who may not exceed the system's limits gets as much as these allow."""
    for option, size in ((socket.SO_SNDBUF, send_bytes), (socket.SO_RCVBUF, receive_bytes)):
        if not size:
            continue
        try:
            endpoint.setsockopt(socket.SOL_SOCKET, FORCE[option], size)
        except PermissionError:
            endpoint.setsockopt(socket.SOL_SOCKET, option, size)


def sending(
    stack: contextlib.ExitStack, endpoints: DatagramEndpoints, nic: Nic, *, marks: bool = False
) -> socket.socket:
    """Return the socket that a NIC sends by; ``stack`` closes it.

    ``marks`` says whether switches may mark its packets.
    """
    sender = stack.enter_context(endpoints.open_sender(nic))
    sender.setblocking(False)
    sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, MARKABLE if marks else UNMARKABLE)
    enlarge(sender, send_bytes=SEND_BUFFER_BYTES)
    return sender


def acknowledging(stack: contextlib.ExitStack, endpoints: DatagramEndpoints, nic: Nic) -> socket.socket:
    """Return the socket that a NIC acknowledges by; ``stack`` closes it."""
    sender = stack.enter_context(endpoints.open_control(nic))
    sender.setblocking(False)
    sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, EXPEDITED)
    return sender


def receiving(
    stack: contextlib.ExitStack, endpoints: DatagramEndpoints, server: int, token: int, *, marks: bool = False
) -> socket.socket:
    """Return the socket that a server receives a run's packets with; ``stack`` closes it.

    ``marks`` says whether it is to say which are marked (`received_marked`).
    """
    receiver = stack.enter_context(endpoints.open_receiver(server))
    receiver.setblocking(False)
    receiver.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, marks)
    enlarge(receiver, receive_bytes=RECEIVE_BUFFER_BYTES)
    attach_filter(receiver, _only(token))
    return receiver


def received_marked(receiver: socket.socket, buffer: bytearray) -> tuple[int, bool]:
    """Return how many bytes of a packet were put into a buffer, and whether a switch marked it."""
    size, ancillary, _, _ = receiver.recvmsg_into([buffer], ANCILLARY_BYTES)
    return size, any(kind == socket.IP_TOS and value[0] & ECN_BITS == MARKED for _, kind, value in ancillary)


def unsent_bytes(sender: socket.socket) -> int:
    """Return what a NIC was given and has not sent, as the kernel accounts memory [bytes]."""
    (size,) = struct.unpack("i", fcntl.ioctl(sender.fileno(), TIOCOUTQ, bytes(4)))
    return int(size)


def _only(token: int) -> tuple[tuple[int, int, int, int], ...]:
    """Return a filter that takes packets which begin with a token (classic BPF, from the UDP header on)."""
    return (
        (0x20, 0, 0, UDP_HEADER_BYTES),  # load four bytes
        (0x15, 0, 3, token >> 32),
        (0x20, 0, 0, UDP_HEADER_BYTES + 4),
        (0x15, 0, 1, token & 0xFFFFFFFF),
        (0x06, 0, 0, 0xFFFF),
        (0x06, 0, 0, 0),
    )
