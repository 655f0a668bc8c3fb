"""When messages were under way, and when they waited: for circuits, or since a link on their path was down.

A message waits while its collective is held, until a first byte of it can go over circuits, and while a link
on its path is down; all along if it was given up before a byte of it went where there are circuits. What
waits behind other bytes does not wait in this sense.
"""

import numpy as np
import pandas as pd

from topologies.fabric import Fabric, Port
from traffic.clock import NEVER
from traffic.tables import LIGHT, Tables, in_seconds

Span = tuple[int, int]
"""From when to when [ps]."""
STRETCH = ["node", "source", "destination", "start_ps", "end_ps"]


def timed(tables: Tables) -> pd.DataFrame:
    """Return the messages that were released, from when nothing held their collective back any more.

    Returns
    -------
    DataFrame
        The columns of `Tables.messages` with start_ps, since_ps and end_ps: since_ps is when it was released
        where its collective was held for circuits, else start_ps. One that was given up ends when its
        collective did.
    """
    messages = tables.messages[tables.messages["released_ps"] < NEVER]
    node, end_ps = messages["node"].to_numpy(), messages["end_ps"].to_numpy()
    let_go_ps, last_ps, held_ps = np.zeros((3, len(tables.nodes)), np.int64)
    collectives = tables.spans[tables.spans["gpu"] < 0]
    of_span = collectives["node"].to_numpy()
    let_go_ps[of_span] = collectives["released_ps"]
    last_ps[of_span] = collectives["end_ps"]
    held_ps[of_span] = collectives["held_ps"]
    start_ps = np.maximum(messages["released_ps"], let_go_ps[node])
    return messages.assign(
        start_ps=start_ps,
        since_ps=start_ps.where(held_ps[node] == NEVER, messages["released_ps"]),
        end_ps=np.where(end_ps < NEVER, end_ps, last_ps[node]),
    )


def under_way_and_waiting(tables: Tables, fabric: Fabric) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the stretches in which messages were under way, and those in which they waited.

    Returns
    -------
    DataFrame, DataFrame
        Rows of each: node, source and destination (GPUs), start_s and end_s [real s].
    """
    messages = timed(tables)
    go_ps, stalls = _could_go_ps(tables, messages), _stalls(tables, fabric)
    end_ps = messages["end_ps"]
    down_ps, up_ps = (stalls[at].reindex(messages.index).fillna(end_ps) for at in ("down_ps", "up_ps"))
    under_way = _stretches(messages, (go_ps, down_ps), (up_ps, end_ps))
    return under_way, _stretches(messages, (messages["since_ps"], go_ps), (down_ps, up_ps))


def outages(tables: Tables, fabric: Fabric) -> dict[Port, list[Span]]:
    """Return from when to when the link at each port was down, at both ends of links that ever were."""
    found: dict[Port, list[Span]] = {}
    since: dict[int, int] = {}
    changes = tables.links.sort_values("at_ps", kind="stable")
    for number, at_ps, is_up in zip(changes["port"], changes["at_ps"], changes["up"], strict=True):
        spans = found.setdefault(tables.ports[number], [])
        if not is_up and number not in since:
            since[number] = at_ps
            spans.append((at_ps, NEVER))
        elif is_up and number in since:
            spans[-1] = since.pop(number), at_ps
    return {end: spans for port, spans in found.items() if spans for end in fabric.both_ends([port])}


def _stretches(messages: pd.DataFrame, *ends_ps: tuple[pd.Series, pd.Series]) -> pd.DataFrame:
    """Return stretches of messages from some times to others, those that last."""
    parts = [messages.assign(start_ps=start_ps, end_ps=end_ps)[STRETCH] for start_ps, end_ps in ends_ps]
    found = pd.concat(parts)
    return in_seconds(found[found["end_ps"] > found["start_ps"]])


def _could_go_ps(tables: Tables, messages: pd.DataFrame) -> pd.Series:
    """Return from when on each message could go."""
    legs = tables.legs[tables.legs["message"] >= 0]
    lit_ps = legs[legs["medium"] == LIGHT].groupby("message")["first_ps"].min()
    go_ps = messages["start_ps"].clip(lower=lit_ps.reindex(messages.index, fill_value=0))
    is_never = messages["given_up"] & messages["crosses"] & ~messages.index.isin(legs["message"])
    return go_ps.where(tables.light.empty | ~is_never, messages["end_ps"])


def _stalls(tables: Tables, fabric: Fabric) -> pd.DataFrame:
    """Return from when to when messages waited since a link on their path was down: down_ps, up_ps."""
    down = outages(tables, fabric)
    rows = [
        (number, *span)
        for number, path in enumerate(tables.paths)
        for port in path
        for span in down.get(port, ())
    ]
    on_path = pd.DataFrame(rows, columns=["path", "down_ps", "up_ps"], dtype="int64")
    met = tables.legs[tables.legs["message"] >= 0].merge(on_path, on="path")
    met["down_ps"] = met[["down_ps", "first_ps"]].max(axis=1)
    met["up_ps"] = met[["up_ps", "last_ps"]].min(axis=1)
    return met[met["up_ps"] > met["down_ps"]].groupby("message").agg({"down_ps": "min", "up_ps": "max"})
