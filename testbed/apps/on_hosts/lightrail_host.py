"""A program's view of its host and network, and the light that it orders: standard library alone.

Every host has it on PYTHONPATH, for any Python 3.10 or newer::

    import lightrail_host

    lightrail_host.light("ocs0", "0>1 1>0")  # returns once it is lit and routes follow
"""

import json
import os
import socket
import time
from collections.abc import Sequence
from http.client import HTTPConnection
from typing import Any

HOST_SERVER = "/run/lightrail-hosts/hosts.sock"
"""Where the network listens for its hosts."""
POLL_S = 0.01
ANSWER_S = 90.0
"""How long an answer may take: on an emulated CPU with two runs side by side half a minute."""
Pair = tuple[int, int]
"""A circuit: light from the first port to the second."""


class LightError(Exception):
    """The network did not do what a program asked of its light."""


def host() -> str:
    """Return the name of this host."""
    return os.environ["LIGHTRAIL_HOST"]


def hosts() -> list[str]:
    """Return the names of all hosts on which the program runs, in order."""
    return os.environ["LIGHTRAIL_HOSTS"].split(",")


def nics() -> list[str]:
    """Return the names of this host's interfaces."""
    return os.environ["LIGHTRAIL_NICS"].split(",")


def scale() -> float:
    """Return how many times as long as in reality programs are to compute (``--compute-scale``)."""
    return float(os.environ["LIGHTRAIL_SCALE"])


def compute(seconds: float) -> None:
    """Wait as long as computing takes that lasts `seconds` in reality."""
    time.sleep(seconds * scale())


def ocses() -> list[str]:
    """Return the names of the optical circuit switches."""
    return [switch["name"] for switch in _ask("GET", "/fabric")["switches"] if switch["kind"] == "ocs"]


def lit(ocs: str) -> list[Pair]:
    """Return the circuits that carry light now: none that is being reconfigured."""
    return [(source, target) for source, target in _ask("GET", f"/ocs/{ocs}")["circuits"]]


def light(ocs: str, circuits: str | Sequence[Pair], timeout_s: float = 60.0) -> None:
    """Have an OCS light these circuits and no others; return once they are lit and routes follow.

    Parameters
    ----------
    ocs
        Its name, such as ``ocs0``.
    circuits
        ``0>1 1>0``, or pairs of an input and an output.
    timeout_s
        How long to wait [s, of the emulation].

    Raises
    ------
    LightError
        If the OCS cannot light them, or has not in that time.
    """
    wanted = circuits if isinstance(circuits, str) else [list(each) for each in circuits]
    status = _ask("PUT", f"/ocs/{ocs}/circuits", {"circuits": wanted})
    deadline = time.monotonic() + timeout_s
    while status["busy"] or status["queued"]:
        if time.monotonic() > deadline:
            raise LightError(f"{ocs} is still {status['phase']} after {timeout_s:g} s")
        time.sleep(POLL_S)
        status = _ask("GET", f"/ocs/{ocs}")
    if status["error"]:
        raise LightError(f"{ocs}: {status['error']}")
    _follow_light()


def wait_lit(ocs: str, circuits: Sequence[Pair], timeout_s: float = 60.0) -> None:
    """Return once an OCS shows exactly these circuits, which another host has ordered, and routes follow.

    Raises
    ------
    LightError
        If it has not in that time [s, of the emulation].
    """
    deadline = time.monotonic() + timeout_s
    while sorted(lit(ocs)) != sorted(circuits):
        if time.monotonic() > deadline:
            raise LightError(f"{ocs} does not show these circuits after {timeout_s:g} s")
        time.sleep(POLL_S)
    _follow_light()


def _follow_light() -> None:
    """Return once the routes of all hosts are those of the circuits that are lit."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.settimeout(ANSWER_S)
        server.connect(HOST_SERVER)
        server.send(json.dumps({"follow": "light"}).encode())
        answer = json.loads(server.recv(65536))
    if "followed" not in answer:
        raise LightError(answer.get("refused", "the network did not say whether routes follow the light"))


def _ask(method: str, path: str, body: dict[str, object] | None = None) -> Any:  # noqa: ANN401  # JSON
    connection = _Northbound(os.environ["LIGHTRAIL_NORTHBOUND"])
    try:
        text = None if body is None else json.dumps(body)
        connection.request(method, path, text, {"Content-Type": "application/json"})
        response = connection.getresponse()
        text = response.read().decode()
    finally:
        connection.close()
    if response.status != 200:
        raise LightError(_detail(text))
    return json.loads(text)


def _detail(text: str) -> str:
    try:
        return str(json.loads(text)["detail"])
    except (ValueError, KeyError, TypeError):
        return text


class _Northbound(HTTPConnection):
    """HTTP over the controller's unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=ANSWER_S)
        self._path = path

    def connect(self) -> None:
        """Connect to the unix socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
