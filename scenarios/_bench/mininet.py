"""Promise of the boot: the time of stock Mininet over ours, for the same wires."""

import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from logging import LogRecord

from mininet.link import TCLink
from mininet.log import lg
from mininet.net import Mininet
from mininet.node import OVSSwitch
from mininet.topo import Topo

from scenarios._bench.figure import figure
from testbed.machine.sandbox import RUN_DIRECTORY
from testbed.network.network import Network
from testbed.network.openvswitch import PrivateOpenVSwitch
from topologies.rail import rail_fabric

SHAPED_BPS = 40e6
SERVERS, RAILS = 32, 8
QUANTUM_WARNING = re.compile(
    r"\*\*\* Error: (Warning: sch_htb: quantum of class \w+ is big\. Consider r2q change\.\s*)+"
)
"""The kernel's remark on each class; `tc` prints it, and Mininet logs all that `tc` prints as an error."""


@figure("ratio", ">= 6, aim 12")
def boot_stop_speedup_vs_mininet(servers: int = SERVERS, rails: int = RAILS) -> tuple[float, str]:
    """Boot and stop of 32 servers x 8 rails, no spines: stock Mininet's time over ours, in one sandbox."""
    fabric = rail_fabric(servers, rails, 0)
    started = time.monotonic()
    with Network(fabric, SHAPED_BPS / fabric.nic_rate_bps(fabric.nics[0])):
        pass
    ours_s = time.monotonic() - started
    with _run_directory(), PrivateOpenVSwitch(RUN_DIRECTORY, "netdev"), without_quantum_warnings():
        started = time.monotonic()
        network = Mininet(_StockRails(servers=servers, rails=rails), controller=None)
        network.start()
        network.stop()
        stock_s = time.monotonic() - started
    return stock_s / ours_s, f"stock Mininet {stock_s:.1f} s, ours with controller and rules {ours_s:.2f} s"


@contextmanager
def _run_directory() -> Iterator[None]:
    """Have the place where Open vSwitch's tools look for its sockets in a sandbox, as a `Network` does."""
    RUN_DIRECTORY.mkdir()
    try:
        yield
    finally:
        shutil.rmtree(RUN_DIRECTORY)


@contextmanager
def without_quantum_warnings() -> Iterator[None]:
    """Drop Mininet's messages that are `QUANTUM_WARNING` and nothing else."""

    def is_news(record: LogRecord) -> bool:
        return not QUANTUM_WARNING.fullmatch(record.getMessage())

    # A quantum of its own would silence the kernel, but neither TCLink nor TCIntf has a parameter for it.
    lg.addFilter(is_news)
    try:
        yield
    finally:
        lg.removeFilter(is_news)


class _StockRails(Topo):  # type: ignore[misc]
    """The same wires for stock Mininet: shaped NICs, a leaf per rail."""

    def build(self, servers: int, rails: int) -> None:
        """Add the leaves, the servers, and a link from each server to each leaf."""
        leaves = [self.addSwitch(f"s{rail + 1}", cls=OVSSwitch, datapath="user") for rail in range(rails)]
        for server in range(servers):
            host = self.addHost(f"h{server}")
            for leaf in leaves:
                self.addLink(host, leaf, cls=TCLink, bw=SHAPED_BPS / 1e6)
