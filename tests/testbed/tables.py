"""What holds of the tables of any run: legs bring what messages are, while these are under way."""

import numpy as np
import pandas as pd

from traffic.clock import NEVER
from traffic.tables import FAULTS, LEGS, LINKS, MESSAGES, NVLINK, SPANS, Tables


def check_tables(tables: Tables) -> None:
    """Check that the legs of messages that arrived sum to them, hop by hop, and lie within their times."""
    messages, legs, spans = tables.messages, tables.legs, tables.spans
    for table, columns in ((messages, MESSAGES), (legs, LEGS), (spans, SPANS)):
        assert table.dtypes.astype(str).to_dict() == columns
    assert tables.links.columns.tolist() == list(LINKS)
    assert tables.faults.columns.tolist() == list(FAULTS)
    assert (messages["given_up"] == (messages["end_ps"] == NEVER)).all()
    assert (legs["bytes"] > 0).all()
    assert (legs["first_ps"] <= legs["last_ps"]).all()
    assert ((legs["medium"] == NVLINK) == (legs["lane"] < 0)).all()
    assert ((legs["medium"] == NVLINK) == (legs["path"] < 0)).all()
    assert (legs["path"] < len(tables.paths)).all()
    assert (legs["lane"] < len(tables.lanes)).all()
    own = legs[legs["message"] >= 0]
    mine = messages.loc[own["message"]].reset_index(drop=True)
    arrived = ~mine["given_up"].to_numpy()
    assert (mine["node"].to_numpy() == own["node"].to_numpy()).all()
    assert (mine["released_ps"].to_numpy() <= own["first_ps"].to_numpy()).all()
    assert (mine["end_ps"].to_numpy() >= own["last_ps"].to_numpy())[arrived].all()
    whole = messages[~messages["given_up"]]
    check_sums(own[own["hop"] == 0].groupby("message")["bytes"].sum(), whole[whole["group"] < 0]["bytes"])
    crossing = legs[(legs["group"] >= 0) & (legs["hop"] == 0)]
    grouped = whole[whole["group"] >= 0].groupby("group")["bytes"].sum()
    check_sums(crossing.groupby("group")["bytes"].sum(), grouped)
    assert (spans["ready_ps"] <= spans["released_ps"]).all()
    assert (spans["released_ps"] <= spans["first_ps"]).all()
    assert (spans["first_ps"] <= spans["end_ps"]).all()


def check_sums(carried: "pd.Series[int]", owed: "pd.Series[int]") -> None:
    """Check that what was carried of all that arrived is what it is."""
    np.testing.assert_array_equal(carried.reindex(owed.index).fillna(0).to_numpy(), owed.to_numpy())


def rows(table: pd.DataFrame, *columns: str) -> list[tuple[int, ...]]:
    """Return some columns of a table as rows."""
    return [tuple(row) for row in table[list(columns)].to_numpy().tolist()]
