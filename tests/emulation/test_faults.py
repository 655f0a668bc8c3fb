"""Faults, drawn by seed: who reaches whom is who should on paper, before, during and after.

On paper: the rules that the switches have, over the links that are up. The controller gives new
rules when a link fails; without it the old ones stay, and a switch's own eye for its ports (a
group's live buckets) is all there is.
"""

import os
import random
import signal
import subprocess
from collections.abc import Iterator, Set
from contextlib import contextmanager
from itertools import permutations
from pathlib import Path

import pytest

from controller.packet.flow_table import FlowTables
from controller.packet.routing import forwarding_rules
from testbed.machine.datapath import default_datapath
from testbed.machine.residue import until
from tests.emulation.conftest import Booted
from tests.emulation.live import Live
from tests.tools import CHECKOUT
from topologies.errors import NetworkError
from topologies.fabric import Fabric, Link
from topologies.fat_tree import fat_tree_fabric
from topologies.leaf_spine import leaf_spine_fabric
from topologies.rail import rail_fabric
from traffic.spraying.policy import QueuePair
from traffic.transports.connections import ports

pytestmark = [pytest.mark.emulation, pytest.mark.early]

NONE: frozenset[Link] = frozenset()
READY_S = 30.0
FIRST_LOOK_S, LONGEST_LOOK_S = 1.0, 8.0
"""For how long to listen for answers, where some may never come [s]: longer each time, for a busy machine."""


def pairs(fabric: Fabric) -> list[QueuePair]:
    """Return a queue pair for every two NICs of different servers, each with an entropy of its own."""
    ends = [(a, b) for a, b in permutations(fabric.nics, 2) if a.server != b.server]
    return [QueuePair(a, b, entropy) for entropy, (a, b) in enumerate(ends)]


def on_paper(net: Live, ruled_for: Set[Link], failed: Set[Link]) -> set[QueuePair]:
    """Return who hears back, when rules made for some failed links meet those that have failed."""
    fabric = net.fabric
    tables = FlowTables(fabric, forwarding_rules(fabric, ruled_for), failed, net.network.hashing)
    return {
        qp
        for qp in pairs(fabric)
        if tables.path(qp.source, qp.destination, *ports(qp))
        and tables.path(qp.destination, qp.source, *reversed(ports(qp)))
    }


def assert_as_on_paper(net: Live, ruled_for: Set[Link] = NONE, failed: Set[Link] = NONE) -> None:
    """Compare the network with the paper; ports take a moment to be seen dead."""
    expected, found = on_paper(net, ruled_for, failed), set[QueuePair]()
    look_s = FIRST_LOOK_S

    def same() -> bool:
        nonlocal look_s
        found.clear()
        found.update(net.answered(pairs(net.fabric), look_s))
        look_s = min(2 * look_s, LONGEST_LOOK_S)
        return found == expected

    assert until(same, READY_S), f"{len(found - expected)} too many, {len(expected - found)} too few"


def turn(net: Live, link: Link, *, works: bool) -> None:
    """Turn a link's switch port up or down."""
    port = link.b if link.b.node in net.fabric.switch_index else link.a
    net.network.turn_link(port, works=works)


def gone_around(net: Live, failed: Set[Link] = NONE) -> None:
    """Have packet switches go around failed links: by their controller's rules, or by the run's routes."""
    net.network.switches.follow(failed)
    if not net.network.wiring.routers:
        net.network.northbound.wait_ready(READY_S, failed)


class Victim:
    """A process of the network, found by words of its command: killed, and started again as it was."""

    def __init__(self, *words: str) -> None:
        self.number, self._command = next(
            (int(directory.name), command)
            for directory in Path("/proc").glob("[0-9]*")
            if set(words) <= set(command := (directory / "cmdline").read_text().split("\0")[:-1])
        )

    def kill(self) -> None:
        """Kill it as nothing else does, and leave it to who started it to learn that it is gone."""
        os.kill(self.number, signal.SIGKILL)
        os.waitid(os.P_PID, self.number, os.WEXITED | os.WNOWAIT)  # its threads end one by one

    @contextmanager
    def again(self) -> Iterator[None]:
        """Start it again, for the block."""
        with subprocess.Popen(
            self._command, cwd=CHECKOUT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            try:
                yield
            finally:
                process.kill()


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    "fabric",
    [rail_fabric(4, 2, 2), leaf_spine_fabric(6, 3, 2), fat_tree_fabric(4, servers=8)],
    ids=lambda fabric: fabric.name,
)
def test_links_that_fail_are_gone_around_and_used_again(booted: Booted, fabric: Fabric, seed: int) -> None:
    rng = random.Random(seed)
    with booted(fabric) as net:
        assert_as_on_paper(net)
        failed: frozenset[Link] = NONE
        for link in rng.sample(fabric.links, 3):
            turn(net, link, works=False)
            failed |= {link}
            gone_around(net, failed)
            assert_as_on_paper(net, failed, failed)
        for link in failed:
            turn(net, link, works=True)
        gone_around(net)
        assert_as_on_paper(net)


@pytest.mark.parametrize("seed", range(2))
def test_switches_forward_on_without_the_controller_which_learns_what_it_missed(
    booted: Booted, seed: int
) -> None:
    fabric, rng = rail_fabric(4, 2, 3), random.Random(seed)
    failed = frozenset(rng.sample([link for link in fabric.links if link.a.node.startswith("leaf")], 2))
    with booted(fabric) as net:
        controller = Victim("-m", "controller")
        controller.kill()
        assert_as_on_paper(net)
        with pytest.raises(NetworkError, match=r"the controller ended during the run \(exit code -9\)"):
            net.network.check_alive()
        for link in failed:
            turn(net, link, works=False)
        assert_as_on_paper(net, NONE, failed)
        with controller.again():
            assert until(lambda: answers(net), READY_S)
            gone_around(net, failed)
            assert_as_on_paper(net, failed, failed)


def answers(net: Live) -> bool:
    """Return whether the controller answers."""
    try:
        net.network.northbound.status()
    except NetworkError:
        return False
    return True


def test_without_its_switch_daemon_nothing_is_reached_and_with_it_all_again(booted: Booted) -> None:
    if default_datapath() == "route":
        pytest.skip("packet switches that route have no daemon")
    fabric = rail_fabric(3, 2, 2)
    with booted(fabric) as net:
        daemon = Victim("ovs-vswitchd")
        daemon.kill()
        assert until(lambda: not net.network.northbound.status().ready, READY_S)
        assert net.answered(pairs(fabric)) == set()
        with pytest.raises(NetworkError, match=r"ovs-vswitchd ended during the run \(exit code -9\)"):
            net.network.check_alive()
        with daemon.again():
            net.network.northbound.wait_ready(READY_S)
            assert_as_on_paper(net)
