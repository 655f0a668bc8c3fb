"""The audit of a run: every check, from the run's tables, its job and its fabric alone.

It shares nothing with what makes runs: neither core nor backends, schemes or transports.
"""

from collections.abc import Callable, Iterator
from itertools import islice

from testbed.audit.arrivals import arrivals
from testbed.audit.bounds import bounds
from testbed.audit.causality import causality
from testbed.audit.consistency import consistency
from testbed.audit.course import Course
from testbed.audit.definitions import DEFINITIONS
from testbed.audit.failures import failures
from testbed.audit.finding import Audit, Circumstances, Finding, Found
from testbed.audit.load import load
from testbed.audit.packets import packets
from testbed.audit.paths import paths
from testbed.audit.protocols import protocols
from testbed.audit.wire import on_the_wire
from topologies.fabric import Fabric
from traffic.job import Collective, Job
from traffic.tables import Tables

CHECKS: tuple[tuple[str, Callable[[Course], Iterator[Found]]], ...] = (
    ("bytes", arrivals),
    ("paths", paths),
    ("capacity", load),
    ("paths", on_the_wire),
    ("packets", packets),
    ("causality", causality),
    ("bounds", bounds),
    ("protocols", protocols),
    ("consistency", consistency),
    ("consistency", failures),
)
"""Every check, by the name that its findings have."""
MOST = 3
"""So many findings of a check are reported."""


def audited(tables: Tables, job: Job, fabric: Fabric, known: Circumstances | None = None) -> Audit:
    """Return what is impossible in the tables of a run.

    Parameters
    ----------
    tables
        Of the run.
    job, fabric
        What ran, and over what.
    known
        What else decides what is possible; by default nothing fails, and no bucket lends.
    """
    course = Course(tables, job, fabric, known or Circumstances())
    findings = tuple(Finding(name, *found) for name, check in CHECKS for found in islice(check(course), MOST))
    own = {
        node.pattern.name
        for node in course.nodes.values()
        if isinstance(node, Collective) and type(node.pattern) not in DEFINITIONS
    }
    looked_at = course.looked_at
    return Audit(findings, tuple(sorted(own)), float(looked_at.mean()) if len(looked_at) else 1.0)
