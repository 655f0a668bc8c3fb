"""A booted network: who reaches whom, that it boots again, and that a boot that fails leaves nothing."""

import os
import socket
import stat
from pathlib import Path

import pytest

from controller.app.listeners import private_listener
from testbed.machine.sandbox import RUN_DIRECTORY
from testbed.network.network import OPENFLOW
from testbed.network.openvswitch import vsctl
from tests.emulation.conftest import Booted
from topologies.errors import NetworkError
from topologies.fat_tree import fat_tree_fabric
from topologies.rail import rail_fabric

pytestmark = pytest.mark.emulation


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
