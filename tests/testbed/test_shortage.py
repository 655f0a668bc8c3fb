"""A limit of a process is one sentence, whichever part of a command meets it."""

import errno
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.machine.files import write_whole
from testbed.machine.shortage import EMULATION_BYTES, LEAST_BYTES, shortage, tell_shortage
from tests.tools import CHECKOUT
from topologies.errors import MachineError

SCENARIO = """\
import _checkout
import ctypes, mmap, os, threading
from testbed.study.command import main

def raised() -> None:
    {line}

main(raised)
"""
MARGIN_BYTES = 64 << 20


def limited(path: Path, *words: str, most_bytes: int) -> "subprocess.CompletedProcess[str]":
    """Run a scenario with so much address space."""
    limits = resource.RLIMIT_AS, (most_bytes, most_bytes)
    return subprocess.run(
        [sys.executable, str(path), *words],
        cwd=CHECKOUT,
        env=os.environ | {"PYTHONPATH": str(CHECKOUT / "scenarios")},
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=lambda: resource.setrlimit(*limits),
    )


@pytest.mark.parametrize("most_bytes", [500_000 << 10, LEAST_BYTES - 1])
def test_too_little_address_space_to_import_libraries_is_refused_before_it_ends_in_an_abort_or_never(
    most_bytes: int,
) -> None:
    ran = limited(CHECKOUT / "scenarios" / "rails_uniform.py", "--dry-run", most_bytes=most_bytes)
    said = f"a process may have {most_bytes >> 10:,} kB; raise the limit (ulimit -v)\n"
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == f"a start takes 1,048,576 kB of address space, and {said}"


def test_what_starts_at_the_least_address_space_predicts(tmp_path: Path) -> None:
    small = ["--servers", "2", "--rails", "2", "--seeds", "1", "--schemes", "ecmp", "--model-only"]
    out = ["--out", str(tmp_path / "out")]
    ran = limited(CHECKOUT / "scenarios" / "rails_uniform.py", *small, *out, most_bytes=LEAST_BYTES)
    assert (ran.returncode, ran.stderr.strip()) == (0, "")


def test_too_little_address_space_for_an_emulation_is_refused_before_anything_boots(tmp_path: Path) -> None:
    words = ["--servers", "2", "--out", str(tmp_path / "out")]
    ran = limited(CHECKOUT / "scenarios" / "rails_uniform.py", *words, most_bytes=EMULATION_BYTES - 1)
    said = "an emulation takes 1,572,864 kB of address space, and a process may have 1,572,863 kB"
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.strip() == f"{said}; raise the limit (ulimit -v)"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("bytes(1 << 40)", "memory ran out: a process may have 2,097,152 kB; raise the limit (ulimit -v)"),
        ("mmap.mmap(-1, 1 << 40)", "memory ran out: a process may have 2,097,152 kB; raise the limit"),
        ("raise ImportError('x.so: failed to map segment from shared object')", "memory ran out: a process"),
        ("os.open('/dev/null', 0) and [os.dup(0) for _ in range(1 << 21)]", "no more files can be opened;"),
        ("raise BlockingIOError(11, 'fork')", "this user may have no more processes or threads; raise the"),
    ],
)
def test_a_limit_that_is_met_in_a_command_is_a_sentence_and_a_defect_stays_a_traceback(
    tmp_path: Path, line: str, said: str
) -> None:
    scenario = tmp_path / "short.py"
    scenario.write_text(SCENARIO.format(line=line))
    ran = limited(scenario, most_bytes=2 << 30)
    assert (ran.returncode, ran.stdout, len(ran.stderr.splitlines())) == (2, "", 1), ran.stderr
    assert ran.stderr.startswith(said)
    scenario.write_text(SCENARIO.format(line="raise ValueError('a defect of the code')"))
    assert "Traceback" in limited(scenario, most_bytes=2 << 30).stderr


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENOMEM, errno.ENOSPC, errno.EACCES])
def test_another_directory_is_advised_unless_a_limit_keeps_a_file_from_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    failure = OSError(code, os.strerror(code))

    def fails(*_what: object, **_how: object) -> None:
        raise failure

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises((OSError, MachineError)) as caught:
        write_whole(tmp_path / "run.json", "{}")
    if shortage(failure):
        assert caught.value is failure
    else:
        assert str(caught.value).endswith("begin anew with --out in another directory")
    assert bool(shortage(failure)) == (code in (errno.EMFILE, errno.ENOMEM))


def test_an_error_that_no_limit_has_caused_is_none() -> None:
    others = [OSError(errno.ENOENT, "file"), RuntimeError("thread"), ImportError("no module"), ValueError("")]
    assert [shortage(error) for error in others] == [""] * 4
    assert shortage(MemoryError()).startswith("memory ran out; take --jobs 1")


def test_a_traceback_orders_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise ValueError("a\x1b[31m\nb\u202e")
    except ValueError as error:
        tell_shortage(type(error), error, error.__traceback__)
    said = capsys.readouterr().err
    assert said.startswith("Traceback (most recent call last):\n")
    assert said.endswith("ValueError: a\\x1b[31m\nb\\u202e\n")
