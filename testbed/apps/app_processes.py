"""The processes of an application: started at a barrier, heard, signalled, and gone in the end.

Each begins as a shell that says that it is there and waits for a line. When all are there, a line for each is
written into the pipe that is everybody's standard input, and each becomes its command. So all begin together,
however long it takes to start one. Commands read nothing.

What they write is heard line by line, whatever they do with their descriptors: a process that has ended may
have left others that still write, which are heard until nobody has the pipe any more, or for `LEFT_S`.
"""

import os
import selectors
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Self

from testbed.apps.host_processes import HostCommand, HostProcess, kill_processes_on, start
from testbed.apps.launchers import Launch, LaunchedProcess
from testbed.network.network import Network
from topologies.errors import MachineError

THERE = b"\n"
AT_THE_BARRIER = ("sh", "-c", 'echo; read -r _; exec "$@" </dev/null', "sh")
BARRIER_S = 120.0
"""How long processes may take to be at the barrier together [s]."""
LEFT_S = 1.0
"""How long what a process has left is heard after the last process' end [s]."""
TERM_S = 2.0
"""How long processes may take to end that are asked to [s]."""
READ_BYTES = 1 << 16
MOST_LINE_BYTES = 1 << 20
"""A longer line is passed on in parts."""


@dataclass(frozen=True)
class Wrote:
    """Lines that a process wrote."""

    label: str
    data: bytes
    is_error: bool
    """True if it wrote them to standard error."""


@dataclass(frozen=True)
class EndedProcess:
    """A process has ended."""

    number: int
    """Its place among the launch's processes."""
    code: int
    """As a shell has it: 128 plus the number after a signal."""
    at_s: float
    """When it was noticed [s, monotonic clock]."""


@dataclass(eq=False)
class _Stream:
    """A pipe that a process writes to."""

    number: int
    """The process' place."""
    is_error: bool
    held: bytes = b""
    """The beginning of a line of the pipe whose end has not come."""
    unended: dict[tuple[str, bool], bytes] = field(default_factory=dict)
    """The beginnings of lines whose ends have not come, by whose they are and whether they are errors."""


@dataclass(eq=False)
class _Running:
    process: HostProcess
    planned: LaunchedProcess
    code: int | None = None
    is_there: bool = False


@dataclass(frozen=True)
class Place:
    """The part of whoever starts the application that processes have."""

    env: Mapping[str, str]
    """The environment, beside which hosts and launchers have theirs."""
    cwd: str
    """The directory."""
    scale: float = 1.0
    """How many times as long as in reality an application is to compute."""


