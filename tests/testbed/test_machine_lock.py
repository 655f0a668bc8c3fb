"""The machine's lock: one file for all users, held by one process, and by all that have its descriptor."""

import fcntl
import os
import re
import select
import signal
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.machine import machine_lock as module
from testbed.machine.files import directory_lock
from testbed.machine.machine_lock import machine_lock
from tests.other_user import NO_FILES, OTHER, doing, done, given, need_root, plant, yard
from topologies.errors import MachineError, ScenarioError


@pytest.fixture
def ground(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Draw a machine on which this user may make the lock that all share."""
    with yard() as path:
        (path / "temporary").mkdir()
        (path / "temporary").chmod(0o1777)
        monkeypatch.setattr(module, "MACHINES", path / "machines")
        monkeypatch.setattr(module, "OWN", f"{path}/temporary/own-{{}}")
        yield path


@pytest.fixture
def shared(ground: Path) -> Path:
    """Return the file that all users share."""
    return ground / "machines" / "lock"


@pytest.fixture
def own(ground: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have a machine without one, and return this user's own."""
    monkeypatch.setattr(module, "MACHINES", ground / "missing" / "machines")
    return ground / "temporary" / f"own-{os.geteuid()}" / "lock"


def is_held(file: Path) -> bool:
    """Return whether somebody holds a lock, by trying to take it."""
    with file.open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def take() -> None:
    """Take the lock, or raise."""
    with machine_lock(waits=False):
        pass


def hold() -> None:
    """Hold the lock for ever; it waits, since `is_held` takes it for a moment."""
    with machine_lock():
        select.select([], [], [])


def test_who_holds_it_does_not_wait_for_itself(shared: Path) -> None:
    with machine_lock(), pytest.raises(MachineError, match=r"would wait for itself; end that first"):
        hold()
    with machine_lock():
        assert is_held(shared)


def test_all_users_share_the_file_that_root_makes(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_UID", str(OTHER))
    before = os.umask(0o077)
    try:
        with machine_lock():
            assert is_held(shared)
            assert stat.S_IMODE(shared.stat().st_mode) == 0o644
            assert stat.S_IMODE(shared.parent.stat().st_mode) == 0o755
            assert shared.stat().st_uid == shared.parent.stat().st_uid == os.geteuid()
    finally:
        os.umask(before)
    assert not is_held(shared)


def test_another_user_takes_the_same_and_is_told_who_has_it(shared: Path) -> None:
    need_root()

    def taken() -> None:
        with machine_lock(waits=False):
            assert is_held(shared)

    def refused() -> None:
        said = rf"another emulation runs on this machine, process {os.getppid()} \(\S+, of root\); leave out"
        with pytest.raises(MachineError, match=said):
            take()

    with machine_lock():
        assert done(refused)
    assert done(taken)


def test_it_is_said_who_holds_it_whatever_the_file_says(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_root()
    with machine_lock():
        shared.write_text("pid 1, since 00:00:00")
    with doing(hold) as child:
        while not is_held(shared):
            os.sched_yield()
        said = re.escape(f"process {child} (") + rf"\S+, of user {OTHER}\)"
        with pytest.raises(MachineError, match=said):
            take()

        def killed(line: str) -> None:
            lines.append(line)
            os.kill(child, signal.SIGKILL)

        lines: list[str] = []
        monkeypatch.setattr(sys.stderr, "write", killed)
        with machine_lock():
            assert is_held(shared)
        monkeypatch.undo()
    assert len(lines) == 1
    assert re.search(rf"{said}: waiting for it\n", lines[0])


def test_where_root_has_made_none_each_user_has_one_that_no_other_can_hold(own: Path) -> None:
    with machine_lock():
        assert is_held(own)
        assert stat.S_IMODE(own.stat().st_mode) == 0o600
        if os.geteuid() == 0:
            assert not done(own.open)
            assert done(take)


def test_a_place_that_another_user_has_taken_is_refused(own: Path) -> None:
    need_root()
    own.parent.mkdir()
    given(own.parent)
    said = rf"own-0 belongs to user {OTHER}, .*; have one made that all users share: run as root"
    with pytest.raises(MachineError, match=said), machine_lock():
        pass
    assert not any(own.parent.iterdir())


@pytest.mark.parametrize("kind", NO_FILES)
def test_what_is_not_a_file_in_its_place_is_refused(kind: str, own: Path, tmp_path: Path) -> None:
    own.parent.mkdir()
    plant(kind, own, tmp_path / "other")
    with pytest.raises(MachineError, match=r"plain file|Is a directory"), machine_lock():
        pass
    own.rmdir() if kind == "directory" else own.unlink()
    own.parent.rmdir()
    own.parent.symlink_to(tmp_path)
    with pytest.raises(MachineError, match="symbolic link"), machine_lock():
        pass
    assert not any(tmp_path.iterdir())


def test_it_is_released_though_a_forked_process_has_a_copy(shared: Path) -> None:
    with machine_lock() as lock:
        copy = os.dup(lock)
    assert not is_held(shared)
    os.close(copy)


def test_it_is_held_for_whom_the_descriptor_was_given_to(shared: Path) -> None:
    read_end, write_end = os.pipe()
    with machine_lock() as lock:
        if (child := os.fork()) == 0:
            os.close(write_end)
            os.read(read_end, 1)
            os._exit(0)
        with open(os.devnull) as nothing:
            os.dup2(nothing.fileno(), lock)  # as if this process had been killed
        assert is_held(shared)
        os.close(write_end)
        os.waitpid(child, 0)
        assert not is_held(shared)
        os.close(read_end)


def test_it_is_said_which_run_has_a_directory(tmp_path: Path) -> None:
    said = rf"another run writes into {tmp_path}: process {os.getpid()} \(.*\); wait for its end"
    with directory_lock(tmp_path), pytest.raises(ScenarioError, match=said), directory_lock(tmp_path):
        pass
