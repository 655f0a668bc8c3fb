"""Whoever is killed, at whatever moment, by whatever signal: nothing is left on the host."""

import contextlib
import fcntl
import os
import pty
import random
import signal
import subprocess
import sys
import termios
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from testbed.machine.machine_lock import machine_lock
from testbed.machine.residue import MARKER, left_behind, processes, things, until
from tests.emulation.launcher import LAUNCHER
from tests.second_run import FinalError
from tests.tools import CHECKOUT, need_sandbox, path_of

pytestmark = [pytest.mark.emulation, pytest.mark.early]

VICTIM = "import gc; gc.disable(); from tests.emulation.victim import main; gc.enable(); main()"
"""It imports half a second sooner while nothing looks for garbage."""
COMMAND = [*LAUNCHER, sys.executable, "-c", VICTIM]
CALLER = "from tests.emulation.called import call_for_ever; call_for_ever({})"
"""It has a worker call what stays."""
CALL_S = 0.3
"""About how long that takes to start [s]."""
MORE = [pytest.param(moment, marks=pytest.mark.slow) for moment in (2, 3, 4)]
"""More moments drawn of those in which something starts."""
BOOT_S = 1.5
"""About how long the victim takes to boot, Python's start included [s]."""
START_S = 60.0
"""How long a process may take to start [s], on a busy machine."""
END_S = 8.0
"""Less than a sandbox that heard nothing takes to end."""
AS_NOBODY = """
mount -t tmpfs tmpfs /dev/net && mknod -m 666 /dev/net/tun c 10 200 || exit 99
exec setpriv --reuid=65534 --regid=65534 --clear-groups -- "$@"
"""
"""An ordinary user who may write /dev/net/tun, which only this process and its children see."""


class Victim:
    """A run that was started to be killed."""

    def __init__(self, launcher: "subprocess.Popen[str]", mark: str, errors: Path) -> None:
        self.launcher, self.mark, self._errors = launcher, mark, errors

    def is_up(self) -> bool:
        """Wait until it has booted."""
        assert self.launcher.stdout
        return self.launcher.stdout.readline() == "up\n"

    def reaches_all(self) -> bool:
        """Return whether its servers reach each other."""
        assert self.launcher.stdin
        assert self.launcher.stdout
        print(file=self.launcher.stdin, flush=True)
        return self.launcher.stdout.readline() == "True\n"

    def lives(self, moment_s: float) -> None:
        """Let it live for a moment."""
        with pytest.raises(subprocess.TimeoutExpired):
            self.launcher.wait(moment_s)

    def process(self, is_it: Callable[[Path], bool]) -> int:
        """Return the first of its processes that is the one looked for, as soon as there is one."""
        found: list[int] = []

        def look() -> bool:
            numbers = [int(text.split()[0]) for text in processes(self.mark)]
            with contextlib.suppress(OSError):  # one of them has just ended
                found[:] = [number for number in numbers if is_it(Path(f"/proc/{number}"))]
            return bool(found)

        assert until(look, START_S)
        return found[0]

    def end(self) -> tuple[int, str]:
        """Return its exit code and what it said."""
        return self.launcher.wait(END_S), self._errors.read_text()


def is_inner(process: Path) -> bool:
    """Return whether a process is the first of its sandbox."""
    lines = (process / "status").read_text().splitlines()
    return next(line.split()[2:] for line in lines if line.startswith("NSpid:")) == ["1"]


def is_forked(process: Path) -> bool:
    """Return whether a process is a child of another that runs the same command."""
    status = (process / "status").read_text().splitlines()
    parent = next(line.split()[1] for line in status if line.startswith("PPid:"))
    return (process / "cmdline").read_bytes() == Path(f"/proc/{parent}/cmdline").read_bytes()


def is_switch_daemon(process: Path) -> bool:
    """Return whether a process is Open vSwitch's."""
    return (process / "comm").read_text() == "ovs-vswitchd\n"


@pytest.fixture(scope="module", params=["root", "ordinary user"])
def user(request: pytest.FixtureRequest) -> list[str]:
    """Return with what to start a command as a user."""
    me = "root" if os.geteuid() == 0 else "ordinary user"
    if request.param == me:
        need_sandbox()
        return []
    if me != "root":
        pytest.skip("only root can test as root")
    with machine_lock():
        pass  # root has made the file that all users share
    prefix = [path_of("unshare"), "--mount", path_of("sh"), "-c", AS_NOBODY, "sh"]
    can = "import testbed.network.network, testbed.machine.sandbox as s\nwith s.Sandbox(['true']): pass"
    tried = subprocess.run([*prefix, sys.executable, "-c", can], cwd=CHECKOUT, capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"nobody cannot make a sandbox here: {tried.stderr.strip().splitlines()[-1]}")
    return prefix


