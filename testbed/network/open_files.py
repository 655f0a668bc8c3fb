"""Files that the processes of an emulation have open at once, sockets among them, by the fabric.

Counted in /proc/PID/fd over rail fabrics of 4 to 16 switches and 12 to 192 ports: what depends on the fabric
is exact (`tests/emulation/test_open_files.py`), the rest is some ten more than were open.
"""

import os

from testbed.machine.datapath import Datapath, bridges
from topologies.errors import MachineError
from topologies.fabric import Fabric

DAEMON_FILES, CPU_FILES = 32, 4
"""Files of Open vSwitch whatever the fabric, and for threads of a CPU: logs, latches, its database."""
BRIDGE_FILES = 4
"""Of each switch: a tap device, its connection to the controller, and those it listens for."""
WORKER_FILES = 16
"""Files of the worker whatever the fabric: standard streams, the lock, netlink, the engine's loop."""
HOST_FILES = 4
"""Files of the worker for each host: its name, its mounts, and a command's connection and process."""
TOO_MANY = "raise the limit (ulimit -Hn), or take a smaller fabric"


def switch_files(fabric: Fabric, datapath: Datapath) -> int:
    """Return how many files Open vSwitch opens for a fabric: a socket for each port beside its own."""
    own, bridged = DAEMON_FILES + CPU_FILES * (os.cpu_count() or 1), bridges(fabric, datapath)
    return own + BRIDGE_FILES * len(bridged) + _ports(fabric, bridged)


def engine_files(fabric: Fabric, sockets: int, datapath: Datapath) -> int:
    """Return how many files the worker opens that boots a fabric, beside so many sockets of an engine.

    It holds the namespace of each server and of each switch that routes, and a copy of each socket by which
    Open vSwitch receives.
    """
    bridged = bridges(fabric, datapath)
    namespaces = len(fabric.servers) + len(fabric.switches) - len(bridged)
    return WORKER_FILES + namespaces + _ports(fabric, bridged) + sockets


def check_open_files(fabric: Fabric, most: int, datapath: Datapath, *, hosts: bool = False) -> None:
    """Raise MachineError if a process may not have as many open files as booting a fabric takes.

    Hosts run applications, a command each.
    """
    of_hosts = HOST_FILES * len(fabric.servers) if hosts else 0
    if (needed := max(switch_files(fabric, datapath), engine_files(fabric, of_hosts, datapath))) > most:
        raise MachineError(
            f"fabric {fabric.name} takes {needed:,} open files, and this user may have {most:,}", TOO_MANY
        )


def _ports(fabric: Fabric, switches: frozenset[str]) -> int:
    return sum(port.node in switches for port in fabric.link_at)
