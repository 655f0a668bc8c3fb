"""The client that programs on hosts import: what it asks of the northbound and the hosts' server."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import UnixStreamServer
from threading import Thread

import pytest

from testbed.apps.on_hosts import lightrail_host
from testbed.apps.on_hosts.lightrail_host import LightError, light, lit, ocses, wait_lit

RING = [(0, 1), (1, 0)]


class Northbound:
    """A northbound that answers each question with the next of its answers: a status, and what is JSON."""

    def __init__(self, path: Path, *answers: tuple[int, object]) -> None:
        self.asked: list[tuple[str, str, object]] = []
        asked, left = self.asked, list(answers)

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                text = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                asked.append((self.command, self.path, json.loads(text) if text else None))
                status, answer = left.pop(0)
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(answer).encode())

            do_PUT = do_GET

            def address_string(self) -> str:
                return "a unix socket"

            def log_message(self, *_words: object) -> None:
                """Print nothing."""

        self.server = UnixStreamServer(str(path), Handler)


@contextmanager
def answering(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *answers: tuple[int, object]
) -> Iterator[Northbound]:
    """Have a northbound, and a hosts' server that says that routes follow."""
    northbound = Northbound(folder / "northbound", *answers)
    monkeypatch.setenv("LIGHTRAIL_NORTHBOUND", str(folder / "northbound"))
    monkeypatch.setattr(lightrail_host, "HOST_SERVER", str(folder / "hosts"))
    monkeypatch.setattr(lightrail_host, "POLL_S", 0.0)
    with northbound.server as server, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as hosts:
        hosts.bind(str(folder / "hosts"))
        hosts.listen()
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        Thread(target=follow, args=(hosts, northbound.asked), daemon=True).start()
        yield northbound
        server.shutdown()
        hosts.shutdown(socket.SHUT_RDWR)


def follow(hosts: socket.socket, asked: list[tuple[str, str, object]]) -> None:
    """Answer one question."""
    try:
        end, _ = hosts.accept()
    except OSError:
        return
    with end:
        asked.append(("hosts", "", json.loads(end.recv(100))))
        end.send(json.dumps({"followed": True}).encode())


def status(phase: str, circuits: list[tuple[int, int]], *, busy: bool = False, error: str = "") -> object:
    return {"phase": phase, "circuits": circuits, "busy": busy, "queued": 0, "error": error}


def test_light_returns_once_it_is_lit_and_routes_follow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dark, done = status("dark", [], busy=True), status("lit", RING)
    with answering(tmp_path, monkeypatch, (200, dark), (200, dark), (200, done)) as northbound:
        light("ocs0", RING)
    assert northbound.asked == [
        ("PUT", "/ocs/ocs0/circuits", {"circuits": [[0, 1], [1, 0]]}),
        ("GET", "/ocs/ocs0", None),
        ("GET", "/ocs/ocs0", None),
        ("hosts", "", {"follow": "light"}),
    ]


def test_what_an_ocs_cannot_light_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        answering(tmp_path, monkeypatch, (422, {"detail": "port 0 lights itself"})),
        pytest.raises(LightError, match="port 0 lights itself"),
    ):
        light("ocs0", "0>0")


def test_a_reconfiguration_that_fails_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = status("dark", [], error="the switch was lost")
    with (
        answering(tmp_path, monkeypatch, (200, failed)),
        pytest.raises(LightError, match="ocs0: the switch was lost"),
    ):
        light("ocs0", "0>1")


def test_one_that_takes_too_long_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        answering(tmp_path, monkeypatch, (200, status("dark", [], busy=True))),
        pytest.raises(LightError, match="ocs0 is still dark after 0 s"),
    ):
        light("ocs0", "0>1", timeout_s=0.0)


def test_light_that_another_host_orders_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [(200, status("lit", RING[:1])), (200, status("lit", RING[::-1]))]
    with answering(tmp_path, monkeypatch, *answers) as northbound:
        wait_lit("ocs0", RING)
    assert northbound.asked[-1] == ("hosts", "", {"follow": "light"})


def test_it_says_which_circuits_are_lit_and_which_switches_are_ocses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    switches = [{"name": "leaf0", "kind": "packet"}, {"name": "ocs0", "kind": "ocs"}]
    with answering(tmp_path, monkeypatch, (200, status("lit", RING)), (200, {"switches": switches})):
        assert lit("ocs0") == RING
        assert ocses() == ["ocs0"]
