"""The northbound, asked for what makes no sense: every answer is one sentence, and never 500."""

import json
from collections.abc import Iterator
from typing import Any, cast

import pytest

from controller.app.app import Controller
from controller.app.northbound import northbound
from controller.circuits.status import FlowStatus, PortStatus, Status, SwitchStatus
from tests.controller.test_northbound_ocs import Client, Played
from topologies.parallel_ocs import parallel_ocs_fabric


class PlayedNetwork:
    """A network of OCSes of 4 ports."""

    def __init__(self) -> None:
        self.fabric = parallel_ocs_fabric(4, 1)
        self.ocses = self.played = Played()

    def status(self) -> Status:
        return Status(True, (), (), (), (), ())

    def switches(self) -> list[SwitchStatus]:
        return []

    def flows(self, name: str) -> list[FlowStatus]:
        return []

    def ports(self, name: str) -> PortStatus:
        return PortStatus((), 0)


BODIES: dict[tuple[str, str], dict[str, Any]] = {
    ("PUT", "/ocs/ocs0/circuits"): {
        "circuits": [[0, 1]], "partial": True, "busy": "queue",
    },
    ("PUT", "/ocs/ocs0/device"): {
        "device": "odd", "delay_s": 0.1, "delay_p99_s": 0.2, "nic_s": 0.1, "nic_p99_s": 0.2, "flip_s": 0.1,
    },
    ("POST", "/ocs/ocs0/schedule"): {
        "days": [{"circuits": "0>1", "duration_s": 1.0, "night_s": 0.0}], "text": "", "partial": True,
        "start_s": 1.0, "notify": "/run/x",
    },
    ("PUT", "/ocs/ocs0/shadow"): {"circuits": [[0, 1]]},
    ("POST", "/ocs/flip"): {"ocses": ["ocs0", "ocs1"], "notify": "/run/x"},
    ("POST", "/ocs/schedules"): {"schedules": {"ocs0": {"text": "1s 0>1", "start_s": 1.0}}},
}  # fmt: skip
"""The routes that take a body, and a whole one."""
UNFIT = [float("nan"), float("inf"), -float("inf"), "\ud800", [float("nan")], {"\ud800": float("nan")}]
"""What fits in no field, and in no JSON document either."""
UNREADABLE = [
    b"", b"NaN", b"-Infinity", b"null", b"[]", b"[NaN]", b"{", b"\xff", b'{"\\ud800": NaN}', b"[" * 100_000,
    b'{"circuits": [[' + b"9" * 5000 + b', 1]], "days": NaN}', b'{"colour\\n": NaN, "circuits": "0>1"}',
]  # fmt: skip
LONG = [1e9 + 1, 1e300, -1.0]
"""Times that no OCS takes [s]."""


@pytest.fixture
def network() -> PlayedNetwork:
    return PlayedNetwork()


@pytest.fixture
def client(network: PlayedNetwork) -> Client:
    return Client(northbound(cast(Controller, network)))


def refused(client: Client, method: str, path: str, content: bytes | str = "") -> str:
    """Return the sentence that refuses a request."""
    answer = client.send(method, path, content)
    assert 400 <= answer.status_code < 500, (content[:80], answer.text)
    sentence: str = answer.json()["detail"]
    assert sentence
    assert "\n" not in sentence
    return sentence


def with_each_field(body: object, value: object) -> Iterator[Any]:
    """Yield a body with each of its fields replaced, and each of those of its parts."""
    if isinstance(body, dict):
        for key, part in body.items():
            yield from ({**body, key: changed} for changed in (value, *with_each_field(part, value)))
    elif isinstance(body, list):
        for index, part in enumerate(body):
            for changed in (value, *with_each_field(part, value)):
                yield [*body[:index], changed, *body[index + 1 :]]


@pytest.mark.parametrize(("method", "path"), BODIES)
@pytest.mark.parametrize("value", UNFIT, ids=ascii)
def test_what_fits_in_no_field_is_refused_in_any(
    client: Client, network: PlayedNetwork, method: str, path: str, value: object
) -> None:
    for body in with_each_field(BODIES[method, path], value):
        refused(client, method, path, json.dumps(body))
    assert network.played.calls == []


@pytest.mark.parametrize(("method", "path"), BODIES)
@pytest.mark.parametrize("content", UNREADABLE, ids=lambda content: ascii(content[:20]))
def test_a_body_that_is_no_such_document_is_refused(
    client: Client, network: PlayedNetwork, method: str, path: str, content: bytes
) -> None:
    refused(client, method, path, content)
    assert network.played.calls == []


@pytest.mark.parametrize("seconds", LONG)
def test_times_that_no_ocs_takes_are_refused(client: Client, network: PlayedNetwork, seconds: float) -> None:
    for (method, path), body in BODIES.items():
        for changed in with_each_field(body, seconds):
            if any(key.endswith("_s") and found == seconds for key, found in changed.items()):
                refused(client, method, path, json.dumps(changed))
    for day in with_each_field(BODIES["POST", "/ocs/ocs0/schedule"]["days"][0], seconds):
        refused(client, "POST", "/ocs/ocs0/schedule", json.dumps({"days": [day]}))
    refused(client, "POST", "/ocs/ocs0/schedule", json.dumps({"text": "2000000000s 0>1"}))
    assert network.played.calls == []


def test_the_sentence_says_where(client: Client) -> None:
    body = json.dumps({"text": "1s 0>1", "start_s": float("nan")})
    assert refused(client, "POST", "/ocs/ocs0/schedule", body).startswith("'body.start_s': Input should be")
    assert "'9" in refused(client, "PUT", "/ocs/ocs0/circuits", json.dumps({"circuits": "9" * 5000 + ">1"}))


@pytest.mark.parametrize("seed", ["nan", "Infinity", "1e300", "-1", "9" * 5000])
def test_what_is_no_seed_is_refused(client: Client, seed: str) -> None:
    refused(client, "PUT", f"/ocs/ocs0/device?seed={seed}", json.dumps({"delay_s": 1}))


@pytest.mark.parametrize("name", ["NaN", "%00", "%ED%A0%80", "ocs0%0A"])
@pytest.mark.parametrize("path", ["/ocs/{}", "/ocs/{}/log", "/switches/{}/flows", "/switches/{}/ports"])
def test_a_switch_that_is_not_there_is_refused(client: Client, path: str, name: str) -> None:
    assert "the fabric has no" in refused(client, "GET", path.format(name))
