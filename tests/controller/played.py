"""A controller's process, with switches and a switch daemon that are played by the test."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from controller.app.client import ControllerClient
from tests.controller.fake_daemon import FakeDaemon, fake_daemon
from tests.controller.fake_switch import FakeSwitch
from tests.tools import CHECKOUT
from topologies.addresses import datapath_id, openflow_port
from topologies.fabric import Fabric
from topologies.rail import rail_fabric

FABRIC = rail_fabric(2, 2, 2)
SECONDS = 30.0


class Controller:
    """A controller's process, and what talks to it."""

    def __init__(
        self,
        process: subprocess.Popen[str],
        directory: Path,
        stack: ExitStack,
        fabric: Fabric,
        daemon: FakeDaemon,
    ) -> None:
        assert process.stdout
        assert process.stdout.readline() == "listening\n"
        self.process, self.fabric, self._stack = process, fabric, stack
        self.path, self.openflow = directory / "nb", directory / "of"
        self.client = ControllerClient(self.path)
        self.daemon = daemon

    def switch(
        self,
        name: str,
        *,
        answers_barriers: bool = True,
        refuses_groups: bool = False,
        refuses_bundles: bool = False,
    ) -> FakeSwitch:
        """Connect a switch of the fabric."""
        ports = [openflow_port(port.number) for port in self.fabric.used_ports(name)]
        faults = answers_barriers, refuses_groups, refuses_bundles
        return self.connect(FakeSwitch(self.openflow, datapath_id(self.fabric, name), ports, *faults))

    def connect(self, switch: FakeSwitch) -> FakeSwitch:
        """Connect any switch."""
        return self._stack.enter_context(switch)

    def switches(self) -> dict[str, FakeSwitch]:
        """Connect all switches of the fabric."""
        return {switch.name: self.switch(switch.name) for switch in self.fabric.switches}

    def threads(self) -> int:
        """Return how many threads the process has."""
        return len(os.listdir(f"/proc/{self.process.pid}/task"))


def command(directory: Path, fabric: Fabric | str = FABRIC) -> list[str]:
    """Return how to start a controller."""
    text = fabric if isinstance(fabric, str) else fabric.to_json()
    (directory / "fabric.json").write_text(text)
    sockets = ["--openflow", str(directory / "of"), "--northbound", str(directory / "nb")]
    return [sys.executable, "-m", "controller", "--fabric", str(directory / "fabric.json"), *sockets]


def eventually(holds: Callable[[], object]) -> None:
    """Wait until something holds; fail if it does not."""
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def begun_since(before: Collection[threading.Thread]) -> set[threading.Thread]:
    """Return the threads that are not among those before; an earlier test's may end meanwhile."""
    return set(threading.enumerate()).difference(before)


@contextmanager
def started(directory: Path, fabric: Fabric = FABRIC, *more: str) -> Iterator[Controller]:
    """Start a controller for a fabric, with more arguments, and the daemon whose flow cache it empties."""
    with ExitStack() as stack:
        daemon = stack.enter_context(fake_daemon(directory))
        process = stack.enter_context(
            subprocess.Popen(
                [*command(directory, fabric), *more],
                cwd=CHECKOUT,
                env=os.environ | {"OVS_RUNDIR": str(directory)},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        stack.callback(process.kill)
        yield Controller(process, directory, stack, fabric, daemon)
