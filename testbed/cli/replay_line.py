"""What a person asks for behind ``replay``: a workload or a job file, a scheme, a seed, a transport."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from topologies.errors import ScenarioError
from traffic.job import Job
from traffic.job_file import read_job

USAGE = (
    "type replay WORKLOAD [SCHEME [SEED]] [--transport NAME], like replay uniform rails 1; "
    "a workload may be a job file"
)
MOST_DIGITS = 18
"""Of a seed."""
_TRANSPORT = re.compile(r"(?:^|\s)--transport(?:=|\s+)([^\s=-]\S*)")


@dataclass(frozen=True)
class ReplayLine:
    """A line that was read; what it leaves out is empty."""

    job: Job
    name: str
    """The workload's, as it was given; empty for a job of a file."""
    scheme: str = ""
    seed: int | None = None
    transport: str = ""

    @property
    def is_plain(self) -> bool:
        """Whether it names a workload and nothing else."""
        return bool(self.name) and not (self.scheme or self.transport)


def replay_line(line: str, jobs: Mapping[str, Job]) -> ReplayLine:
    """Return what a line asks for.

    Parameters
    ----------
    line
        What was typed behind ``replay``.
    jobs
        The workloads by name; a name may hold spaces.

    Raises
    ------
    ScenarioError, TraceError
        If there is no such workload, a file cannot be read, or words are left over.
    """
    found = _TRANSPORT.search(line)
    rest = line[: found.start()] + line[found.end() :] if found else line
    if "--transport" in rest:
        raise ScenarioError("one transport is to follow --transport", USAGE)
    name, job, words = _workload(rest.strip(), jobs)
    if len(words) > 2:
        raise ScenarioError(f"unknown words {' '.join(words[2:])!r}", USAGE)
    scheme, seed = [*words, "", ""][:2]
    if seed and not (seed.isdecimal() and len(seed) <= MOST_DIGITS):
        raise ScenarioError(f"the seed {seed[:40]!r} is not a whole number", USAGE)
    return ReplayLine(job, name, scheme, int(seed) if seed else None, found[1] if found else "")


def _workload(line: str, jobs: Mapping[str, Job]) -> tuple[str, Job, list[str]]:
    """Return the workload or the job of a file that a line begins with, and the words behind it."""
    for name in sorted(jobs, key=len, reverse=True):
        if f"{line} ".startswith(f"{name} "):
            return name, jobs[name], line[len(name) :].split()
    known = f"choose among: {', '.join(jobs)}; or give a job file"
    if not line:
        raise ScenarioError("no workload is named", known)
    try:
        file, *words = shlex.split(line)  # a path may hold spaces, in quotes
    except ValueError as error:
        raise ScenarioError(f"{line!r} cannot be read: {error}", USAGE) from error
    if not (file.endswith(".json") or Path(file).is_file()):
        raise ScenarioError(f"there is no workload {line!r}", known)
    return "", read_job(Path(file)), words
