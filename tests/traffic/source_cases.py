"""Sources without sockets: their queue pairs, and the part of an engine in what happens to packets."""

from typing import cast

from traffic.congestion.control import Sent
from traffic.spraying.policy import QueuePair
from traffic.transports.datagram_lane import Crossed, DatagramLane, Source
from traffic.transports.nic_sender import NicSender
from traffic.transports.sources import Sources


def lane_of(queue_pair: QueuePair, crossed: Crossed, number: int = 0) -> DatagramLane:
    """Return a queue pair that nothing is sent by."""
    return DatagramLane(number, queue_pair, nic=cast(NicSender, None), addresses=[], crossed=crossed)


def send(sources: Sources, source: Source, size: int) -> None:
    """Note that bytes of a source were sent."""
    source.sent += size
    source.on_the_way += size
    source.allowed -= size
    source.news_sent.append(Sent(size, 0))
    sources.want(source, -size)


def arrive(source: Source, size: int) -> None:
    """Have the receiver of a source know that bytes have arrived, or are missing."""
    assert source.receiver
    source.receiver.on_arrived(source.number, size)
