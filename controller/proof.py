"""Proof that a change of rules has reached the wire: Open vSwitch's cache of flows is emptied, and says so.

Open vSwitch forwards from a cache of what its rules made of earlier packets. A barrier reply proves
that the rules have changed, not that the cache has been revalidated: with 64 ports under traffic
packets took the old way for up to 13 ms after it (2 kHz probes, Open vSwitch 3.1, userspace
datapath). ``revalidator/purge`` deletes what is cached before it answers, 1 to 3 ms in the median with
64 ports, 4 at p99 where both CPUs are busy; the next packet of each port asks the new rules: none is lost.
(``revalidator/wait`` takes 6 ms, and 500 where it is asked just after the revalidation it waits for.)
"""

import json
import logging
import os
import socket
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread

RUN_DIRECTORIES = ("/var/run/openvswitch", "/run/openvswitch")
ANSWER_S = 5.0

Token = tuple[str, int]
"""What a proof is for: an OCS, and the number of its reconfiguration."""

log = logging.getLogger("controller")


class Proof:
    """Asks for proofs, one at a time; one that is asked for covers all who waited for it.

    Parameters
    ----------
    done
        Called with what was handed to `ask`, on this object's own thread.
    """

    def __init__(self, done: Callable[[list[Token]], None]) -> None:
        self._done = done
        self._waiting: SimpleQueue[Token | None] = SimpleQueue()
        self._channel: socket.socket | None = None
        self._warned = False
        Thread(target=self._serve, daemon=True).start()

    def ask(self, token: Token) -> None:
        """Ask that all changes whose barriers were answered until now be on the wire."""
        self._waiting.put(token)

    def hasten(self) -> None:
        """Empty the cache without proof: what was sent just before is on the wire a round or two sooner."""
        self._waiting.put(None)

    def _serve(self) -> None:
        while True:
            tokens = [self._waiting.get()]
            while True:
                try:
                    tokens.append(self._waiting.get_nowait())
                except Empty:
                    break
            self._purge()
            if proved := [token for token in tokens if token is not None]:
                self._done(proved)

    def _purge(self) -> None:
        """Empty the cache; a daemon that was started anew is found again."""
        for _ in range(2):
            try:
                self._channel = self._channel or _switch_daemon()
                _call(self._channel, "revalidator/purge")
                return
            except (OSError, ValueError) as error:
                if self._channel:
                    self._channel.close()
                self._channel, reason = None, error
        if not self._warned:
            self._warned = True
            log.warning("dark and lit are the rules', not the wire's: no ovs-vswitchd to ask (%s)", reason)


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


def _call(channel: socket.socket, method: str) -> None:
    """Call a method over Open vSwitch's JSON-RPC and wait for its answer."""
    channel.sendall(json.dumps({"method": method, "params": [], "id": 0}).encode())
    answer = b""
    while True:
        part = channel.recv(4096)
        if not part:
            raise ConnectionError("ovs-vswitchd closed its control socket")
        answer += part
        try:
            if json.loads(answer).get("error"):
                raise OSError(f"{method}: {answer.decode()}")
            return
        except json.JSONDecodeError:
            continue  # the rest is on its way
