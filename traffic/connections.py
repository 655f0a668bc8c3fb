"""TCP connections that are queue pairs: pinned to a source NIC, a destination NIC and an entropy.

The entropy is the source port, so that what the fabric hashes (addresses and ports) is known
before anything is sent. Sockets are made by the caller's ``open_socket``, in the namespace of
a server or, in tests, on loopback.
"""

import contextlib
import resource
import select
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address

from topologies.errors import MachineError, NetworkError
from topologies.fabric import Nic
from traffic.spraying.policy import QueuePair

SERVICE_PORT = 5000
FIRST_SOURCE_PORT = 20000
CONNECT_S = 20.0
BACKLOG = 4096
DIALS, DIAL_PAUSE_S = 16, 0.001
"""After so many a pause, for who listens in another thread: of 3,000 without one, some were not heard."""
SPARE_DESCRIPTORS = 2000
"""For listeners, namespaces, packet sockets and files."""
CONGESTION_CONTROL = b"cubic"
NOT_SENT_BYTES = 128 << 10
TCP_NOTSENT_LOWAT = 25
RESET_ON_CLOSE = b"\x01\x00\x00\x00\x00\x00\x00\x00"


@dataclass(frozen=True)
class Endpoints:
    """How sockets of a fabric's servers are made and addressed."""

    open_socket: Callable[[int], socket.socket]
    """Make a TCP socket in a server's namespace, by the server's index."""
    address: Callable[[Nic], IPv4Address]
    """The address of a NIC."""


@dataclass(frozen=True)
class Connection:
    """The two ends of a queue pair."""

    sender: socket.socket
    receiver: socket.socket


def source_port(queue_pair: QueuePair) -> int:
    """Return the TCP source port that a queue pair's entropy stands for."""
    return FIRST_SOURCE_PORT + queue_pair.entropy


@contextlib.contextmanager
def connected(queue_pairs: Sequence[QueuePair], endpoints: Endpoints) -> Iterator[list[Connection]]:
    """Connect all queue pairs, and reset them at the end so that their ports are free at once.

    Raises
    ------
    MachineError
        If this user may not have so many sockets.
    NetworkError
        If a queue pair cannot be connected within `CONNECT_S`; it is named.
    """
    _check_descriptors(len(queue_pairs))
    with contextlib.ExitStack() as stack:
        listeners = {
            server: listening(stack, endpoints, server)
            for server in sorted({queue_pair.destination.server for queue_pair in queue_pairs})
        }
        senders = list(_dial_all(stack, endpoints, queue_pairs))
        receivers = _accept_all(stack, listeners, queue_pairs, endpoints)
        yield [Connection(sender, receiver) for sender, receiver in zip(senders, receivers, strict=True)]


def _check_descriptors(queue_pairs: int) -> None:
    needed, (most, _) = 2 * queue_pairs + SPARE_DESCRIPTORS, resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and needed > most:
        raise MachineError(
            f"{queue_pairs:,} queue pairs need {needed:,} open files, and this user may have {most:,}",
            "raise the limit (ulimit -Hn), or take a smaller fabric or a sparser workload",
        )


def listening(stack: contextlib.ExitStack, endpoints: Endpoints, server: int) -> socket.socket:
    """Return a server's listening socket, which ``stack`` closes; NetworkError if its port is in use."""
    listener = stack.enter_context(endpoints.open_socket(server))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("", SERVICE_PORT))
    except OSError as error:
        raise NetworkError(
            f"listen on port {SERVICE_PORT} of server {server}: {error.strerror}", "end what uses the port"
        ) from error
    listener.listen(BACKLOG)
    listener.setblocking(False)
    return listener


def _dial_all(
    stack: contextlib.ExitStack, endpoints: Endpoints, queue_pairs: Sequence[QueuePair]
) -> Iterator[socket.socket]:
    for number, queue_pair in enumerate(queue_pairs, start=1):
        yield dial(stack, endpoints, queue_pair)
        if number % DIALS == 0:
            time.sleep(DIAL_PAUSE_S)


def dial(stack: contextlib.ExitStack, endpoints: Endpoints, queue_pair: QueuePair) -> socket.socket:
    """Return the sending end of a queue pair, which has begun to connect; ``stack`` closes it."""
    sender = stack.enter_context(endpoints.open_socket(queue_pair.source.server))
    sender.setblocking(False)
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
    sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, CONGESTION_CONTROL)
    sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sender.setsockopt(socket.IPPROTO_TCP, TCP_NOTSENT_LOWAT, NOT_SENT_BYTES)
    try:
        sender.bind((str(endpoints.address(queue_pair.source)), source_port(queue_pair)))
        sender.connect((str(endpoints.address(queue_pair.destination)), SERVICE_PORT))
    except BlockingIOError:
        pass
    except OSError as error:
        raise NetworkError(f"connect queue pair {queue_pair}: {error.strerror}") from error
    return sender


def _accept_all(
    stack: contextlib.ExitStack,
    listeners: dict[int, socket.socket],
    queue_pairs: Sequence[QueuePair],
    endpoints: Endpoints,
) -> list[socket.socket]:
    """Accept a connection per queue pair, told apart by their addresses and source ports."""
    wanted = {
        (str(endpoints.address(qp.source)), source_port(qp), str(endpoints.address(qp.destination))): index
        for index, qp in enumerate(queue_pairs)
    }
    accepted: dict[int, socket.socket] = {}
    poller = select.epoll()
    by_descriptor = {listener.fileno(): listener for listener in listeners.values()}
    for descriptor in by_descriptor:
        poller.register(descriptor, select.EPOLLIN)
    deadline = time.monotonic() + CONNECT_S
    with poller:
        while len(accepted) < len(queue_pairs):
            for descriptor, _ in poller.poll(max(deadline - time.monotonic(), 0)):
                receiver, (host, port) = by_descriptor[descriptor].accept()
                stack.enter_context(receiver)
                receiver.setblocking(False)
                index = wanted.get((host, port, receiver.getsockname()[0]))
                if index is not None:
                    accepted[index] = receiver
            if time.monotonic() > deadline:
                missing = next(qp for i, qp in enumerate(queue_pairs) if i not in accepted)
                raise NetworkError(
                    f"queue pair {missing} did not connect within {CONNECT_S:g} s "
                    f"({len(queue_pairs) - len(accepted)} of {len(queue_pairs)} did not)",
                    "look at the links and rules with --cli",
                )
    return [accepted[index] for index in range(len(queue_pairs))]
