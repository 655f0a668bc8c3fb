"""Scenarios run as commands, each in a fork of this process: it has imported already what they import.

A Python of its own takes a second and a half to import what a scenario needs, and most tests of a
scenario's options need a tenth of that for all else. What a start from nothing has of its own (the
imports, the checkout's Python, output that cannot be written) is tested by commands that are started so.
"""

import os
import runpy
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from subprocess import CompletedProcess
from tempfile import TemporaryDirectory

from testbed.machine.residue import until
from tests.data_files import check_data
from tests.tools import CHECKOUT

WRITES = ("--out", "--resume")
"""The options that name a results directory, which is looked at after each command."""


def ran(
    scenario: str, *options: str | Path, cwd: Path = CHECKOUT, env: Mapping[str, str] | None = None
) -> "CompletedProcess[str]":
    """Return what comes of a command like ``python scenarios/job.py --help``.

    Parameters
    ----------
    scenario
        The file's name without its suffix.
    options
        The words after it.
    cwd
        The directory to run in.
    env
        The whole environment; None for this process' own.
    """
    import_module(f"scenarios.{scenario}")  # here, and so in each of the forks to come
    command = [str(CHECKOUT / "scenarios" / f"{scenario}.py"), *map(str, options)]
    with TemporaryDirectory(prefix="command-") as folder:
        outputs = Path(folder) / "stdout", Path(folder) / "stderr"
        process = get_context("fork").Process(target=_run, args=(command, cwd, env, outputs))
        process.start()
        try:
            process.join()
        finally:
            process.kill()  # where the test's time is over
        stdout, stderr = (output.read_text() for output in outputs)
    assert process.exitcode is not None
    if process.exitcode == 0 and (at := [place for place, word in enumerate(options) if word in WRITES]):
        check_data(cwd / options[at[0] + 1])
    return CompletedProcess(command, process.exitcode, stdout, stderr)


def _run(command: list[str], cwd: Path, env: Mapping[str, str] | None, outputs: tuple[Path, Path]) -> None:
    """Be the command: its streams, words, directory and environment."""
    if env is not None:
        os.environ.clear()
        os.environ.update(env)
    os.chdir(cwd)
    sys.argv = command
    stdout, stderr = outputs
    with stdout.open("w") as out, stderr.open("w") as error, redirect_stdout(out), redirect_stderr(error):
        os.dup2(out.fileno(), 1)  # for processes that it starts
        os.dup2(error.fileno(), 2)
        runpy.run_path(command[0], run_name="__main__")


def killed(
    scenario: str, *options: str | Path, cwd: Path, when: Callable[[], bool], patience_s: float = 60
) -> None:
    """Start a command as `ran` does, and kill it (SIGKILL) once something is so."""
    import_module(f"scenarios.{scenario}")
    command = [str(CHECKOUT / "scenarios" / f"{scenario}.py"), *map(str, options)]
    process = get_context("fork").Process(
        target=_run, args=(command, cwd, None, (Path(os.devnull), Path(os.devnull)))
    )
    process.start()
    try:
        assert until(when, patience_s)
        assert process.is_alive(), f"{scenario} had ended"
    finally:
        process.kill()
        process.join()