@dataclass(eq=False)
class AppProcesses:
    """The processes of an application; a context manager, at whose end no process is left on any host.

    Parameters
    ----------
    network
        Booted, with hosts.
    launch
        What is started.
    place
        Where and with which environment.
    """

    network: Network
    launch: Launch
    place: Place
    running: list[_Running] = field(default_factory=list, init=False)
    _before: list[Wrote | EndedProcess] = field(default_factory=list, init=False)
    """News from the barrier: the ends of processes that cannot begin."""

    def __enter__(self) -> Self:
        """Start all, and return when they are at the barrier or have ended."""
        with ExitStack() as stack:
            self._selector = stack.enter_context(selectors.DefaultSelector())
            behind, self._barrier = os.pipe()
            stack.callback(os.close, self._barrier)
            stack.callback(self._end_all)
            try:
                for number, planned in enumerate(self.launch.processes):
                    self._start(stack, number, planned, behind)
            finally:
                os.close(behind)
            self._wait_at_barrier()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        """Kill what is left on hosts, whoever started it."""
        self._stack.close()

    def go(self) -> float:
        """Let all begin, and return when that was [s, monotonic clock]."""
        began_s = time.monotonic()
        with suppress(BrokenPipeError):  # none is there any more
            os.write(self._barrier, THERE * len(self.running))
        return began_s

    @property
    def labels(self) -> list[str]:
        """The labels of processes that still run."""
        return [each.planned.label for each in self.running if each.code is None]

    @property
    def codes(self) -> list[int | None]:
        """The exit code of each process, None while it runs."""
        return [each.code for each in self.running]

    def register(self, descriptor: int) -> None:
        """Have `heard` return when another descriptor can be read."""
        self._selector.register(descriptor, selectors.EVENT_READ, None)

    def heard(self, until_s: float) -> list[Wrote | EndedProcess]:
        """Return the news of processes, at once when there is some, at a time at the latest.

        Parameters
        ----------
        until_s
            That time [s, monotonic clock].
        """
        found, self._before = self._before, []
        for key, _ in self._selector.select(0.0 if found else max(until_s - time.monotonic(), 0.0)):
            if isinstance(key.data, _Stream):
                found += self._read(key.fd, key.data)
            elif isinstance(key.data, int):
                found += self._reap(key.data)
        return found

    def end(self) -> Iterator[Wrote | EndedProcess]:
        """Ask all to end, then kill them; yield what is heard of them meanwhile."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            for each in self.running:
                if each.code is None:
                    each.process.signal(number)
            deadline_s = time.monotonic() + TERM_S
            while self.labels and time.monotonic() < deadline_s:
                yield from self.heard(deadline_s)

    def rest(self) -> Iterator[Wrote | EndedProcess]:
        """Yield what is still written once all have ended, and kill what is left on hosts.

        A process that has left its host's network is not found; it ends with the sandbox.
        """
        yield from self._still_heard()
        self.end_on(range(len(self.network.fabric.servers)))
        yield from self._still_heard()

    def _still_heard(self) -> Iterator[Wrote | EndedProcess]:
        """Yield what is heard until nobody has a pipe any more, or for `LEFT_S`."""
        deadline_s = time.monotonic() + LEFT_S
        yield from self.heard(0.0)
        while self._streams and time.monotonic() < deadline_s:
            yield from self.heard(deadline_s)

    def end_on(self, hosts: Sequence[int]) -> None:
        """Kill all processes on hosts, whoever started them."""
        for host in hosts:
            kill_processes_on(self.network, host)

    @property
    def _streams(self) -> bool:
        return any(isinstance(key.data, _Stream) for key in self._selector.get_map().values())

    def _start(self, stack: ExitStack, number: int, planned: LaunchedProcess, behind: int) -> None:
        argv = (*AT_THE_BARRIER, *planned.argv)
        command = HostCommand(planned.host, argv, {**self.place.env, **planned.env}, self.place.cwd)
        ends = [os.pipe(), os.pipe()]
        try:
            outs = [writes for _, writes in ends]
            process = start(self.network, command, behind, *outs, scale=self.place.scale)
        finally:
            for _, writes in ends:
                os.close(writes)
            for reads, _ in ends:
                os.set_blocking(reads, False)
                stack.callback(os.close, reads)
        stack.enter_context(process)
        self.running.append(_Running(process, planned))
        for (reads, _), is_error in zip(ends, (False, True), strict=True):
            self._selector.register(reads, selectors.EVENT_READ, _Stream(number, is_error))
        self._selector.register(process.fileno(), selectors.EVENT_READ, number)

    def _wait_at_barrier(self) -> None:
        deadline_s = time.monotonic() + BARRIER_S
        while not all(each.is_there or each.code is not None for each in self.running):
            if time.monotonic() > deadline_s:
                raise MachineError(
                    f"processes on hosts did not start within {BARRIER_S:g} s",
                    "start fewer, or end what else runs on this machine",
                )
            for key, _ in self._selector.select(deadline_s - time.monotonic()):
                if isinstance(key.data, int):
                    self._before += self._reap(key.data)
                elif isinstance(key.data, _Stream) and not key.data.is_error:
                    self._take_word(key.fd, self.running[key.data.number])

    def _take_word(self, descriptor: int, running: _Running) -> None:
        """Take a process' word that it is there; it writes nothing else before it may begin."""
        if os.read(descriptor, len(THERE)) == THERE:
            running.is_there = True
        else:  # it has ended
            self._selector.unregister(descriptor)

    def _read(self, descriptor: int, stream: _Stream) -> list[Wrote | EndedProcess]:
        """Return the whole lines that are there; the unended ones too once nobody writes any more."""
        data = os.read(descriptor, READ_BYTES)
        whole, stream.held = _whole_lines(stream.held + data, is_all=not data)
        planned, found = self.running[stream.number].planned, list[Wrote | EndedProcess]()
        for label, text, of_error in self.launch.authors(planned, whole):
            author = label, stream.is_error if of_error is None else of_error
            lines, rest = _whole_lines(stream.unended.pop(author, b"") + text, is_all=False)
            if lines:
                found.append(Wrote(label, lines, author[1]))
            if rest:
                stream.unended[author] = rest
        if not data:
            self._selector.unregister(descriptor)
            found += [Wrote(label, rest, error) for (label, error), rest in stream.unended.items()]
        return found

    def _reap(self, number: int) -> list[EndedProcess]:
        each = self.running[number]
        self._selector.unregister(each.process.fileno())
        each.code = each.process.wait()
        return [EndedProcess(number, each.code, time.monotonic())]

    def _end_all(self) -> None:
        self.end_on(range(len(self.network.fabric.servers)))


def _whole_lines(data: bytes, *, is_all: bool) -> tuple[bytes, bytes]:
    """Return the whole lines of some bytes, all where there is no more or too much, and the rest."""
    end = len(data) if is_all or len(data) > MOST_LINE_BYTES else data.rfind(b"\n") + 1
    return data[:end], data[end:]