@contextmanager
def started(
    user: list[str], folder: Path, terminal: int | None = None, command: Sequence[str] = COMMAND
) -> Iterator[Victim]:
    """Start a run, on a terminal if there is one, and count what it left when the block has killed it."""
    before, mark = things(), uuid.uuid4().hex
    scratch, errors = folder / mark, folder / f"{mark}.errors"
    scratch.mkdir()
    scratch.chmod(0o777)

    def take_terminal() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's background job inherits that it is ignored
        if terminal is not None:
            fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)

    with (
        errors.open("w") as output,
        subprocess.Popen(
            [*user, *command],
            cwd=CHECKOUT,
            env=os.environ | {MARKER: mark, "TMPDIR": str(scratch)},
            stdin=subprocess.PIPE if terminal is None else terminal,
            stdout=subprocess.PIPE,
            stderr=output,
            text=True,
            start_new_session=True,
            preexec_fn=take_terminal,
        ) as process,
    ):
        try:
            yield Victim(process, mark, errors)
        finally:
            process.kill()
            print(errors.read_text())
    if left := [*left_behind(before, mark), *map(str, scratch.iterdir())]:
        raise FinalError(f"left on the host: {', '.join(left)}")


@pytest.mark.parametrize("moment", [0, 1, *MORE])
def test_launcher_killed_outright(user: list[str], tmp_path: Path, moment: int) -> None:
    with started(user, tmp_path) as victim:
        victim.lives(random.Random(moment).uniform(0, BOOT_S))
        victim.launcher.kill()
        assert victim.end()[0] == -signal.SIGKILL


@pytest.mark.parametrize("moment", [0, *MORE, "up"])
def test_a_worker_ends_with_its_caller(user: list[str], tmp_path: Path, moment: int | str) -> None:
    with started(user, tmp_path, command=[sys.executable, "-c", CALLER.format("")]) as victim:
        if moment == "up":
            assert victim.is_up()
        else:
            victim.lives(random.Random(moment).uniform(0, CALL_S))
        victim.launcher.kill()
        assert victim.end()[0] == -signal.SIGKILL
        with machine_lock():  # which the worker held until all in its sandbox had ended
            assert not processes(victim.mark)


def test_a_worker_ends_with_its_caller_and_not_with_a_process_forked_from_it(
    user: list[str], tmp_path: Path
) -> None:
    command = [sys.executable, "-c", CALLER.format("leave_a_fork=True")]
    with started(user, tmp_path, command=command) as victim:
        assert victim.is_up()
        forked = victim.process(is_forked)
        victim.launcher.kill()
        assert victim.end()[0] == -signal.SIGKILL
        assert until(lambda: [int(text.split()[0]) for text in processes(victim.mark)] == [forked], END_S)
        os.kill(forked, signal.SIGKILL)


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda number: number.name
)
# While it starts nothing is heard until Python has: 15 s on an emulated CPU.
@pytest.mark.parametrize("moment", [pytest.param("starting", marks=pytest.mark.real_cpus), "up"])
def test_launcher_told_to_end(user: list[str], tmp_path: Path, number: signal.Signals, moment: str) -> None:
    with started(user, tmp_path) as victim:
        assert victim.process(is_inner) if moment == "starting" else victim.is_up()
        victim.launcher.send_signal(number)
        assert victim.end()[0] == -number


def test_ctrl_c(user: list[str], tmp_path: Path) -> None:
    keyboard, terminal = pty.openpty()
    with started(user, tmp_path, terminal) as victim, open(keyboard, "wb", buffering=0) as hand:
        os.close(terminal)
        assert victim.is_up()
        hand.write(b"\x03")
        code, said = victim.end()
        # Only process 1 gets the signal: no daemon ends before it, though one may complain of a slow machine.
        assert (code, "KeyboardInterrupt" in said.splitlines()) == (128 + signal.SIGINT, True)
        assert "ended during the run" not in said


def test_ctrl_c_is_the_workers_where_it_has_the_terminal(user: list[str], tmp_path: Path) -> None:
    keyboard, terminal = pty.openpty()
    command = [sys.executable, "-c", CALLER.format("terminal=True")]
    with started(user, tmp_path, terminal, command) as victim, open(keyboard, "wb", buffering=0) as hand:
        os.close(terminal)
        assert victim.is_up()
        hand.write(b"\x03")
        code, said = victim.end()
        lines = said.splitlines()
        assert (code, lines.count("closed"), "KeyboardInterrupt" in lines) == (-signal.SIGINT, 1, True)


@pytest.mark.parametrize("moment", ["booting", "up"])
def test_a_part_killed(user: list[str], tmp_path: Path, moment: str) -> None:
    with started(user, tmp_path) as victim:
        assert moment == "booting" or victim.is_up()
        os.kill(victim.process(is_inner), signal.SIGKILL)
        assert victim.end()[0] != 0  # 137; but unshare of util-linux 2.38 fails itself then, with 1


@pytest.mark.parametrize("moment", ["booting", "up"])
def test_the_switch_daemon_killed(user: list[str], tmp_path: Path, moment: str) -> None:
    with started(user, tmp_path) as victim:
        assert moment == "booting" or victim.is_up()
        os.kill(victim.process(is_switch_daemon), signal.SIGKILL)
        code, said = victim.end()
        assert (code, "ovs-vswitchd ended during the run (exit code -9)" in said) == (1, True), said


def test_two_runs_side_by_side_do_not_meet(user: list[str], tmp_path: Path) -> None:
    with started(user, tmp_path) as one, started(user, tmp_path) as other:
        assert one.is_up()
        assert other.is_up()
        assert one.reaches_all()
        assert other.reaches_all()
        one.launcher.kill()
        assert one.end()[0] == -signal.SIGKILL
        assert other.reaches_all()
        other.launcher.terminate()
        assert other.end()[0] == -signal.SIGTERM
