"""Requests to the server of the hosts that no client here makes: each is refused, and others go on."""

import json
import os
import socket
from collections.abc import Iterator

import pytest

from scenarios.api.network import ApplicationNetwork, network
from tests.tools import need_sandbox
from topologies.rail import rail_fabric

pytestmark = [pytest.mark.emulation, pytest.mark.early]

PLAIN: dict[str, object] = {"host": "h0", "argv": ["true"], "env": {}, "cwd": "/"}
ANSWER_S = 20.0
MOST_BYTES = 1 << 16
TOO_LONG = "x" * (1 << 18)


@pytest.fixture(scope="module")
def net() -> Iterator[ApplicationNetwork]:
    """Return a network whose hosts run applications."""
    need_sandbox()
    with network(rail_fabric(2, 1)) as booted:
        yield booted


def answer(net: ApplicationNetwork, request: bytes, streams: int = 3, size: int | None = None) -> str:
    """Return why a request is refused, or what else is answered."""
    with net.connected() as connection, open(os.devnull, "r+b") as nothing:
        connection.settimeout(ANSWER_S)
        with open(os.memfd_create("request"), "w+b", buffering=0) as body:
            body.write(request)
            body.truncate(len(request) if size is None else size)
            socket.send_fds(connection, [b"{}"], [body.fileno(), *[nothing.fileno()] * streams])
        heard: dict[str, object] = json.loads(connection.recv(MOST_BYTES))
    return str(heard.get("refused", heard))


@pytest.mark.parametrize(
    ("request_of", "words"),
    [
        (b"[" * 200_000, "a request cannot be read"),
        (b"\xff", "a request cannot be read"),
        (b"[]", "a request has no host, argv, env and cwd"),
        ({"argv": ["true", "a\0b"]}, "h0 cannot run 'true': embedded null byte"),
        ({"argv": ["true", "\ud800"]}, "h0 cannot run 'true': 'utf-8' codec can't encode"),
        ({"argv": ["true", TOO_LONG]}, "h0 cannot run 'true': Argument list too long"),
        ({"env": {"A=B": "c"}}, "h0 cannot run 'true': illegal environment variable name"),
        ({"cwd": "/\0"}, "h0 has no directory"),
    ],
)
def test_a_request_that_cannot_be_carried_out_ends_nothing_else(
    net: ApplicationNetwork, request_of: bytes | dict[str, object], words: str
) -> None:
    text = request_of if isinstance(request_of, bytes) else json.dumps({**PLAIN, **request_of}).encode()
    assert answer(net, text).startswith(words)
    assert net.host(1).run(["true"], timeout=ANSWER_S).returncode == 0


def test_a_request_without_streams_or_of_a_terabyte_ends_nothing_else(net: ApplicationNetwork) -> None:
    plain = json.dumps(PLAIN).encode()
    assert answer(net, plain, streams=1) == "a command came without its standard streams"
    assert answer(net, plain, size=1 << 40) == f"a request of {1 << 40:,} bytes"
    assert net.host(1).run(["true"], timeout=ANSWER_S).returncode == 0
