"""Ctrl-C, SIGTERM and SIGHUP at any moment: a sentence, an exit code, and a directory to go on with."""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.machine.residue import until
from tests.examples import examples
from tests.scenarios.command import ran
from tests.tools import CHECKOUT, ends, hears_interrupts

SMALL = ("--model-only", "--servers", "4", "--rails", "2", "--seeds", "9", "--schemes", "rails,ecmp")
RUN_S = 3.0
"""About how long a small run takes after its first imports; one that has ended by then hears nothing."""
INTERRUPTS = """
import os
import signal

class Interrupts:
    def __set_name__(self, *_):
        os.kill(os.getpid(), signal.SIGINT)
"""
INTERRUPTS_ITS_READER = {
    "as it is read": "Interrupts().__set_name__()",
    "as a class is made": "class Made:\n    made = Interrupts()",  # Python makes a RuntimeError of it
}


def interrupted(
    scenario: str,
    words: Sequence[str | Path],
    cwd: Path,
    wait: Callable[[], object],
    by: signal.Signals = signal.SIGINT,
) -> tuple[int, list[str]]:
    """Return the exit code and the lines of standard error of a scenario whose processes all get a signal.

    The wait begins with its first imports: what Python says before it runs a file of ours is its own.
    """
    command = [sys.executable, str(CHECKOUT / "scenarios" / f"{scenario}.py"), *map(str, words)]
    with subprocess.Popen(
        command,
        cwd=cwd,
        text=True,
        start_new_session=True,
        preexec_fn=hears_interrupts,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as run:
        maps = Path(f"/proc/{run.pid}/maps")
        assert until(lambda: "numpy" in maps.read_text(), 60)
        wait()
        os.killpg(run.pid, by)
        said = run.communicate(timeout=60)[1]
    assert ends(run.pid)
    return run.returncode, [line for line in said.splitlines() if line]  # a progress bar ends with one


def goes_on(scenario: str, lines: Sequence[str], cwd: Path) -> str:
    """Carry out what the last of the lines says, and return the directory that it is about."""
    *_, finished, line = lines
    python, file, *words = shlex.split(line.removeprefix("sudo "))
    assert (python, file) == ("python", str(CHECKOUT / "scenarios" / f"{scenario}.py"))
    assert words[0] == "--resume"
    assert finished == f"what was finished is in {words[1]}; to go on:"
    done = ran(scenario, *words, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return words[1]


def some_points(out: Path) -> None:
    """Wait until a run has written some of its points."""
    assert until(lambda: (out / "points").exists() and len(list((out / "points").iterdir())) > 1, 60)


@pytest.mark.parametrize(
    ("scenario", "words"),
    [("rails_uniform", SMALL), ("rails_uniform", (*SMALL, "--jobs", "1")), ("ocs_figures", ("--seeds", "1"))],
    ids=["processes", "one process", "calls"],
)
@settings(max_examples=examples(2, 30), deadline=None)
@given(share=st.floats(0.1, 1))
def test_at_any_moment_it_names_what_is_left_and_how_to_go_on(
    scenario: str, words: tuple[str, ...], share: float
) -> None:
    with TemporaryDirectory() as folder:
        code, lines = interrupted(scenario, words, Path(folder), partial(time.sleep, share * RUN_S))
        if code == 0:
            return
        assert (code, lines[0]) == (130, "interrupted"), lines
        if lines == ["interrupted"]:
            there = list(Path(folder).glob("results/*/*"))  # whole, if it had just ended
            assert there or not list(Path(folder).iterdir())
            assert all((out / "SHA256SUMS").exists() for out in there)
            return
        out = goes_on(scenario, lines, Path(folder))
        assert (Path(folder) / out / "report.html").exists()


@pytest.mark.parametrize("moment", INTERRUPTS_ITS_READER)
def test_while_options_are_read_nothing_is_left(moment: str, tmp_path: Path) -> None:
    (tmp_path / "interrupts.py").write_text(INTERRUPTS + INTERRUPTS_ITS_READER[moment])
    words = ["--model-only", "--fabric", "interrupts:fabric", "--out", "out"]
    done = ran("rails_uniform", *words, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")
    assert not (tmp_path / "out").exists()


def test_a_part_is_joined_as_it_says(tmp_path: Path) -> None:
    wait = partial(some_points, tmp_path / "out")
    code, lines = interrupted("rails_uniform", [*SMALL, "--part", "1/2", "--out", "out"], tmp_path, wait)
    assert (code, lines[0], lines[-1][-23:]) == (130, "interrupted", "--resume out --part 1/2")
    assert goes_on("rails_uniform", lines, tmp_path) == "out"
    assert not (tmp_path / "out" / "summary.csv").exists()
    assert ran("rails_uniform", "--resume", "out", cwd=tmp_path).returncode == 0


def test_a_run_again_cannot_be_gone_on_with(tmp_path: Path) -> None:
    assert ran("rails_uniform", *SMALL, "--out", "out", cwd=tmp_path).returncode == 0
    wait = partial(some_points, tmp_path / "again")
    code, lines = interrupted("repeat", ["out", "--out", "again"], tmp_path, wait)
    assert (code, lines) == (130, ["interrupted", "what was finished is in again"])
    assert (tmp_path / "again" / "report.html").exists()


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGHUP])
def test_what_ends_a_run_is_said_as_ctrl_c_is(by: signal.Signals, tmp_path: Path) -> None:
    wait = partial(some_points, tmp_path / "out")
    code, lines = interrupted("rails_uniform", [*SMALL, "--out", "out"], tmp_path, wait, by)
    assert (code, lines[0]) == (128 + by, f"ended by {by.name}")
    assert goes_on("rails_uniform", lines, tmp_path) == "out"


def test_nohup_keeps_a_run_from_hearing_that_its_terminal_is_gone(tmp_path: Path) -> None:
    command = [
        "nohup",
        sys.executable,
        str(CHECKOUT / "scenarios" / "rails_uniform.py"),
        *SMALL,
        "--out",
        "out",
    ]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, start_new_session=True) as run:
        some_points(tmp_path / "out")
        os.killpg(run.pid, signal.SIGHUP)
        assert run.wait(60) == 0
    assert (tmp_path / "out" / "report.html").exists()


