"""Packets: what left has arrived, was dropped where drops are counted, or was taken back on its way.

A packet that counts as lost may be late: then it arrives, and does not count. If it never does, the drops of
a port's queue, of Open vSwitch or of its sockets have it. Else packets vanish where nothing counts them: in a
receiver's full socket, by a rule that leads nowhere. Links that fail or lose packets do not count either, so
of runs with these only what arrived is looked at.

Drops are those of all packets, so that this finds too little rather than too much. What is still on its way
when the run ends arrives nowhere: a part is let through for that.
"""

from collections.abc import Iterator
from typing import NamedTuple

from testbed.audit.course import Course, rows_of
from testbed.audit.finding import Found

SHARE, FEW = 0.01, 20
"""Such a share of the packets, and so many more, may be on their way when a run ends."""
UNKNOWN = -1


class PacketRow(NamedTuple):
    """A row of the table, by its columns."""

    sent: int
    arrived: int
    anew: int
    late: int
    queue_drops: int
    socket_drops: int
    switch_drops: int


def packets(course: Course) -> Iterator[Found]:
    """Yield that more packets arrived, or were lost, than were sent, or that packets vanished."""
    is_lossy = course.known.faults or any(link.loss for link in course.fabric.links)
    for row, seen in enumerate(rows_of(course.tables.packets, *PacketRow._fields)):
        counts = PacketRow(*seen)
        sentence = _too_many(counts) or ("" if is_lossy else _vanished(counts))
        if sentence:
            yield sentence, "packets", row


def _too_many(counts: PacketRow) -> str:
    """Return what came of more packets than were sent; nothing if that is not so."""
    for others, what in ((counts.late, "arrived late"), (counts.anew, "counted as lost")):
        if counts.arrived + others > counts.sent:
            return f"of {counts.sent} packets {counts.arrived} arrived, and {others} more {what}"
    return ""


def _vanished(counts: PacketRow) -> str:
    """Return how many packets were dropped where nothing counts them; nothing if not so, or not known."""
    drops = counts.queue_drops, counts.socket_drops, counts.switch_drops
    vanished = counts.anew - counts.late - sum(drops)
    if UNKNOWN in drops or vanished <= SHARE * counts.sent + FEW:
        return ""
    back = counts.sent - counts.arrived - counts.anew
    return (
        f"{vanished} of {counts.sent} packets vanished: {counts.arrived} arrived, {counts.late} more were "
        f"late, {back} were taken back; queues dropped {drops[0]}, sockets {drops[1]}, switches {drops[2]}"
    )
