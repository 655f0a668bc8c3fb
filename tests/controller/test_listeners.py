"""The sockets that the controller listens on."""

import os
import socket
import stat
from pathlib import Path

import pytest

from controller.app.listeners import bind_privately, private_listener
from topologies.errors import NetworkError


def test_only_an_abandoned_socket_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "nb"
    with private_listener(path), pytest.raises(NetworkError, match="Address already in use"):
        private_listener(path)
    with private_listener(path), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))


def test_a_file_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_text("keep me")
    with pytest.raises(NetworkError, match="Address already in use"):
        private_listener(path)
    assert path.read_text() == "keep me"
    with pytest.raises(NetworkError, match="No such file or directory"):
        private_listener(tmp_path / "missing" / "nb")


def test_a_socket_is_its_users_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with private_listener(tmp_path / "nb"), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as news:
            bind_privately(news, tmp_path / "news")
            modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("nb", "news")]
    finally:
        os.umask(before)
    assert modes == [0o600, 0o600]
