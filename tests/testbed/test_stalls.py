"""Stalls: a process that is stopped could not run, one that sleeps or works could."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from testbed.machine.residue import until
from testbed.machine.stalls import StallWatch, cpu_s

STOPPED_S = 0.3
BUSY, ASLEEP = "while True: pass", "import time; time.sleep(60)"


@pytest.mark.parametrize("code", [BUSY, ASLEEP])
def test_a_stop_is_as_long_as_it_was(code: str) -> None:
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        with StallWatch(process.pid) as watch:
            os.kill(process.pid, signal.SIGSTOP)
            stopped = time.monotonic()
            assert until(lambda: time.monotonic() - stopped > STOPPED_S, 5)
            os.kill(process.pid, signal.SIGCONT)
            lasted_s = time.monotonic() - stopped
        process.kill()
    assert 0.5 * STOPPED_S < watch.longest_s < lasted_s + 0.1


def test_who_sleeps_has_no_stall() -> None:
    with subprocess.Popen([sys.executable, "-c", ASLEEP]) as process:
        stat = Path(f"/proc/{process.pid}/stat")
        assert until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "S", 5)
        began = time.monotonic()
        with StallWatch(process.pid) as watch:
            assert until(lambda: time.monotonic() - began > STOPPED_S, 5)
        process.kill()
    assert watch.longest_s < 0.05


def test_cpu_time_grows_with_work() -> None:
    before = cpu_s(os.getpid())
    assert until(lambda: sum(range(10_000)) > 0 and cpu_s(os.getpid()) > before + 0.03, 10)
