"""Captures of what a host's NIC sends and receives, by ``tcpdump`` in the host's namespace."""

import os
import select
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from testbed.apps.host_processes import HostCommand, HostProcess, start
from testbed.network.network import Network
from topologies.addresses import interface
from topologies.errors import MachineError, ScenarioError
from topologies.fabric import Fabric, Nic

TCPDUMP = "tcpdump"
HEAD_BYTES = 256
"""How much of a packet is kept: its headers, and the beginning of what it carries [bytes]."""
LISTENS = b"listening on"
LISTENS_S, WRITES_S = 10.0, 2.0
"""How long it may take to begin to listen, and to write what it has heard [s]."""
BLOCK_S = 1.1
"""After how long ``tcpdump`` has read a packet: the kernel hands on a block of them each second [s]."""


@dataclass(frozen=True)
class Capture:
    """The packets of a NIC, to be kept in a file."""

    nic: Nic
    name: str
    """Of the file in the results."""
    descriptor: int = -1
    """Of the file, once it is open."""


def captures_of(text: str, fabric: Fabric) -> tuple[Capture, ...]:
    """Return the captures that a list of NICs by commas asks for: ``h0:0,h3:1``.

    Raises
    ------
    ScenarioError
        If a word is not HOST:NIC, or the fabric has no such NIC.
    MachineError
        If this machine has no ``tcpdump``.
    """
    words = dict.fromkeys(word.strip() for word in text.split(",") if word.strip())
    nics = [_nic(word, fabric) for word in words]
    if not nics:
        raise ScenarioError("--pcap names no NIC", "give HOST:NIC, as in h0:0")
    if not shutil.which(TCPDUMP, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"):
        raise MachineError("tcpdump is not installed, and --pcap needs it", "apt-get install tcpdump")
    return tuple(
        Capture(nic, f"pcap/{fabric.servers[nic.server].name}-{interface(fabric, fabric.nic_port(nic))}.pcap")
        for nic in nics
    )


def _nic(word: str, fabric: Fabric) -> Nic:
    name, _, number = word.rpartition(":")
    server = fabric.server_index.get(name)
    if server is None or not (number.isascii() and number.isdecimal()):
        raise ScenarioError(f"--pcap {word}: that is not a NIC of {fabric.name}", "give HOST:NIC, as in h0:0")
    if int(number) >= fabric.servers[server].nics:
        raise ScenarioError(
            f"--pcap {word}: {name} has {fabric.servers[server].nics} NICs", "their numbers begin at 0"
        )
    return Nic(server, int(number))


@contextmanager
def capturing(network: Network, captures: Sequence[Capture]) -> Iterator[None]:
    """Capture packets while the block runs; MachineError if ``tcpdump`` does not begin to listen."""
    with ExitStack() as stack:
        for capture in captures:
            process = stack.enter_context(_begun(network, capture))
            stack.callback(_finish, process)
        if captures:
            stack.callback(time.sleep, BLOCK_S)
        yield


def _begun(network: Network, capture: Capture) -> HostProcess:
    fabric = network.fabric
    device = interface(fabric, fabric.nic_port(capture.nic))
    # It would give up being root, which is all the rights that it has in the sandbox of an ordinary user.
    argv = (TCPDUMP, "-Z", "root", "-n", "-i", device, "-s", str(HEAD_BYTES), "-U", "-w", "-")
    command = HostCommand(capture.nic.server, argv, dict(os.environ), "/", as_root=True)
    reads, writes = os.pipe()
    try:
        with open(os.devnull) as nothing:
            process = start(network, command, nothing.fileno(), capture.descriptor, writes)
    finally:
        os.close(writes)
    try:
        _await_listening(reads)
    except MachineError:
        with process:
            raise
    finally:
        os.close(reads)
    return process


def _await_listening(reads: int) -> None:
    said, deadline_s = b"", time.monotonic() + LISTENS_S
    while LISTENS not in said:
        ready, *_ = select.select([reads], [], [], max(deadline_s - time.monotonic(), 0.0))
        heard = os.read(reads, 1 << 12) if ready else b""
        said += heard
        if not heard:
            why = " ".join(said.decode(errors="replace").split()) or "it says nothing"
            raise MachineError(f"tcpdump does not capture: {why}", "leave out --pcap")


def _finish(process: HostProcess) -> None:
    """Have a capture write what it has heard, and wait for that."""
    process.signal(signal.SIGINT)
    deadline_s = time.monotonic() + WRITES_S
    while process.returncode is None and time.monotonic() < deadline_s:
        select.select([process], [], [], max(deadline_s - time.monotonic(), 0.0))
