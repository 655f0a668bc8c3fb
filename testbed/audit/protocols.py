"""Protocols: what a transport promises. Sources keep to grants of receivers, and to windows."""

from collections.abc import Iterator

import numpy as np

from testbed.audit.course import Course
from testbed.audit.finding import Found

OVER_GRANTED = 1.02
"""So many times what was granted may be sent: a packet that was begun is sent whole."""


def protocols(course: Course) -> Iterator[Found]:
    """Yield the source that sent most beyond what it was granted, and the one most beyond its window."""
    sources, lanes = course.tables.sources, course.tables.lanes
    lane, granted, sent, over = (
        sources[name].to_numpy() for name in ("lane", "granted_bytes", "sent_bytes", "over_window_bytes")
    )
    beyond = np.where(granted >= 0, sent - OVER_GRANTED * granted, 0)
    if len(sources) and beyond.max() > 0:
        row = int(beyond.argmax())
        sentence = f"queue pair {lanes[lane[row]]} sent {sent[row]} bytes, and was granted {granted[row]}"
        yield sentence, "sources", row
    if len(sources) and over.max() > 0:
        row = int(over.argmax())
        pair = lanes[lane[row]]
        sentence = (
            f"queue pair {pair} sent a packet while {over[row]} bytes beyond its window were on the way"
        )
        yield sentence, "sources", row
