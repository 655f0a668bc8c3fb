"""What each circuit carried while it was lit, and what crossed an OCS where none was, by its packets."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from controller.circuits.status import LogEntry
from testbed.experiment.dilation import Dilation
from testbed.network.circuit_tap import Crossings, lit_by
from traffic.tables import empty

IN_THE_DARK = -1
"""The number of what no entry of a log had lit."""
KEYS = ["number", "source", "out"]
COLUMNS = {
    "ocs": "str",
    "number": "int64",
    "circuit": "str",
    "lit_s": "float64",
    "packets": "int64",
    "bytes": "int64",
    "first_s": "float64",
    "last_s": "float64",
}
"""The columns of what was carried, and their types."""
BLOCK = 1 << 19
"""How many packets are looked at at a time: the log of a long run is larger than all else in memory."""


def carried(
    crossings: Mapping[str, Crossings], logs: Mapping[str, Sequence[LogEntry]], dilation: Dilation
) -> pd.DataFrame:
    """Return what went over each circuit between two reconfigurations.

    Parameters
    ----------
    crossings
        The packets that left each OCS.
    logs
        What each did, in order.
    dilation
        The emulation's scale.

    Returns
    -------
    DataFrame
        ocs; number, which reconfiguration of the log had the circuit lit, from 0, or ``IN_THE_DARK``;
        circuit, as ``3>5``; lit_s, when that reconfiguration was lit; packets and bytes of the emulation,
        headers included; first_s and last_s, when they left. Times are real seconds since the OCS received
        its first command. A circuit that was lit and that nothing took has 0 packets.
    """
    tables = [_of_ocs(ocs, crossings[ocs], log, dilation) for ocs, log in logs.items() if log]
    return pd.concat(tables, ignore_index=True) if tables else empty(COLUMNS)


def _of_ocs(ocs: str, seen: Crossings, log: Sequence[LogEntry], dilation: Dilation) -> pd.DataFrame:
    began_s = log[0].command_s
    lit = pd.DataFrame(
        [
            (number, a, b, math.nan if entry.lit_s is None else entry.lit_s)
            for number, entry in enumerate(log)
            for a, b in entry.circuits
        ],
        columns=["number", "source", "out", "lit_s"],
    )
    blocks = [_taken(seen[at : at + BLOCK], log) for at in range(0, max(len(seen), 1), BLOCK)]
    found = (
        pd.concat(blocks)
        .groupby(KEYS, as_index=False)
        .agg(
            packets=("packets", "sum"),
            bytes=("bytes", "sum"),
            first_s=("first_s", "min"),
            last_s=("last_s", "max"),
        )
    )
    table = lit.merge(found, "outer", KEYS)
    table[["packets", "bytes"]] = table[["packets", "bytes"]].fillna(0).astype(np.int64)
    times = ["lit_s", "first_s", "last_s"]
    table[times] = (table[times] - began_s) / dilation.time
    circuit = [f"{a}>{b}" for a, b in zip(table["source"], table["out"], strict=True)]
    return table.assign(ocs=ocs, circuit=circuit)[list(COLUMNS)].astype(COLUMNS)


def _taken(seen: Crossings, log: Sequence[LogEntry]) -> pd.DataFrame:
    """Return what some of the packets took: a row per reconfiguration and circuit."""
    packets = pd.DataFrame({name: seen[name] for name in ("source", "out", "at_s")})
    packets["number"], packets["bytes"] = lit_by(seen, log), seen["bytes"].astype(np.int64)
    return packets.groupby(KEYS, as_index=False).agg(
        packets=("bytes", "size"), bytes=("bytes", "sum"), first_s=("at_s", "min"), last_s=("at_s", "max")
    )


def logged(table: pd.DataFrame, ocs: str) -> list[frozenset[str]]:
    """Return the circuits that an OCS reported, one set after the other."""
    own = table[(table["ocs"] == ocs) & (table["number"] != IN_THE_DARK)]
    return [frozenset(each) for _, each in own.groupby("number")["circuit"]]


def carrying(table: pd.DataFrame, ocs: str) -> list[frozenset[str]]:
    """Return those of them that carried packets."""
    own = table[(table["ocs"] == ocs) & (table["number"] != IN_THE_DARK)]
    used = own["packets"] > 0
    return [frozenset(each[used[each.index]]) for _, each in own.groupby("number")["circuit"]]


def packets_in_the_dark(table: pd.DataFrame, ocs: str) -> int:
    """Return how many packets crossed an OCS where it had lit no circuit."""
    return int(table.loc[(table["ocs"] == ocs) & (table["number"] == IN_THE_DARK), "packets"].sum())
