"""The paths of flows are put together from the ports at which packets were seen."""

import numpy as np
import pytest

from testbed.apps import path_log
from testbed.apps.path_log import FOLLOWED, PathLog, is_followed, path_through
from testbed.apps.traffic_log import PLAIN_IP, SYN, UDP
from tests.testbed.apps.heads import Head, frames_of
from topologies.addresses import host_ip
from topologies.fabric import Port
from topologies.rail import rail_fabric

FABRIC = rail_fabric(2, 2)
PORTS = [*FABRIC.link_at]
ENDS = int(host_ip(0)), int(host_ip(1))
STRAIGHT = (Port("h0", 0), Port("leaf0", 1))
OTHER = (Port("h0", 1), Port("leaf1", 1))
AROUND = (Port("h0", 0), Port("leaf0", 2), Port("spine0", 1), Port("leaf1", 1))


def followed(number: int) -> Head:
    """Return one of the packets of a flow that are followed."""
    return Head(*ENDS, sequence=1000 * number, size=1000, id=number, total=FOLLOWED - number % FOLLOWED)


def seen(log: PathLog, head: Head, path: tuple[Port, ...], at_s: float, *, flow: int = 0) -> None:
    """Have a log note a packet at all ports of a path, the last first: CPUs differ in when they say so."""
    for hop, port in reversed(list(enumerate(path))):
        at_nic = np.array([flow if hop == 0 else -1])
        place = np.array([PORTS.index(port)])
        log.add(frames_of([head]), np.array([at_s + 1e-3 * hop]), place, at_nic)


def test_a_flow_that_moves_has_two_stretches() -> None:
    log = PathLog(FABRIC, PORTS)
    for number, (path, at_s) in enumerate([(STRAIGHT, 1.0), (STRAIGHT, 1.5), (AROUND, 2.0), (AROUND, 2.5)]):
        seen(log, followed(number), path, at_s)
    seen(log, followed(4)._replace(ports=(7, 7)), OTHER, 1.2, flow=3)
    table = log.path_table(0.5)
    assert table.to_numpy().tolist() == [
        [0, 0.5, 1.0, 2, "h0:0 leaf0:1"],
        [0, 1.5, 2.0, 2, "h0:0 leaf0:2 spine0:1 leaf1:1"],
        [3, 0.7, 0.7, 1, "h0:1 leaf1:1"],
    ]


def test_a_packet_that_was_lost_on_its_way_has_no_path() -> None:
    log = PathLog(FABRIC, PORTS)
    seen(log, followed(0), AROUND[:2], 1.0)
    seen(log, followed(1), AROUND[1:], 1.1, flow=-1)
    assert log.path_table(0.0).empty


def test_nothing_seen_is_no_path() -> None:
    assert PathLog(FABRIC, PORTS).path_table(0.0).empty


def test_packets_on_their_way_wait_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(path_log, "MOST_WAITING", 4)
    log = PathLog(FABRIC, PORTS)
    for number in range(20):
        seen(log, followed(number), STRAIGHT, 0.9 * number)
    assert log.path_table(0.0)["packets"].tolist() == [20]


def test_changes_of_path_that_are_too_many_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(path_log, "MOST_STRETCHES", 3)
    log = PathLog(FABRIC, PORTS)
    for number in range(10):
        seen(log, followed(number), (STRAIGHT, OTHER)[number % 2], float(number))
    assert len(log.path_table(0.0)) == 4
    assert log.unkept == 6


@pytest.mark.parametrize("path", [STRAIGHT, OTHER, AROUND])
def test_ports_are_put_in_the_order_of_the_path(path: tuple[Port, ...]) -> None:
    assert path_through(FABRIC, path[::-1]) == path


@pytest.mark.parametrize(
    "ports", [AROUND[:1], AROUND[1:], AROUND[:3], [*STRAIGHT, *OTHER], [*STRAIGHT, Port("leaf0", 2)], []]
)
def test_other_ports_are_no_path(ports: list[Port]) -> None:
    assert path_through(FABRIC, ports) == ()


def test_what_opens_a_connection_is_followed_and_one_of_sixteen() -> None:
    packets = [Head(*ENDS, id=4 * number, total=number) for number in range(1600)]
    assert is_followed(frames_of(packets)).sum() == len(packets) / FOLLOWED
    assert is_followed(
        frames_of([Head(*ENDS, flags=SYN, total=3), Head(*ENDS, flags=SYN, protocol=UDP, total=3)])
    ).tolist() == [True, False]
    assert not is_followed(frames_of([Head(*ENDS, total=16, version=PLAIN_IP + 1)])).any()
