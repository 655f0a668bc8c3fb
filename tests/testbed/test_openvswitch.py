"""Open vSwitch for a run: a start that fails ends what it began, and whose sockets are taken."""

import os
import socket
import sys
from pathlib import Path

import pytest

from testbed.network.openvswitch import PrivateOpenVSwitch, sockets_of
from topologies.errors import NetworkError

SERVER = f"""#!{sys.executable}
import os, signal, socket, sys
path = next(word.partition("punix:")[2] for word in sys.argv if "punix:" in word)
with open(os.path.join(os.path.dirname(path), "pid"), "w") as file:
    file.write(str(os.getpid()))
with socket.socket(socket.AF_UNIX) as listener:
    listener.bind(path)
    listener.listen()
    signal.pause()
"""
"""A database that only listens."""
CLOSED = 1 << 20
"""A descriptor that is not open: a listing has it where a process closes it a moment later."""


def program(path: Path, text: str) -> None:
    """Write a program."""
    path.write_text(text)
    path.chmod(0o755)


@pytest.mark.parametrize("refusing", ["ovs-vsctl", "ovs-vswitchd"])
def test_a_start_that_fails_leaves_no_database_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusing: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    program(tmp_path / "ovsdb-tool", "#!/bin/sh\n")
    program(tmp_path / "ovsdb-server", SERVER)
    if refusing == "ovs-vsctl":
        program(tmp_path / "ovs-vsctl", "#!/bin/sh\necho no >&2; exit 1\n")
    else:  # it is not there
        program(tmp_path / "ovs-vsctl", "#!/bin/sh\n")
    with (
        pytest.raises((NetworkError, FileNotFoundError), match=refusing),
        PrivateOpenVSwitch(tmp_path, "netdev"),
    ):
        pass
    number = (tmp_path / "pid").read_text()
    assert not Path(f"/proc/{number}").exists()


def test_a_database_that_cannot_be_made_is_said_with_what_the_tool_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    program(tmp_path / "ovsdb-tool", "#!/bin/sh\necho disk full >&2; exit 1\n")
    with (
        pytest.raises(NetworkError, match=r"^ovsdb-tool create .*: disk full$"),
        PrivateOpenVSwitch(tmp_path, "netdev"),
    ):
        pass


def test_a_descriptor_that_closes_before_it_is_taken_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX) as other, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as wanted:
        wanted.bind(("127.0.0.1", 0))
        with Path(os.devnull).open() as file:
            listed = [CLOSED, file.fileno(), other.fileno(), wanted.fileno()]
            monkeypatch.setattr(os, "listdir", lambda _path: [str(number) for number in listed])
            [taken] = sockets_of(os.getpid(), socket.AF_INET)
        with taken:
            assert taken.getsockname() == wanted.getsockname()
            assert taken.fileno() != wanted.fileno()
