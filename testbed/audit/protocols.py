"""Protocols: what a transport promises. Under grants no sender sends more than it was granted."""

from collections.abc import Iterator

import numpy as np

from testbed.audit.course import Course
from testbed.audit.finding import Found

OVER_GRANTED = 1.02
"""So many times what was granted may be sent: a packet that was begun is sent whole."""


def protocols(course: Course) -> Iterator[Found]:
    """Yield the lane that sent most beyond what it was granted."""
    grants = course.tables.grants
    granted, sent = (grants[name].to_numpy(dtype=float) for name in ("granted_bytes", "sent_bytes"))
    over = np.flatnonzero(sent > OVER_GRANTED * granted)
    if len(over):
        row = int(over[(sent - OVER_GRANTED * granted)[over].argmax()])
        lane = course.tables.lanes[int(grants["lane"].iloc[row])]
        sentence = f"queue pair {lane} sent {int(sent[row])} bytes, and was granted {int(granted[row])}"
        yield sentence, "grants", row
