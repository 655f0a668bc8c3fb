"""Which circuits were lit when while an application ran, from what OCSes say of their reconfigurations."""

import math
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
    """Yield what one OCS showed, from when to when since the application's start [s]; dark is no circuit."""
    darkened_s = [*(each.dark_s for each in log), None][1:]
    for entry, next_dark_s in zip(log, darkened_s, strict=True):
        if not entry.circuits:
            continue
        end_s = math.inf if next_dark_s is None else next_dark_s
        lit_s = end_s if entry.lit_s is None else entry.lit_s
        shown = [(" ".join(f"{a}>{b}" for a, b in entry.circuits), lit_s, end_s)]
        if entry.dark_s is not None and not entry.partial:
            shown.insert(0, ("", entry.dark_s, lit_s))
        for circuits, *times_s in shown:
            start_s, until_s = (min(max(each - began_s, 0.0), duration_s) for each in times_s)
            if until_s > start_s:
                yield circuits, start_s, until_s
