"""Runs of tables that a test writes in seconds."""

import re

import pandas as pd

from testbed.run.run import Run
from topologies.fabric import Nic, Path
from traffic.clock import NEVER
from traffic.records import NVLINK, path_of
from traffic.spraying.policy import QueuePair
from traffic.tables import LEGS, MESSAGES, PACKETS, SPANS, Tables, in_picoseconds
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
    spans = [
        (nodes.index(name), gpu, start_ps, NEVER, start_ps, start_ps, end_ps)
        for name, gpu, start_ps, end_ps in tasks.itertuples(index=False, name=None)
    ]
    return Run(
        Tables(
            messages=pd.DataFrame(rows, columns=list(MESSAGES)).astype(MESSAGES),
            legs=pd.DataFrame(legs, columns=list(LEGS)).astype(LEGS),
            spans=pd.DataFrame(spans, columns=list(SPANS)).astype(SPANS),
            events=events,
            nodes=nodes,
            lanes=tuple(lane for lane, _ in paths),
            paths=tuple(path for _, path in paths),
        )
    )


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
