"""A command on all hosts side by side, each line of output behind the name of its host."""

import os
import selectors
import signal
from collections.abc import Callable, Mapping
from contextlib import ExitStack

from testbed.apps.environment import of_asker
from testbed.apps.host_processes import HostCommand, HostProcess, start
from testbed.network.network import Network

READ_BYTES = 1 << 16


def run_on_all(network: Network, line: str, say: Callable[[str], None]) -> None:
    """Run a line of the shell on each host as the sandbox's root, until all have ended.

    What a command leaves running goes on, and is no longer heard. Ctrl-C is passed on to all.

    Parameters
    ----------
    network
        Booted, with hosts.
    line
        What ``sh`` carries out on each.
    say
        Called with each line of output, its host's name before it, and with exit codes that are not 0.
    """
    with ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        heard = [
            stack.enter_context(_Heard(network, host, line, of_asker(os.environ), say))
            for host in range(len(network.fabric.servers))
        ]
        for each in heard:
            selector.register(each.reads, selectors.EVENT_READ, each.hear)
            selector.register(each.process, selectors.EVENT_READ, each.end)
        while not all(each.has_ended for each in heard):
            try:
                for key, _ in selector.select():
                    if not key.data():
                        selector.unregister(key.fileobj)
            except KeyboardInterrupt:
                for each in heard:
                    each.process.signal(signal.SIGINT)


class _Heard:
    """A process on a host, and the pipe that it writes into; a context manager."""

    def __init__(
        self, network: Network, host: int, line: str, env: Mapping[str, str], say: Callable[[str], None]
    ) -> None:
        self._name, self._say, self._rest, self.has_ended = network.fabric.servers[host].name, say, b"", False
        self.reads, writes = os.pipe()
        os.set_blocking(self.reads, False)
        command = HostCommand(host, ("sh", "-c", line), env, os.getcwd(), as_root=True)
        try:
            with open(os.devnull) as nothing:
                self.process: HostProcess = start(network, command, nothing.fileno(), writes, writes)
        except BaseException:
            os.close(self.reads)
            raise
        finally:
            os.close(writes)

    def __enter__(self) -> "_Heard":
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self.reads)
        if self.has_ended:
            self.process.close()
        else:
            self.process.__exit__(*error)

    def hear(self) -> bool:
        """Say the lines that have come; return whether more may come."""
        data = self._read()
        self._take(data or b"")
        return data != b""

    def end(self) -> bool:
        """Say what is left now that the process has ended; return False, since it ends once."""
        while data := self._read():
            self._take(data)
        if self._rest:
            self._take(b"\n")
        if code := self.process.wait():
            self._say(f"{self._name}: exit code {code}")
        self.has_ended = True
        return False

    def _read(self) -> bytes | None:
        """Return the bytes that have come: none at the pipe's end, None if it is not there yet."""
        try:
            return os.read(self.reads, READ_BYTES)
        except BlockingIOError:
            return None

    def _take(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._say(f"{self._name}: {line.decode(errors='replace')}")
