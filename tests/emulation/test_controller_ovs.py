"""The controller's rules on the real Open vSwitch: connections go where the paper says.

Each test is a function of `CASES` that runs in a sandbox of its own, as
``python -m tests.emulation.test_controller_ovs CASE``.
"""

import random
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import pytest

from controller.flow_table import FlowTables
from controller.routing import forwarding_rules
from testbed.kernel import inside_namespace
from testbed.network import Network
from testbed.sandbox import run_in_sandbox, settle
from testbed.tap import Tap
from topologies.addresses import interface, nic_ip
from topologies.fabric import Fabric, Link, Nic
from topologies.fat_tree import fat_tree_fabric
from topologies.leaf_spine import leaf_spine_fabric
from topologies.rail import rail_fabric
from traffic.connections import SERVICE_PORT, source_port
from traffic.spraying.policy import QueuePair
from traffic.transfers import Path

RATE_FACTOR = 1e-3


def some_queue_pairs(fabric: Fabric, number: int) -> list[QueuePair]:
    """Return queue pairs between random NICs of different servers, each with an entropy of its own."""
    rng = random.Random(7)
    pairs: list[QueuePair] = []
    while len(pairs) < number:
        source, destination = rng.sample(fabric.nics, 2)
        if source.server != destination.server:
            pairs.append(QueuePair(source, destination, rng.randrange(40000)))
    return list(dict.fromkeys(pairs))


def ways_on_the_wire(network: Network, queue_pairs: Sequence[QueuePair]) -> tuple[Path, ...]:
    """Dial each queue pair, and return where its SYN went; nobody listens, so it is refused at once."""
    fabric = network.fabric
    with Tap(fabric) as tap, ExitStack() as stack:
        for queue_pair in queue_pairs:
            with inside_namespace(network.wiring.namespaces[queue_pair.source.server]):
                dialling = stack.enter_context(socket.socket())
            dialling.settimeout(5)
            dialling.bind((str(nic_ip(fabric, queue_pair.source)), source_port(queue_pair)))
            with pytest.raises(ConnectionRefusedError):
                dialling.connect((str(nic_ip(fabric, queue_pair.destination)), SERVICE_PORT))
        return tap.paths(queue_pairs)


def ways_on_paper(
    fabric: Fabric, queue_pairs: Sequence[QueuePair], failed_links: frozenset[Link] = frozenset()
) -> tuple[Path | None, ...]:
    """Return where the controller's rules send each queue pair."""
    tables = FlowTables(fabric, forwarding_rules(fabric, failed_links), failed_links)
    return tuple(tables.path(qp.source, qp.destination, source_port(qp), SERVICE_PORT) for qp in queue_pairs)


def assert_same_ways(network: Network, number: int) -> None:
    """Compare the wire with the paper."""
    queue_pairs = some_queue_pairs(network.fabric, number)
    assert ways_on_the_wire(network, queue_pairs) == ways_on_paper(network.fabric, queue_pairs)


def rail() -> None:
    """Three uplinks of each leaf."""
    with Network(rail_fabric(6, 3, 3), RATE_FACTOR) as network:
        assert_same_ways(network, 300)


def fat_tree() -> None:
    """Two tiers that choose, four ways each: they must use all combinations alike."""
    fabric = fat_tree_fabric(8, servers=64, nics=2)
    with Network(fabric, RATE_FACTOR) as network:
        queue_pairs = [QueuePair(Nic(0, 0), Nic(63, 1), entropy) for entropy in range(320)]
        ways = ways_on_the_wire(network, queue_pairs)
        assert ways == ways_on_paper(fabric, queue_pairs)
        choices = Counter((way[1].number, way[2].number) for way in ways)
        assert len(choices) == 16
        assert max(choices.values()) < 2.5 * 20, choices


def wide_leaf_spine() -> None:
    """More ways than Open vSwitch would hash in its datapath by default."""
    with Network(leaf_spine_fabric(4, 2, 20), RATE_FACTOR) as network:
        assert_same_ways(network, 300)


def read_back() -> None:
    """What the switches have is what they were told, and a packet for nobody is counted."""
    fabric = rail_fabric(4, 2, 2)
    with Network(fabric, RATE_FACTOR) as network:
        for switch, told in forwarding_rules(fabric).items():
            has = {(flow.priority, flow.match, flow.actions) for flow in network.northbound.flows(switch)}
            assert has == {
                (rule.priority, str(rule.match), ",".join(map(str, rule.actions))) for rule in told.rules
            }
        before = network.northbound.ports("leaf1")
        assert before.table_miss_packets == 0
        with inside_namespace(network.wiring.namespaces[2]), socket.socket(type=socket.SOCK_DGRAM) as probe:
            probe.bind((str(nic_ip(fabric, Nic(2, 1))), 0))
            probe.sendto(b"nobody", ("10.77.0.1", 9))
        after = network.northbound.ports("leaf1")
        assert after.table_miss_packets == 1
        assert after.ports[2].rx_packets == before.ports[2].rx_packets + 1


def failed_link() -> None:
    """A spine's link goes down and comes back."""
    fabric = rail_fabric(4, 3, 3)
    link = next(link for link in fabric.links if {link.a.node, link.b.node} == {"leaf1", "spine2"})
    failed, queue_pairs = frozenset({link}), some_queue_pairs(fabric, 150)
    with Network(fabric, RATE_FACTOR) as network:
        for state, links in (("down", failed), ("up", frozenset[Link]())):
            subprocess.run(["ip", "link", "set", interface(fabric, link.a), state], check=True)
            network.northbound.wait_ready(10, links)
            assert ways_on_the_wire(network, queue_pairs) == ways_on_paper(fabric, queue_pairs, links)


CASES: dict[str, Callable[[], None]] = {
    case.__name__: case for case in (rail, fat_tree, wide_leaf_spine, read_back, failed_link)
}


@pytest.mark.emulation
@pytest.mark.parametrize("case", CASES)
def test_open_vswitch_does_what_the_paper_says(case: str, capfd: pytest.CaptureFixture[str]) -> None:
    code = run_in_sandbox([sys.executable, "-m", "tests.emulation.test_controller_ovs", case])
    assert code == 0, capfd.readouterr().err


if __name__ == "__main__":
    settle()
    CASES[sys.argv[1]]()
