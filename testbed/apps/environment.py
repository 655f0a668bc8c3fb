"""The environment of commands on hosts: where they are, whom they can reach, and what OpenMPI needs to know.

========================  ==============================================================================
LIGHTRAIL_HOST            name of the host
LIGHTRAIL_HOSTS           names of all hosts, comma-separated
LIGHTRAIL_NICS            names of the host's network interfaces, comma-separated
LIGHTRAIL_SCALE           how many times as long as in reality an application is to compute
LIGHTRAIL_NORTHBOUND      socket of the controller, by which circuits are lit
PATH, PYTHONPATH          have ``lightrail-ssh`` and the modules of `testbed/apps/on_hosts` first
TMPDIR                    the host's own directory for temporary files
OMPI_MCA_...              parameters of OpenMPI (ompi_info(1))
========================  ==============================================================================
"""

import os
import pwd
import shlex
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from testbed.network.host_namespaces import HOSTS, ROOT, TMP, HostUser
from testbed.network.network import NORTHBOUND, Network
from topologies.addresses import HOSTS_NETWORK, interface
from topologies.fabric import Fabric, Port

SSH = "lightrail-ssh"
PROGRAMS, MODULES = HOSTS / "bin", HOSTS / "python"
"""On hosts' PATH and PYTHONPATH: copies, since an ordinary user may not read the checkout."""
HERE = Path(__file__).resolve().parent
USUAL_PATH = "/usr/local/bin:/usr/bin:/bin"
PLACES = {"PATH": (PROGRAMS, USUAL_PATH), "PYTHONPATH": (MODULES, "")}
OF_OPENMPI = {
    "OMPI_MCA_plm_rsh_agent": SSH,
    # Hosts share the machine's CPUs: each would bind its ranks to the same ones.
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_MCA_btl": "self,vader,tcp",
    # Its daemons talk by hosts' own addresses: when the one NIC failed by which they did, mpirun never ended.
    "OMPI_MCA_oob_tcp_if_include": str(HOSTS_NETWORK),
    # Fragments of 128 KiB; by default TCP gets the rest of a message in one piece. So an all-to-all of 4 MB a
    # pair took 1.07 times as long as the generator's, and by default 1.3 to 1.6 times (4 hosts, 1 NIC each).
    "OMPI_MCA_btl_tcp_flags": "send",
    # Its daemons stay in the session that they were started in, and so end with who started them.
    "OMPI_MCA_orte_leave_session_attached": "1",
}
OPENMPI_ROOT = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")


def place_programs() -> None:
    """Put what all hosts have on their PATH and PYTHONPATH into its place."""
    for folder in (PROGRAMS, MODULES):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)
    python = shlex.quote(os.path.realpath(sys.executable))
    client = PROGRAMS / f"{SSH}.py"
    _copy(HERE / "lightrail_ssh.py", client)
    (PROGRAMS / SSH).write_text(f'#!/bin/sh\nexec {python} -I -S {client} "$@"\n')
    (PROGRAMS / SSH).chmod(0o755)
    for module in (HERE / "on_hosts").glob("*.py"):
        _copy(module, MODULES / module.name)


def host_environment(network: Network, host: int, scale: float = 1.0) -> dict[str, str]:
    """Return the variables that a host's commands have whoever starts them.

    Parameters
    ----------
    network
        Booted, with hosts.
    host
        Its number.
    scale
        How many times as long as in reality an application is to compute.
    """
    interfaces = ",".join(interfaces_of(network.fabric, host))
    name = network.fabric.servers[host].name
    return {
        "LIGHTRAIL_HOST": name,
        "LIGHTRAIL_HOSTS": ",".join(server.name for server in network.fabric.servers),
        "LIGHTRAIL_NICS": interfaces,
        "LIGHTRAIL_SCALE": f"{scale:g}",
        "LIGHTRAIL_NORTHBOUND": str(network.directory / NORTHBOUND),
        "HOSTNAME": name,
        "TMPDIR": str(TMP),
        **OF_OPENMPI,
        "OMPI_MCA_btl_tcp_if_include": interfaces,
    }


def of_user(user: HostUser, *, as_root: bool) -> dict[str, str]:
    """Return the variables that depend on the user as whom a command runs."""
    if as_root or user.uid == ROOT:
        return dict.fromkeys(OPENMPI_ROOT, "1")
    try:
        entry = pwd.getpwuid(user.uid)
    except KeyError:
        return {}
    return {"HOME": entry.pw_dir, "USER": entry.pw_name, "LOGNAME": entry.pw_name}


def of_asker(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the part that an application has of the environment in which it is asked for.

    Its host decides on the name and on the directory for temporary files. Under sudo the user behind it has a
    home of its own.
    """
    decided = {"HOSTNAME", "TMPDIR"}
    if "SUDO_UID" in environment:
        decided |= {"HOME", "USER", "LOGNAME"}
    return {name: value for name, value in environment.items() if name not in decided}


def with_places(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment whose PATH and PYTHONPATH begin with the hosts' own places."""
    found = dict(environment)
    for name, (place, usual) in PLACES.items():
        others = found.get(name) or usual
        if str(place) not in others.split(os.pathsep):
            found[name] = os.pathsep.join(filter(None, [str(place), others]))
    return found


@cache
def interfaces_of(fabric: Fabric, host: int) -> tuple[str, ...]:
    """Return the names of a host's network interfaces."""
    server = fabric.servers[host]
    return tuple(interface(fabric, Port(server.name, number)) for number in range(server.nics))


def _copy(source: Path, place: Path) -> None:
    place.write_bytes(source.read_bytes())
    place.chmod(0o644)
