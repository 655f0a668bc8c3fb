"""What came of a job, emulated or predicted: its tables, and what is read of them."""

from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from testbed.audit.finding import Audit
from traffic.clock import SECOND
from traffic.records import COLUMNS, Records
from traffic.tables import Tables, in_seconds


@dataclass(frozen=True, eq=False)
class Run:
    """What came of a job; times since its start and bytes are real."""

    tables: Tables
    audit: Audit | None = None
    """What is impossible in them; None where nobody looked."""

    @cached_property
    def messages(self) -> pd.DataFrame:
        """Its messages in seconds: ``start_s`` and ``end_s``, NaN for those that were given up."""
        return in_seconds(self.tables.messages)

    @cached_property
    def tasks(self) -> pd.DataFrame:
        """Its spans in seconds: ``start_s`` and ``end_s``."""
        return in_seconds(self.tables.spans)

    @cached_property
    def events(self) -> pd.DataFrame:
        """Its events in seconds: ``at_s``."""
        return in_seconds(self.tables.events)

    @property
    def iteration_s(self) -> float:
        """When the last node ended [s]; NaN if there was none."""
        ends_ps = self.tables.spans["end_ps"]
        return int(ends_ps.max()) / SECOND if len(ends_ps) else float("nan")

    @cached_property
    def records(self) -> Records:
        """Its messages that arrived as records, the collectives among its nodes counted from 0."""
        steps = {node: step for step, node in enumerate(dict.fromkeys(self.messages["node"]))}
        arrived = self.messages[self.messages["end_s"].notna()]
        step = arrived["node"].map(steps)
        return arrived.drop(columns="node").assign(step=step)[list(COLUMNS)].astype(COLUMNS)
