"""The event log: what happened in a run as text, a line per event from the queue, with what it led to below.

A line has columns that two spaces or more set apart: time, what happened, to what, how, and in brackets an
amount. What a line led to is indented. Names are those of the fabric and the job, and an operation is named
by its node, its row and its GPUs, so that an emulation and its prediction call the same thing alike
(`testbed.trust.event_diff` compares them). Amounts follow from when something happens: they are not compared.
"""

import zlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from testbed.core import events, steps
from testbed.core.backend import (
    NVLINK,
    Arrived,
    Chosen,
    Drained,
    Lead,
    Left,
    LightChanged,
    NowProvisioned,
    SetCircuits,
    SetDaemon,
    SetLink,
)
from testbed.core.state import State
from topologies import events as heard
from topologies.light import Circuit
from topologies.printable import printable
from traffic.clock import NEVER
from traffic.effects import LinkState

ITS_VERSION = "# lightrail event log, format "
FORMAT = f"{ITS_VERSION}1"
HEADER = """\
{first}
# {name}
# time [us] since the start, at real scale; indented: what the event above led to; in brackets: amounts
{columns}
"""
APART = "  "
"""At least this is between two columns."""
TIME, WHAT, SUBJECT = 15, 22, 32
"""The widths of columns."""
MOST_INDENTED = 5
MOST_NAMED, MOST_CIRCUITS = 8, 64
"""Of more lanes, or circuits, a line has how many there are, and a checksum of their names."""
PACKED_LINES = 10_000
"""So many lines are kept as they are; those before them are compressed."""


class Row(NamedTuple):
    """A line without its time."""

    what: str
    subject: str
    how: str = ""
    amount: str = ""


Words = Callable[[State, Any], Iterable[Row]]


class EventLog:
    """The events of one run and the orders that follow from them, as text.

    Parameters
    ----------
    name
        The second line of the text.
    """

    def __init__(self, name: str = "a run") -> None:
        columns = _line("# time", 0, Row("event", "of", "how", "(amount)"))
        self._lines = [HEADER.format(first=FORMAT, name=printable(name), columns=columns)]
        self._packed = list[bytes]()
        self._shown = list[bool]()
        """Whether each event has a line that is being dealt with, the outermost first."""
        self._lost = set[int]()

    @property
    def packed(self) -> bytes:
        """The text so far, compressed; empty if nothing happened."""
        return zlib.compress(self.text.encode(), 1) if self._packed or len(self._lines) > 1 else b""

    @property
    def text(self) -> str:
        """All that happened so far."""
        return "".join([*(zlib.decompress(part).decode() for part in self._packed), *self._lines])

    def begins(self, state: State, event: events.Event) -> None:
        """Write an event down, before anything follows from it."""
        at_ps: int = getattr(event, "at_ps", state.now_ps)
        rows = list(EVENTS[type(event)](state, event))
        self._write(at_ps, rows)
        self._shown.append(bool(rows))

    def ends(self, state: State) -> None:
        """Go back to the event before, as all has followed from the last one."""
        self._write_lost(state)
        self._shown.pop()

    def order(self, state: State, order: steps.Order, answer: object) -> None:
        """Write an order to the backend down, with its answer."""
        self._write_lost(state)
        if isinstance(order, steps.Stop):
            assert isinstance(answer, list)
            self._write(state.now_ps, _stopped(state, order, answer))
        else:
            value = order.order if isinstance(order, steps.Do) else order
            self._write(state.now_ps, ORDERS[type(value)](state, value))

    def _write_lost(self, state: State) -> None:
        if len(state.ops.lost) > len(self._lost):
            new = sorted(state.ops.lost - self._lost)
            self._lost.update(new)
            missing = [number for number in new if state.ops.end_ps[number] == NEVER]
            self._write(state.now_ps, [Row("lost", _op(state, number)) for number in missing])

    def _write(self, at_ps: int, rows: Iterable[Row]) -> None:
        depth, time = sum(self._shown), f"{at_ps / 1e6:.3f}"
        self._lines += [f"{_line(time, depth, row)}\n" for row in rows]
        if len(self._lines) > PACKED_LINES:
            self._packed.append(zlib.compress("".join(self._lines).encode(), 1))
            self._lines = []


NO_LOGS: Mapping[str, EventLog] = MappingProxyType({})
"""Of runs of which nothing is written down."""


def _line(time: str, depth: int, row: Row) -> str:
    """Return a line; one space of each name stands for all that come together, as two end a column."""
    indent = APART * min(depth, MOST_INDENTED)
    what, subject, how, amount = (printable(" ".join(each.split())) for each in row)
    columns = [f"{time:>{TIME}}", f"{indent + what:<{WHAT}}", f"{subject:<{SUBJECT}}", how, amount]
    return APART.join(filter(None, columns)).rstrip()


# Names


def _op(state: State, number: int) -> str:
    """Return the name of an operation; one that brings another further is named by that too."""
    ops, root = state.ops, state.ops.root(number)
    node, row = state.node_of(root), ops.row[root]
    place = row if row >= 0 else root - node.ops.start
    ends = _ends(state, root) if ops.source[root] >= 0 else "together"
    hop = "" if number == root else f" hop {ops.hop[number]} {_ends(state, number)}"
    return f"op {node.name}/{place} {ends}{hop}"


