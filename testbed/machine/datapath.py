"""The datapath, by which switches forward: one decision for a run, made before a daemon starts.

``netdev``
    The daemon itself forwards, over packet sockets. It is the same on every machine, and the default, so
    that results do not depend on which modules a kernel has.
``kernel``
    The kernel's openvswitch module forwards, where the machine has it.
``route``
    Packet switches are network namespaces that route (`testbed.network.switch_routes`). OCSes are as in
    ``netdev``.
"""

import math
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Literal, cast, get_args

from controller.packet.flow_table import Hashing
from testbed.machine.commands import output_of
from testbed.machine.multipath import picks_as_computed
from testbed.machine.netlink import kernel_has_netem
from topologies.errors import MachineError, ScenarioError
from topologies.fabric import Fabric

Datapath = Literal["netdev", "kernel", "route"]
DEFAULT = "LIGHTRAIL_DATAPATH"
"""The environment variable that names the datapath where nothing else does."""
KERNELS = "ovs-system"
"""What Open vSwitch calls the one datapath that it has in the kernel, in each network namespace."""
HASH_SEED = "net/ipv4/fib_multipath_hash_seed"
"""Of the hash by which a network namespace spreads connections; before Linux 6.11 all have one in common."""
HINT = "leave --datapath out"


def datapath_named(name: str) -> Datapath:
    """Return the datapath of a name; ScenarioError if there is none."""
    if name not in get_args(Datapath):
        raise ScenarioError(f"the datapath {name!r}", f"take one of {', '.join(get_args(Datapath))}")
    return cast(Datapath, name)


def default_datapath() -> Datapath:
    """Return the datapath that `DEFAULT` names, or ``netdev``."""
    return datapath_named(os.environ.get(DEFAULT, "netdev"))


def hashing_of(datapath: Datapath) -> Hashing:
    """Return whose hash chooses among links that lead the same way; over both bridges it is the daemon's."""
    return "kernel" if datapath == "route" else "openvswitch"


def bridge_type(datapath: Datapath) -> str:
    """Return what Open vSwitch's database calls a datapath."""
    return "system" if datapath == "kernel" else "netdev"


def bridges(fabric: Fabric, datapath: Datapath) -> frozenset[str]:
    """Return the switches of a fabric that are bridges of Open vSwitch."""
    return frozenset(each.name for each in fabric.switches if each.kind == "ocs" or datapath != "route")


def check_datapath(datapath: Datapath) -> None:
    """Raise MachineError if this machine lacks what a datapath needs; its modules are loaded on the way."""
    if datapath == "netdev":
        return
    if datapath == "route":
        _check_hash()
        return
    try:
        _dpctl("dump-dps")
    except MachineError as error:
        raise MachineError(
            f"this kernel has no openvswitch module, which the datapath 'kernel' needs ({error.sentence})",
            HINT,
        ) from error
    if not kernel_has_netem():
        raise MachineError(
            "this kernel has no netem, without which the queues of the datapath 'kernel' would not fill",
            HINT,
        )


def _check_hash() -> None:
    release = os.uname().release
    if not (Path("/proc/sys") / HASH_SEED).exists():
        raise MachineError(
            f"this kernel ({release}) has one hash for all namespaces, so that with the datapath "
            "'route' all switches would spread alike",
            f"take Linux 6.11 or newer, or {HINT}",
        )
    if not picks_as_computed():
        raise MachineError(
            f"this kernel ({release}) hashes otherwise than Linux 6.11 to 6.18, so that with the datapath "
            "'route' packets would take other paths than are predicted",
            HINT,
        )


def delete_kernel_datapath() -> None:
    """Delete this namespace's datapath in the kernel with its ports: they outlive a daemon that is killed."""
    with suppress(MachineError):  # there is none
        _dpctl("del-dp", KERNELS)


def lost_upcalls() -> float:
    """Return how many packets the kernel dropped so far because the daemon was too slow to be asked.

    NaN where it does not say.
    """
    try:
        found = re.search(r"lost:(\d+)", _dpctl("show", KERNELS))
    except MachineError:
        return math.nan
    return float(found[1]) if found else math.nan


def _dpctl(*words: str) -> str:
    return output_of(["ovs-dpctl", *words])
