"""Runs of tables that a test writes in seconds."""

import re

import numpy as np
import pandas as pd

from testbed.core.run import Run
from topologies.fabric import Nic, Path
from traffic.clock import NEVER, SECOND
from traffic.records import NVLINK, path_of
from traffic.spraying.policy import QueuePair
from traffic.tables import DARK, LEGS, LIGHT_CHANGES, LIT, MESSAGES, PACKETS, SPANS, Tables
from traffic.tables import NVLINK as INSIDE


def run_of(messages: pd.DataFrame, tasks: pd.DataFrame, events: pd.DataFrame) -> Run:
    """Return the run of tables as people read them."""
    messages, tasks, events = map(in_picoseconds, (messages, tasks, events))
    nodes = tuple(dict.fromkeys([*tasks["node"], *messages["node"]]))
    paths: dict[tuple[QueuePair, Path], int] = {}
    rows, legs = [], []
    for number, (name, source, to, size, start_ps, end_ps, path) in enumerate(
        messages[["node", "source", "destination", "bytes", "start_ps", "end_ps", "path"]].itertuples(
            index=False, name=None
        )
    ):
        node, lost = nodes.index(name), end_ps == NEVER
        rows.append(
            (node, number, 0, source, to, size, start_ps, end_ps, lost, path != NVLINK, -1),
        )
        for text in path.split():
            leg, over = (f"{size}@", (INSIDE, -1, -1)) if text == NVLINK else (text, None)
            if over is None:
                which = _over(text.partition("@")[2])
                number_of = paths.setdefault(which, len(paths))
                over = PACKETS, number_of, number_of
            carried = int(leg.partition("@")[0])
            legs.append((node, number, 0, 0, *over, source, to, carried, start_ps, end_ps, -1, -1))
    let_go = events[events["what"] == "released"]
    released = dict(zip(let_go["which"], let_go["at_ps"], strict=True))
    spans = [
        (nodes.index(name), gpu, start_ps, NEVER, since_ps, since_ps, end_ps)
        for name, gpu, start_ps, end_ps in tasks.itertuples(index=False, name=None)
        for since_ps in [released.get(name, start_ps) if gpu < 0 else start_ps]
    ]
    light = [
        (ocs, at_ps, LIT if what == "lit" else DARK, tuple(_circuit(pair) for pair in pairs if pair != "-"))
        for at_ps, what, which in events.itertuples(index=False, name=None)
        if what in ("drained", "switching", "lit", "shown")
        for ocs, *pairs in [which.split(" ")]
    ]
    ocses = tuple(dict.fromkeys(ocs for ocs, *_ in light))
    light = [(ocses.index(ocs), *row) for ocs, *row in light]
    return Run(
        Tables(
            messages=pd.DataFrame(rows, columns=list(MESSAGES)).astype(MESSAGES),
            legs=pd.DataFrame(legs, columns=list(LEGS)).astype(LEGS),
            spans=pd.DataFrame(spans, columns=list(SPANS)).astype(SPANS),
            events=events,
            light=pd.DataFrame(light, columns=list(LIGHT_CHANGES)).astype(LIGHT_CHANGES),
            ocses=ocses,
            nodes=nodes,
            lanes=tuple(lane for lane, _ in paths),
            paths=tuple(path for _, path in paths),
        )
    )


def _circuit(text: str) -> tuple[int, int]:
    """Return a circuit, written as ``0>3``."""
    near, _, far = text.partition(">")
    return int(near), int(far)


def _over(text: str) -> tuple[QueuePair, Path]:
    """Return the lane and path that a leg is named by; one that is named by its path has any lane."""
    if ">" in text:
        numbers = list(map(int, re.findall(r"\d+", text)))
        return QueuePair(Nic(*numbers[:2]), Nic(*numbers[2:4]), numbers[4]), ()
    return QueuePair(Nic(0, 0), Nic(0, 0), 0), path_of(text)


def changed(
    run: Run,
    *,
    messages: pd.DataFrame | None = None,
    tasks: pd.DataFrame | None = None,
    events: pd.DataFrame | None = None,
) -> Run:
    """Return a run with other tables, as people read them."""
    return run_of(
        run.messages if messages is None else messages,
        run.tasks if tasks is None else tasks,
        run.events if events is None else events,
    )


def in_picoseconds(table: pd.DataFrame) -> pd.DataFrame:
    """Return what `in_seconds` made a table of: NaN becomes `NEVER`."""
    times = {name: f"{name[:-2]}_ps" for name in table.columns if name.endswith("_s")}
    counted = {
        name: np.where(table[name].notna(), np.rint(table[name].fillna(0) * SECOND).astype(np.int64), NEVER)
        for name in times
    }
    return table.assign(**counted).rename(columns=times)
