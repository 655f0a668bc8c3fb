"""The course of a job: its nodes as faults revised them, and which rows of a run's tables are whose."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from testbed.audit.definitions import owed_by
from testbed.audit.finding import Circumstances, Found
from topologies.fabric import Fabric, Port
from traffic.clock import NEVER
from traffic.collectives.owed import Owed
from traffic.collectives.pattern import Pattern
from traffic.compose import renumbered
from traffic.faults import KnownRevision, places_after
from traffic.job import Collective, Job, Node
from traffic.tables import LEGS, NVLINK, RowBlock, Tables

Integers = NDArray[np.int64]
MOST_APART, MOST_TOGETHER = 250_000, 4_000_000
"""So many legs are looked at, those of nodes picked evenly, and so many that moved over NVLink together."""
SCATTERED = 2654435761
"""Knuth's multiplicative hash: nodes are picked without regard to their order."""


@dataclass(frozen=True)
class Course:
    """A run's tables beside its job; found once, for all checks."""

    tables: Tables
    job: Job
    fabric: Fabric
    known: Circumstances

    @cached_property
    def messages(self) -> Mapping[str, NDArray[np.int64]]:
        """The columns of the messages."""
        return columns(self.tables.messages)

    @cached_property
    def legs(self) -> Mapping[str, NDArray[np.int64]]:
        """The columns of the legs but for those of `inside`, and the number of each row in their table."""
        return self._legs_and_inside[0]

    @cached_property
    def inside(self) -> "Inside":
        """What moved over NVLink together, of several messages."""
        return self._legs_and_inside[1]

    @cached_property
    def _legs_and_inside(self) -> tuple[Mapping[str, NDArray[np.int64]], "Inside"]:
        if self.tables.leg_blocks is None:
            legs = columns(self.tables.legs)
            return {**legs, "row": np.arange(len(legs["node"]))}, Inside.of([], self.fabric)
        apart: dict[str, list[NDArray[np.int64]]] = {name: [np.zeros(0, kind)] for name, kind in LEGS.items()}
        rows = [np.zeros(0, dtype=np.int64)]
        together, row = list[tuple[int, RowBlock]](), 0
        for block, is_together in self._blocks:
            kept = self.looked_at[block.column("node")]
            if is_together and kept.all():
                together.append((row, block))
            elif kept.any():
                at = np.arange(block.rows) if kept.ndim == 0 else np.flatnonzero(kept)
                rows.append(row + at)
                for name, kind in LEGS.items():
                    value = block.column(name)
                    filled = value[at] if isinstance(value, np.ndarray) else np.full(len(at), value)
                    apart[name].append(filled.astype(kind, copy=False))
            row += block.rows
        legs = {name: np.concatenate(column) for name, column in (*apart.items(), ("row", rows))}
        return legs, Inside.of(together, self.fabric)

    @cached_property
    def _blocks(self) -> list[tuple[RowBlock, bool]]:
        """The blocks of legs that have rows, and whether what is in each moved over NVLink together."""
        blocks = self.tables.leg_blocks() if self.tables.leg_blocks else ()
        return [(block, _moves_together(block)) for block in blocks if block.rows]

    @cached_property
    def looked_at(self) -> NDArray[np.bool_]:
        """The nodes that are looked at row by row: all, or of very many legs those of a part of the nodes.

        When each node ran, and after which others, is looked at of all.
        """
        nodes = np.arange(len(self.tables.nodes), dtype=np.uint64)
        if self.tables.leg_blocks is None:
            return np.ones(len(nodes), dtype=bool)
        together = sum(block.rows for block, is_together in self._blocks if is_together)
        apart = sum(block.rows for block, is_together in self._blocks if not is_together)
        every = max(-(-apart // MOST_APART), -(-together // MOST_TOGETHER), 1)
        return np.asarray((nodes * np.uint64(SCATTERED) >> np.uint64(7)) % np.uint64(every) == 0)

    @cached_property
    def spans(self) -> Mapping[str, NDArray[np.int64]]:
        """The columns of the spans."""
        return columns(self.tables.spans)

    @cached_property
    def revisions(self) -> tuple[KnownRevision, ...]:
        """The revisions by faults that were detected, in that order."""
        faults = self.tables.faults
        detected = faults[faults["what"] == "detected"].sort_values("at_ps", kind="stable")["name"]
        by_fault = {each.fault: each for each in self.known.revisions.known}
        return tuple(by_fault[name] for name in detected if name in by_fault)

    @cached_property
    def cancelled(self) -> frozenset[str]:
        """The nodes that were given up."""
        return frozenset(name for each in self.revisions for name in each.cancel)

    @cached_property
    def gone(self) -> frozenset[int]:
        """The GPUs that failed."""
        faults = self.tables.faults
        failed = set(faults[faults["what"] == "failed"]["name"])
        return frozenset(gpu for fault in self.known.faults if fault.name in failed for gpu in fault.gpus)

    @cached_property
    def nodes(self) -> dict[str, Node]:
        """All nodes that the job had in the end, those that were given up among them, by name."""
        added = [node for each in self.revisions for node in each.nodes]
        return {node.name: node for node in (*self.job.nodes, *added)}

    @cached_property
    def awaited(self) -> dict[str, Sequence[str]]:
        """What each node waits for: in the place of nodes that were given up, the last of those added."""
        awaited: dict[str, Sequence[str]] = {node.name: node.after for node in self.nodes.values()}
        for each in self.revisions:
            inner = {name for node in each.nodes for name in node.after}
            last = tuple(node.name for node in each.nodes if node.name not in inner)
            for name, after in awaited.items():
                if not set(each.cancel).isdisjoint(after):
                    awaited[name] = (*(one for one in after if one not in each.cancel), *last)
        return awaited

    @cached_property
    def in_order(self) -> Sequence[str]:
        """The names of the nodes, each after those that it waits for."""
        # A sorter of the library holds both ends of each edge: of 800,000 it takes five times as long.
        found = dict[str, None]()
        for name in self.nodes:
            waiting = [name]
            while waiting:
                last = waiting[-1]
                before = [one for one in self.awaited[last] if one not in found] if last not in found else []
                if before:
                    waiting += before
                    continue
                waiting.pop()
                found.setdefault(last)
        return list(found)

    def owed(self, pattern: Pattern) -> Owed | None:
        """Return what a pattern owes, found once; None for a user's own."""
        if id(pattern) not in self._owed:
            # With the pattern itself, or another could take its place in memory.
            self._owed[id(pattern)] = pattern, owed_by(pattern)
        return self._owed[id(pattern)][1]

    @cached_property
    def _owed(self) -> dict[int, tuple[Pattern, Owed | None]]:
        return {}

    def forms(self, node: Node) -> list[Node]:
        """Return a node as it was last, and as it was before GPUs changed places."""
        found = [node]
        for _, places in self.moves:
            found.append(renumbered(found[-1], places))
        return found[::-1]

    def pattern(self, node: Collective) -> Pattern:
        """Return a collective's pattern between the GPUs that it was between when it began last."""
        if not self.moves:
            return node.pattern
        number = self.number_of.get(node.name, -1)
        began_ps = max(
            [*self.given_up.get(node.name, ()), *self.spans["ready_ps"][self.spans_by_node[number]].tolist()],
            default=0,
        )
        pattern = node.pattern
        for at_ps, places in self.moves:
            if at_ps <= began_ps:
                pattern = pattern.renumbered(places)
        return pattern

    @cached_property
    def moves(self) -> tuple[tuple[int, Sequence[int]], ...]:
        """When GPUs changed places, and which GPU had the place of each from then on."""
        faults = self.tables.faults
        detected = faults[faults["what"] == "detected"]
        at_ps = dict(zip(detected["name"], detected["at_ps"].tolist(), strict=True))
        return tuple(
            (at_ps[each.fault], places_after(each.moves, self.fabric.gpus))
            for each in self.revisions
            if each.moves
        )

    @cached_property
    def number_of(self) -> dict[str, int]:
        """The number of each node that the tables name."""
        return {name: number for number, name in enumerate(self.tables.nodes)}

    @cached_property
    def attempts(self) -> Mapping[str, int]:
        """How often each collective began: again when others took the place of GPUs that were gone."""
        return {
            name: len(times_ps) + 1 for name, times_ps in self.given_up.items() if name not in self.cancelled
        }

    @cached_property
    def given_up(self) -> Mapping[str, Sequence[int]]:
        """When each node was given up, by name [ps]."""
        events = self.tables.events
        found = events[events["what"] == "given up"]
        times_ps: dict[str, list[int]] = {}
        for name, at_ps in rows_of(found, "which", "at_ps"):
            times_ps.setdefault(name, []).append(at_ps)
        return times_ps

    @cached_property
    def lane_gpus(self) -> Mapping[str, Integers]:
        """The GPUs that the NICs of each lane belong to, by the end of a leg."""
        ends = {
            "from_gpu": [lane.source for lane in self.tables.lanes],
            "to_gpu": [lane.destination for lane in self.tables.lanes],
        }
        return {
            end: np.array([self.fabric.pinned_gpu(nic) for nic in nics], dtype=np.int64)
            for end, nics in ends.items()
        }

    @cached_property
    def first_gpus(self) -> Integers:
        """The first GPU of each GPU's server."""
        return np.asarray(self.fabric.gpu_offsets, dtype=np.int64)[self.fabric.server_of_gpu]

    @cached_property
    def ocses(self) -> frozenset[str]:
        """The names of the fabric's OCSes."""
        return frozenset(switch.name for switch in self.fabric.switches if switch.kind == "ocs")

    @cached_property
    def peers(self) -> Mapping[Port, Port]:
        """The port at the other end of each link that a path crosses, by the port that sends."""
        used = {port for path in self.tables.paths for port in path}
        return {port: self.fabric.peer(port) for port in used if port in self.fabric.link_at}

    @cached_property
    def spans_by_node(self) -> "Grouped":
        """The rows of the spans, node by node."""
        return Grouped(self.spans["node"], len(self.tables.nodes))

    @cached_property
    def messages_by_node(self) -> "Grouped":
        """The rows of the messages, node by node."""
        return Grouped(self.messages["node"], len(self.tables.nodes))

    def last_messages(self, name: str) -> Integers:
        """Return the rows of a collective's messages; of one that began again, those of the last time."""
        rows = self.messages_by_node[self.number_of.get(name, -1)]
        return rows[len(rows) - len(rows) // self.attempts.get(name, 1) :]

    def collectives(self) -> Iterator[Collective]:
        """Yield the collectives that are looked at and were not given up."""
        for node in self.nodes.values():
            if isinstance(node, Collective) and node.name not in self.cancelled and self.looks_at(node.name):
                yield node

    def looks_at(self, name: str) -> bool:
        """Return whether a node is looked at, message by message and GPU by GPU."""
        number = self.number_of.get(name, -1)
        return number < 0 or bool(self.looked_at[number])

    @cached_property
    def is_last(self) -> NDArray[np.bool_]:
        """Which messages are of the last time that their collective began."""
        last = np.ones(len(self.messages["node"]), dtype=bool)
        for name in self.attempts:
            rows = self.messages_by_node[self.number_of.get(name, -1)]
            last[rows] = False
            last[self.last_messages(name)] = True
        return last


def _moves_together(block: RowBlock) -> bool:
    """Return whether rows are of several messages that moved over NVLink in proportion."""
    names = ("medium", "message", "node", "op", "first_ps", "last_ps")
    common = {name: value for name in names if isinstance(value := block.column(name), int)}
    return len(common) == len(names) and common["medium"] == NVLINK and common["message"] == -1


@dataclass(frozen=True, eq=False)
class Inside:
    """What moved over NVLink together, at the same times: what each GPU sent and received."""

    node: Integers
    """Of each movement."""
    op: Integers
    first_ps: Integers
    last_ps: Integers
    row: Integers
    """Its first row in the table of legs."""
    movement: Integers
    """The movement of each GPU that takes part, counted from 0; parallel to the following."""
    gpu: Integers
    sent: Integers
    """What it sent [bytes]."""
    received: Integers
    leaves: Integers
    """The rows of the legs between GPUs of two servers: there is no NVLink between them."""

    @classmethod
    def of(cls, found: Sequence[tuple[int, RowBlock]], fabric: Fabric) -> "Inside":
        """Return what each GPU sent and received, by the first row of each block and the block."""
        server, leaves = fabric.server_of_gpu, list[int]()
        gpus, sent, received = list[Integers](), list[Integers](), list[Integers]()
        for row, block in found:
            source, to, size = (np.asarray(block.column(name)) for name in ("from_gpu", "to_gpu", "bytes"))
            first = int(min(source.min(initial=fabric.gpus), to.min(initial=fabric.gpus)))
            count = int(max(source.max(initial=-1), to.max(initial=-1))) - first + 1
            sent.append(np.bincount(source - first, size, minlength=count).astype(np.int64))
            received.append(np.bincount(to - first, size, minlength=count).astype(np.int64))
            gpus.append(np.arange(first, first + count))
            leaves += (row + np.flatnonzero(server[source] != server[to])[:1]).tolist()
        none = [np.zeros(0, dtype=np.int64)]

        def common(name: str) -> Integers:
            return np.array([block.column(name) for _, block in found], dtype=np.int64)

        return cls(
            node=common("node"),
            op=common("op"),
            first_ps=common("first_ps"),
            last_ps=common("last_ps"),
            row=np.array([row for row, _ in found], dtype=np.int64),
            movement=np.repeat(np.arange(len(found)), [len(each) for each in gpus]),
            gpu=np.concatenate([*none, *gpus]),
            sent=np.concatenate([*none, *sent]),
            received=np.concatenate([*none, *received]),
            leaves=np.array(leaves, dtype=np.int64),
        )


class Grouped:
    """Rows by a number that each has, of which there are so many, in their order."""

    def __init__(self, numbers: Integers, count: int) -> None:
        is_sorted = not len(numbers) or bool((numbers[1:] >= numbers[:-1]).all())
        self._order = None if is_sorted else np.argsort(numbers, kind="stable")
        counts = np.bincount(numbers, minlength=count) if len(numbers) else np.zeros(count, dtype=np.int64)
        self._first = np.concatenate([[0], np.cumsum(counts)])

    def __getitem__(self, number: int) -> Integers:
        """Return the rows of a number; none of -1."""
        if number < 0:
            return np.zeros(0, dtype=np.int64)
        begin, end = int(self._first[number]), int(self._first[number + 1])
        return np.arange(begin, end) if self._order is None else self._order[begin:end]


def rows_of(table: pd.DataFrame, *names: str) -> Iterator[tuple[Any, ...]]:
    """Return the rows of a table, of these columns."""
    return zip(*(table[name].tolist() for name in names), strict=True)


def columns(table: pd.DataFrame) -> dict[str, NDArray[np.int64]]:
    """Return the columns of a table as arrays."""
    return {name: table[name].to_numpy() for name in table.columns}


def ends_ps(course: Course) -> Integers:
    """Return when the last span of each node ended; -1 for those without any [ps]."""
    ends = np.full(len(course.tables.nodes), -1, dtype=np.int64)
    np.maximum.at(ends, course.spans["node"], course.spans["end_ps"])
    return ends


def earliest_ps(course: Course, column: str) -> Integers:
    """Return the earliest time in a column of each node's spans; `NEVER` for those without any [ps]."""
    earliest = np.full(len(course.tables.nodes), NEVER, dtype=np.int64)
    np.minimum.at(earliest, course.spans["node"], course.spans[column])
    return earliest


def seconds(at_ps: int) -> str:
    """Return a time for a sentence."""
    return "never" if at_ps == NEVER else f"{at_ps / 1e12:.9g} s"


def first_wrong(
    of: Callable[[Course, int, str], Found], course: Course, wrong: NDArray[np.generic], what: str
) -> Iterator[Found]:
    """Yield what is said of the first row that is wrong, if any is."""
    for row in np.flatnonzero(wrong)[:1].tolist():
        yield of(course, row, what)


def of_leg(course: Course, row: int, what: str) -> Found:
    """Return what was found of a leg, by its place in `Course.legs`."""
    legs = course.legs
    node = course.tables.nodes[int(legs["node"][row])]
    ends = f"from GPU {legs['from_gpu'][row]} to GPU {legs['to_gpu'][row]}"
    return f"a leg {ends} of {node!r} {what}", "legs", int(legs["row"][row])


def of_movement(course: Course, movement: int, what: str) -> Found:
    """Return what was found of what moved over NVLink together."""
    node = course.tables.nodes[int(course.inside.node[movement])]
    return f"what {node!r} moved over NVLink {what}", "legs", int(course.inside.row[movement])


def of_message(course: Course, row: int, what: str) -> Found:
    """Return what was found of a message."""
    found = course.messages
    node = course.tables.nodes[int(found["node"][row])]
    ends = f"from GPU {found['source'][row]} to GPU {found['destination'][row]}"
    return f"the message {ends} of {node!r} {what}", "messages", row
