"""The northbound of OCSes, with what it asks played by a record of the calls."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from fastapi import FastAPI

from controller.app.northbound_ocs import ocs_routes, refused
from controller.app.ocs import OpticalSwitches
from controller.circuits.circuits import Circuits, circuits_from_text
from controller.circuits.devices import ReconfigurationDelay
from controller.circuits.programs import Day, Program, Showing
from controller.circuits.reconfiguration import Command
from controller.circuits.status import LogEntry, OcsStatus
from topologies.errors import DemandError

STATUS = OcsStatus(
    "ocs0", 4, "lit", ((0, 3),), False, 0, 1, "", "mems-3d", 0.0125, None, 0.0, None,
    shadow=((0, 1), (1, 0)), shadow_ready_s=7.5,
)  # fmt: skip


class Played:
    """Takes all that is asked of OCSes; there are two, of 4 ports."""

    def __init__(self) -> None:
        self.calls: list[object] = []

    def __contains__(self, name: str) -> bool:
        return name in ("ocs0", "ocs1")

    def ports(self, name: str) -> int:
        return 4

    def status(self, name: str) -> OcsStatus:
        return STATUS

    def log(self, name: str) -> list[LogEntry]:
        return [LogEntry(1, ((0, 3),), True, 0, 0.01, 1.0, 1.001, 1.012)]

    def set_delay(self, name: str, delay: ReconfigurationDelay, seed: int) -> None:
        self.calls.append((delay, seed))

    def command(self, name: str, command: Command) -> None:
        self.calls.append(command)

    def provision(self, name: str, circuits: Circuits) -> None:
        self.calls.append((name, circuits))

    def flip(self, names: Sequence[str], notify: Path | None) -> None:
        self.calls.append((names, notify))

    def run(self, showings: Mapping[str, Showing]) -> None:
        self.calls.append(showings)


class Client:
    """Asks the application without a socket."""

    def __init__(self, app: FastAPI) -> None:
        self._transport = httpx.ASGITransport(app=app)

    def request(self, method: str, path: str, body: dict[str, Any] | None = None) -> httpx.Response:
        return self.send(method, path, json.dumps(body))

    def send(self, method: str, path: str, content: bytes | str) -> httpx.Response:
        """Return the answer to a body that may be no JSON."""

        async def answer() -> httpx.Response:
            async with httpx.AsyncClient(transport=self._transport, base_url="http://controller") as client:
                headers = {"Content-Type": "application/json"}
                return await client.request(method, path, content=content, headers=headers)

        return asyncio.run(answer())


@pytest.fixture
def played() -> Played:
    return Played()


@pytest.fixture
def client(played: Played) -> Client:
    app = FastAPI()
    app.exception_handler(DemandError)(refused)
    app.include_router(ocs_routes(cast(OpticalSwitches, played)))
    return Client(app)


def test_a_delay_that_no_device_has_is_refused(client: Client, played: Played) -> None:
    answer = client.request("PUT", "/ocs/ocs0/device", {"device": "odd", "delay_s": -1.0})
    assert (answer.status_code, played.calls) == (422, [])
    assert "a delay of -1 s" in answer.json()["detail"]


def test_status_and_log(client: Client) -> None:
    assert client.request("GET", "/ocs/ocs0").json()["circuits"] == [[0, 3]]
    assert client.request("GET", "/ocs/ocs0/log").json() == [
        {
            "number": 1, "circuits": [[0, 3]], "partial": True, "darkened": 0, "delay_s": 0.01,
            "command_s": 1.0, "dark_s": 1.001, "lit_s": 1.012, "replaced": False, "error": "",
        }
    ]  # fmt: skip
    assert client.request("GET", "/ocs/leaf0").status_code == 404


def test_circuits_as_pairs_and_as_text(client: Client, played: Played) -> None:
    wanted = circuits_from_text("0>3 3>0", 4)
    assert client.request("PUT", "/ocs/ocs0/circuits", {"circuits": [[3, 0], [0, 3]]}).status_code == 200
    body = {"circuits": "0>3 3>0", "partial": False, "busy": "replace"}
    assert client.request("PUT", "/ocs/ocs0/circuits", body).status_code == 200
    assert played.calls == [Command(wanted), Command(wanted, False, "replace")]


def test_a_device_and_the_seed_of_its_delays(client: Client, played: Played) -> None:
    body = {"device": "polatis", "delay_s": 0.0175, "flip_s": 0.001}
    assert client.request("PUT", "/ocs/ocs0/device", body).status_code == 200
    assert client.request("PUT", "/ocs/ocs0/device?seed=7", body).status_code == 200
    assert client.request("PUT", "/ocs/ocs0/device?seed=-7", body).status_code == 422
    assert played.calls == [
        (ReconfigurationDelay("polatis", 0.0175, flip_s=0.001), 0),
        (ReconfigurationDelay("polatis", 0.0175, flip_s=0.001), 7),
    ]


def test_a_schedule_as_days_and_as_text(client: Client, played: Played) -> None:
    days = [{"circuits": "0>1", "duration_s": 0.5}, {"circuits": [[1, 0]], "duration_s": 1, "night_s": 0.25}]
    body: dict[str, Any] = {"days": days, "partial": False, "start_s": 9.5, "notify": "/run/x"}
    assert client.request("POST", "/ocs/ocs0/schedule", body).status_code == 200
    assert (
        client.request("POST", "/ocs/ocs0/schedule", {"text": "500ms 0>1 250ms - 1s 1>0"}).status_code == 200
    )
    shown = (Day(Circuits(4, ((0, 1),)), 0.5), Day(Circuits(4, ((1, 0),)), 1.0, 0.25))
    assert played.calls == [
        {"ocs0": Showing(Program(shown, False), 9.5, Path("/run/x"))},
        {"ocs0": Showing(Program(shown))},
    ]


def test_schedules_of_several_ocses_are_one_call(client: Client, played: Played) -> None:
    day = {"circuits": "0>1", "duration_s": 0.5}
    body = {"schedules": {"ocs1": {"text": "1s 0>1", "notify": "/run/x"}, "ocs0": {"days": [day]}}}
    assert client.request("POST", "/ocs/schedules", body).status_code == 200
    lit = Circuits(4, ((0, 1),))
    showings = {
        "ocs1": Showing(Program((Day(lit, 1.0),)), notify=Path("/run/x")),
        "ocs0": Showing(Program((Day(lit, 0.5),))),
    }
    assert played.calls == [showings]


@pytest.mark.parametrize(
    ("name", "schedule", "status"),
    [("leaf0", {"text": "1s 0>1"}, 404), ("ocs1", {"text": "1s 0>9"}, 422), ("ocs1", {}, 422)],
)
def test_one_schedule_that_cannot_be_shown_keeps_all_from_beginning(
    client: Client, played: Played, name: str, schedule: dict[str, Any], status: int
) -> None:
    body = {"schedules": {"ocs0": {"text": "1s 0>1"}, name: schedule}}
    answer = client.request("POST", "/ocs/schedules", body)
    assert (answer.status_code, played.calls) == (status, [])
    assert answer.json()["detail"]


def test_circuits_are_provisioned_and_several_ocses_are_flipped_by_one_call(
    client: Client, played: Played
) -> None:
    answer = client.request("PUT", "/ocs/ocs1/shadow", {"circuits": "0>1 1>0"})
    assert (answer.status_code, answer.json()["shadow_ready_s"]) == (200, 7.5)
    for body in ({"ocses": ["ocs1", "ocs0", "ocs1"], "notify": "/run/x"}, {"ocses": ["ocs0"]}):
        assert client.request("POST", "/ocs/flip", body).status_code == 200
    provisioned = ("ocs1", circuits_from_text("0>1 1>0", 4))
    assert played.calls == [provisioned, (["ocs1", "ocs0"], Path("/run/x")), (["ocs0"], None)]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"ocses": ["ocs0", "leaf0"]}, 404),
        ({}, 422),
        ({"ocses": "ocs0"}, 422),
        ({"ocses": ["ocs0", 1]}, 422),
        ({"ocses": ["ocs0"], "at_s": 5}, 422),
    ],
)
def test_a_flip_that_makes_no_sense_flips_none(
    client: Client, played: Played, body: dict[str, Any], status: int
) -> None:
    answer = client.request("POST", "/ocs/flip", body)
    assert (answer.status_code, played.calls) == (status, [])
    assert answer.json()["detail"]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "circuits", {"circuits": "0>1 2>1"}),
        ("PUT", "circuits", {"circuits": [[0, 9]]}),
        ("PUT", "circuits", {"circuits": "0>1", "colour": "red"}),
        ("PUT", "shadow", {"circuits": "0>1 2>1"}),
        ("PUT", "shadow", {"circuits": "0>1", "partial": True}),
        ("PUT", "shadow", {}),
        ("PUT", "device", {"flip_s": -1.0}),
        ("POST", "schedule", {}),
        ("POST", "schedule", {"text": "1s 0>1", "days": [{"circuits": "0>1", "duration_s": 1}]}),
        ("POST", "schedule", {"days": [{"circuits": "0>1", "duration_s": 0}]}),
    ],
)
def test_what_makes_no_sense_is_refused_before_any_circuit_is_taken_away(
    client: Client, played: Played, method: str, path: str, body: dict[str, Any]
) -> None:
    answer = client.request(method, f"/ocs/ocs0/{path}", body)
    assert answer.status_code == 422
    assert answer.json()["detail"]
    assert played.calls == []
