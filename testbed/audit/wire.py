"""The wire: each port sent what the legs say that went over it, and packets that were sent again.

A port's counters have frames: payload behind headers of their own, acknowledgements, which are headers alone,
and what was sent again. So the payload is the bytes less some 66 of each frame (Ethernet, IP, TCP and its
timestamps; a datagram has fewer, an acknowledgement of gaps a few more). What links that fail swallow was
sent and is no leg's, so where something fails a port may have counted more.
"""

from collections.abc import Iterator

import numpy as np

from testbed.audit.course import Course, rows_of
from testbed.audit.finding import Found
from topologies.fabric import Port
from traffic.tables import NVLINK

LEAST_HEADER, MOST_HEADER = 42, 102
"""Of a datagram, and of an acknowledgement that names three gaps [bytes]."""
BESIDE, BESIDE_PACKETS = 0.01, 20
"""What else may cross a port: a part of its bytes, and packets that open, close and probe connections."""


def on_the_wire(course: Course) -> Iterator[Found]:
    """Yield a port whose counters have less than its legs, or more than these and what was sent again."""
    wire, known = course.tables.wire, course.known.wire
    if known is None or not len(wire):
        return
    sent = _sent(course)
    for row, (number, counted, packets) in enumerate(rows_of(wire, "port", "bytes", "packets")):
        port = course.tables.ports[number]
        payload = sent.get(port, 0.0) * known.volume
        # What it sent at least, and at most, besides headers.
        least, most = (max(counted - packets * header, 0.0) for header in (MOST_HEADER, LEAST_HEADER))
        beside = known.resent + BESIDE_PACKETS
        is_more = not course.known.faults and least > payload * (1 + BESIDE) + beside * known.mtu
        if is_more or most < payload * (1 - BESIDE) - BESIDE_PACKETS * known.mtu:
            how = f"{'more' if is_more else 'less'} than the {payload:.0f} of its legs and headers"
            yield f"port {port} counted {counted} bytes, {how} account for", "wire", row
            return


def _sent(course: Course) -> dict[Port, float]:
    """Return what each port sent of the legs [bytes]."""
    legs = course.legs
    crossing = (legs["medium"] != NVLINK) & (legs["path"] >= 0)
    sizes = np.bincount(legs["path"][crossing], legs["bytes"][crossing], minlength=len(course.tables.paths))
    sent: dict[Port, float] = {}
    for path, size in zip(course.tables.paths, sizes.tolist(), strict=True):
        for port in path:
            sent[port] = sent.get(port, 0.0) + size
    return sent
