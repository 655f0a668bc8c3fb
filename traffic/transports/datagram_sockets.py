"""The sockets of datagrams, one of each NIC to send by and one of each server to receive with, and addresses.

The entropy is in the destination address (`topologies.addresses`), and all datagrams go from one port to one.

A server's NICs receive with one socket, whatever their number, since a packet says what it is. Whose packets
are not of this run the kernel drops before they take room in the socket: a run has a token of its own, which
a filter looks at.
"""

import contextlib
import ctypes
import fcntl
import os
import socket
import struct
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from errno import EAGAIN
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
AT_ONCE = 64
"""So many packets of a socket are read before others have their turn."""
ANCILLARY_BYTES, TOS_AT = socket.CMSG_SPACE(4), socket.CMSG_LEN(0)
"""The kernel's other words on a packet: its type of service, and where that is."""
VECTOR, MESSAGE = struct.Struct("@PN"), struct.Struct("@PIPNPNi4xI4x")
"""Of C: where to put a packet, and how many bytes of it (struct iovec); and all that recvmmsg(2) takes and
says of one (struct mmsghdr)."""
MESSAGE_WORDS, SIZE_WORD = 16, 14
"""How many numbers of 32 bits the latter has, and which of them is the packet's size."""
SO_NO_CHECK = 11
"""The option by which packets have no UDP checksum, as RoCEv2's have none: on 9 kB it takes 0.5 us twice."""
IP_MTU_DISCOVER, IP_PMTUDISC_DO = 10, 2
"""The option by which no packet is to be fragmented: the kernel numbers none then, which takes it 0.4 us."""
FORCE = {socket.SO_SNDBUF: 32, socket.SO_RCVBUF: 33}
"""The options that exceed a system's limits, for who may."""
UDP_HEADER_BYTES = 8
Address = tuple[str, int]
_UNSENT = array("i", [0])
"""The kernel's answer; made anew for each question it took half of the 2 us."""
_recvmmsg = ctypes.CDLL(None, use_errno=True).recvmmsg
_recvmmsg.argtypes = ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_int, ctypes.c_void_p


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
    sender.setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, 1)
    sender.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO)
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

    ``marks`` says whether it is to say which are marked (`PacketReader`).
    """
    receiver = stack.enter_context(endpoints.open_receiver(server))
    receiver.setblocking(False)
    receiver.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, marks)
    enlarge(receiver, receive_bytes=RECEIVE_BUFFER_BYTES)
    attach_filter(receiver, _only(token))
    return receiver


class PacketReader:
    """Reads packets that wait in sockets: their first bytes, and whether switches marked them.

    One system call reads many (recvmmsg(2)). Python's own reads one, and raises an error once there is none,
    which takes 1.6 us.

    Parameters
    ----------
    marks
        Whether to look at marks; sockets are to be opened for it (`receiving`).
    """

    def __init__(self, *, marks: bool) -> None:
        data, self._ancillary = bytearray(AT_ONCE * HEADER.size), bytearray(AT_ONCE * ANCILLARY_BYTES)
        self.packets = [memoryview(data)[at : at + HEADER.size] for at in range(0, len(data), HEADER.size)]
        """The first bytes of each packet; of a shorter one it fills, the rest is of another."""
        first, ancillary = _address(data), _address(self._ancillary)
        vectors = b"".join(VECTOR.pack(first + n * HEADER.size, HEADER.size) for n in range(AT_ONCE))
        self._vectors = bytearray(vectors)
        vector, room = _address(self._vectors), ANCILLARY_BYTES * marks
        self._asked = b"".join(
            MESSAGE.pack(0, 0, vector + n * VECTOR.size, 1, ancillary + n * ANCILLARY_BYTES, room, 0, 0)
            for n in range(AT_ONCE)
        )
        self._messages, self._marks = bytearray(self._asked), marks
        self._at = _address(self._messages)
        self._words = memoryview(self._messages).cast("I")

    def read(self, receiver: socket.socket) -> int:
        """Read packets that wait in a socket; return how many, `AT_ONCE` at most."""
        if self._marks:  # how much room there was is what the kernel wrote over
            self._messages[:] = self._asked
        count: int = _recvmmsg(receiver.fileno(), self._at, AT_ONCE, 0, None)
        if count >= 0:
            return count
        if (error := ctypes.get_errno()) != EAGAIN:
            raise OSError(error, os.strerror(error))
        return 0

    def size(self, which: int) -> int:
        """Return how many bytes of a packet were read."""
        return self._words[which * MESSAGE_WORDS + SIZE_WORD]

    def is_marked(self, which: int) -> bool:
        """Return whether a switch marked a packet."""
        if not self._marks:
            return False
        return self._ancillary[which * ANCILLARY_BYTES + TOS_AT] & ECN_BITS == MARKED


def _address(buffer: bytearray) -> int:
    """Return where a buffer is, which must not change its size."""
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))


def unsent_bytes(sender: socket.socket) -> int:
    """Return what a NIC was given and has not sent, as the kernel accounts memory [bytes]."""
    fcntl.ioctl(sender.fileno(), TIOCOUTQ, _UNSENT)
    return _UNSENT[0]


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
