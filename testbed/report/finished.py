"""A point that was carried out, as its results directory takes it: made by the worker, written by the parent.

A driver that only appends text and writes bytes keeps many workers busy, and holds no tables of a run.
"""

import gzip
from collections.abc import Mapping
from dataclasses import dataclass, field

import pandas as pd

from testbed.core.event_log import NO_LOGS, EventLog
from testbed.experiment.experiment import Experiment
from testbed.report.chrome_trace import chrome_trace
from testbed.report.csv_text import csv_text
from testbed.report.nodes import nodes_of
from testbed.report.point_file import point_bytes
from testbed.trust.outcome import Outcome, summary_row


@dataclass(frozen=True)
class Finished:
    """All that is written of a point."""

    row: Mapping[str, object]
    """Its row of the summary."""
    texts: Mapping[str, str]
    """Its rows of other tables, by their name: CSV with a header."""
    file: bytes
    """Its file (`testbed.report.point_file`); empty if that is there already."""
    trace: bytes
    """What happened when, for Perfetto, compressed; empty where nobody asked."""
    logs: Mapping[str, bytes] = field(default_factory=dict)
    """The event log of each run, by its name, compressed (zlib); none where nobody asked."""


def finished(
    outcome: Outcome, *, traced: bool, kept: bool = False, logs: Mapping[str, EventLog] = NO_LOGS
) -> Finished:
    """Return a point as it is written.

    Parameters
    ----------
    outcome
        What came of it.
    traced
        Whether its trace is wanted.
    kept
        Whether its file is there already.
    logs
        What happened in its runs, by their names; a run that was not carried out has an empty one.
    """
    tables = {"records": records_table(outcome), "nodes": named(nodes_of(outcome), outcome.experiment)}
    if outcome.wire is not None:
        tables["wire"] = named(outcome.wire.copy(), outcome.experiment)
    text = chrome_trace(outcome.runs, outcome.experiment.fabric) if traced else ""
    return Finished(
        summary_row(outcome),
        {name: csv_text(table) for name, table in tables.items()},
        b"" if kept else point_bytes(outcome),
        gzip.compress(text.encode(), mtime=0) if traced else b"",  # a tenth; viewers open it as it is
        {name: packed for name, log in logs.items() if (packed := log.packed)},
    )


def records_table(outcome: Outcome) -> pd.DataFrame:
    """Return the records of both backends, with columns that say whose they are."""
    tables = {name: run.records for name, run in outcome.runs.items()}
    rows = pd.concat(tables, names=["backend"]).reset_index(level="backend")
    return named(rows, outcome.experiment)


def named(rows: pd.DataFrame, experiment: Experiment) -> pd.DataFrame:
    """Return rows that say whose they are."""
    rows.insert(0, "workload", experiment.job.name)
    rows.insert(1, "scheme", experiment.scheme_name)
    rows.insert(2, "circuits", experiment.circuits_name)
    rows.insert(3, "transport", experiment.transport_name)
    rows.insert(4, "seed", experiment.seed)
    return rows
