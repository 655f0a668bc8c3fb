"""Checks before anything boots: that a command can run, hosts can meet, and tools are installed."""

import os
import shutil
from collections.abc import Mapping, Sequence
from itertools import combinations
from shlex import quote

import networkx as nx

from testbed.apps.environment import SSH
from testbed.machine.congestion import check_known
from topologies.errors import MachineError, ScenarioError
from topologies.fabric import Fabric
from traffic.transports.registry import congestion_control

TOOLS = {
    "mpirun": ("OpenMPI, which --launch mpirun needs", "apt-get install openmpi-bin"),
    "mptcpize": ("mptcpize, which --mptcp needs", "apt-get install mptcpize"),
}
"""Programs that an option needs: what is missing without, and how to install it."""


def check_tool(name: str, path: str) -> None:
    """Raise MachineError if a program of `TOOLS` is not installed where a PATH says."""
    if not shutil.which(name, path=path):
        said, install = TOOLS[name]
        raise MachineError(f"this machine lacks {said}", f"install it: {install}")


def check_command(command: Sequence[str], environment: Mapping[str, str], directory: str) -> None:
    """Raise ScenarioError if there is no command, or this user cannot run it from a directory."""
    if not command or not command[0]:
        raise ScenarioError("there is no command to run", "write it behind --, as in: -- hostname")
    name = command[0]
    if name == SSH or shutil.which(name, path=environment.get("PATH")):
        return
    file = os.path.join(directory, name)
    if "/" not in name and not os.path.exists(file):
        hint = "install it, or give the path of a program"
        if name.split()[1:]:
            hint = f"write its words apart, or have a shell run it: -- sh -c {quote(name)}"
        raise ScenarioError(f"there is no command {name!r}", hint)
    try:
        os.stat(file)
    except PermissionError as error:
        hint = "let this user enter its directories, and those of what it is a link to"
        raise ScenarioError(f"{name} cannot be reached: {error.strerror}", hint) from error
    except OSError as error:
        raise ScenarioError(f"{name} does not exist", "give the path of a program") from error
    if os.path.isdir(file):
        raise ScenarioError(f"{name} is a directory", "give the path of a program")
    if "/" not in name:
        raise ScenarioError(f"{name} is looked for on the PATH, and is not there", f"write ./{name}")
    if os.access(file, os.X_OK):
        return
    raise ScenarioError(
        f"{name} is not executable", f"chmod +x {name}, or give its interpreter: -- python3 {name}"
    )


def check_joined(fabric: Fabric, hosts: Sequence[int]) -> None:
    """Raise ScenarioError if two hosts cannot reach each other, whatever circuits are lit."""
    parts = _parts(fabric)
    names = [fabric.servers[host].name for host in hosts]
    for one, other in combinations(names, 2):
        if not any({one, other} <= part for part in parts):
            raise ScenarioError(
                f"{one} and {other} cannot reach each other over fabric {fabric.name}",
                "name hosts that can with --on, or join them",
            )


def _parts(fabric: Fabric) -> list[set[str]]:
    """Return sets of nodes that reach each other; no way leads over a server unless servers forward."""
    graph = fabric.graph()
    if fabric.servers_forward:
        return list(nx.connected_components(graph))
    switches = graph.subgraph(fabric.switch_index)
    inside = nx.connected_components(switches)
    parts = [part | {near for switch in part for near in graph.neighbors(switch)} for part in inside]
    return parts + [{link.a.node, link.b.node} for link in fabric.links]


def check_transport_of_hosts(name: str) -> None:
    """Raise ScenarioError if a transport is not the hosts' TCP, or Linux has no such congestion control."""
    control = congestion_control(name)
    if control is None:
        raise ScenarioError(
            f"applications send by the TCP of their hosts, not by {name!r}",
            "give --transport tcp, tcp:bbr or tcp:reno",
        )
    check_known(control)
