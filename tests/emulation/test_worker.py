"""A worker calls functions inside a sandbox, whatever calls it, and the calling script runs once."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from testbed.study.worker import EmulationWorker
from tests.emulation.box import Box
from tests.emulation.called import counted, killed, refused, summed, surroundings
from tests.tools import CHECKOUT, hears_interrupts, need_sandbox
from topologies.errors import MachineError, ScenarioError

pytestmark = pytest.mark.emulation

SCRIPT = """
print("this runs")
from mine import doubled
from testbed.study.worker import EmulationWorker
with EmulationWorker() as worker:
    print(list(worker.call(doubled, 3)))
"""
MODULE = """
from testbed.machine.sandbox import inside_sandbox

def doubled(most):
    for number in range(most):
        yield 2 * number, inside_sandbox()
"""
SAID = "this runs\n[(0, True), (2, True), (4, True)]\n"
NOTEBOOK = """
import sys
from nbclient import NotebookClient
from nbformat import v4
script = open("study.py").read()
book = v4.new_notebook(cells=[v4.new_code_cell(script)])
NotebookClient(book, timeout=60, kernel_name="python3").execute()
print("".join(output["text"] for output in book.cells[0].outputs if output["name"] == "stdout"), end="")
"""
OTHER = """
from tests.emulation.called import counted
from testbed.study.worker import EmulationWorker
with EmulationWorker() as worker:
    print(list(worker.call(counted, 2)))
"""
MINE = """
from testbed.study.worker import EmulationWorker
from topologies.errors import ScenarioError

class Mine:
    pass

def own():
    yield 1

from tests.emulation.called import counted
with EmulationWorker() as worker:
    for call in ((own,), (counted, Mine()), (counted, [Mine]), (counted, {1: lambda: 2})):
        try:
            list(worker.call(*call))
        except ScenarioError as error:
            print(error)
"""


@pytest.fixture(autouse=True)
def can() -> None:
    need_sandbox()


def run(folder: Path, *words: str, stdin: str = "") -> str:
    """Run Python in a folder, and return what it writes to its standard output."""
    environment = os.environ | {"PYTHONPATH": str(CHECKOUT), "HOME": str(folder), "PYTHONWARNINGS": "ignore"}
    ran = subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, input=stdin, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.parametrize("way", ["script", "another directory", "standard input", "module", "notebook"])
def test_the_calling_script_runs_once(tmp_path: Path, way: str) -> None:
    folder, other = tmp_path / "here", tmp_path / "other"
    folder.mkdir()
    other.mkdir()
    (folder / "study.py").write_text(SCRIPT)
    (folder / "mine.py").write_text(MODULE)
    said = {
        "script": lambda: run(folder, "study.py"),
        "another directory": lambda: run(other, str(folder / "study.py")),
        "standard input": lambda: run(folder, "-", stdin=SCRIPT),
        "module": lambda: run(folder, "-m", "study"),
        "notebook": lambda: run(folder, "-c", NOTEBOOK),
    }[way]()
    assert said == SAID


def closed(capfd: pytest.CaptureFixture[str]) -> list[str]:
    """Return what generators said, and not that a worker waited for another test's emulation."""
    return [line for line in capfd.readouterr().err.splitlines() if line.startswith("closed")]


def test_what_is_defined_in_the_calling_script_is_refused(tmp_path: Path) -> None:
    said = run(tmp_path, "-", stdin=MINE).splitlines()
    names = ("own", "Mine", "Mine", "<lambda>")
    assert said == [f"{name} is defined in the calling script; put it in a file" for name in names]


def test_a_call_is_a_generator_that_is_carried_out_inside() -> None:
    def all_of(most: int) -> Iterator[int]:
        returned = yield from worker.call(counted, most)
        assert returned == most

    with EmulationWorker() as worker:
        assert list(all_of(3)) == [0, 1, 2]
        assert list(worker.call(surroundings)) == [(True, os.getcwd(), 0, os.devnull)]