@pytest.mark.parametrize("python", [sys.executable, "/usr/bin/python3"])
@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_before_its_first_imports_a_scenario_has_a_word_for_its_end(by: signal.Signals, python: str) -> None:
    command = [python, str(CHECKOUT / "scenarios" / "rails_uniform.py"), *SMALL]
    with subprocess.Popen(command, stderr=subprocess.PIPE, preexec_fn=hears_interrupts) as run:
        assert until(lambda: _waits_or_hears(run.pid, signal.SIGTERM), 60)
        run.send_signal(by)
        said = run.communicate(timeout=60)[1].decode()
    assert (run.returncode, said) == (
        128 + by,
        "interrupted\n" if by == signal.SIGINT else f"ended by {by.name}\n",
    )


def _waits_or_hears(process: int, number: int) -> bool:
    """Return whether a signal waits for a process that blocks it, or has a handler there."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{process}/status").read_text().splitlines())
    return any(int(status[mask], 16) >> (number - 1) & 1 for mask in ("SigBlk", "SigCgt"))


def test_a_second_sigterm_ends_at_once_what_takes_long_to_end() -> None:
    program = """
import signal
from testbed.machine.signals import hear

hear()
try:
    print("begun", flush=True)
    signal.pause()
finally:
    print("ends", flush=True)
    while True:
        signal.pause()
"""
    command = [sys.executable, "-c", program]
    with subprocess.Popen(
        command, cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "begun\n"
        run.send_signal(signal.SIGTERM)
        assert run.stdout.readline() == "ends\n"
        run.send_signal(signal.SIGHUP)  # a terminal that is closed sends it more than once
        run.send_signal(signal.SIGTERM)
        assert run.wait(60) == 128 + signal.SIGTERM
        assert run.communicate()[1] == "ended by SIGTERM\n"


def test_a_worker_that_is_stopped_is_named_and_may_go_on(tmp_path: Path) -> None:
    command = [
        sys.executable,
        str(CHECKOUT / "scenarios" / "rails_uniform.py"),
        *SMALL,
        "--seeds",
        "20",
        "--out",
        "out",
    ]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as run:
        children = Path(f"/proc/{run.pid}/task/{run.pid}/children")
        some_points(tmp_path / "out")  # from then on it has no children but workers
        worker = int(children.read_text().split()[0])
        os.kill(worker, signal.SIGSTOP)
        assert run.stderr is not None
        said = next(line for line in run.stderr if "stopped" in line)
        assert f"(process {worker}) is stopped, and this run waits for it: kill -CONT {worker} has it" in said
        os.kill(worker, signal.SIGCONT)
        assert run.communicate(timeout=60)[1].count("stopped") == 0
    assert run.returncode == 0
