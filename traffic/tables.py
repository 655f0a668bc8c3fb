"""The tables of a run: what happened to messages, computes, collectives, circuits and faults, and when.

Times are picoseconds since the start (`traffic.clock`), `NEVER` for what did not happen; sizes are real
bytes. People read them in seconds (`in_seconds`), NaN for what did not happen.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from traffic.clock import NEVER, SECOND


@dataclass(frozen=True, eq=False)
class Tables:
    """What came of a job, as the runner writes it down."""

    messages: pd.DataFrame
    """A row each: node, source and destination (GPUs), bytes, start_ps, end_ps, path; a message that was
    given up has no end. A path is ``bytes@queue pair`` per leg. Of a ring that ran as a coupled flow
    there is a row per edge, of all bytes that it carried, from the ring's start to its end. The messages of a
    delegated all-to-all last from its start to the end of their last leg; where it ran as coupled flows there
    is a row per pair of servers, between the first GPUs of both."""
    spans: pd.DataFrame
    """A row per node and GPU that computed, or per collective (gpu -1): node, gpu, start_ps, end_ps."""
    events: pd.DataFrame
    """What happened to circuits and by faults: at_ps, what, which."""


def in_seconds(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with seconds for picoseconds: a column ``start_s`` for ``start_ps``."""
    times = {name: f"{name[:-3]}_s" for name in table.columns if name.endswith("_ps")}
    seconds = {name: np.where(table[name] < NEVER, table[name].to_numpy() / SECOND, np.nan) for name in times}
    return table.assign(**seconds).rename(columns=times)


def in_picoseconds(table: pd.DataFrame) -> pd.DataFrame:
    """Return what `in_seconds` made a table of: NaN becomes `NEVER`."""
    times = {name: f"{name[:-2]}_ps" for name in table.columns if name.endswith("_s")}
    counted = {
        name: np.where(table[name].notna(), np.rint(table[name].fillna(0) * SECOND).astype(np.int64), NEVER)
        for name in times
    }
    return table.assign(**counted).rename(columns=times)
