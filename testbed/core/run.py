"""The result of a job, emulated or predicted: its tables, and figures that are read of them."""

from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from testbed.audit.finding import Audit
from testbed.core.run_tables import message_texts
from topologies.fabric import Port
from traffic.clock import SECOND
from traffic.metrics import link_bytes
from traffic.records import COLUMNS, Records
from traffic.tables import Tables, in_seconds


@dataclass(frozen=True, eq=False)
class Run:
    """The result of a job; times since its start and bytes are real."""

    tables: Tables
    audit: Audit | None = None
    """The findings of the audit; None if it was not audited."""

    @cached_property
    def messages(self) -> pd.DataFrame:
        """Its messages as people read them: node, source, destination, bytes, start_s, end_s, path.

        Those that were given up have no end (NaN).
        """
        found = self.tables.messages
        return in_seconds(
            pd.DataFrame(
                {
                    "node": self.names(found),
                    "source": found["source"].astype("int64"),
                    "destination": found["destination"].astype("int64"),
                    "bytes": found["bytes"],
                    "start_ps": found["released_ps"],
                    "end_ps": found["end_ps"],
                    "path": pd.array(message_texts(self.tables), dtype="str"),
                }
            )
        )

    @cached_property
    def tasks(self) -> pd.DataFrame:
        """Its spans as people read them: node, gpu, start_s, end_s; a collective starts when it is ready."""
        found = self.tables.spans
        collective = found["gpu"] < 0
        return in_seconds(
            pd.DataFrame(
                {
                    "node": self.names(found),
                    "gpu": found["gpu"].astype("int64"),
                    "start_ps": found["ready_ps"].where(collective, found["first_ps"]),
                    "end_ps": found["end_ps"],
                }
            )
        )

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
        step, _ = pd.factorize(self.tables.messages["node"])
        found = self.messages.assign(step=step)[list(COLUMNS)]
        return found[found["end_s"].notna()].astype(COLUMNS)

    @cached_property
    def link_bytes(self) -> dict[Port, int]:
        """How many bytes each port sent: read from the legs once, for the summary and the plots."""
        return link_bytes(self.tables)

    def names(self, table: pd.DataFrame) -> pd.api.extensions.ExtensionArray:
        """Return the name of each row's node."""
        return pd.array(self.tables.nodes, dtype="str").take(table["node"].to_numpy())
