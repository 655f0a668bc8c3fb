"""With what a run was made: the versions of all that may change its numbers."""

import os
import platform
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version

from testbed.machine.commands import CHECKOUT, output_of
from topologies.errors import MachineError
from traffic.compiled import engine

PACKAGES = ("mininet", "os-ken", "numpy", "scipy", "pandas", "networkx", "pyroute2", "matplotlib")
GIT = ("git", "--no-optional-locks", "-C", str(CHECKOUT))  # it would write the index, perhaps as root
ROOMS = ("topologies", "controller", "traffic", "testbed", "scenarios")
ABSENT = "not found"
ANSWER_S = 10.0


def versions() -> dict[str, str]:
    """Return the versions of Python, the kernel, Open vSwitch, the checkout and the packages in use."""
    return {
        "python": platform.python_version(),
        "kernel": f"{platform.system()} {platform.release()}",
        "openvswitch": _said(["ovs-vswitchd", "--version"]),
        "commit": _commit(),
        "sources": sources(),
        **{package: _package(package) for package in PACKAGES},
    }


@cache
def sources() -> str:
    """Return the commit of the checkout, and a digest of its Python files: equal where the same code runs."""
    digest = sha256()
    for path in sorted(path for room in ROOMS for path in (CHECKOUT / room).rglob("*.py")):
        digest.update(str(path.relative_to(CHECKOUT)).encode() + path.read_bytes())
    return f"{_commit()} (sources {digest.hexdigest()[:12]})"


def machine() -> dict[str, str | int]:
    """Return a description of the machine, without its name, and which engine it emulates with."""
    return {"architecture": platform.machine(), "cpus": os.cpu_count() or 0, "engine": engine()}


@cache
def _commit() -> str:
    return _said([*GIT, "describe", "--always", "--dirty", "--abbrev=12"])


def _said(command: list[str]) -> str:
    """Return a command's first line, `ABSENT` if it fails or is unknown."""
    try:
        said = output_of(command, ANSWER_S)
    except MachineError:
        return ABSENT
    return said.partition("\n")[0].strip() or ABSENT


def _package(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ABSENT
