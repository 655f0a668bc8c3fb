"""A client of the controller's northbound."""

import json
import socket
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import asdict
from functools import cache
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from time import monotonic, sleep
from typing import Generic, TypeVar, cast

from pydantic import TypeAdapter

from controller.circuits.circuits import Pair
from controller.circuits.devices import ReconfigurationDelay
from controller.circuits.programs import Program
from controller.circuits.status import (
    FlowStatus,
    LogEntry,
    OcsRecord,
    OcsStatus,
    PortStatus,
    Status,
    SwitchStatus,
)
from topologies.errors import DemandError, NetworkError
from topologies.fabric import Fabric, Link

POLL_S = 0.01
REFUSED, UNAVAILABLE = 422, 503
ANSWER_S = 90.0
"""How long the controller may take to answer: on an emulated CPU with two runs side by side half a minute."""
Answer = TypeVar("Answer")
_adapter = cache(TypeAdapter)
"""What reads a kind of answer: 1 ms to make."""


class ControllerClient:
    """Asks the controller that listens on a unix socket; each question is a connection of its own.

    Every method raises NetworkError if the controller does not answer, and DemandError for circuits
    that no OCS can light.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def status(self) -> Status:
        """Return whether the network forwards as it should."""
        return self._ask(Status, "GET", "/status")

    def fabric(self) -> Fabric:
        """Return the fabric that the controller was given."""
        return Fabric.from_json(self._request(str, "GET", "/fabric").text())

    def switches(self) -> list[SwitchStatus]:
        """Return all switches, with how many rules and groups they count."""
        return self._ask(list[SwitchStatus], "GET", "/switches")

    def flows(self, switch: str) -> list[FlowStatus]:
        """Return the rules that a switch has."""
        return self._ask(list[FlowStatus], "GET", f"/switches/{switch}/flows")

    def ports(self, switch: str) -> PortStatus:
        """Return a switch's counters."""
        return self._ask(PortStatus, "GET", f"/switches/{switch}/ports")

    def wait_ready(
        self,
        timeout_s: float,
        failed_links: Set[Link] | None = frozenset(),
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Return when all switches have confirmed all rules.

        Parameters
        ----------
        timeout_s
            How long to wait [s].
        failed_links
            Exactly the links that are down; the rules go around these. None for whichever are.
        check
            Called meanwhile; raises if there is nothing to wait for.

        Raises
        ------
        NetworkError
            At once if a switch refused a rule or the controller failed; at the end if switches are
            missing, their rules are not proved to be on the wire, or links are down that should be up: it
            names them.
        """
        deadline = monotonic() + timeout_s
        named = None if failed_links is None else set(map(str, failed_links))
        while True:
            status = self.status()
            expected = set(status.failed_links) if named is None else named
            if status.errors:
                raise NetworkError(status.errors[0])
            if status.ready and set(status.failed_links) == expected:
                return
            if monotonic() > deadline:
                raise NetworkError(
                    f"the network is not ready after {timeout_s:g} s: {_reason(status, expected)}"
                )
            check()
            sleep(POLL_S)

    def ocs(self, name: str) -> OcsStatus:
        """Return what an OCS shows and does."""
        return self._ask(OcsStatus, "GET", f"/ocs/{name}")

    def ocs_log(self, name: str) -> list[LogEntry]:
        """Return an OCS' reconfigurations, the newest last."""
        return self._ask(list[LogEntry], "GET", f"/ocs/{name}/log")

    def ocs_record(self, name: str) -> OcsRecord:
        """Return the record of an OCS from which another controller takes over."""
        return OcsRecord(self.ocs(name), tuple(self.ocs_log(name)))

    def set_delay(self, name: str, delay: ReconfigurationDelay, seed: int = 0) -> OcsStatus:
        """Set how long an OCS is dark from its next reconfiguration on.

        Parameters
        ----------
        name, delay
            Which OCS, and how long.
        seed
            Of delays that vary: they are drawn anew, equal for equal seeds, different for each OCS.
        """
        return self._ask(OcsStatus, "PUT", f"/ocs/{name}/device?seed={seed}", asdict(delay))

    def light(
        self,
        name: str,
        circuits: Sequence[Pair] | str,
        *,
        partial: bool = True,
        busy: str = "queue",
    ) -> OcsStatus:
        """Have an OCS light circuits, as pairs or as ``0>3 3>0``; return at once.

        Parameters
        ----------
        name, circuits
            Which OCS, and what to show.
        partial
            Whether circuits that stay the same keep carrying.
        busy
            ``queue`` to wait for what is under way, ``replace`` to take its place.
        """
        wanted = {"circuits": circuits, "partial": partial, "busy": busy}
        return self._ask(OcsStatus, "PUT", f"/ocs/{name}/circuits", wanted)

    def show(
        self, name: str, program: Program | str, start_s: float | None = None, notify: Path | None = None
    ) -> OcsStatus:
        """Have an OCS show a program, or one in the compact form (`programs`); return at once.

        Parameters
        ----------
        name, program
            Which OCS, and what it shows.
        start_s
            When it begins, on the machine's monotonic clock [s]; None for now.
        notify
            A unix datagram socket that receives what is lit whenever that changes.
        """
        wanted = _schedule(program, start_s, notify)
        return self._ask(OcsStatus, "POST", f"/ocs/{name}/schedule", wanted)

    def show_all(self, programs: Mapping[str, Program], notify: Path | None = None) -> "Request[None]":
        """Have OCSes show programs that begin at once; they have begun when the request is answered.

        Parameters
        ----------
        programs
            What each shows, by its name.
        notify
            As of `show`, for all of them.

        Returns
        -------
        Request
            Its answer is an error if one of them cannot begin: then none has.
        """
        wanted = {name: _schedule(program, None, notify) for name, program in programs.items()}
        return self._request(None, "POST", "/ocs/schedules", {"schedules": wanted})

    def provision(self, name: str, circuits: Sequence[Pair] | str) -> "Request[OcsStatus]":
        """Set circuits on an OCS' idle side, in place of those there; what is lit stays as it is.

        Parameters
        ----------
        name, circuits
            Which OCS, and what its idle side shows from the ``shadow_ready_s`` of the answer on.
        """
        return self._request(OcsStatus, "PUT", f"/ocs/{name}/shadow", {"circuits": circuits})

    def flip_all(self, names: Sequence[str], notify: Path | None = None) -> "Request[None]":
        """Have OCSes exchange their two sides at once; they have begun when the request is answered.

        Parameters
        ----------
        names
            Which.
        notify
            As of `show`; the notice of circuits that are lit has an ``until_s`` that is far off.

        Returns
        -------
        Request
            Its answer is an error if one of them cannot flip now: then none does.
        """
        wanted = {"ocses": list(names), "notify": notify and str(notify)}
        return self._request(None, "POST", "/ocs/flip", wanted)

    def wait_idle(self, name: str, timeout_s: float) -> OcsStatus:
        """Return what an OCS shows once nothing is under way.

        Raises
        ------
        NetworkError
            If its switch refused what was asked for, is not connected or was lost meanwhile, or if it
            takes too long.
        """
        deadline = monotonic() + timeout_s
        while (status := self.ocs(name)).busy or status.queued:
            if monotonic() > deadline:
                raise NetworkError(f"OCS {name} is still {status.phase} after {timeout_s:g} s")
            sleep(POLL_S)
        if status.error:
            raise NetworkError(status.error)
        return status

    def _ask(
        self, kind: type[Answer], method: str, path: str, body: Mapping[str, object] | None = None
    ) -> Answer:
        return self._request(kind, method, path, body).answer()

    def _request(
        self, kind: type[Answer] | None, method: str, path: str, body: Mapping[str, object] | None = None
    ) -> "Request[Answer]":
        return Request(_UnixConnection(self._path), kind, method, path, body)


class Request(Generic[Answer]):
    """A question to the controller, over a connection of its own, that has yet to be answered.

    Parameters
    ----------
    connection
        To the controller.
    kind
        What the answer is; None if it says nothing.
    method, path, body
        What is asked.
    """

    def __init__(
        self,
        connection: "_UnixConnection",
        kind: type[Answer] | None,
        method: str,
        path: str,
        body: Mapping[str, object] | None,
    ) -> None:
        self._connection, self._kind, self._path = connection, kind, path
        text = None if body is None else json.dumps(body)
        try:
            connection.request(method, path, text, {"Content-Type": "application/json"})
        except (OSError, HTTPException) as error:
            raise self._unanswered(error) from error

    def fileno(self) -> int:
        """Return the descriptor that can be read when it is answered."""
        return self._connection.sock.fileno()

    def close(self) -> None:
        """Wait for no answer."""
        self._connection.close()

    def answer(self) -> Answer:
        """Wait for the answer, and return it as a value: JSON's lists are its tuples."""
        text = self.text()
        return cast(Answer, self._kind and _adapter(self._kind).validate_json(text))  # type: ignore[arg-type]

    def text(self) -> str:
        """Wait for the answer, and return it as it is."""
        try:
            response = self._connection.getresponse()
            text = response.read().decode()
        except (OSError, HTTPException) as error:
            raise self._unanswered(error) from error
        finally:
            self.close()
        if response.status == REFUSED:
            raise DemandError(_detail(text))
        if response.status == UNAVAILABLE:
            raise NetworkError(_detail(text))
        if response.status != 200:
            raise NetworkError(f"ask the controller for {self._path}: {_detail(text)}")
        return text

    def _unanswered(self, error: Exception) -> NetworkError:
        self.close()
        return NetworkError(f"ask the controller for {self._path}: {error or type(error).__name__}")


def _schedule(program: Program | str, start_s: float | None, notify: Path | None) -> dict[str, object]:
    wanted: dict[str, object] = {"start_s": start_s, "notify": notify and str(notify)}
    if isinstance(program, str):
        return wanted | {"text": program}
    days = [asdict(day) | {"circuits": day.circuits.pairs} for day in program.days]
    return wanted | {"days": days, "partial": program.partial}


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
    unproved = f" ({status.unproved[0]})" if status.unproved else ""  # all switches have one daemon
    for names, what in (
        (status.missing, "not connected"),
        (status.waiting, "rules not confirmed"),
        (unexpected, "links not as they should be"),
    ):
        if names:
            rest = f" and {len(names) - 8} more" if len(names) > 8 else ""
            return f"{what}: {', '.join(names[:8])}{rest}{unproved}"
    return "rules are being computed"
