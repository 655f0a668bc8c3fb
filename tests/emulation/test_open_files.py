"""Open files of an emulation's processes: as many as are foretold, counted where the kernel lists them."""

import os

import pytest

from testbed.network.open_files import engine_files, switch_files
from testbed.network.openvswitch import PrivateOpenVSwitch
from tests.emulation.conftest import Booted
from topologies.rail import rail_fabric

pytestmark = pytest.mark.emulation

ROOM = 32
"""By how many files more than are open a count may be wrong: CPUs have threads, and a run netlink sockets."""


def files(pid: int | str) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


@pytest.mark.parametrize(("servers", "rails"), [(2, 2), (6, 4)])
def test_the_daemon_and_the_worker_open_what_is_foretold(booted: Booted, servers: int, rails: int) -> None:
    fabric, before = rail_fabric(servers, rails), files("self")
    with booted(fabric) as net:
        assert isinstance(net.network.openvswitch, PrivateOpenVSwitch)
        daemon, worker = files(net.network.openvswitch.pid), files("self") - before
    assert daemon <= switch_files(fabric) <= daemon + ROOM
    assert worker <= engine_files(fabric, 0) <= worker + ROOM
