"""Shortages: memory, processes or files that a limit of this process (`ulimit`) refuses, each one sentence.

Little but Python's library: a scenario imports this before anything that memory may be short for.
"""

import errno
import math
import resource
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from traceback import format_exception
from types import TracebackType

from topologies.printable import printable

LEAST_BYTES = 1 << 30
"""Of address space: to import scipy, pandas and matplotlib takes 0.6 to 0.8 GB. With less they end in a
traceback, in an abort of C++, or never, since OpenBLAS tries again for ever."""
EMULATION_BYTES = 3 << 29
"""Of address space: the controller's threads take 1.4 GB of it. With less it serves some switches, and the
network is not ready after two minutes."""
RAISE_MEMORY = "raise the limit (ulimit -v)"
PROCESSES = (
    "this user may have no more processes or threads",
    "raise the limit (ulimit -u), or take --jobs 1",
)
FILES = "no more files can be opened", "raise the limit (ulimit -Hn), or take a smaller fabric"
OTHERS = {errno.EAGAIN: PROCESSES, errno.EMFILE: FILES, errno.ENFILE: FILES}


def shortage(error: BaseException) -> str:
    """Return a sentence on what ran out, where an error was raised for that; else nothing."""
    text = str(error)
    if isinstance(error, OSError) and error.errno in OTHERS:
        return "; ".join(OTHERS[error.errno])
    if isinstance(error, RuntimeError) and text == "can't start new thread":
        # The kernel refuses a thread where there are too many, and where its stack finds no memory.
        return "; ".join(PROCESSES) if _most_bytes() is None else _memory()
    unmapped = isinstance(error, ImportError) and "failed to map segment" in text
    if isinstance(error, MemoryError) or unmapped or getattr(error, "errno", 0) == errno.ENOMEM:
        return _memory()
    return ""


def tell_shortage(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Say what ran out, and exit with 2; print any other error, printable: a `sys.excepthook`."""
    if "--debug" in sys.argv or not (said := shortage(error)):
        sys.stderr.write(printable("".join(format_exception(kind, error, trace)), keep="\n"))
        return
    sys.stderr.write(f"{said}\n")
    raise SystemExit(2)


def check_address_space() -> None:
    """Exit with a sentence if this process may not have the address space that the imports take."""
    if said := too_little("a start", LEAST_BYTES):
        sys.stderr.write(f"{said}; {RAISE_MEMORY}\n")
        raise SystemExit(2)


def too_little(what: str, least_bytes: int) -> str:
    """Return a sentence where a process may not have the address space that something takes, else nothing."""
    most = _most_bytes()
    if most is None or most >= least_bytes:
        return ""
    return f"{what} takes {least_bytes >> 10:,} kB of address space, and a process may have {most >> 10:,} kB"


def machine_bytes(root: Path = Path("/")) -> float:
    """Return how much memory this process and its children may have, by the machine and the cgroups [bytes].

    Parameters
    ----------
    root
        Where /proc and /sys are.
    """
    left = [_number(root / "proc/meminfo", "MemAvailable:") * 1024, *_cgroups_bytes(root)]
    return max(min((each for each in left if not math.isnan(each)), default=math.inf), 0.0)


def process_bytes() -> float:
    """Return how much more memory this process may have at most; infinity for no limit [bytes].

    What it has reserved of its address space and not used is counted as free: libraries reserve what is left.
    """
    if (most := _most_bytes()) is None:
        return math.inf
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return max(most - pages * resource.getpagesize(), 0)


def _cgroups_bytes(root: Path) -> Iterator[float]:
    """Yield what each cgroup around this process leaves it, of version 1 and 2 [bytes]."""
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, own = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        names = ("limit_in_bytes", "usage_in_bytes") if controllers else ("max", "current")
        base = root / "sys/fs/cgroup" / ("memory" if controllers else "")
        around = Path(own.lstrip("/"))
        for group in {base, *(base / each for each in (around, *around.parents))}:
            most, used = (_number(group / f"memory.{name}") for name in names)
            cached = _number(group / "memory.stat", "total_inactive_file" if controllers else "inactive_file")
            yield most - (used - (0.0 if math.isnan(cached) else cached))


def _number(file: Path, key: str = "") -> float:
    """Return the number in a file of the kernel's, or that behind a key; NaN where there is none."""
    lines = map(str.split, _lines(file))
    found = next((line[bool(key)] for line in lines if line and (not key or line[0] == key)), "nan")
    return math.inf if found == "max" else float(found)


def _lines(file: Path) -> list[str]:
    """Return the lines of a file of the kernel's; none where it is missing."""
    with suppress(OSError):
        return file.read_text().splitlines()
    return []


def _memory() -> str:
    """Return the sentence on memory that ran out, with the limit where there is one."""
    if (most := _most_bytes()) is None:
        return "memory ran out; take --jobs 1, a smaller fabric or a smaller workload"
    limit = f"memory ran out: a process may have {most >> 10:,} kB"
    return f"{limit}; {RAISE_MEMORY}, or take --jobs 1, a smaller fabric or a smaller workload"


def _most_bytes() -> int | None:
    """Return how much address space this process may have; None for no limit [bytes]."""
    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if most == resource.RLIM_INFINITY else most
