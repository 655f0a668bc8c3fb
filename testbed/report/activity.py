"""What each server and each OCS did when, as spans that are read off a run: for pictures and for traces."""

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from testbed.core.run import Run
from testbed.report.waits import outages, timed, under_way_and_waiting
from topologies.fabric import Fabric
from traffic.clock import NEVER, SECOND
from traffic.tables import LIT, in_seconds

LANES = ("computes", "sends", "receives")
"""What a server does at the same time as something else."""
ENDS = {"sends": "source", "receives": "destination"}
"""The GPU of a message whose server does so."""
SPANS = ["server", "lane", "node", "start_s", "end_s"]


def server_spans(run: Run, fabric: Fabric) -> pd.DataFrame:
    """Return when each server worked on each node of the job.

    Parameters
    ----------
    run
        How the job ran.
    fabric
        Which server each GPU is in.

    Returns
    -------
    DataFrame
        A row per stretch of time: server (index), lane (of `LANES`), node, start_s and end_s [real s].
        Rows of a server, a lane and a node do not touch: what several GPUs or messages did meanwhile is one.
        A message inside a server is sent and received there; one that waits (`waiting_spans`) is neither.
    """
    tasks = run.tasks[run.tasks["gpu"] >= 0]
    servers = np.asarray(fabric.gpu_servers)[tasks["gpu"].to_numpy(int)]
    messages, _ = under_way_and_waiting(run.tables, fabric)
    return _merged_of([tasks.assign(server=servers, lane="computes"), *_of_ends(run, fabric, messages)])


def waiting_spans(run: Run, fabric: Fabric) -> pd.DataFrame:
    """Return when servers had messages that waited (`testbed.report.waits`): rows as of `server_spans`."""
    _, messages = under_way_and_waiting(run.tables, fabric)
    return _merged_of(_of_ends(run, fabric, messages))


def _of_ends(run: Run, fabric: Fabric, messages: pd.DataFrame) -> list[pd.DataFrame]:
    """Return stretches of messages as those of the servers that send, and of those that receive."""
    servers, names = np.asarray(fabric.gpu_servers), run.names(messages)
    return [
        messages.assign(node=names, server=servers[messages[gpu].to_numpy(int)], lane=lane)
        for lane, gpu in ENDS.items()
    ]


def _merged_of(parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    filled = [part[SPANS] for part in parts if len(part)] or [parts[0][SPANS]]
    return merged(pd.concat(filled), SPANS[:3])


def timed_messages(run: Run) -> pd.DataFrame:
    """Return the messages that were released, from when nothing held their collective back any more.

    Returns
    -------
    DataFrame
        A row per message: node, source, destination, bytes, crosses (it leaves its server), start_s and
        end_s [real s]. One that was given up ends when its collective did.
    """
    messages = timed(run.tables)
    kept = messages[["source", "destination", "bytes", "crosses", "start_ps", "end_ps"]]
    return in_seconds(kept.assign(node=run.names(messages)))


def light_spans(run: Run, fabric: Fabric) -> pd.DataFrame:
    """Return when each OCS was lit, and when dark; before its first reconfiguration nothing is known.

    Returns
    -------
    DataFrame
        A row per stretch of time, those of an OCS one after the other: ocs; circuits, the pairs of ports
        that were lit in order, empty while all or some were dark, or the links of all its ports were down;
        start_s and end_s [real s].
    """
    light = run.tables.light
    lit = [
        " ".join(sorted(f"{a}>{b}" for a, b in circuits)) or "-" if what == LIT else ""
        for what, circuits in zip(light["what"], light["circuits"], strict=True)
    ]
    start_s = in_seconds(light)["at_s"].to_numpy(float)
    ocs = [run.tables.ocses[number] for number in light["ocs"]]
    spans = pd.DataFrame({"ocs": ocs, "circuits": lit, "start_s": start_s})
    spans["end_s"] = spans.groupby("ocs")["start_s"].shift(-1).fillna(run.iteration_s)
    for name, down_s, up_s in _dead_spans(run, fabric):
        mine, others = spans[spans["ocs"] == name], spans[spans["ocs"] != name]
        dead = pd.DataFrame([(name, "", down_s, min(up_s, run.iteration_s))], columns=spans.columns)
        before = mine.assign(end_s=mine["end_s"].clip(upper=down_s))
        after = mine.assign(start_s=mine["start_s"].clip(lower=up_s))
        spans = pd.concat([others, before, dead, after])
    # An OCS may go dark after the last byte has arrived.
    return spans[spans["end_s"] > spans["start_s"]].reset_index(drop=True)


def _dead_spans(run: Run, fabric: Fabric) -> Iterator[tuple[str, float, float]]:
    """Yield OCSes with from when to when the links of all their ports were down [s]."""
    down = outages(run.tables, fabric)
    for ocs in run.tables.ocses if down else ():
        dead = [(0, NEVER)]
        for port in fabric.used_ports(ocs):
            both = [(max(a[0], b[0]), min(a[1], b[1])) for a in dead for b in down.get(port, ())]
            dead = [(start_ps, end_ps) for start_ps, end_ps in both if start_ps < end_ps]
        yield from ((ocs, start_ps / SECOND, end_ps / SECOND) for start_ps, end_ps in dead)


def merged(spans: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return spans merged where they are equal in some columns and overlap or touch.

    Parameters
    ----------
    spans
        The columns of ``by``, start_s and end_s; others are left out.
    by
        What tells spans apart.
    """
    start_s, end_s = (spans[name].to_numpy(float) for name in ("start_s", "end_s"))
    codes = [pd.factorize(spans[name])[0].astype(np.int32) for name in by]
    order = np.arange(len(spans))
    for key in (start_s, *reversed(codes)):  # each is nearly sorted as runs have it: faster than lexsort
        order = order[np.argsort(key[order], kind="stable")]
    start_s, end_s = start_s[order], end_s[order]
    new = np.ones(len(order), dtype=bool)
    new[1:] = np.any([code[order][1:] != code[order][:-1] for code in codes], axis=0)
    later_s = np.cumsum(new) * 1.1 * end_s.max(initial=0.0)  # so that one maximum runs over all of them
    until_s = np.maximum.accumulate(end_s + later_s)
    new[1:] |= (start_s + later_s)[1:] > until_s[:-1]
    first = np.flatnonzero(new)
    kept: pd.DataFrame = spans[[*by]].iloc[order[first]].reset_index(drop=True)
    return kept.assign(start_s=start_s[first], end_s=np.maximum.reduceat(end_s, first))


def shares(
    spans: pd.DataFrame,
    row: NDArray[np.int64],
    name: NDArray[np.int64],
    shape: tuple[int, int, int],
    end_s: float,
) -> NDArray[np.float64]:
    """Return which share of each of many equal bins of time is covered by spans.

    Parameters
    ----------
    spans
        With start_s and end_s.
    row, name
        Where each span counts.
    shape
        How many rows, names and bins.
    end_s
        Where the last bin ends [s]; what lies behind it is left out.

    Returns
    -------
    ndarray
        Of the shape; spans that overlap count more than once.
    """
    rows, names, bins = shape
    change = np.zeros((rows, names, bins + 2))
    for column, sign in (("start_s", 1.0), ("end_s", -1.0)):
        at = np.clip(spans[column].to_numpy(float) / end_s, 0.0, 1.0) * bins
        number = at.astype(int)
        np.add.at(change, (row, name, number), sign * (1 - (at - number)))
        np.add.at(change, (row, name, number + 1), sign * (at - number))
    return np.asarray(change.cumsum(axis=2)[..., :bins])
