"""A fabric's bridges in Open vSwitch: made in one transaction, and deleted by the mark they carry.

The mark distinguishes this boot's records from all others in the machine's own Open vSwitch. A transaction
whose answer did not come in time may have been committed; its records carry the mark as well.
"""

import socket
from collections.abc import Callable
from pathlib import Path

from testbed.machine.datapath import Datapath, bridge_type
from testbed.network.openvswitch import vsctl
from topologies.addresses import datapath_id, interface, openflow_port
from topologies.errors import NetworkError
from topologies.fabric import Fabric

MARK = "external_ids:lightrail"


def check_names(fabric: Fabric) -> None:
    """Raise NetworkError if the machine has a bridge or an interface of a name that the switches need."""
    ports = {interface(fabric, port) for port in fabric.link_at if port.node in fabric.switch_index}
    interfaces = {name for _, name in socket.if_nameindex()}
    for kind, taken in (
        ("a bridge", fabric.switch_index.keys() & vsctl("list-br").split()),
        ("an interface", (fabric.switch_index.keys() | ports) & interfaces),
    ):
        if taken:
            raise NetworkError(
                f"this machine has {kind} named {min(taken)} already",
                "end the run that made it, or leave --no-sandbox out",
            )


def make_bridges(
    fabric: Fabric, controller: Path, mark: int, datapath: Datapath, check: Callable[[], None]
) -> None:
    """Make a fabric's bridges and ports, and have them connect to the controller.

    Parameters
    ----------
    fabric
        Whose interfaces are wired.
    controller
        The unix socket that it listens on, in Open vSwitch's run directory: to no other does it connect.
    mark
        The number that `delete_bridges` finds them by.
    datapath
        Which forwards.
    check
        As of `testbed.network.openvswitch.vsctl`.

    Notes
    -----
    ``linux-noop`` makes Open vSwitch leave the ports' queues alone.
    """
    words = ["--", "--id=@noop", "create", "QoS", "type=linux-noop", f"{MARK}={mark}"]
    for switch in fabric.switches:
        words += ["--", "add-br", switch.name]
        words += ["--", "set", "bridge", switch.name, "fail_mode=secure"]
        words += [f"datapath_type={bridge_type(datapath)}"]
        words += [f"other_config:datapath-id={datapath_id(fabric, switch.name):016x}", f"{MARK}={mark}"]
        words += ["protocols=OpenFlow13", "other_config:disable-in-band=true"]
        words += ["--", "set-controller", switch.name, f"unix:{controller}"]
        words += ["--", "set", "controller", switch.name, "max_backoff=1000"]
        for port in fabric.used_ports(switch.name):
            name = interface(fabric, port)
            words += ["--", "add-port", switch.name, name, "--", "set", "port", name, "qos=@noop"]
            words += ["--", "set", "interface", name, f"ofport_request={openflow_port(port)}"]
    vsctl(*words, check=check)


def delete_bridges(mark: int) -> None:
    """Delete all bridges that carry a mark, and the record of their queues."""
    # Two transactions: what a bridge's ports refer to cannot go with them in one.
    for table, column, delete in (("bridge", "name", ("del-br",)), ("QoS", "_uuid", ("destroy", "QoS"))):
        found = vsctl("--bare", f"--columns={column}", "find", table, f"{MARK}={mark}").split()
        if words := [word for name in found for word in ("--", *delete, name)]:
            vsctl(*words)
