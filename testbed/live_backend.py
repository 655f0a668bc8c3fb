"""The live backend: TCP over a booted network whose controller lights circuits, on a dilated clock.

One process and one epoll loop hold the sockets of all servers. Bytes move as in `traffic.engine`, by the
ideal transport's windows (`traffic.sharing`), but queue pairs come and go. One over circuits connects at
first light, stands while it is drained, and goes on when its light is back: nothing is sent into the dark,
so TCP has nothing to repair.
"""

import contextlib
import select
import socket
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Self

import numpy as np
from numpy.typing import NDArray
from pyroute2.netlink.rtnl import RTM_NEWLINK

from controller.circuits import Circuits
from controller.programs import Day, Program
from testbed.backend import Arrived, Drained, Happening, NowLit
from testbed.dilation import Dilation
from testbed.emulate import endpoints
from testbed.netlink import IFF_UP, Batch
from testbed.network import Network
from testbed.ocs_executor import News
from testbed.work import scaled_bytes
from topologies.addresses import interface, nic_ip
from topologies.errors import ScenarioError, StuckError
from topologies.fabric import Nic, Port
from topologies.light import Circuit, light_path
from traffic.backlog import Backlog
from traffic.connections import dial, listening, source_port
from traffic.scheme import Choice
from traffic.sharing import PACKET_BYTES, NicShares
from traffic.spraying.policy import QueuePair

SHARE_S = 0.02
TICK_S = 0.5
STUCK_S = 15.0
WINDOW_S = 0.05
"""For how long what is on its way may keep a NIC busy."""
LIT_FOR_S = 1e6
"""How long a program's day lasts: until the next is ordered."""
BUFFER_BYTES = 256 << 10
ZEROS = memoryview(bytes(BUFFER_BYTES))


@dataclass(slots=True)
class _Stream:
    """One queue pair; bytes are emulated ones."""

    queue_pair: QueuePair
    sender: socket.socket | None = None
    receiver: socket.socket | None = None
    held: bool = False
    """Whether nothing more may be sent: its light is about to go."""
    sent: int = 0
    counted: int = 0
    window: int = PACKET_BYTES
    blocked: bool = False
    moved_at: float = 0.0
    backlog: Backlog = field(default_factory=Backlog)

    @property
    def left(self) -> int:
        """The bytes that have not arrived."""
        return int(self.backlog.posted) - self.counted