def _ends(state: State, number: int) -> str:
    return f"{state.ops.source[number]}>{state.ops.destination[number]}"


def _lanes(state: State, numbers: Iterable[int]) -> str:
    """Return the names of lanes that are open, and of NVLink, in the order of the names."""
    open_lanes = state.lanes.open
    names = [str(open_lanes[number].pair) for number in numbers if number in open_lanes]
    return _some([*sorted(set(names)), *(["NVLink"] if NVLINK in numbers else [])], "lanes")


def _lit(circuits: Collection[Circuit]) -> str:
    return _some([f"{a}>{b}" for a, b in sorted(circuits)], "circuits", MOST_CIRCUITS)


def _some(names: Collection[str], what: str, most: int = MOST_NAMED) -> str:
    if len(names) <= most:
        return " ".join(names) or f"no {what}"
    return f"{len(names):,} {what} {zlib.crc32(' '.join(names).encode()):08x}"


def _numbers(gpus: Sequence[int]) -> str:
    """Return numbers in words; those that follow each other by the first and the last."""
    follow = len(gpus) > 1 and gpus == tuple(range(gpus[0], gpus[-1] + 1))
    return f"{gpus[0]}-{gpus[-1]}" if follow else _some([*map(str, gpus)], "of them")


def _bytes(size: int) -> str:
    return f"({size:,} bytes)"


# Events


def _quiet(_state: State, _event: object) -> Iterable[Row]:
    """Return no line: what follows says it, or what came before did."""
    return ()


def _of_node(what: str) -> Words:
    return lambda _state, event: [Row(what, f"node {event.node}")]


def _of_fault(what: str) -> Words:
    return lambda _state, event: [Row(what, f"fault {event.fault.name}")]


def _of_ocses(what: str) -> Words:
    return lambda _state, event: [Row(what, f"ocs {ocs}") for ocs in event.ocses]


def _computed(_state: State, event: events.Computed) -> Iterable[Row]:
    return [Row("computed", f"task {event.node} on {_numbers(event.gpus)}")]


def _arrived(state: State, event: Arrived) -> Iterable[Row]:
    ops, number = state.ops, event.op
    is_all = ops.pieces[number] == 1 and number not in ops.lost
    over = "" if event.lane is None else f"over {_lanes(state, [event.lane])}"
    return [Row("ended" if is_all else "arrived", _op(state, number), "" if is_all else over)]


def _placed_anew(state: State, event: events.BytesLeft) -> Iterable[Row]:
    sizes = defaultdict[int, int](int)
    for number, size in event.parcels:
        sizes[number] += size
    return [Row("to place", _op(state, number), "", _bytes(size)) for number, size in sizes.items()]


def _cut(state: State, event: events.LanesCut) -> Iterable[Row]:
    return [
        Row("cut", f"lane {name}") for name in sorted(str(state.lanes[lane].pair) for lane in event.lanes)
    ]


def _change(what: str) -> Words:
    """Return the words of an event of a change of light that still drains."""

    def words(state: State, event: Drained | events.DrainExpired) -> Iterator[Row]:
        change = state.ocses.changes.get(event.change)
        for ocs in sorted(change.circuits) if change and change.drains else ():
            yield Row(what, f"ocs {ocs}")

    return words


def _light_changed(_state: State, event: LightChanged) -> Iterable[Row]:
    return [Row("dark" if event.until_ps is None else "shows", f"ocs {event.ocs}", _lit(event.circuits))]


def _ordered(state: State, event: events.Ordered) -> Iterator[Row]:
    order = event.order
    if isinstance(order, heard.Reconfigure):
        for ocs, circuits in sorted(order.circuits.items()):
            yield Row("ordered", f"ocs {ocs}", _lit(circuits))
    elif isinstance(order, heard.Flip):
        for ocs in order.ocses:
            yield Row("ordered", f"ocs {ocs}", "to flip")
    elif isinstance(order, heard.Hold) and any(map(state.ocses.is_busy, order.ocses)):
        yield Row("held", f"node {order.node}", f"until {_some(order.ocses, 'OCSes')}")
    elif isinstance(order, heard.SetTimer):
        yield Row("set", f"timer {order.name}", "", f"(in {order.after_s * 1e6:.3f} us)")
    elif isinstance(order, heard.SendRest):
        yield Row("ordered", "job", "rest over packets")


