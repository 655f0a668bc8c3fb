"""What a sandbox needs, and what is said where that is missing; tests/emulation sees one live and die."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.machine.sandbox import TOOLS, check_machine, inside_sandbox, run_in_sandbox
from tests.tools import CHECKOUT
from topologies.errors import MachineError


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Draw a machine that has all it takes: every tool, and a tun device that all may write."""
    for tool in TOOLS:
        program(tmp_path / tool)
    (tmp_path / "tun").touch()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("testbed.machine.sandbox.TUN", str(tmp_path / "tun"))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    return tmp_path


def program(path: Path, does: str = "exit 0") -> None:
    """Write a program."""
    path.write_text(f"#!/bin/sh\n{does}\n")
    path.chmod(0o755)


def complaint() -> tuple[str, str]:
    """Return the sentence and the hint with which a sandbox is refused."""
    with pytest.raises(MachineError) as caught:
        run_in_sandbox(["true"])
    return caught.value.sentence, caught.value.hint


def test_a_machine_that_has_all_is_fine(machine: Path) -> None:
    check_machine()
    assert not inside_sandbox()


def test_missing_tools_are_all_named(machine: Path) -> None:
    (machine / "mnexec").unlink()
    (machine / "unshare").unlink()
    sentence, hint = complaint()
    assert sentence == "this machine lacks unshare, mnexec (Open vSwitch and Mininet)"
    assert hint == "run: sudo bash vagrant/provision.sh"


def test_a_missing_tun_device_is_told_how_to_make(machine: Path) -> None:
    tun = machine / "tun"
    tun.unlink()
    sentence, hint = complaint()
    assert sentence == f"{tun} does not exist, and Open vSwitch needs it"
    assert hint == f"create it: mkdir -p /dev/net && mknod {tun} c 10 200"


def test_a_tun_device_for_root_alone_is_told_of(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, _mode: path != str(machine / "tun"))
    sentence, hint = complaint()
    assert sentence == f"{machine / 'tun'} is not writable for this user, and Open vSwitch needs it"
    assert hint == "run with sudo"


def test_forbidden_user_namespaces_are_told_of(machine: Path) -> None:
    program(machine / "unshare", "echo unshare failed: Operation not permitted >&2; exit 1")
    sentence, hint = complaint()
    assert sentence.startswith("this machine gives ordinary users no namespaces (unshare ")
    assert "unshare failed: Operation not permitted" in sentence
    assert "sudo" in hint


def test_root_needs_no_user_namespaces(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(machine / "unshare", "exit 1")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    check_machine()


def test_the_exit_code_is_the_commands(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(machine / "unshare", 'while [ "$1" != /bin/sh ]; do shift; done; exec "$@"')
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert run_in_sandbox(["/bin/sh", "-c", "exit 7"]) == 7
    assert run_in_sandbox(["/bin/sh", "-c", "kill -TERM $$"]) == 128 + signal.SIGTERM


SIGNALLED = """
import os, signal, subprocess, sys
from testbed.machine import sandbox

start = subprocess.Popen

def started(*_arguments, **_options):
    os.kill(os.getpid(), signal.SIGTERM)
    return start(["sh", "-c", "exit 7"])

sandbox.check_machine = lambda: None
sandbox.subprocess.Popen = started
sys.exit(sandbox.run_in_sandbox(["true"]))
"""


def test_a_signal_that_comes_while_the_sandbox_starts_waits_for_its_end() -> None:
    ran = subprocess.run([sys.executable, "-c", SIGNALLED], cwd=CHECKOUT)
    assert ran.returncode == 7
