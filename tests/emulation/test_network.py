"""A booted network: who reaches whom, that it boots again, and that a boot that fails leaves nothing."""

import os
import socket
import stat
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from pyroute2.netlink.rtnl import RTM_DELLINK, RTM_NEWLINK

from controller.app.listeners import private_listener
from testbed.machine.datapath import default_datapath
from testbed.machine.netlink import Batch, delete_links
from testbed.machine.sandbox import RUN_DIRECTORY
from testbed.network.network import OPENFLOW
from testbed.network.openvswitch import sockets_of, vsctl
from tests.emulation.box import Box
from tests.emulation.conftest import Booted
from topologies.errors import NetworkError
from topologies.fabric import Fabric, Port
from topologies.fat_tree import fat_tree_fabric
from topologies.rail import rail_fabric

pytestmark = pytest.mark.emulation

TIMES = 20
"""How often a link comes and goes: each time it had some two calls in a hundred fail."""
NOBODYS = (1 << 31) - 1
"""A group that no link is in."""


def things_here() -> tuple[set[str], set[str], set[str], set[str]]:
    """Return the interfaces, the processes, the files in /run and the mounts of this sandbox."""
    return (
        {name for _, name in socket.if_nameindex()},
        {path.name for path in Path("/proc").glob("[0-9]*")},
        {str(path) for path in Path("/run").rglob("*")},
        {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()},
    )


def test_rails_meet_in_the_spines_only(booted: Booted) -> None:
    with booted(rail_fabric(2, 2)) as net:
        assert net.reaches(0, 3)
    with booted(rail_fabric(2, 2, spines=0)) as net:
        assert net.reaches(0, 2)
        assert not net.reaches(0, 3)


def test_a_network_that_ended_leaves_nothing_in_its_sandbox(booted: Booted) -> None:
    before = things_here()
    with booted(fat_tree_fabric(4)) as net:
        assert net.reaches(0, 15)
        net.network.mininet.pingPair()
        assert things_here() != before
    assert things_here() == before


def test_a_network_boots_once(booted: Booted) -> None:
    with booted(rail_fabric(2, 1)) as net:
        pass
    with pytest.raises(NetworkError, match="booted twice"), net:
        pass


def test_switches_are_reached_by_no_port_and_by_no_other_user(booted: Booted) -> None:
    listening = "0A"
    with booted(rail_fabric(2, 1)) as net:
        states = [line.split()[3] for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        assert listening not in states
        directory, openflow = net.network.directory, net.network.directory / OPENFLOW
        assert [stat.S_IMODE(path.stat().st_mode) for path in (directory, openflow)] == [0o700, 0o600]
        assert vsctl("get-controller", "leaf0").strip() == f"unix:{openflow}"


def test_a_socket_in_use_is_named_in_a_sentence_and_leaves_nothing(booted: Booted) -> None:
    before, descriptors = things_here(), len(os.listdir("/proc/self/fd"))
    RUN_DIRECTORY.mkdir()
    with private_listener(RUN_DIRECTORY / OPENFLOW):
        with pytest.raises(NetworkError) as caught, booted(rail_fabric(2, 1)):
            pass
        assert "\n" not in str(caught.value)
        assert f"listen on {RUN_DIRECTORY / OPENFLOW}: Address already in use" in str(caught.value)
        assert any("controller.log" in note for note in caught.value.__notes__)
    assert things_here() == before
    assert len(os.listdir("/proc/self/fd")) == descriptors


def with_a_free_first_port(fabric: Fabric) -> Fabric:
    """Return a fabric of which the first switch has another port, before the others and without a link."""
    first, *others = fabric.switches

    def moved(port: Port) -> Port:
        return port._replace(number=port.number + 1) if port.node == first.name else port

    links = tuple(replace(link, a=moved(link.a), b=moved(link.b)) for link in fabric.links)
    return replace(fabric, switches=(replace(first, ports=first.ports + 1), *others), links=links)


def test_the_send_buffer_that_is_reported_is_that_of_what_sends(booted: Booted) -> None:
    if default_datapath() == "kernel":
        pytest.skip("the kernel's datapath sends by no socket")
    with booted(with_a_free_first_port(rail_fabric(2, 2))) as net:
        assert net.reaches(0, 3)
        buffers = []
        for taken in sockets_of(net.network.openvswitch.pid, socket.AF_PACKET):
            with taken:
                if not taken.getsockname()[0]:  # it is bound to no interface, and receives nothing
                    buffers.append(taken.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF))
        assert buffers == [net.network.send_buffer_bytes]


def test_links_are_deleted_while_another_comes_and_goes(sandbox: Box | None) -> None:
    def come_and_go() -> None:
        name, info = ("IFLA_IFNAME", "passing"), {"attrs": [("IFLA_INFO_KIND", "veth")]}
        for _ in range(TIMES):
            batch = Batch()
            batch.add("make it", RTM_NEWLINK, {}, [name, ("IFLA_LINKINFO", info)])
            batch.add("delete it", RTM_DELLINK, {}, [name])
            batch.commit()

    other = threading.Thread(target=come_and_go)
    other.start()
    try:
        while other.is_alive():
            delete_links(NOBODYS)
    finally:
        other.join()
