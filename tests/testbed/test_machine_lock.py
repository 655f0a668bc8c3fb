"""The machine's lock: one file for all users, held by one process, and by all that have its descriptor."""

import fcntl
import os
import stat
from pathlib import Path

import pytest

from testbed.machine import machine_lock as module
from testbed.machine.machine_lock import machine_lock
from topologies.errors import MachineError


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Draw a machine with two places for the lock, in which all users may make files."""
    first, second = tmp_path / "first", tmp_path / "second"
    for place in (first, second):
        place.mkdir()
        place.chmod(0o1777)
    monkeypatch.setattr(module, "PLACES", (str(first), str(second)))
    return first, second


def is_held(file: Path) -> bool:
    """Return whether somebody holds a lock, by trying to take it."""
    with file.open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def test_all_users_may_use_the_file_that_one_makes(places: tuple[Path, Path]) -> None:
    file, before = places[0] / "lightrail.lock", os.umask(0o077)
    try:
        with machine_lock():
            assert is_held(file)
            assert stat.S_IMODE(file.stat().st_mode) == 0o666
            assert file.read_text().startswith(f"pid {os.getpid()}, since ")
    finally:
        os.umask(before)
    assert not is_held(file)


@pytest.mark.parametrize("mode", [0o755, None])
def test_a_place_that_is_not_for_all_users_is_passed_over(
    places: tuple[Path, Path], mode: int | None
) -> None:
    first, second = places
    first.chmod(mode) if mode else first.rmdir()
    with machine_lock():
        assert is_held(second / "lightrail.lock")


def test_it_is_released_though_a_forked_process_has_a_copy(places: tuple[Path, Path]) -> None:
    with machine_lock() as lock:
        copy = os.dup(lock)
    assert not is_held(places[0] / "lightrail.lock")
    os.close(copy)


def test_it_is_held_for_whom_the_descriptor_was_given_to(places: tuple[Path, Path]) -> None:
    file = places[0] / "lightrail.lock"
    read_end, write_end = os.pipe()
    with machine_lock() as lock:
        if (child := os.fork()) == 0:
            os.close(write_end)
            os.read(read_end, 1)
            os._exit(0)
        with open(os.devnull) as nothing:
            os.dup2(nothing.fileno(), lock)  # as if this process had been killed
        assert is_held(file)
        os.close(write_end)
        os.waitpid(child, 0)
        assert not is_held(file)
        os.close(read_end)


def test_a_link_in_its_place_is_refused(places: tuple[Path, Path], tmp_path: Path) -> None:
    (places[0] / "lightrail.lock").symlink_to(tmp_path / "other")
    with pytest.raises(MachineError, match=r"the lock .* cannot be opened: Too many levels"), machine_lock():
        pass
