"""A fabric's bridges in Open vSwitch: made in one transaction, and deleted by the mark they carry.

The mark distinguishes this boot's records from all others in the machine's own Open vSwitch. A transaction
whose answer did not come in time may have been committed; its records carry the mark as well. The record of
the ports' queues is made before all else and deleted last: by it the runs that were killed are found.
"""

import re
import socket
from collections.abc import Callable, Set
from pathlib import Path

from testbed.machine.datapath import Datapath, bridge_type
from testbed.machine.netlink import delete_links
from testbed.network.mark import Mark
from testbed.network.openvswitch import remove_dead_directories, vsctl
from topologies.addresses import datapath_id, interface, openflow_port
from topologies.errors import NetworkError
from topologies.fabric import Fabric

KEY = "lightrail"
MARK = f"external_ids:{KEY}"


def check_names(fabric: Fabric, switches: Set[str]) -> None:
    """Raise NetworkError if the machine has a bridge or an interface of a name that bridges need."""
    ports = {interface(fabric, port) for port in fabric.link_at if port.node in switches}
    interfaces = {name for _, name in socket.if_nameindex()}
    for kind, taken in (
        ("a bridge", switches & set(vsctl("list-br").split())),
        ("an interface", (switches | ports) & interfaces),
    ):
        if taken:
            runs = ", ".join(f"process {mark.pid}" for mark in _marks())
            remedy = f"end the run that made it ({runs})" if runs else "remove it"
            raise NetworkError(
                f"this machine has {kind} named {min(taken)} already",
                f"{remedy}, or leave --no-sandbox out",
            )


def claim(mark: Mark) -> str:
    """Record that a boot begins, and return the record of the ports' queues.

    Its ``linux-noop`` makes Open vSwitch leave the queues alone.
    """
    return vsctl("--no-wait", "create", "QoS", "type=linux-noop", f"{MARK}={mark}").strip()


def release(mark: Mark) -> None:
    """Delete the record that `claim` made, when nothing else of the boot is left."""
    for record in _found("QoS", "_uuid", mark):
        vsctl("--", "--if-exists", "destroy", "QoS", record)


def remove_dead_runs() -> None:
    """Remove the bridges, links, records and directories of runs whose process was killed before it could."""
    for mark in _marks():
        if mark.is_dead:
            delete_bridges(mark)
            delete_links(mark.group)
            release(mark)
    remove_dead_directories()


def make_bridges(
    fabric: Fabric,
    switches: Set[str],
    controller: Path,
    mark: Mark,
    queues: str,
    datapath: Datapath,
    check: Callable[[], None],
) -> None:
    """Make a fabric's bridges and ports, and have them connect to the controller.

    Parameters
    ----------
    fabric
        Whose interfaces are wired.
    switches
        The names of those that are bridges.
    controller
        The unix socket that it listens on, in Open vSwitch's run directory: to no other does it connect.
    mark
        What `delete_bridges` finds them by.
    queues
        What `claim` returned for it.
    datapath
        What forwards.
    check
        As of `testbed.network.openvswitch.vsctl`.
    """
    words = []
    for switch in sorted(switches, key=fabric.switch_index.__getitem__):
        words += ["--", "add-br", switch]
        words += ["--", "set", "bridge", switch, "fail_mode=secure"]
        words += [f"datapath_type={bridge_type(datapath)}"]
        words += [f"other_config:datapath-id={datapath_id(fabric, switch):016x}", f"{MARK}={mark}"]
        words += ["protocols=OpenFlow13", "other_config:disable-in-band=true"]
        words += ["--", "set-controller", switch, f"unix:{controller}"]
        words += ["--", "set", "controller", switch, "max_backoff=1000"]
        for port in fabric.used_ports(switch):
            name = interface(fabric, port)
            words += ["--", "add-port", switch, name, "--", "set", "port", name, f"qos={queues}"]
            words += ["--", "set", "interface", name, f"ofport_request={openflow_port(port.number)}"]
    if words:
        vsctl(*words, check=check)


def delete_bridges(mark: Mark) -> None:
    """Delete all bridges that carry a mark."""
    bridges = _found("bridge", "name", mark)
    if words := [word for name in bridges for word in ("--", "--if-exists", "del-br", name)]:
        vsctl(*words)


def _found(table: str, column: str, mark: Mark) -> list[str]:
    """Return a column of the records that carry a mark."""
    return vsctl("--bare", f"--columns={column}", "find", table, f"{MARK}={mark}").split()


def _marks() -> list[Mark]:
    """Return the marks of all runs that Open vSwitch has records of."""
    records = vsctl("--bare", "--columns=external_ids", "find", "QoS", f'{MARK}!=""')
    return [mark for text in re.findall(rf"\b{KEY}=([\d.]+)", records) if (mark := Mark.of(text))]
