"""Made-up heads of packets, as the ring has them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from testbed.apps.traffic_log import HEADS, IP_BYTES, PLAIN_IP, TCP, UDP, UDP_BYTES

TCP_BYTES = 32
"""Of a TCP header with timestamps."""


class Head(NamedTuple):
    """A packet."""

    source: int
    destination: int
    ports: tuple[int, int] = (40000, 5001)
    sequence: int = 0
    size: int = 0
    """Payload [bytes]."""
    flags: int = 0x10
    protocol: int = TCP
    id: int = 0
    total: int = 1
    """Checksum."""
    version: int = PLAIN_IP
    fragment: int = 0
    """Where in its datagram it lies [8 bytes]; only the first has a header."""


def frames_of(heads: Sequence[Head]) -> NDArray[np.void]:
    """Return frames of packets."""
    frames = np.zeros(len(heads), HEADS)
    for frame, head in zip(frames, heads, strict=True):
        header = 0 if head.fragment else {TCP: TCP_BYTES, UDP: UDP_BYTES}.get(head.protocol, 0)
        frame["fragment"] = head.fragment
        frame["version"], frame["protocol"], frame["id"] = head.version, head.protocol, head.id
        frame["source"], frame["destination"] = head.source, head.destination
        frame["ports"] = head.ports[0] << 16 | head.ports[1]
        frame["length"] = IP_BYTES + header + head.size
        if head.protocol == TCP:
            frame["sequence"] = head.sequence % (1 << 32)
            frame["offset"], frame["flags"] = TCP_BYTES // 4 << 4, head.flags
            frame["segment_sum"] = head.total
        else:
            frame["datagram_sum"] = head.total
    return frames
