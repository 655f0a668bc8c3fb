"""Two event logs compared: what was decided for each operation, OCS, node, fault and timer, and when.

Each has its own sequence of events in a log (`testbed.core.event_log`). Two sequences agree if they have the
same events in the same order, at times that differ by no more than a tolerance; how those of different things
follow each other is not compared, as it depends on the clock. Left out are amounts, parts that arrive of
an operation, and lanes that stand or go on: they are physics.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import NamedTuple

from testbed.core.event_log import APART, FORMAT, ITS_VERSION
from topologies.errors import ScenarioError
from topologies.printable import printable

PHYSICS = frozenset(("arrived", "to place", "lead", "stand", "go on"))
"""Events that follow from when others happen, and are not compared."""
LINE = re.compile(r" *(?P<at_us>\d{1,15}\.\d{3})  +(?P<columns>\S.*)")
COLUMNS = re.compile(rf"{APART} *")
KINDS = {
    "op": "operations",
    "node": "nodes",
    "task": "tasks",
    "ocs": "OCSes",
    "fault": "faults",
    "timer": "timers",
    "lane": "lanes",
    "link": "links",
    "daemon": "daemons",
    "job": "jobs",
}
"""Kinds of things that events happen to, and what people read of each."""
AROUND = 3
"""So many lines are shown before and after one."""


class Entry(NamedTuple):
    """An event of a log that is compared."""

    line: int
    """Its place among the lines of the log, from 0 on."""
    at_us: float
    what: str


@dataclass(frozen=True)
class Log:
    """An event log as it was read."""

    name: str
    """Of its file."""
    run: str
    """The run that it is of, as its second line names it."""
    lines: Sequence[str]
    entries: Mapping[str, Sequence[Entry]]
    """The events that are compared, in order, by the thing that each happened to."""

    @property
    def length_us(self) -> float:
        """When its last event happened [us]."""
        return max((each[-1].at_us for each in self.entries.values()), default=0.0)


class Parting(NamedTuple):
    """A place where two logs part: the event that one has, and the one that the other has instead."""

    of: str
    """The thing that both happened to."""
    a: Entry | None
    b: Entry | None
    """None where a log has no more of it."""

    @property
    def at_us(self) -> float:
        """When the first of both happened."""
        return min(each.at_us for each in (self.a, self.b) if each)

    @property
    def is_late(self) -> bool:
        """Whether both are the same event, at other times."""
        return self.a is not None and self.b is not None and self.a.what == self.b.what


@dataclass(frozen=True)
class EventDiff:
    """The result of comparing two logs."""

    a: Log
    b: Log
    tolerance_us: float
    times: Sequence[Parting] = ()
    """The first event of each thing that both logs have, at times that differ by more than the tolerance."""
    decisions: Sequence[Parting] = ()
    """The first event of each thing that one log alone has, the earliest first."""
    furthest: Parting | None = None
    """The same event at the most different times."""
    of: Sequence[str] = field(default=())
    """All that something happened to in one log or in both."""

    @property
    def agrees(self) -> bool:
        """Whether the logs part nowhere."""
        return not (self.times or self.decisions)


def log_of(name: str, text: str) -> Log:
    """Return a log; ScenarioError if a text is none."""
    lines, entries = list(map(printable, text.splitlines())), defaultdict[str, list[Entry]](list)
    first = lines[0] if lines else ""
    if first != FORMAT:
        if first.startswith(ITS_VERSION):
            was = first.removeprefix(ITS_VERSION)
            raise ScenarioError(
                f"{name} is an event log of format {was}, which this version of lightrail does not read",
                "compare logs with the version that wrote them, or run both again with --events",
            )
        raise ScenarioError(f"{name} does not begin with {FORMAT!r}", "give a file that --events wrote")
    if not text.endswith("\n"):
        raise ScenarioError(
            f"{name} ends within line {len(lines)}: the rest is missing", "copy it again, or repeat its run"
        )
    for number, line in enumerate(lines):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        found = LINE.fullmatch(line)
        columns = COLUMNS.split(found["columns"]) if found else []
        if not found or len(columns) < 2:
            raise ScenarioError(
                f"{name}, line {number + 1}, is not an event", "give a file that --events wrote"
            )
        what, of, *more = columns
        if more and more[-1].startswith("("):
            more.pop()
        if what not in PHYSICS:
            entries[of].append(Entry(number, float(found["at_us"]), " ".join((what, *more))))
    run = lines[1].removeprefix("# ") if len(lines) > 1 and lines[1].startswith("# ") else "a run"
    return Log(name, run, lines, entries)


def event_diff(a: Log, b: Log, *, share: float = 0.0, least_us: float = 0.0) -> EventDiff:
    """Return where two logs part.

    Parameters
    ----------
    a, b
        The logs.
    share, least_us
        By how much times may differ: a share of the longer run, 0..1, or a time [us], whichever is more.
    """
    tolerance_us = max(share * max(a.length_us, b.length_us), least_us)
    times, decisions, furthest = list[Parting](), list[Parting](), list[Parting]()
    both = list(dict.fromkeys([*a.entries, *b.entries]))
    for of in both:
        pairs = list(_pairs(of, a.entries.get(of, ()), b.entries.get(of, ())))
        same = [each for each in pairs if each.is_late]
        furthest += sorted(same, key=_apart_us)[-1:]
        times += [each for each in same if _apart_us(each) > tolerance_us][:1]
        decisions += [each for each in pairs if not each.is_late][:1]
    return EventDiff(
        a,
        b,
        tolerance_us,
        sorted(times, key=_order),
        sorted(decisions, key=_order),
        max(furthest, key=_apart_us, default=None),
        both,
    )


def _pairs(of: str, a: Iterable[Entry], b: Iterable[Entry]) -> Iterator[Parting]:
    """Yield the events of one thing in both logs, up to the first that differs."""
    for mine, other in zip_longest(a, b):
        pair = Parting(of, mine, other)
        yield pair
        if not pair.is_late:
            return


def _order(parting: Parting) -> tuple[float, int]:
    return parting.at_us, min(each.line for each in (parting.a, parting.b) if each)


def _apart_us(pair: Parting) -> float:
    return abs(pair.a.at_us - pair.b.at_us) if pair.a and pair.b else 0.0


def diff_lines(found: EventDiff) -> Iterator[str]:
    """Yield what people read of a comparison."""
    for letter, log in (("A", found.a), ("B", found.b)):
        events = sum(map(len, log.entries.values()))
        yield f"{letter}: {printable(log.name)} ({log.run}), {events:,} events in {log.length_us:,.3f} us"
    yield _counts(found)
    if found.furthest and (apart_us := _apart_us(found.furthest)):
        share = apart_us / max(found.a.length_us, found.b.length_us)
        where = f"{found.furthest.of}, {_text(found.furthest.a)}"
        yield f"the same event is at most {apart_us:,.3f} us apart, {share:.2%} of the run: {where}"
    if found.agrees:
        yield f"the logs agree, within {found.tolerance_us:,.3f} us"
    elif not found.decisions:
        yield "all decisions agree, and times do not"
    late = f"the first event that is more than {found.tolerance_us:,.3f} us apart"
    first = [("the first decision that differs", each) for each in found.decisions[:1]]
    first += [(late, each) for each in found.times[:1]]
    for said, parting in sorted(first, key=lambda each: _order(each[1])):
        yield from _shown(said, parting, found)


def _counts(found: EventDiff) -> str:
    """Return how many of each kind of thing agree: ops, OCSes, nodes, faults."""
    parted = {each.of for each in (*found.times, *found.decisions)}
    kinds = defaultdict[str, list[bool]](list)
    for of in found.of:
        kinds[of.partition(" ")[0]].append(of not in parted)
    parts = [
        f"{sum(kinds[kind]):,} of {len(kinds[kind]):,} {said}"
        for kind, said in KINDS.items()
        if kind in kinds
    ]
    return f"{', '.join(parts) or 'nothing, as nothing happened,'} agree"


def _text(entry: Entry | None) -> str:
    return f"{entry.what} at {entry.at_us:,.3f} us" if entry else "nothing more"


def _shown(said: str, parting: Parting, found: EventDiff) -> Iterator[str]:
    """Yield where logs part, and the lines of both around it."""
    yield ""
    yield f"{said}: {parting.of}"
    for letter, log, entry, other in (
        ("A", found.a, parting.a, parting.b),
        ("B", found.b, parting.b, parting.a),
    ):
        yield f"  {letter}: {_text(entry)}"
        place = entry.line if entry else _line_at(log, other)
        for number in range(max(place - AROUND, 0), min(place + AROUND + 1, len(log.lines))):
            mark = ">" if entry and number == place else " "
            yield f"  {mark} {number + 1:>7}  {log.lines[number]}"


def _line_at(log: Log, other: Entry | None) -> int:
    """Return the last line of a log whose time is not after another log's event."""
    at_us = other.at_us if other else 0.0
    last = 0
    for entries in log.entries.values():
        last = max([last, *(each.line for each in entries if each.at_us <= at_us)])
    return last
