"""A booted network as a test draws it: who reaches whom, and over which path."""

import contextlib
import errno
import select
import socket
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from functools import partial

from testbed.machine.datapath import Datapath
from testbed.machine.kernel import inside_namespace
from testbed.network.network import Network
from testbed.network.tap import Tap
from topologies.addresses import nic_ip
from topologies.fabric import Fabric, Path
from topologies.own_routing import CheckedRouting
from topologies.routing import Routing
from traffic.packets import DEFAULT_MTU
from traffic.spraying.policy import QueuePair
from traffic.transports.connections import ends, ports
from traffic.transports.host_settings import HostSettings

RATE_FACTOR = 1e-3
ANSWER_S = 5.0
"""How long an answer may take [s]; all that answer sooner are not waited for."""
DIALS = 50
"""How many connections the tap is sure to see when they are made at once."""


class Live:
    """A network that boots and ends with its block."""

    def __init__(
        self,
        fabric: Fabric,
        rate_factor: float,
        mtu: int = DEFAULT_MTU,
        host: HostSettings | None = None,
        *,
        hosts: bool = False,
        datapath: Datapath | None = None,
        routing: Routing | None = None,
    ) -> None:
        self.fabric, own = fabric, CheckedRouting(routing) if routing else None
        self.network = Network(fabric, rate_factor, datapath, host, mtu=mtu, routing=own, hosts=hosts)

    def __enter__(self) -> "Live":
        """Boot."""
        self.network.__enter__()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Stop; attach what the daemons wrote to a test that failed."""
        self.network.__exit__(kind, error, trace)  # type: ignore[arg-type]

    def open(self, server: int, kind: socket.SocketKind = socket.SOCK_STREAM) -> socket.socket:
        """Return a new socket of a server."""
        with inside_namespace(self.network.wiring.namespaces[server]):
            return socket.socket(socket.AF_INET, kind)

    def reaches(self, source: int, destination: int) -> bool:
        """Return whether a NIC hears back from another; NICs count over all servers."""
        pair = QueuePair(self.fabric.nics[source], self.fabric.nics[destination])
        return self.answered([pair]) == {pair}

    def answered(self, queue_pairs: Iterable[QueuePair], within_s: float = ANSWER_S) -> set[QueuePair]:
        """Dial all queue pairs at once, and return those that hear back: nobody listens, all refuse."""
        answered: set[QueuePair] = set()
        with ExitStack() as stack, select.epoll() as poller:
            dialled = {}
            for queue_pair in queue_pairs:
                dialling = stack.enter_context(self._dial(queue_pair))
                poller.register(dialling, select.EPOLLIN)
                dialled[dialling.fileno()] = dialling, queue_pair
            deadline = time.monotonic() + within_s
            while len(answered) < len(dialled) and (left := deadline - time.monotonic()) > 0:
                for descriptor, _ in poller.poll(left):
                    dialling, queue_pair = dialled[descriptor]
                    if dialling.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNREFUSED:
                        answered.add(queue_pair)
                    poller.unregister(descriptor)
        return answered

    def paths(self, queue_pairs: Sequence[QueuePair]) -> tuple[Path, ...]:
        """Return the way that each queue pair's first packet takes, read off the wire."""
        with Tap(self.network.wiring) as tap:
            for first in range(0, len(queue_pairs), DIALS):
                self.answered(queue_pairs[first : first + DIALS])
            return tap.paths(queue_pairs, partial(ends, endpoints=self.network.endpoints))

    def _dial(self, queue_pair: QueuePair) -> socket.socket:
        dialling = self.open(queue_pair.source.server)
        dialling.setblocking(False)
        source_port, service_port = ports(queue_pair)
        dialling.bind((str(nic_ip(self.fabric, queue_pair.source)), source_port))
        with contextlib.suppress(BlockingIOError):
            dialling.connect((str(nic_ip(self.fabric, queue_pair.destination)), service_port))
        return dialling
