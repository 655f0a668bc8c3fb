"""Proof that a change of rules has reached the wire: Open vSwitch's cache of flows is emptied, and says so.

Open vSwitch forwards from a cache of what its rules made of earlier packets. A barrier reply proves
that the rules have changed, not that the cache has been revalidated: with 64 ports under traffic
packets took the old path for up to 13 ms after it (2 kHz probes, Open vSwitch 3.1, userspace
datapath). In the userspace datapath two commands in one message, 0.5 ms in the median with 64 ports,
prove it:

* ``revalidator/purge`` deletes what is cached, with its counters, but skips what a revalidator
  holds at that moment: a packet in 30,000 still took the old path;
* ``dpctl/del-flows`` deletes the rest. By itself it would leave the revalidators' own list of what
  is cached, and every packet would ask the rules until they have noticed.

The next packet of each port asks the new rules: none is lost. (``revalidator/wait`` takes 6 ms, and
500 where it is asked just after the revalidation it waits for.)

In the kernel's datapath that is neither safe nor a proof. ``revalidator/purge`` deletes what a
revalidator may be deleting, whereupon the daemon aborts ("Invalid ukey transition"); and a packet
that the kernel has handed to one of the daemon's threads may come back, and its flow be cached, by
the old rules after everything was deleted. ``upcall/enable-megaflows`` ends all those threads,
empties the cache and starts them anew: after it nothing remembers the old rules. (Megaflows are
enabled anyway; the command is asked for what it does on the way.) What comes meanwhile waits in the
kernel. In the userspace datapath it would be dropped.

Where Open vSwitch does not answer, or answers with an error, there is no proof, and the caller receives
the reason.
"""

import json
import logging
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic

from controller.app.app_thread import AppThread

PACKAGED = (Path("/var/run/openvswitch"), Path("/run/openvswitch"))
"""Where packages of Open vSwitch have their sockets."""
ANSWER_S = 5.0
KERNELS = "system@"
"""How the name of a datapath in the kernel begins."""

Then = Callable[[float, str], None]
"""What follows a question for proof: when it was answered, on the machine's monotonic clock [s], and why
there is no proof, empty if there is."""

log = logging.getLogger("controller")


def run_directories() -> Sequence[Path]:
    """Return where the sockets of the machine's, or this sandbox's, Open vSwitch may be."""
    return (Path(os.environ["OVS_RUNDIR"]),) if "OVS_RUNDIR" in os.environ else PACKAGED


class Proof:
    """Asks for proofs, one at a time; one answers all requests made before it.

    Parameters
    ----------
    thread
        The app's thread, on which what follows is called.
    """

    def __init__(self, thread: AppThread) -> None:
        self._thread = thread
        self._waiting: SimpleQueue[Then | None] = SimpleQueue()
        self._channel: socket.socket | None = None
        self._commands: list[list[str]] = []
        self._logged = ""
        Thread(target=self._serve, daemon=True).start()

    def ask(self, then: Then) -> None:
        """Call on the app's thread once all changes whose barriers were answered are on the wire."""
        self._waiting.put(then)

    def hasten(self) -> None:
        """Empty the cache without proof: what was sent just before is on the wire a round or two sooner."""
        self._waiting.put(None)

    def _serve(self) -> None:
        while True:
            waiting = [self._waiting.get()]
            while True:
                try:
                    waiting.append(self._waiting.get_nowait())
                except Empty:
                    break
            reason = self._purge()
            for then in waiting:
                if then is not None:
                    self._thread.post(partial(then, monotonic(), reason))

    def _purge(self) -> str:
        """Empty the cache and return why that failed, else nothing; a daemon started anew is found again."""
        for _ in range(2):
            try:
                if self._channel is None:
                    self._channel = _switch_daemon()
                    datapaths = _call(self._channel, [["dpctl/dump-dps"]])[0].split()
                    self._commands = _emptying(datapaths)
                _call(self._channel, self._commands)
                return ""
            except Exception as error:  # whatever it is: without this thread nothing would be proved again
                reason = f"no proof that changes are on the wire: {error or type(error).__name__}"
                if self._channel:
                    self._channel.close()
                self._channel = None
        if reason != self._logged:
            log.warning(reason)
        self._logged = reason
        return reason


def _emptying(datapaths: Sequence[str]) -> list[list[str]]:
    """Return the commands that empty the cache of datapaths, as ``dpctl/dump-dps`` names them."""
    if any(name.startswith(KERNELS) for name in datapaths):
        return [["upcall/enable-megaflows"]]
    return [["revalidator/purge"], *(["dpctl/del-flows", name] for name in datapaths)]


def _switch_daemon() -> socket.socket:
    """Return a connection to the control socket of the machine's, or this sandbox's, ovs-vswitchd."""
    directories = run_directories()
    reason: OSError = FileNotFoundError(f"no control socket in {directories[0]}")
    for path in [path for directory in directories for path in directory.glob("ovs-vswitchd.*.ctl")]:
        channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        channel.settimeout(ANSWER_S)
        try:
            channel.connect(str(path))
            return channel
        except OSError as error:  # left by one that was killed
            channel.close()
            reason = error
    raise reason


def _call(channel: socket.socket, commands: Sequence[Sequence[str]]) -> list[str]:
    """Have Open vSwitch carry out commands over its JSON-RPC, sent as one; return its answers."""
    requests = [
        {"method": name, "params": parameters, "id": index}
        for index, (name, *parameters) in enumerate(commands)
    ]
    channel.sendall("".join(map(json.dumps, requests)).encode())
    decoder, text, answers = json.JSONDecoder(), "", list[str]()
    while len(answers) < len(commands):
        part = channel.recv(4096)
        if not part:
            raise ConnectionError("ovs-vswitchd closed its control socket")
        text += part.decode()
        with suppress(json.JSONDecodeError):  # the rest is on its way
            while text:
                answer, end = decoder.raw_decode(text)
                text = text[end:].lstrip()
                answers.append(_result(commands[len(answers)][0], answer))
    return answers


def _result(command: str, answer: object) -> str:
    """Return a command's result; OSError if it has none."""
    if not isinstance(answer, dict) or answer.get("error") or not isinstance(answer.get("result"), str):
        raise OSError(f"{command} answered {str(answer)[:200]}")
    result: str = answer["result"]
    return result