def test_a_worker_with_another_engine_than_its_run_names_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with EmulationWorker() as worker:
        monkeypatch.setattr("testbed.study.worker.engine", lambda: "older")
        with pytest.raises(MachineError, match=r"the worker's engine is \w+, this run's older; begin"):
            list(worker.call(counted, 1))


def test_a_call_is_sent_values() -> None:
    with EmulationWorker() as worker:
        call = worker.call(summed)
        assert [next(call), call.send(2), call.send(5)] == [0, 2, 7]


def test_a_call_that_is_closed_is_closed_inside(capfd: pytest.CaptureFixture[str]) -> None:
    with EmulationWorker() as worker:
        call = worker.call(counted, 9)
        assert next(call) == 0
        with pytest.raises(MachineError, match="one call at a time"):
            next(worker.call(counted, 1))
        call.close()
        assert closed(capfd) == ["closed 9"]
        assert list(worker.call(counted, 2)) == [0, 1]
        assert next(worker.call(counted, 7)) == 0
    assert closed(capfd) == ["closed 2", "closed 7"]


def test_an_error_is_raised_here_and_the_worker_goes_on() -> None:
    with EmulationWorker() as worker:
        with pytest.raises(ScenarioError, match="no; take another"):
            list(worker.call(refused, "ours"))
        with pytest.raises(RuntimeError, match="PlainError: 1 and 2") as caught:
            list(worker.call(refused, "plain"))
        assert "in refused" in caught.value.__notes__[0]
        with pytest.raises(ScenarioError, match="cannot be sent: cannot pickle"):
            list(worker.call(refused, sys.stdout.buffer))
        assert list(worker.call(counted, 1)) == [0]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV], ids=lambda number: number.name)
def test_a_worker_that_is_killed_is_a_sentence(number: signal.Signals) -> None:
    with (
        pytest.raises(MachineError, match=f"the emulation worker was killed by signal {int(number)}; see"),
        EmulationWorker() as worker,
    ):
        list(worker.call(killed, number))


def test_an_interrupt_closes_what_runs_inside(capfd: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> None:
        with EmulationWorker() as worker:
            for _ in worker.call(counted, 5):
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert closed(capfd) == ["closed 5"]


def test_it_works_from_any_thread() -> None:
    def call() -> list[int]:
        with EmulationWorker() as worker:
            return list(worker.call(counted, 3))

    with ThreadPoolExecutor(2) as threads:  # and one waits for the other
        assert [each.result() for each in (threads.submit(call), threads.submit(call))] == [[0, 1, 2]] * 2


@pytest.mark.parametrize("in_sandbox", [True, False])
@pytest.mark.parametrize("interrupted", [False, True])
def test_two_emulations_never_run_at_once(in_sandbox: bool, interrupted: bool) -> None:
    command = [sys.executable, "-c", OTHER]
    with EmulationWorker(sandbox=in_sandbox) as worker:
        assert list(worker.call(counted, 1)) == [0]
        other = subprocess.Popen(
            command,
            cwd=CHECKOUT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=hears_interrupts,
        )
        assert other.stderr
        said = other.stderr.readline()  # it waits from now on
        assert said.startswith(f"another emulation runs on this machine, process {os.getpid()} (")
        assert said.endswith("): waiting for it\n")
        assert other.poll() is None
        if interrupted:
            other.send_signal(signal.SIGINT)
            assert other.communicate()[0] == ""
    assert other.communicate()[0] == ("" if interrupted else "[0, 1]\n")
    assert other.returncode == (-signal.SIGINT if interrupted else 0)


def test_without_a_sandbox_it_calls_in_this_process() -> None:
    with EmulationWorker(sandbox=False) as worker:
        assert next(worker.call(surroundings))[:2] == (False, os.getcwd())


def test_a_worker_in_a_sandbox_calls_there(sandbox: Box | None) -> None:
    with EmulationWorker() as worker:
        assert next(worker.call(surroundings))[0]
