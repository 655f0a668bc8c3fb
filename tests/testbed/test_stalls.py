"""Stalls: a process that is stopped could not run, one that sleeps or works could."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from testbed.machine.residue import until
from testbed.machine.stalls import LOOK_S, StallWatch, cpu_s

STOPPED_S = 0.1
LOOKS = 5
DEADLINE_S = 60.0
BUSY, ASLEEP = "while True: pass", "import time; print('begun', flush=True); time.sleep(300)"


@pytest.mark.parametrize("code", [BUSY, ASLEEP])
def test_a_stop_is_seen_and_is_no_longer_than_it_was(code: str) -> None:
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL) as process:
        began = time.monotonic()
        with StallWatch(process.pid) as watch:
            os.kill(process.pid, signal.SIGSTOP)
            assert until(lambda: watch.longest_s > STOPPED_S, DEADLINE_S)
            os.kill(process.pid, signal.SIGCONT)
        lasted_s = time.monotonic() - began
        process.kill()
    assert watch.longest_s < lasted_s


def test_who_sleeps_has_no_stall() -> None:
    with subprocess.Popen([sys.executable, "-c", ASLEEP], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # from here on it only falls asleep
        stat = Path(f"/proc/{process.pid}/stat")
        assert until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "S", DEADLINE_S)
        began = time.monotonic()
        with StallWatch(process.pid) as watch:
            assert until(lambda: time.monotonic() - began > LOOKS * LOOK_S, DEADLINE_S)
        process.kill()
    assert watch.longest_s == 0


def test_cpu_time_grows_with_work() -> None:
    before = cpu_s(os.getpid())
    assert until(lambda: sum(range(10_000)) > 0 and cpu_s(os.getpid()) > before + 0.03, DEADLINE_S)
