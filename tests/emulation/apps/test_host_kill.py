"""Whoever runs applications, and whoever of them is killed: they run as that user, and leave nothing."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.machine.residue import until
from tests.emulation.test_kill import Victim, started, user
from tests.emulation.test_worker import NOTEBOOK, run
from tests.other_user import need_root
from tests.tools import CHECKOUT, need_sandbox, path_of

__all__ = ["user"]  # a fixture
pytestmark = [pytest.mark.emulation, pytest.mark.early]

RUNNING = """
import lightrail as lr
with lr.network(lr.rail_fabric(4, 2)) as net:
    net.host(1).start(["setsid", "sleep", "1000"])
    job = net.host(0).start(["mpirun", "--host", "h0,h1,h2,h3", "sleep", "1000"])
    while net.host(0).run(["pgrep", "-c", "-x", "sleep"]).stdout != "5\\n":
        assert job.is_running, job.errors
    print("up", flush=True)
    job.wait()
"""
WHO = """
import lightrail as lr
with lr.network(lr.rail_fabric(2, 1)) as net:
    for words in (["id", "-u"], ["mpirun", "--host", "h0,h1", "id", "-u"], ["lightrail-ssh", "h1", "id -u"]):
        done = net.host(0).run(words)
        print(done.stdout, done.stderr if done.returncode else "", end="")
    print(net.host(0).run(["ping", "-c", "1", "h1"]).returncode)
    northbound = "import os, socket as s; s.socket(s.AF_UNIX).connect(os.environ['LIGHTRAIL_NORTHBOUND'])"
    print(net.host(0).run(["python3", "-c", northbound]).returncode)
"""
CELL = """
import lightrail as lr
with lr.network(lr.rail_fabric(2, 1)) as net:
    print(net.host(1).run(["hostname"]).stdout)
"""
NOBODY = "65534"
"""The number of a user with a name: OpenMPI crashes for one without."""
END_S = 20.0
"""Within so long what has to end has ended, on a busy machine [s]."""


def is_worker(process: Path) -> bool:
    """Return whether a process is the worker."""
    return (
        b"answer_calls" in (process / "cmdline").read_bytes()
        and (process / "comm").read_text()[:6] == "python"
    )


def is_mpirun(process: Path) -> bool:
    """Return whether a process is OpenMPI's launcher."""
    return (process / "comm").read_text() == "mpirun\n"


@pytest.mark.parametrize(
    "victim",
    [
        "script",
        pytest.param("worker", marks=pytest.mark.slow),
        pytest.param("launcher", marks=pytest.mark.slow),
    ],
)
@pytest.mark.usefixtures("needs")
def test_whoever_is_killed_nothing_is_left(user: list[str], victim: str, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with started(user, tmp_path, command=[sys.executable, "-c", RUNNING]) as ran:
        assert ran.is_up()
        os.kill(_pid(ran, victim), signal.SIGKILL)
        assert until(lambda: ran.launcher.poll() is not None, END_S)


def _pid(ran: Victim, victim: str) -> int:
    if victim == "script":
        return ran.launcher.pid
    return ran.process({"worker": is_worker, "launcher": is_mpirun}[victim])


@pytest.fixture
def needs() -> None:
    """Skip a test that OpenMPI is missing for."""
    path_of("mpirun")


@pytest.mark.usefixtures("needs")
def test_applications_run_as_who_asks_for_them(user: list[str]) -> None:
    me = NOBODY if user else str(os.geteuid())
    assert _said(user, {}) == [*(4 * [me]), "0", "0"]


@pytest.mark.slow
def test_it_works_in_a_notebook(tmp_path: Path) -> None:
    need_sandbox()
    (tmp_path / "study.py").write_text(CELL)
    assert run(tmp_path, "-c", NOTEBOOK) == "h1\n\n"


@pytest.mark.usefixtures("needs")
def test_under_sudo_applications_run_as_the_user_behind_it() -> None:
    need_root()
    need_sandbox()
    assert _said([], {"SUDO_UID": NOBODY, "SUDO_GID": NOBODY}) == [*(4 * [NOBODY]), "0", "0"]


def _said(user: list[str], environment: dict[str, str]) -> list[str]:
    environment = os.environ | {"PATH": "/usr/bin:/bin", "HOME": "/"} | environment
    command = [*user, sys.executable, "-c", WHO]
    done = subprocess.run(command, cwd=CHECKOUT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()
