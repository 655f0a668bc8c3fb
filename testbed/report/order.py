"""What a report says of the order in which packets arrived: a row per scheme, where it is known."""

import math
from collections.abc import Sequence
from itertools import groupby

import pandas as pd

from testbed.report.means import Point, over_seeds, points
from testbed.report.page import Block, Line, Sheet
from testbed.report.table import left_out_texts, number, significant
from testbed.trust.outcome import LEFT_OUT

HEADERS = ("in order", "p50", "p99", "most", "held [kB]")
CAPTION = (
    "Order: how datagrams of a message overtook each other (RFC 4737), means over seeds. In order: the share "
    "that no later one overtook. p50, p99, most: by how many packets of the emulation the median one was "
    "overtaken, 99 % at most, and any at most. Held: the most that a receiver that delivers in order would "
    "hold of one message behind a gap, at real scale. This one does not: a packet counts as it arrives."
)


def order_sheets(table: pd.DataFrame) -> list[Sheet]:
    """Return the table of order, a block per workload; none where nothing is known.

    Parameters
    ----------
    table
        From `testbed.trust.outcome.summary`.
    """
    rows = _known(table)
    if not rows:
        return []
    over = ["transport"] if len({point.transport for point in rows}) > 1 else []
    blocks = [
        Block([_line(point, shows_transport=bool(over)) for point in mine], f"Order, {workload}")
        for workload, mine in groupby(rows, lambda point: point.workload)
    ]
    said = [CAPTION, *left_out_texts({word for point in rows for word in point.words})]
    return [Sheet(["scheme", *over, "verdict"], HEADERS, blocks, " ".join(said))]


def order_text(table: pd.DataFrame) -> str:
    """Return the same in a sentence, over all workloads; nothing where nothing is known."""
    known, said = table[table["overtaken"].notna()], list[str]()
    for (scheme, transport), rows in known.groupby(["name", "transport"], sort=False):
        void = rows["verdict"].isin(LEFT_OUT).to_numpy()
        share, p99, most, held_bytes = (
            over_seeds(rows[name].to_numpy(dtype=float), void).value
            for name in ("overtaken", "overtaken_p99", "overtaken_max", "held_bytes")
        )
        said.append(
            f"{scheme} over {transport} {share:.1%}, 99% of all by {p99:.0f} at most, any by {most:.0f}, "
            f"{significant(held_bytes / 1e3)} kB held"
        )
    return f"Packets overtaken: {'; '.join(said)}." if said else ""


def _known(table: pd.DataFrame) -> Sequence[Point]:
    """Return the points whose order is known."""
    return [point for point in points(table) if not math.isnan(point["overtaken"].value)]


def _line(point: Point, *, shows_transport: bool) -> Line:
    words = [point.name, *([point.transport] if shows_transport else []), point.verdict]
    extents = [point[f"overtaken_{which}"].value for which in ("p50", "p99", "max")]
    numbers = [
        number(100 * (1 - point["overtaken"].value), "{:.1f} %"),
        *(number(extent, "{:.0f}") for extent in extents),
        significant(point["held_bytes"].value / 1e3),
    ]
    return Line([*words, *numbers], point.word, "void" if point.void else "")
