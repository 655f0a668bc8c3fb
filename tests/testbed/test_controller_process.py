"""The controller's process, as a network starts it."""

import sys
from pathlib import Path

import pytest

from testbed.machine.commands import Child
from testbed.network import network as module
from testbed.network.network import _wait_for_listener
from topologies.errors import NetworkError


def test_a_controller_that_never_listens_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "READY_S", 0.01)
    silence = [sys.executable, "-c", "import signal; signal.pause()"]
    with (
        Child(silence, tmp_path / "controller.log", {}, heard=True) as silent,
        pytest.raises(NetworkError, match=r"the controller does not listen after 0\.01 s"),
    ):
        _wait_for_listener(silent)
