"""Proof that a change of rules has reached the wire: Open vSwitch's cache of flows is emptied, and says so.

Open vSwitch forwards from a cache of what its rules made of earlier packets. A barrier reply proves
that the rules have changed, not that the cache has been revalidated: with 64 ports under traffic
packets took the old way for up to 13 ms after it (2 kHz probes, Open vSwitch 3.1, userspace
datapath). Two commands in one message, 0.5 ms in the median with 64 ports, prove it:

* ``revalidator/purge`` deletes what is cached, with its counters, but skips what a revalidator
  holds at that moment: a packet in 30,000 still took the old way;
* ``dpctl/del-flows`` deletes the rest. By itself it would leave the revalidators' own list of what
  is cached, and every packet would ask the rules until they have noticed.

The next packet of each port asks the new rules: none is lost. (``revalidator/wait`` takes 6 ms, and
500 where it is asked just after the revalidation it waits for.)
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

RUN_DIRECTORIES = ("/var/run/openvswitch", "/run/openvswitch")
ANSWER_S = 5.0

Then = Callable[[float], None]
"""What follows a proof; its argument is when it came, on the machine's monotonic clock [s]."""

log = logging.getLogger("controller")


class Proof:
    """Asks for proofs, one at a time; one that is asked for covers all who waited for it.

    Parameters
    ----------
    on_thread
        Has the app run a piece of work on its thread.
    """

    def __init__(self, on_thread: Callable[[Callable[[], None]], None]) -> None:
        self._on_thread = on_thread
        self._waiting: SimpleQueue[Then | None] = SimpleQueue()
        self._channel: socket.socket | None = None
        self._commands: list[list[str]] = []
        self._warned = False
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
            self._purge()
            for then in waiting:
                if then is not None:
                    self._on_thread(partial(then, monotonic()))

    def _purge(self) -> None:
        """Empty the cache; a daemon that was started anew is found again."""
        for _ in range(2):
            try:
                if self._channel is None:
                    self._channel = _switch_daemon()
                    datapaths = _call(self._channel, [["dpctl/dump-dps"]])[0].split()
                    self._commands = [["revalidator/purge"], *(["dpctl/del-flows", dp] for dp in datapaths)]
                _call(self._channel, self._commands)
                return
            except (OSError, ValueError) as error:
                if self._channel:
                    self._channel.close()
                self._channel, reason = None, error
        if not self._warned:
            self._warned = True
            log.warning("what is confirmed may not be on the wire yet: no ovs-vswitchd to ask (%s)", reason)


def _switch_daemon() -> socket.socket:
    """Return a connection to the control socket of the machine's, or this sandbox's, ovs-vswitchd."""
    directories = [os.environ["OVS_RUNDIR"]] if "OVS_RUNDIR" in os.environ else RUN_DIRECTORIES
    reason: OSError = FileNotFoundError(f"no control socket in {directories[0]}")
    for path in [path for name in directories for path in Path(name).glob("ovs-vswitchd.*.ctl")]:
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
                if answer.get("error"):
                    raise OSError(f"{commands[len(answers)][0]}: {answer['error']}")
                answers.append(answer["result"])
    return answers
