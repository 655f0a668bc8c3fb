"""Mutated inputs: each is a success, or one sentence and exit code 2, within ten seconds; nothing else.

    LIGHTRAIL_FUZZ=5000 LIGHTRAIL_FUZZ_SEED=7 .venv/bin/pytest tests/fuzz

mutates so many (300 by default) from another seed. A failure prints the input and its number: equal
seeds and numbers give equal inputs. Seconds are the CPU's, so that a busy machine is none the wiser.
"""

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from types import FrameType

import pytest

from tests.fuzz.inputs import KINDS, Case
from topologies.errors import LightrailError

CASES = int(os.environ.get("LIGHTRAIL_FUZZ", "300"))
SEED = int(os.environ.get("LIGHTRAIL_FUZZ_SEED", "0"))
MOST_S = 10.0
"""CPU time of a case [s]."""
MOST_BYTES = 3 << 30
"""Memory that cases may take beside what is there [bytes]."""
MOST_SENTENCE = 2000
"""Characters of a sentence with its hint; some hints list what there is."""


class TooLong(BaseException):
    """A case that takes longer than it may."""


@pytest.mark.timeout(300 + CASES)  # of all cases of a kind
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_mutated_is_read_or_refused_in_a_sentence(kind: str, tmp_path: Path) -> None:
    make, share = KINDS[kind]
    failures = []
    with _limited_memory():
        for number in range(max(round(CASES * share), 1)):
            given, case = make(Random(f"{SEED} {kind} {number}"), tmp_path)
            if why := _why_not(case):
                failures.append(f"{kind} {number}: {why}\n  {given[:1500]!r}")
    assert not failures, f"{len(failures)} of the cases:\n" + "\n".join(failures[:20])


def test_what_is_neither_is_named() -> None:
    def endless() -> None:
        while True:
            pass

    def refused() -> None:
        raise LightrailError("a sentence")

    with _limited_memory():
        assert _why_not(lambda: None) == _why_not(refused) == ""
        assert _why_not(lambda: 1 // 0).startswith("ZeroDivisionError at")
        assert _why_not(lambda: bytes(4 * MOST_BYTES)).startswith("MemoryError at")
        assert _why_not(endless, 0.01) == "more than 0.01 s"


def _why_not(case: Case, most_s: float = MOST_S) -> str:
    """Return how a case fails; empty if it succeeds or is refused."""
    signal.setitimer(signal.ITIMER_PROF, most_s)
    try:
        case()
    except LightrailError as error:
        said = str(error)
        return "" if _is_sentence(said) else f"no sentence: {said[:300]!r}"
    except TooLong:
        return f"more than {most_s:g} s"
    except Exception as error:
        at = error.__traceback__
        while at and at.tb_next:
            at = at.tb_next
        where = f"{at.tb_frame.f_code.co_filename}:{at.tb_lineno}" if at else ""
        return f"{type(error).__name__} at {where}: {str(error)[:300]}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return ""


def _is_sentence(said: str) -> bool:
    return 0 < len(said) <= MOST_SENTENCE and said.isprintable()


@contextmanager
def _limited_memory() -> Iterator[None]:
    """Have what takes too much memory fail, and what takes too long raise."""

    def too_long(_signal: int, _frame: FrameType | None) -> None:
        raise TooLong

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    there = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = signal.signal(signal.SIGPROF, too_long)
    resource.setrlimit(resource.RLIMIT_AS, (there + MOST_BYTES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.signal(signal.SIGPROF, before)
