"""Sections: what lies between the barriers of a job, and which of them are equal.

A *barrier* is a place in a job where all before it has ended and all after it waits for that. Nothing is
under way at a barrier.

Nodes S, with all that they wait for, end in a barrier exactly if every node that waits for none but S
waits, by an arrow, for every node of S that no other of S waits for. S then comes first in every order
that keeps to the arrows. So one such order is enough: of its first k nodes, the ends, the starts after
them and the arrows between these are counted for all k at once, in time linear in nodes and arrows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from graphlib import TopologicalSorter
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from traffic.collectives.pattern import Pattern
from traffic.compose import one_after_another
from traffic.job import Collective, Compute, Job, Node


def sections(job: Job) -> list[tuple[Node, ...]]:
    """Return the nodes of each section of a job, in job order, without arrows from sections before.

    Examples
    --------
    >>> a, b = Compute("a", (0,), 1.0), Compute("b", (1,), 1.0)
    >>> job = Job("drawn", 2, (a, b, Compute("c", (0,), 1.0, ("a", "b"))))
    >>> [[node.name for node in section] for section in sections(job)]
    [['a', 'b'], ['c']]
    """
    before, then = _arrows(job)
    position = _positions(job, before, then)
    barriers = _barriers(len(job.nodes), position[before], position[then])
    section = np.searchsorted(barriers, position, side="right")
    by_section = np.argsort(section, kind="stable")
    cut = np.zeros(len(job.nodes), dtype=bool)
    cut[then[section[before] < section[then]]] = True
    section_of = dict(zip((node.name for node in job.nodes), section.tolist(), strict=True))
    nodes = [
        _inside(node, section_of) if is_cut else node
        for node, is_cut in zip(job.nodes, cut.tolist(), strict=True)
    ]
    groups = np.split(by_section, np.searchsorted(section[by_section], np.arange(1, len(barriers) + 1)))
    return [tuple(nodes[number] for number in group.tolist()) for group in groups]


def contents(found: Sequence[Sequence[Node]]) -> list[int]:
    """Return a number for each section, the same for equal ones; from 0, as they first come.

    Sections are equal if they have equal nodes but for names, in equal order: the GPUs and durations of
    computes, the operations of collectives (`traffic.ops`) and their communicators, and the arrows.
    """
    patterns = {
        id(node.pattern): node.pattern for nodes in found for node in nodes if isinstance(node, Collective)
    }
    lowered = {identity: _lowered(pattern) for identity, pattern in patterns.items()}
    numbers: dict[tuple[object, ...], int] = {}
    return [numbers.setdefault(_content(section, lowered), len(numbers)) for section in found]


def in_turn(name: str, gpus: int, parts: Mapping[str, Sequence[Node]]) -> Job:
    """Return sections as one job, with a barrier after each; the nodes of a part are called ``part/node``."""
    jobs: list[Job] = []
    for part, nodes in parts.items():
        # Without that node each last node of a section would need an arrow to each first of the next.
        barrier = Job(f"after {part}", gpus, (Compute("barrier", (), 0.0),))
        jobs += [Job(part, gpus, tuple(nodes)), barrier]
    return one_after_another(name, jobs)


def _arrows(job: Job) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the number of the node at the tail and at the head of each arrow, each arrow once."""
    number = {node.name: index for index, node in enumerate(job.nodes)}
    known: dict[int, NDArray[np.int64]] = {}  # by identity: the first nodes of a part share one long tuple
    before = []
    for node in job.nodes:
        if id(node.after) not in known:
            waits = [number[name] for name in dict.fromkeys(node.after)]
            known[id(node.after)] = np.array(waits, dtype=np.int64)
        before.append(known[id(node.after)])
    return np.concatenate(before), np.repeat(np.arange(len(before)), [len(waits) for waits in before])


def _positions(job: Job, before: NDArray[np.int64], then: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the position of each node in an order in which arrows point onwards: if it can be, job order."""
    position = np.arange(len(job.nodes))
    if (before < then).all():
        return position
    order = TopologicalSorter({node.name: node.after for node in job.nodes}).static_order()
    place = {name: index for index, name in enumerate(order)}
    return np.array([place[node.name] for node in job.nodes])


def _barriers(nodes: int, before: NDArray[np.int64], then: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return after how many nodes there are barriers; every arrow points to a higher number."""
    number = np.arange(nodes)
    newest, oldest = np.full(nodes, -1), np.full(nodes, nodes)
    np.maximum.at(newest, then, before)
    np.minimum.at(oldest, before, then)
    ends, starts = _open(number, oldest, nodes), _open(newest, number, nodes)
    arrows = _open(newest[then], np.maximum(newest[then], oldest[before]), nodes)
    return 1 + np.flatnonzero((arrows == ends * starts)[1:nodes])


def _open(after: NDArray[np.int64], until: NDArray[np.int64], nodes: int) -> NDArray[np.int64]:
    """Return for each k from 0 to ``nodes`` how many intervals hold it: ``after`` < k <= ``until``."""
    begins, ends = (np.bincount(edge + 1, minlength=nodes + 2) for edge in (after, until))
    return np.cumsum(begins - ends)


def _inside(node: Node, section_of: Mapping[str, int]) -> Node:
    """Return a node without its arrows from other sections."""
    mine = section_of[node.name]
    return replace(node, after=tuple(name for name in node.after if section_of[name] == mine))


def _content(section: Sequence[Node], lowered: Mapping[int, bytes]) -> tuple[object, ...]:
    """Return what equal sections have in common: everything but names."""
    place = {node.name: index for index, node in enumerate(section)}
    return tuple(
        (
            (node.gpus, node.duration_s, node.durations_s)
            if isinstance(node, Compute)
            else (lowered[id(node.pattern)], node.communicator),
            *sorted({place[name] for name in node.after}),
        )
        for node in section
    )


def _lowered(pattern: Pattern) -> bytes:
    """Return what equal operations have in common, whatever their patterns and demands are called.

    The kind of pattern and its GPUs are part of it, since they tell communicators apart.
    """
    ops = pattern.lower()
    kinds = [(part.together, part.medium, part.stage) for part in ops.parts]
    digest = sha256(repr((type(pattern), ops.splits, kinds)).encode())
    columns = [column for part in ops.parts for column in part.columns.values()]
    for array in (*columns, ops.after, np.array(sorted(pattern.gpus))):
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.digest()
