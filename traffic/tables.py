"""The tables of a run: what happened to messages, computes, collectives, circuits and links, and when.

Times are picoseconds since the start (`traffic.clock`), `NEVER` for what did not happen; sizes are real
bytes, but for the wire's. Nodes, paths, lanes, ports and OCSes are numbers: indices of the tuples beside the
tables. Only events and faults have text, since people read them. A row may lack nothing: what is not there is
-1, or `NEVER`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, cast, overload

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from topologies.fabric import Path, Port
from traffic.clock import NEVER, SECOND
from traffic.spraying.policy import QueuePair

NVLINK, PACKETS, LIGHT = 0, 1, 2
"""What a leg went over: inside a server, over packet switches (or a cable), over circuits."""
GATHER, CROSSES, SCATTER = 0, 1, 2
"""The stages of an all-to-all that its scheme gathers and scatters inside servers: legs are part of one."""
DARK, LIT = 0, 1
"""What became of an OCS: it began to change its circuits, or carries what was ordered."""

MESSAGES = {
    "node": "int32",
    "row": "int32",
    "communicator": "int32",
    "source": "int32",
    "destination": "int32",
    "bytes": "int64",
    "released_ps": "int64",
    "end_ps": "int64",
    "given_up": "bool",
    "crosses": "bool",
    "group": "int32",
}
"""The columns of `Tables.messages`."""
LEGS = {
    "node": "int32",
    "message": "int32",
    "op": "int8",
    "hop": "int8",
    "medium": "int8",
    "lane": "int32",
    "path": "int32",
    "from_gpu": "int32",
    "to_gpu": "int32",
    "bytes": "int64",
    "first_ps": "int64",
    "last_ps": "int64",
    "slot": "int32",
    "group": "int32",
}
"""The columns of `Tables.legs`."""
SPANS = {
    "node": "int32",
    "gpu": "int32",
    "ready_ps": "int64",
    "held_ps": "int64",
    "released_ps": "int64",
    "first_ps": "int64",
    "end_ps": "int64",
}
"""The columns of `Tables.spans`."""
LINKS = {"port": "int32", "at_ps": "int64", "rate_bps": "float64", "up": "bool", "known": "bool"}
"""The columns of `Tables.links`."""
LIGHT_CHANGES = {"ocs": "int32", "at_ps": "int64", "what": "int8", "circuits": "object"}
"""The columns of `Tables.light`."""
ORDERS = {"ocs": "int32", "at_ps": "int64", "circuits": "object"}
"""The columns of `Tables.orders`."""
FAULTS = {"name": "str", "at_ps": "int64", "what": "str"}
"""The columns of `Tables.faults`."""
SOURCES = {
    "lane": "int32",
    "at_ps": "int64",
    "granted_bytes": "int64",
    "sent_bytes": "int64",
    "delivered_bytes": "int64",
    "acknowledged": "int64",
    "marked": "int64",
    "resent": "int64",
    "over_window_bytes": "int64",
    "round_trip_ps": "int64",
    "bdp_bytes": "int64",
}
"""The columns of `Tables.sources`."""
FLOWS = {
    "source": "int32",
    "at_ps": "int64",
    "sent_bytes": "int64",
    "delivered_bytes": "int64",
    "window_bytes": "float64",
    "queue_ps": "float64",
}
"""The columns of `Tables.flows`."""
WIRE = {"port": "int32", "bytes": "int64", "packets": "int64", "drops": "int64"}
"""The columns of `Tables.wire`."""
PACKET_COUNTS = {
    "sent": "int64",
    "arrived": "int64",
    "anew": "int64",
    "late": "int64",
    "queue_drops": "int64",
    "socket_drops": "int64",
    "switch_drops": "int64",
}
"""The columns of `Tables.packets`."""
EVENTS = {"at_ps": "int64", "what": "str", "which": "str"}
"""The columns of `Tables.events`."""


def empty(columns: Mapping[str, str]) -> pd.DataFrame:
    """Return a table without rows, of columns and their types.

    Examples
    --------
    >>> list(empty(WIRE))
    ['port', 'bytes', 'packets', 'drops']
    """
    return pd.DataFrame({name: pd.Series(dtype=kind) for name, kind in columns.items()})


class RowBlock(NamedTuple):
    """Rows of a table that follow each other."""

    rows: int
    """How many."""
    column: Callable[[str], int | NDArray[np.int64]]
    """Returns what each has in a column, by its name, or what all have."""


class Table:
    """A field of `Tables`: a table, or how it is made when it is first asked for; without rows by default."""

    def __init__(self, columns: Mapping[str, str]) -> None:
        self._empty = empty(columns)

    def __set_name__(self, _owner: type, name: str) -> None:
        """Take the field's name."""
        self._name = name

    @overload
    def __get__(self, tables: None, owner: type) -> Callable[[], pd.DataFrame]: ...
    @overload
    def __get__(self, tables: object, owner: type) -> pd.DataFrame: ...
    def __get__(self, tables: object | None, owner: type) -> pd.DataFrame | Callable[[], pd.DataFrame]:
        """Return the table."""
        if tables is None:  # dataclasses ask for the default
            return self._empty.copy
        found = tables.__dict__[self._name]
        if not isinstance(found, pd.DataFrame):
            found = tables.__dict__[self._name] = found()
        return cast(pd.DataFrame, found)

    def __set__(self, tables: object, table: pd.DataFrame | Callable[[], pd.DataFrame]) -> None:
        """Take the table, or how it is made."""
        tables.__dict__[self._name] = table


