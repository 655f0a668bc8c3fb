"""Which circuits were lit when while an application ran, from what OCSes say of their reconfigurations."""

from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from controller.circuits.status import LogEntry
from testbed.apps.app_record import LIGHT


def light_table(logs: Mapping[str, Sequence[LogEntry]], began_s: float, duration_s: float) -> pd.DataFrame:
    """Return `testbed.apps.app_record.LIGHT`.

    Circuits that a partial reconfiguration leaves lit begin anew with those that it lights.

    Parameters
    ----------
    logs
        The reconfigurations of each OCS, in order.
    began_s
        The application's start [s, monotonic clock].
    duration_s
        How long it ran [s].
    """
    rows = [
        (name, circuits, start_s, end_s)
        for name, log in logs.items()
        for circuits, start_s, end_s in _lit(log, began_s, duration_s)
    ]
    return pd.DataFrame(rows, columns=list(LIGHT)).astype(LIGHT)


def _lit(log: Sequence[LogEntry], began_s: float, duration_s: float) -> Iterator[tuple[str, float, float]]:
    """Yield what one OCS showed, from when to when since the application's start [s]."""
    darkened_s = [*(each.dark_s for each in log), None][1:]
    for entry, dark_s in zip(log, darkened_s, strict=True):
        if entry.lit_s is None:
            continue
        start_s = max(entry.lit_s - began_s, 0.0)
        end_s = min(duration_s if dark_s is None else dark_s - began_s, duration_s)
        if end_s > start_s and entry.circuits:
            yield " ".join(f"{a}>{b}" for a, b in entry.circuits), start_s, end_s
