"""What a sandbox needs, and what is said where that is missing; tests/emulation sees one live and die."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.machine import sandbox_init
from testbed.machine.datapath import bridges, datapath_named
from testbed.machine.sandbox import TOOLS, Sandbox, check_tools, inside_sandbox
from testbed.study.worker import EmulationWorker
from tests.tools import path_of
from topologies.errors import MachineError
from topologies.parallel_ocs import parallel_ocs_fabric
from topologies.rail import rail_fabric

NO_RIGHT = "unshare: unshare failed: Operation not permitted"
CONTAINER = (
    "run the container with --privileged, or with --cap-add SYS_ADMIN --security-opt systempaths=unconfined"
)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Draw an ordinary user's machine that has every tool, and a tun device that all may write."""
    for tool in TOOLS:
        program(tmp_path / tool)
    (tmp_path / "tun").touch()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("testbed.machine.sandbox.TUN", str(tmp_path / "tun"))
    monkeypatch.setattr("testbed.machine.sandbox.APPARMOR", tmp_path / "apparmor")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    return tmp_path


def program(path: Path, does: str = "exit 0") -> None:
    """Write a program."""
    path.write_text(f"#!/bin/sh\n{does}\n")
    path.chmod(0o755)


def complaint() -> tuple[str, str]:
    """Return the sentence and the hint with which a sandbox is refused."""
    with pytest.raises(MachineError) as caught, Sandbox(["true"]) as sandbox:
        sandbox.wait()
    return caught.value.sentence, caught.value.hint


def test_missing_tools_are_all_named(machine: Path) -> None:
    (machine / "mnexec").unlink()
    (machine / "unshare").unlink()
    sentence, hint = complaint()
    assert sentence == "this machine lacks unshare, mnexec (Open vSwitch and Mininet)"
    assert hint == "run as root: bash vagrant/provision.sh"


def test_a_missing_tun_device_is_told_how_to_make(machine: Path) -> None:
    tun = machine / "tun"
    tun.unlink()
    sentence, hint = complaint()
    assert sentence == f"{tun} does not exist, and Open vSwitch needs it"
    assert hint == (
        f"create it: mkdir -p /dev/net && mknod {tun} c 10 200 (a container: run it with --device {tun})"
    )


def test_what_is_missing_is_told_before_other_emulations_are_waited_for(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (machine / "tun").unlink()
    monkeypatch.setattr("testbed.study.worker.machine_lock", lambda **_: pytest.fail("it waits"))
    with pytest.raises(MachineError, match="Open vSwitch needs it"), EmulationWorker():
        pass


def test_switches_that_route_need_no_tun_device_but_beside_an_ocs(machine: Path) -> None:
    (machine / "tun").unlink()
    check_tools(bridged=bool(bridges(rail_fabric(2, 2), "route")))
    for fabric, datapath in ((rail_fabric(2, 2), "netdev"), (parallel_ocs_fabric(2, 2), "route")):
        with pytest.raises(MachineError, match="Open vSwitch needs it"):
            check_tools(bridged=bool(bridges(fabric, datapath_named(datapath))))


def test_a_tun_device_for_root_alone_is_told_of(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, _mode: path != str(machine / "tun"))
    sentence, hint = complaint()
    assert sentence == f"{machine / 'tun'} is not writable for this user, and Open vSwitch needs it"
    assert hint == "run as root"


@pytest.mark.parametrize(
    ("user", "apparmor", "said", "sentence", "hint"),
    [
        (
            1000,
            "0",
            "unshare: mount /proc failed: Operation not permitted",
            "parts of /proc are masked here, so a sandbox gets none",
            CONTAINER,
        ),
        (0, "0", NO_RIGHT, "root has no CAP_SYS_ADMIN here, which namespaces take", CONTAINER),
        (
            1000,
            "1",
            "unshare: write failed /proc/self/uid_map: Operation not permitted",
            "AppArmor gives ordinary users no namespaces",
            "run as root, or let unshare make them; for that run as root: bash vagrant/provision.sh",
        ),
        (
            1000,
            "0",
            NO_RIGHT,
            "this machine gives ordinary users no namespaces",
            "run as root, or allow them: sysctl user.max_user_namespaces kernel.unprivileged_userns_clone",
        ),
    ],
    ids=["masked /proc", "root without the capability", "AppArmor", "no namespaces"],
)
def test_what_keeps_a_user_from_namespaces_is_told_apart(
    machine: Path,
    monkeypatch: pytest.MonkeyPatch,
    user: int,
    apparmor: str,
    said: str,
    sentence: str,
    hint: str,
) -> None:
    program(machine / "unshare", f"echo {said} >&2; exit 1")
    (machine / "apparmor").write_text(f"{apparmor}\n")
    monkeypatch.setattr(os, "geteuid", lambda: user)
    assert complaint() == (f"{sentence} ({said})", hint)


def test_a_sandbox_that_is_killed_as_it_starts_is_told_of(machine: Path) -> None:
    program(machine / "unshare", "kill -KILL $$")
    assert complaint()[0].endswith(" (it was killed as it started)")


@pytest.mark.parametrize(("user", "asks"), [(0, False), (1000, True)])
def test_root_needs_no_user_namespace(
    machine: Path, monkeypatch: pytest.MonkeyPatch, user: int, asks: bool
) -> None:
    program(machine / "unshare", 'echo "$1 $2"; echo "$1 $2" >&2; exit 1')
    monkeypatch.setattr(os, "geteuid", lambda: user)
    assert ("--user --map-root-user" in complaint()[0]) is asks


def test_this_process_is_outside() -> None:
    assert not inside_sandbox()


def test_process_1_mounts_nothing_outside_of_a_sandbox() -> None:
    ran = subprocess.run(
        [sys.executable, sandbox_init.__file__, "0", "0", "2", path_of("true")],
        capture_output=True,
        text=True,
    )
    assert (ran.returncode, "runs as process 1 of a sandbox" in ran.stderr) == (1, True)
