"""Open files of an emulation's processes: as many as are foretold, counted where the kernel lists them."""

import os
import resource
from pathlib import Path

import pytest

from testbed.machine.datapath import default_datapath
from testbed.network.open_files import engine_files, switch_files
from testbed.network.openvswitch import PrivateOpenVSwitch
from tests.emulation.conftest import Booted
from topologies.rail import rail_fabric

pytestmark = pytest.mark.emulation

ROOM = 32
"""By how many files more than are open a count may be wrong: CPUs have threads, and a run netlink sockets."""

CLOSING_BYTES = 64 << 20


def files(pid: int | str) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


@pytest.mark.parametrize(("servers", "rails"), [(2, 2), (6, 4)])
def test_the_daemon_and_the_worker_open_what_is_foretold(booted: Booted, servers: int, rails: int) -> None:
    fabric, before = rail_fabric(servers, rails), files("self")
    with booted(fabric) as net:
        assert isinstance(net.network.openvswitch, PrivateOpenVSwitch)
        daemon, worker = files(net.network.openvswitch.pid), files("self") - before
    datapath = default_datapath()
    assert daemon <= switch_files(fabric, datapath) <= daemon + ROOM
    assert worker <= engine_files(fabric, 0, datapath) <= worker + ROOM


def test_closing_the_sockets_takes_little_address_space(booted: Booted) -> None:
    """At 8 MB for the stack of each of 64 threads it took half a GB, which failed a run that was over."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    try:
        with booted(rail_fabric(6, 4)):
            there_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (there_bytes + CLOSING_BYTES, hard))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
