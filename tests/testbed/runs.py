"""Runs of tables that a test writes in seconds."""

import pandas as pd

from testbed.run.run import Run
from traffic.tables import Tables, in_picoseconds


def run_of(messages: pd.DataFrame, tasks: pd.DataFrame, events: pd.DataFrame) -> Run:
    """Return the run of tables in seconds."""
    return Run(Tables(*map(in_picoseconds, (messages, tasks, events))))


def changed(
    run: Run,
    *,
    messages: pd.DataFrame | None = None,
    tasks: pd.DataFrame | None = None,
    events: pd.DataFrame | None = None,
) -> Run:
    """Return a run with other tables, in seconds."""
    return run_of(
        run.messages if messages is None else messages,
        run.tasks if tasks is None else tasks,
        run.events if events is None else events,
    )
