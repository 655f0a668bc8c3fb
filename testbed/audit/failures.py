"""Failures: each fault comes, is known and is over when it was to, and a GPU that is gone computes no more.

In an emulation none of that comes sooner than it was to. A busy machine may come to it late.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from testbed.audit.course import Course, rows_of, seconds
from testbed.audit.finding import Found
from traffic.clock import ps
from traffic.faults import Fault
from traffic.job import Compute
from traffic.tables import FAULTS

ROUNDED_PS = 2


def failures(course: Course) -> Iterator[Found]:
    """Yield faults that came at other times than they were to, and what GPUs computed that were gone."""
    noted: dict[str, dict[str, tuple[int, int]]] = {}
    for row, (name, at_ps, what) in enumerate(rows_of(course.tables.faults, *FAULTS)):
        noted.setdefault(name, {}).setdefault(what, (at_ps, row))
    ended_ps = int(course.spans["end_ps"].max(initial=0))
    for fault in (fault for fault in course.known.faults if not fault.is_standing):
        mine = noted.get(fault.name, {})
        for what, due_ps in _due_ps(course, fault, mine).items():
            at_ps, row = mine.get(what, (-1, -1))
            slack_ps = course.known.late_light_ps + ROUNDED_PS
            late = not course.known.live and (at_ps > due_ps + slack_ps or (row < 0 and due_ps < ended_ps))
            if late or 0 <= at_ps < due_ps - slack_ps:
                when = seconds(at_ps) if row >= 0 else "never"
                sentence = f"{fault.name!r} was {what} at {when}, and was to be at {seconds(due_ps)}"
                yield sentence, "faults", row
                return
        if "failed" in mine:
            yield from _goes_on(course, fault, mine["failed"][0])


def _due_ps(course: Course, fault: Fault, noted: Mapping[str, tuple[int, int]]) -> dict[str, int]:
    """Return when a fault was to come, to be known and to be over.

    Left out is what depends on what did not come, and on a node that has no span.
    """
    due: dict[str, int] = {}
    if fault.when.node:
        rows = course.spans_by_node[course.number_of.get(fault.when.node, -1)]
        is_compute = isinstance(course.nodes.get(fault.when.node), Compute)
        if len(rows):
            began = course.spans["first_ps" if is_compute else "ready_ps"][rows]
            due["failed"] = int(began.min()) + ps(fault.when.after_s)
    else:
        due["failed"] = ps(fault.when.after_s)
    if "failed" in noted:
        failed_ps = noted["failed"][0]
        if fault.when.lasts_s is None or fault.detect_s < fault.when.lasts_s:
            due["detected"] = failed_ps + ps(fault.detect_s)
        if fault.when.lasts_s is not None:
            due["back"] = failed_ps + ps(fault.when.lasts_s)
    return due


def _goes_on(course: Course, fault: Fault, failed_ps: int) -> Iterator[Found]:
    """Yield what a GPU of a fault was computing after it was gone."""
    spans, slack_ps = course.spans, course.known.late_light_ps + ROUNDED_PS
    wrong = np.isin(spans["gpu"], fault.gpus) & (spans["end_ps"] > failed_ps + slack_ps)
    for row in np.flatnonzero(wrong)[:1].tolist():
        sentence = (
            f"GPU {spans['gpu'][row]} computed until {seconds(int(spans['end_ps'][row]))}, and was gone"
        )
        yield f"{sentence} at {seconds(failed_ps)}", "spans", row
