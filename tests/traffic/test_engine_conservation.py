"""What the engine of datagrams keeps whatever is done while packets are on their way, delayed or not."""

from tests.traffic.relay import PACKET, PACKET_S, net
from topologies.fabric import Nic
from traffic.spraying.policy import QueuePair

ONE = QueuePair(Nic(1, 0), Nic(0, 0), 1)


def test_nothing_arrives_before_what_the_caller_did_while_it_was_due() -> None:
    with net(control="nscc") as servers:
        (number,) = servers.lanes(ONE, round_trip_s=40 * PACKET_S)
        servers.post((number, PACKET, 0))
        servers.run(lambda: len(servers.relay.passed) == 1)
        servers.clock.now += 100 * PACKET_S
        (arrival,) = servers.engine.serve(0.0)
        assert arrival.at == servers.clock.now


def test_what_is_due_while_the_engine_waits_arrives_then() -> None:
    with net(control="nscc") as servers:
        (number,) = servers.lanes(ONE, round_trip_s=4 * PACKET_S)
        servers.post((number, PACKET, 0))
        (arrival,) = servers.finish()
        assert 2 * PACKET_S <= arrival.at - 1000.0 <= 2 * PACKET_S + PACKET_S