class LiveBackend:
    """Moves bytes over a network; a context manager, whose clock starts when it is entered.

    Parameters
    ----------
    network
        Booted at the dilation's rate, its OCSes told how long they are dark.
    dilation
        The scale of bytes and time.
    stuck_s
        A queue pair that owes bytes and makes no progress for so long is an error, unless it waits for an
        OCS [s, emulated].
    """

    def __init__(self, network: Network, dilation: Dilation, *, stuck_s: float = STUCK_S) -> None:
        self._stuck_s = stuck_s
        self._network, self._dilation, self._fabric = network, dilation, network.fabric
        self._endpoints = endpoints(network)
        self._numbers: dict[QueuePair, int] = {}
        self._streams: list[_Stream] = []
        self._senders: dict[int, int] = {}
        self._receivers: dict[int, int] = {}
        self._listeners: dict[int, socket.socket] = {}
        self._expected: dict[tuple[str, int, str], int] = {}
        self._happened: list[Happening] = []
        self._draining: dict[str, set[int]] = {}
        self._lit: dict[str, tuple[Circuit, ...]] = {
            s.name: () for s in self._fabric.switches if s.kind == "ocs"
        }
        self._ordered: dict[str, tuple[Circuit, ...]] = {}
        self._buffer = bytearray(BUFFER_BYTES)
        self._shares: NicShares | None = None
        self._share_next = self._looked = 0.0

    def __enter__(self) -> Self:
        """Listen in all servers."""
        with contextlib.ExitStack() as stack:
            self._poller = stack.enter_context(select.epoll())
            self._news = stack.enter_context(News(tuple(self._lit)))
            self._poller.register(self._news.fileno(), select.EPOLLIN)
            for server in range(len(self._fabric.servers)):
                listener = listening(stack, self._endpoints, server)
                self._listeners[listener.fileno()] = listener
                self._poller.register(listener.fileno(), select.EPOLLIN)
            self._stack = stack.pop_all()
        self._start = self._looked = time.monotonic()
        return self

    def __exit__(self, *_error: object) -> None:
        """Close everything."""
        self._stack.close()

    @property
    def now_s(self) -> float:
        """Time since the start [real s]."""
        return self._dilation.real_s(time.monotonic() - self._start)

    def numbers(self, queue_pairs: Sequence[QueuePair]) -> list[int]:
        """Return the number of each queue pair; one that is new begins to connect."""
        for queue_pair in queue_pairs:
            if queue_pair not in self._numbers:
                self._numbers[queue_pair] = len(self._streams)
                self._streams.append(_Stream(queue_pair, blocked=True))
                self._shares = None
                self._dial(self._numbers[queue_pair])
        return [self._numbers[queue_pair] for queue_pair in queue_pairs]

    def _dial(self, number: int) -> None:
        """Connect a queue pair, now or at first light: a SYN in the dark is repeated only after a second."""
        stream = self._streams[number]
        source, destination = stream.queue_pair.source, stream.queue_pair.destination
        optical = self._fabric.peer(self._fabric.nic_port(source)).node in self._lit
        light = light_path(self._fabric, self._lit, source)
        if optical and light.end != self._fabric.nic_port(destination):
            return
        addresses = [str(nic_ip(self._fabric, nic)) for nic in (source, destination)]
        self._expected[addresses[0], source_port(stream.queue_pair), addresses[1]] = number
        stream.sender = dial(self._stack, self._endpoints, stream.queue_pair)
        self._senders[stream.sender.fileno()] = number
        self._poller.register(stream.sender.fileno(), select.EPOLLOUT)

    def carried(self, number: int) -> set[int]:
        """Return the messages whose bytes a queue pair still carries."""
        return self._streams[number].backlog.messages

    def post(self, number: NDArray[np.int64], size: NDArray[np.int64], message: NDArray[np.int64]) -> None:
        """Put parcels behind what queue pairs carry, at emulated scale."""
        sizes = scaled_bytes(size, self._dilation.volume)
        by_stream = np.argsort(number, kind="stable")
        used, first = np.unique(number[by_stream], return_index=True)
        edges = [*first.tolist(), len(number)]
        posted, messages = sizes[by_stream].tolist(), message[by_stream].tolist()
        for which, (begin, end) in zip(used.tolist(), pairwise(edges), strict=True):
            stream = self._streams[which]
            if stream.backlog.posted == stream.counted:
                stream.moved_at = time.monotonic()
            stream.backlog.post(posted[begin:end], messages[begin:end])
        self._share_next = 0.0

    def choose(
        self, numbers: Sequence[int], choice: Choice, size: NDArray[np.int64], message: NDArray[np.int64]
    ) -> None:
        """Raise ScenarioError: a job's connections come and go, reactive schemes count on theirs."""
        raise ScenarioError(
            f"a job cannot be emulated under {choice.policy.name}, which chooses as it goes",
            "take a scheme that decides when a message starts, or predict it",
        )

    def chosen(self, message: int) -> dict[int, int]:
        """Return nothing: no message chooses."""
        return {}

    def withdraw(self, number: int) -> list[tuple[int, int]]:
        """Reset a queue pair; return what it did not deliver, in real bytes."""
        stream = self._streams[number]
        left = stream.backlog.withdraw(stream.counted)
        stream.sent = stream.counted
        for endpoint, numbers in ((stream.sender, self._senders), (stream.receiver, self._receivers)):
            if endpoint:
                self._poller.unregister(endpoint.fileno())
                numbers.pop(endpoint.fileno(), None)
                endpoint.close()
        del self._numbers[stream.queue_pair]
        return [(message, max(round(size / self._dilation.volume), 1)) for message, size in left]

    def drain(self, ocs: str, numbers: Iterable[int]) -> None:
        """Hold queue pairs, and report when all that was sent has arrived."""
        self._draining[ocs] = set(numbers)
        for number in self._draining[ocs]:
            self._streams[number].held = True
        self._look_for_drained()

    def resume(self, numbers: Iterable[int]) -> None:
        """Let queue pairs send again."""
        for number in numbers:
            self._streams[number].held = False
        self._share_next = 0.0

    def light(self, ocs: str, circuits: Sequence[Circuit]) -> None:
        """Have an OCS light circuits until it is told otherwise."""
        ports = self._fabric.switches[self._fabric.switch_index[ocs]].ports
        self._ordered[ocs] = tuple(sorted(circuits))
        self._lit[ocs] = tuple(pair for pair in self._lit[ocs] if pair in circuits)
        program = Program((Day(Circuits(ports, tuple(circuits)), LIT_FOR_S),))
        self._network.northbound.show(ocs, program, None, self._news.path)

    def fail(self, port: Port) -> None:
        """Take the link at a port down, from the switch's side."""
        end = port if port.node in self._fabric.switch_index else self._fabric.peer(port)
        batch = Batch()
        index = socket.if_nametoindex(interface(self._fabric, end))
        batch.add(f"take {end} down", RTM_NEWLINK, {"index": index, "flags": 0, "change": IFF_UP})
        batch.commit()

    def wait(self, until_s: float) -> list[Happening]:
        """Let time pass until something happens."""
        while True:
            if self._happened:
                happened, self._happened = self._happened, []
                return happened
            now = time.monotonic()
            left_s = self._start + self._dilation.emulated_s(until_s) - now
            if left_s <= 0:
                return []
            if now >= self._share_next:
                self._share()
            for descriptor, _ in self._poller.poll(min(left_s, max(self._share_next - now, 0.0), TICK_S)):
                self._serve(descriptor)
            if self._draining:
                self._look_for_drained()
            if now - self._looked > TICK_S:
                self._network.check_alive()
                self._check_progress(now)
                self._looked = now

    def _serve(self, descriptor: int) -> None:
        if descriptor in self._receivers:
            self._receive(self._receivers[descriptor])
        elif descriptor in self._senders:
            self._send(self._senders[descriptor])
        elif descriptor in self._listeners:
            self._accept(self._listeners[descriptor])
        else:
            self._read_news()

    def _accept(self, listener: socket.socket) -> None:
        receiver, (host, port) = listener.accept()
        self._stack.enter_context(receiver)
        receiver.setblocking(False)
        number = self._expected.get((host, port, receiver.getsockname()[0]))
        if number is not None:
            self._streams[number].receiver = receiver
            self._receivers[receiver.fileno()] = number
            self._poller.register(receiver.fileno(), select.EPOLLIN)

    def _read_news(self) -> None:
        ocses = tuple(self._lit)
        for light in self._news.read():
            ocs, circuits = ocses[light.ocs], tuple(sorted(light.outputs.items()))
            if light.until_s is None or self._ordered.get(ocs) != circuits:
                continue
            del self._ordered[ocs]
            self._lit[ocs] = circuits
            for number in self._numbers.values():
                self._streams[number].moved_at = time.monotonic()  # it may have waited for this light
                if not self._streams[number].sender:
                    self._dial(number)
            self._happened.append(NowLit(ocs, self.now_s))

    def _share(self) -> None:
        """Give each queue pair the window that what is left entitles it to."""
        if self._shares is None:
            self._shares = NicShares([s.queue_pair for s in self._streams], self._nic_rate_bps)
        left = np.array([stream.left for stream in self._streams], dtype=float)
        windows = self._shares.windows_bytes(left, WINDOW_S).tolist()
        for number in np.flatnonzero(left).tolist():
            self._streams[number].window = windows[number]
            self._send(number)
        self._share_next = time.monotonic() + SHARE_S

    def _nic_rate_bps(self, nic: Nic) -> float:
        return self._fabric.nic_rate_bps(nic) * self._dilation.rate

    def _send(self, number: int) -> None:
        stream = self._streams[number]
        if not stream.sender:
            return
        room = min(int(stream.backlog.posted), stream.counted + stream.window) - stream.sent
        try:
            while room > 0 and not stream.held:
                size = stream.sender.send(ZEROS[:room])
                stream.sent += size
                room -= size
        except BlockingIOError:
            if not stream.blocked:
                self._poller.modify(stream.sender.fileno(), select.EPOLLOUT)
            stream.blocked = True
            return
        except OSError as error:
            raise StuckError(f"queue pair {stream.queue_pair} broke: {error.strerror}") from error
        if stream.blocked:
            self._poller.modify(stream.sender.fileno(), 0)
            stream.blocked = False

    def _receive(self, number: int) -> None:
        stream = self._streams[number]
        assert stream.receiver is not None
        try:
            size = stream.receiver.recv_into(self._buffer)
        except BlockingIOError:
            return
        except OSError as error:
            raise StuckError(f"queue pair {stream.queue_pair} broke: {error.strerror}") from error
        if not size:
            raise StuckError(f"queue pair {stream.queue_pair} was closed before all had arrived")
        stream.counted += size
        stream.moved_at = time.monotonic()
        for message in stream.backlog.deliver(stream.counted):
            self._happened.append(Arrived(message, self.now_s))
        if stream.sent < int(stream.backlog.posted):
            self._send(number)

    def _look_for_drained(self) -> None:
        for ocs, numbers in list(self._draining.items()):
            if all(self._streams[n].sent == self._streams[n].counted for n in numbers):
                del self._draining[ocs]
                self._happened.append(Drained(ocs, self.now_s))

    def _check_progress(self, now: float) -> None:
        stuck = [
            stream
            for stream in self._streams
            if stream.left and not stream.held and now - stream.moved_at > self._stuck_s
        ]
        if stuck and not self._ordered:
            raise StuckError(
                f"queue pair {stuck[0].queue_pair} made no progress for {self._stuck_s:g} s "
                f"({stuck[0].counted:,} of {stuck[0].backlog.posted:,} bytes arrived)"
            )
