"""Faults: what fails in a run, and what becomes of the job then."""

from dataclasses import dataclass

from topologies.fabric import Port
from traffic.job import Node


@dataclass(frozen=True)
class Fault:
    """Links that fail together, some time after a node of the job has started."""

    name: str
    ports: tuple[Port, ...]
    """One end of each link."""
    node: str
    """The node from whose start the time counts."""
    after_s: float
    """How long after it the links fail [s]."""
    detect_s: float
    """How long after that everybody knows [s]."""


@dataclass(frozen=True)
class Revision:
    """What changes in a job once a fault is known."""

    cancel: tuple[str, ...] = ()
    """Collectives that are given up; what they still owe is not sent."""
    add: tuple[Node, ...] = ()
    """Nodes that take their place: what waited for those given up waits for the last of these."""
