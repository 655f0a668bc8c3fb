"""lightrail-ssh reads ssh's command line, and says what the hosts' server answers."""

import json
import os
import signal
import socket
from collections.abc import Iterator

import pytest

from testbed.apps.lightrail_ssh import RefusedError, answered, ask, carried_out, parsed


@pytest.mark.parametrize(
    ("words", "host", "command"),
    [
        ("h1", "h1", []),
        ("h1 hostname -f", "h1", ["hostname", "-f"]),
        ("-x h1 orted -mca ess env", "h1", ["orted", "-mca", "ess", "env"]),
        ("-o StrictHostKeyChecking=no -p 22 -q -tt user@h1 ls", "user@h1", ["ls"]),
        ("-oBatchMode=yes -- h1 -v", "h1", ["-v"]),
        ("-x", "", []),
        ("", "", []),
    ],
)
def test_options_of_ssh_are_left_out(words: str, host: str, command: list[str]) -> None:
    assert parsed(words.split()) == (host, command, "-tt" in words)


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Return the client's end of a connection, and the server's."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with here, there:
        yield here, there


def test_a_long_request_comes_whole_with_its_descriptors(ends: tuple[socket.socket, socket.socket]) -> None:
    here, there = ends
    request = {"host": "h0", "argv": ["x" * 500_000], "env": {"NAME": "\udcff"}, "cwd": "/"}
    reads, writes = os.pipe()
    ask(here, request, (reads, writes, writes))
    _, descriptors, *_ = socket.recv_fds(there, 1 << 12, 4)
    assert json.loads(os.pread(descriptors[0], 1 << 20, 0)) == request
    os.write(descriptors[3], b"through")
    assert os.read(reads, 7) == b"through"
    for descriptor in (*descriptors, reads, writes):
        os.close(descriptor)


@pytest.mark.parametrize("code", [3, 137])
def test_an_exit_code_is_the_commands(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    here, there = ends
    passed_on = list[int]()
    monkeypatch.setattr(signal, "signal", lambda number, _handler: passed_on.append(number))
    for answer in ({"started": 7}, {"ended": code}):
        there.send(json.dumps(answer).encode())
    assert carried_out(here, {"host": "h0"}) == code
    assert set(passed_on) <= {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


def test_what_is_refused_and_who_has_gone_is_an_error(ends: tuple[socket.socket, socket.socket]) -> None:
    here, there = ends
    there.send(json.dumps({"refused": "there is no host 'h9'", "hint": "take h0", "code": 255}).encode())
    with pytest.raises(RefusedError, match="there is no host 'h9'; take h0") as refused:
        answered(here)
    assert refused.value.code == 255
    there.close()
    with pytest.raises(RefusedError, match="has ended"):
        answered(here)
