"""TCP connections that are queue pairs: pinned to a source NIC, a destination NIC and an entropy.

The two ports stand for entropy and communicator, so that what the fabric hashes (addresses and ports) is
known before anything is sent. `PORT_SETS` communicators share a service port and differ in the source port;
the next ones have the next service port, at which servers listen once they are used. So there are ports for
all communicators of the longest job, and most jobs need one listening socket per server. Sockets are made by
the caller's ``open_socket``, in the namespace of a server or, in tests, on loopback.
"""

import contextlib
import os
import resource
import socket
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address

from topologies.errors import MachineError, NetworkError
from topologies.fabric import Nic
from traffic.spraying.policy import ENTROPIES, QueuePair

SERVICE_PORT = 5000
"""The first of those at which servers listen."""
FIRST_SOURCE_PORT = 20000
PORT_SETS = ((1 << 16) - FIRST_SOURCE_PORT) // ENTROPIES
"""How many times there is a source port for each entropy."""
CONNECT_S = 20.0
BACKLOG = 4096
DIALS, DIAL_PAUSE_S = 16, 0.001
"""After so many a pause, for who listens in another thread: of 3,000 without one, some were not heard."""
SPARE_DESCRIPTORS = 16
"""For what is open for a moment: a namespace, netlink sockets, a connection that was reset."""
NOT_SENT_BYTES = 128 << 10
TCP_NOTSENT_LOWAT = 25
"""What a socket holds of a queue pair whose bytes are decided."""
RESET_ON_CLOSE = b"\x01\x00\x00\x00\x00\x00\x00\x00"


@dataclass(frozen=True)
class Endpoints:
    """How sockets of a fabric's servers are made and addressed."""

    open_socket: Callable[[int], socket.socket]
    """Make a TCP socket in a server's namespace, by the server's index."""
    address: Callable[[Nic], IPv4Address]
    """The address of a NIC."""
    congestion_control: str = "cubic"
    """What the kernel's TCP controls congestion by."""


Ends = tuple[str, int, str, int]
"""The address and the port of a connection's source, and of its destination."""


def ports(queue_pair: QueuePair) -> tuple[int, int]:
    """Return a queue pair's TCP source and destination port, unlike any other's between the same NICs."""
    turn, place = divmod(queue_pair.communicator, PORT_SETS)
    return FIRST_SOURCE_PORT + place * ENTROPIES + queue_pair.entropy, SERVICE_PORT + turn


def is_service(port: int) -> bool:
    """Return whether servers may listen at a port for queue pairs."""
    return SERVICE_PORT <= port < FIRST_SOURCE_PORT


def ends(queue_pair: QueuePair, endpoints: Endpoints) -> Ends:
    """Return what tells a queue pair's connection apart."""
    near, far = endpoints.address(queue_pair.source), endpoints.address(queue_pair.destination)
    source_port, service_port = ports(queue_pair)
    return str(near), source_port, str(far), service_port


def check_descriptors(queue_pairs: int, listeners: int) -> None:
    """Raise MachineError if this process may not have so many more queue pairs and listening sockets."""
    there, (most, _) = len(os.listdir("/proc/self/fd")), resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = there + 2 * queue_pairs + listeners + SPARE_DESCRIPTORS
    if most != resource.RLIM_INFINITY and needed > most:
        raise MachineError(
            f"{queue_pairs:,} queue pairs more need {needed:,} open files, and a process may have {most:,}",
            "raise the limit (ulimit -Hn), take a smaller fabric or a sparser workload, or have communicators"
            " share queue pairs (--share-queue-pairs)",
        )


def listening(stack: contextlib.ExitStack, endpoints: Endpoints, server: int, port: int) -> socket.socket:
    """Return a server's socket that listens at a port; ``stack`` closes it. NetworkError if it is in use."""
    listener = stack.enter_context(endpoints.open_socket(server))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    _control_congestion(listener, endpoints)  # DCTCP's receivers say what was marked packet by packet
    try:
        listener.bind(("", port))
    except OSError as error:
        raise NetworkError(
            f"listen on port {port} of server {server}: {error.strerror}", "end what uses the port"
        ) from error
    listener.listen(BACKLOG)
    listener.setblocking(False)
    return listener


def dial(stack: contextlib.ExitStack, endpoints: Endpoints, queue_pair: QueuePair) -> socket.socket:
    """Return the sending end of a queue pair, which has begun to connect; ``stack`` closes it."""
    sender = stack.enter_context(endpoints.open_socket(queue_pair.source.server))
    sender.setblocking(False)
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
    _control_congestion(sender, endpoints)
    sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sender.setsockopt(socket.IPPROTO_TCP, TCP_NOTSENT_LOWAT, NOT_SENT_BYTES)
    try:
        near, port, far, service_port = ends(queue_pair, endpoints)
        sender.bind((near, port))
        sender.connect((far, service_port))
    except BlockingIOError:
        pass
    except OSError as error:
        raise NetworkError(f"connect queue pair {queue_pair}: {error.strerror}") from error
    return sender


def _control_congestion(connection: socket.socket, endpoints: Endpoints) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, endpoints.congestion_control.encode())


def keep_none_waiting(sender: socket.socket) -> None:
    """Have a socket take bytes only when it has sent all others: what it does not take may go elsewhere."""
    sender.setsockopt(socket.IPPROTO_TCP, TCP_NOTSENT_LOWAT, 1)


def accept(stack: contextlib.ExitStack, listener: socket.socket) -> tuple[socket.socket, Ends]:
    """Return the receiving end of a connection that was made, and its `ends`; ``stack`` closes it."""
    receiver, (host, port) = listener.accept()
    stack.enter_context(receiver)
    # Over a circuit that is gone a sender's reset does not arrive, and a FIN would be sent for minutes.
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
    receiver.setblocking(False)
    address, service_port = receiver.getsockname()
    return receiver, (host, port, address, service_port)