@dataclass(frozen=True, eq=False)
class Tables:
    """The result of a job: all that happened, as arrays."""

    messages: Table = Table(MESSAGES)
    """A row per message, by whose number other tables call it: node, row of the node's exchange (-1 where a
    row stands for several, or there is none), communicator, source and destination (GPUs), bytes,
    released_ps, end_ps (`NEVER` if it was given up), given_up, crosses (it leaves its server), group (of what
    went together: its legs are those of the same group; -1 if it has legs of its own). Of a ring that ran
    as a coupled flow there is a row per edge, of all bytes that it carried. The messages of a gathered
    all-to-all last from its start to the end of its last leg; where it ran as coupled flows there is a row
    per pair of servers, between the first GPUs of both (row -1)."""
    spans: Table = Table(SPANS)
    """A row per node and GPU that computed, or per collective (gpu -1): node, gpu, ready_ps (all that it
    waits for had ended, and its own time had come), held_ps (since when it waited for circuits; `NEVER` if it
    did not), released_ps (it was let go), first_ps (the GPU began, the first byte could go), end_ps."""
    events: Table = Table(EVENTS)
    """What happened to circuits and by faults, as people read it: at_ps, what, which."""
    legs: Table = Table(LEGS)
    """A row for each path and medium that bytes took: node, message (-1 where the leg carries several of its
    node together), op (the operation of the node that it is part of: of a gathered all-to-all 0 gather,
    1 cross, 2 scatter, else 0), hop (of what is relayed, from 0), medium (`NVLINK`, `PACKETS`, `LIGHT`),
    lane and path (-1 over NVLink), from_gpu and to_gpu, bytes that arrived, first_ps (they could go),
    last_ps (the last of them arrived, or what was left was taken back), slot (of a schedule: that of its OCS,
    if only one lit it meanwhile; else -1), group (what it carries of several messages, if that crosses: the
    number of the first of them; else -1)."""
    links: Table = Table(LINKS)
    """A row per change of a link: port (either end), at_ps, rate_bps, whether it is up, and whether the job
    knew. Links that never changed are absent."""
    light: Table = Table(LIGHT_CHANGES)
    """A row per change of an OCS: ocs, at_ps, what (`DARK`, `LIT`), and the circuits that carry from then
    on, as pairs of ports."""
    orders: Table = Table(ORDERS)
    """A row per configuration that an OCS was ordered to carry: ocs, at_ps, and all circuits of it. A program
    has a row for each of its slots."""
    faults: Table = Table(FAULTS)
    """What came of each fault: name, at_ps, what (failed, detected, gone around, back, in use again); and of
    each collective that was given up for one (given up)."""
    sources: Table = Table(SOURCES)
    """A row per source, which is what one congestion control over datagrams decides about: lane (of a group
    its first), at_ps (until when it counts), granted_bytes (-1 where no receiver grants), sent_bytes,
    delivered_bytes, how many packets of the emulation were acknowledged, marked and resent,
    over_window_bytes (the most that was on its way above its window when a packet left; -1 without a window),
    round_trip_ps and bdp_bytes (R and BDP of its path, as it knows them; -1 if it had nothing to send)."""
    flows: Table = Table(FLOWS)
    """Samples of sources over time, where those are few: source (a row of `sources`), at_ps, sent_bytes and
    delivered_bytes until then, window_bytes (NaN without a window), queue_ps (mean queue delay of the packets
    acknowledged since the sample before; -1 if there were none)."""
    wire: Table = Table(WIRE)
    """What each port of a link sent, by its counters before and after the run: port, bytes, packets and drops
    of the emulation; empty where nothing was emulated."""
    packets: Table = Table(PACKET_COUNTS)
    """One row, where packets over packet switches are datagrams of the emulation: how many were sent, arrived
    and counted, counted as lost and were sent again, and arrived late or twice, so that they did not count;
    how many packets, whosever, full port queues dropped, Open vSwitch's sockets, and Open vSwitch itself."""
    nodes: tuple[str, ...] = ()
    """The names of the job's nodes."""
    paths: tuple[Path, ...] = ()
    """The ports that send, in order (`traffic.records`)."""
    lanes: tuple[QueuePair, ...] = ()
    """The queue pairs."""
    ports: tuple[Port, ...] = ()
    """The ports that links and wire are about."""
    ocses: tuple[str, ...] = ()
    """The OCSes that changed."""
    leg_blocks: Callable[[], Iterator[RowBlock]] | None = None
    """Yields `legs` block by block where that is how they are kept: of a step on 1,024 GPUs there are
    3.4 million."""


def in_seconds(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with seconds for picoseconds: a column ``start_s`` for ``start_ps``."""
    columns = dict[str, pd.Series | NDArray[np.float64]]()
    for name, column in table.items():
        if str(name).endswith("_ps"):
            times_ps = column.to_numpy()
            columns[f"{str(name)[:-3]}_s"] = np.where(times_ps < NEVER, times_ps / SECOND, np.nan)
        else:
            columns[str(name)] = column
    return pd.DataFrame(columns, index=table.index)
