"""Many hosts are there in seconds: to boot them and run a command on each."""

import os
import time
from contextlib import ExitStack

import pytest

from testbed.apps.host_processes import HostCommand, start
from tests.emulation.conftest import Booted
from tests.emulation.machine import Machine
from topologies.rail import rail_fabric

pytestmark = pytest.mark.emulation

HOSTS = 64
MOST_S = 10.0


def test_sixty_four_hosts_run_a_command_each_within_ten_seconds(booted: Booted, machine: Machine) -> None:
    began_s = time.monotonic()
    reads, writes = os.pipe()
    with open(reads) as output, booted(rail_fabric(HOSTS, 1), hosts=True) as net, ExitStack() as stack:
        for host in range(HOSTS):
            command = HostCommand(host, ("hostname",), os.environ, "/")
            stack.enter_context(start(net.network, command, 0, writes, 2))
        os.close(writes)
        assert sorted(output.read().split()) == sorted(f"h{host}" for host in range(HOSTS))
        took_s = time.monotonic() - began_s
    print(f"{took_s:.2f} s")
    assert took_s < MOST_S or machine.busy