EVENTS: Mapping[type, Words] = {
    events.JobBegan: lambda _state, _event: [Row("began", "job")],
    events.NodeReady: _of_node("ready"),
    heard.NodeStarted: _of_node("started"),
    events.Computed: _computed,
    events.SentAgain: _of_node("sent again"),
    events.HoldExpired: _of_node("hold expired"),
    events.Released: _of_node("released"),
    heard.NodeDone: _of_node("ended"),
    Arrived: _arrived,
    events.BytesLeft: _placed_anew,
    events.Ordered: _ordered,
    Drained: _change("drained"),
    events.DrainExpired: _change("drain expired"),
    LightChanged: _light_changed,
    NowProvisioned: lambda _state, event: [Row("provisioned", f"ocs {event.ocs}", _lit(event.circuits))],
    heard.Lit: _of_ocses("lit"),
    heard.Refused: _of_ocses("refused"),
    heard.ProgramsEnded: lambda _state, _event: [Row("programs ended", "job")],
    heard.TimerFired: lambda _state, event: [Row("fired", f"timer {event.name}")],
    events.LanesCut: _cut,
    events.FaultBegan: _of_fault("failed"),
    events.FaultKnown: _of_fault("known"),
    events.FaultEnded: _of_fault("back"),
    events.FaultForgotten: _of_fault("known back"),
    **dict.fromkeys(
        (
            events.TaskReady,
            events.TaskBegan,
            events.PiecesDone,
            events.LanesOpened,
            events.RoutesChanged,
            events.RoutesLedAnew,
            events.LanesGoOn,
            events.RestOrdered,
            events.ControllerChanged,
            events.GpusGone,
            heard.Provisioned,
            heard.FaultDetected,
            heard.FaultOver,
        ),
        _quiet,
    ),
}

# Orders to the backend


def _start(state: State, order: steps.Start) -> Iterator[Row]:
    lanes, sizes = defaultdict[int, set[int]](set), defaultdict[int, int](int)
    how = "over"
    for each in order.flows:
        own = each.lanes if isinstance(each, Chosen) else [(lane,) for lane in each.lane.tolist()]
        how = "among" if isinstance(each, Chosen) else how
        for number, size, mine in zip(each.op.tolist(), each.bytes.tolist(), own, strict=True):
            lanes[number].update(mine)
            sizes[number] += size
    for number, size in sizes.items():
        yield Row("start", _op(state, number), f"{how} {_lanes(state, lanes[number])}", _bytes(size))


def _stopped(state: State, order: steps.Stop, answer: list[Left]) -> Iterator[Row]:
    """Yield what was taken back of each operation from each lane, and the lanes that are closed."""
    back = defaultdict[tuple[int, int], int](int)
    for each in answer:
        back[each.op, each.lane] += each.left
    for (number, lane), size in back.items():
        if size:
            how = f"from {_lanes(state, [lane])}" if lane in state.lanes.open else ""
            yield Row("taken back", _op(state, number), how, _bytes(size))
    if order.in_flight == "drop":
        for number in order.lanes:
            yield Row("close", f"lane {_lanes(state, [number])}")


def _pause(state: State, order: steps.Pause) -> Iterator[Row]:
    lanes = _lanes(state, order.lanes)
    if order.change is None:
        yield Row("stand", "lanes", lanes)
        return
    for ocs in sorted(state.ocses.changes[order.change].circuits):
        yield Row("drain", f"ocs {ocs}", lanes)


def _switch(_state: State, order: SetCircuits) -> Iterator[Row]:
    for ocs, circuits in sorted(order.circuits.items()):
        yield Row("switch", f"ocs {ocs}", _lit(circuits))


def _show(_state: State, order: heard.Show) -> Iterator[Row]:
    for ocs, slots in order.programs:
        shown = [_lit(slot.circuits) for slot in slots]
        how = " | ".join(shown) if len(shown) <= MOST_NAMED else _some(shown, "slots")
        times = [f"{slot.lit_s * 1e6:.3f}" for slot in slots[:MOST_NAMED]] + ["..."] * (
            len(slots) > MOST_NAMED
        )
        yield Row("show", f"ocs {ocs}", how or "no slots", f"(for {' | '.join(times)} us)" if times else "")


def _lead(_state: State, order: Lead) -> Iterable[Row]:
    return [Row("lead", "routes", "", "(all)" if order.nics is None else f"({len(order.nics)} NICs)")]


def _set_link(_state: State, order: SetLink) -> Iterable[Row]:
    now = order.state
    words = [f"{now.rate:g} of its rate"] * (now.rate != 1) + [f"loses {now.loss:g}"] * (now.loss > 0)
    how = "down" if not now.up else " ".join(words) if now != LinkState() else "up"
    return [Row("set", f"link {order.port}", how)]


def _set_daemon(_state: State, order: SetDaemon) -> Iterable[Row]:
    return [Row("set", f"daemon {order.daemon}", "up" if order.state.up else "down")]


def _resume(state: State, order: steps.Resume) -> Iterable[Row]:
    lanes = [number for number in order.lanes if number in state.lanes.open]
    return [Row("go on", "lanes", _lanes(state, lanes))] if lanes else ()


ORDERS: Mapping[type, Words] = defaultdict(
    lambda: _quiet,
    {
        steps.Start: _start,
        steps.Pause: _pause,
        steps.Resume: _resume,
        SetCircuits: _switch,
        heard.Provision: lambda _state, order: [Row("provision", f"ocs {order.ocs}", _lit(order.circuits))],
        heard.Show: _show,
        Lead: _lead,
        SetLink: _set_link,
        SetDaemon: _set_daemon,
    },
)
