"""With what a run was made: the versions of all that may change its numbers."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from testbed.machine.commands import output_of
from topologies.errors import MachineError

PACKAGES = ("mininet", "os-ken", "numpy", "scipy", "pandas", "networkx", "pyroute2", "matplotlib")
CHECKOUT = Path(__file__).parents[2]
GIT = ("git", "--no-optional-locks", "-C", str(CHECKOUT))  # it would write the index, perhaps as root
ABSENT = "not found"
ANSWER_S = 10.0


def versions() -> dict[str, str]:
    """Return the versions of Python, the kernel, Open vSwitch, the checkout and the packages in use."""
    return {
        "python": platform.python_version(),
        "kernel": f"{platform.system()} {platform.release()}",
        "openvswitch": _said(["ovs-vswitchd", "--version"]),
        "commit": _said([*GIT, "describe", "--always", "--dirty", "--abbrev=12"]),
        **{package: _package(package) for package in PACKAGES},
    }


def machine() -> dict[str, str | int]:
    """Return what the machine is, without its name."""
    return {"architecture": platform.machine(), "cpus": os.cpu_count() or 0}


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
