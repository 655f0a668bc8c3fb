"""A client of the controller's northbound."""

import json
import socket
from collections.abc import Set
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from time import monotonic, sleep

from controller.status import FlowStatus, PortCounters, PortStatus, Status, SwitchStatus, link_name
from topologies.errors import NetworkError
from topologies.fabric import Fabric, Link

POLL_S = 0.01
ANSWER_S = 30.0
"""How long the controller may take to answer."""


class ControllerClient:
    """Asks the controller that listens on a unix socket; each question is a connection of its own.

    Every method raises NetworkError if the controller does not answer.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def status(self) -> Status:
        """Return whether the network forwards as it should."""
        data = json.loads(self._get("/status"))
        lists = {name: tuple(data[name]) for name in ("missing", "waiting", "failed_links", "errors")}
        return Status(ready=data["ready"], **lists)

    def fabric(self) -> Fabric:
        """Return the fabric that the controller was given."""
        return Fabric.from_json(self._get("/fabric"))

    def switches(self) -> list[SwitchStatus]:
        """Return all switches, with how many rules and groups they count."""
        return [SwitchStatus(**switch) for switch in json.loads(self._get("/switches"))]

    def flows(self, switch: str) -> list[FlowStatus]:
        """Return the rules that a switch has."""
        return [FlowStatus(**flow) for flow in json.loads(self._get(f"/switches/{switch}/flows"))]

    def ports(self, switch: str) -> PortStatus:
        """Return a switch's counters."""
        data = json.loads(self._get(f"/switches/{switch}/ports"))
        return PortStatus(tuple(PortCounters(**port) for port in data["ports"]), data["table_miss_packets"])

    def wait_ready(self, timeout_s: float, failed_links: Set[Link] = frozenset()) -> None:
        """Return when all switches have confirmed all rules.

        Parameters
        ----------
        timeout_s
            How long to wait [s].
        failed_links
            Exactly the links that are down; the rules go around these.

        Raises
        ------
        NetworkError
            At once if a switch refused a rule; at the end if switches are missing, or links are
            down that should be up: it names them.
        """
        deadline = monotonic() + timeout_s
        expected = {link_name(link) for link in failed_links}
        while True:
            status = self.status()
            if status.errors:
                raise NetworkError(status.errors[0])
            if status.ready and set(status.failed_links) == expected:
                return
            if monotonic() > deadline:
                raise NetworkError(
                    f"the network is not ready after {timeout_s:g} s: {_reason(status, expected)}"
                )
            sleep(POLL_S)

    def _get(self, path: str) -> str:
        connection = _UnixConnection(self._path)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            text = response.read().decode()
        except (OSError, HTTPException) as error:
            raise NetworkError(f"ask the controller for {path}: {error or type(error).__name__}") from error
        finally:
            connection.close()
        if response.status != 200:
            raise NetworkError(f"the controller did not tell {path}: {_detail(text)}")
        return text


class _UnixConnection(HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=ANSWER_S)
        self._path = path

    def connect(self) -> None:
        """Connect to the unix socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def _detail(text: str) -> str:
    try:
        return str(json.loads(text)["detail"])
    except (ValueError, KeyError, TypeError):
        return text


def _reason(status: Status, expected: set[str]) -> str:
    unexpected = sorted(set(status.failed_links) ^ expected)
    for names, what in (
        (status.missing, "not connected"),
        (status.waiting, "rules not confirmed"),
        (unexpected, "links not as they should be"),
    ):
        if names:
            rest = f" and {len(names) - 8} more" if len(names) > 8 else ""
            return f"{what}: {', '.join(names[:8])}{rest}"
    return "rules are being computed"
