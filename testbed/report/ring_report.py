"""The report of a training step: its collectives by kind and size, each beside its closed form."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pandas as pd

from testbed.experiment.experiment import LIMIT
from testbed.report.claims import Claim
from testbed.report.node_report import how_text, node_page, node_sheet, titled, whole
from testbed.report.nodes import nodes_of
from testbed.report.page import Block, Line, Page, Sheet
from testbed.report.run_json import RunRecord
from testbed.report.table import number, significant
from testbed.trust.agreement import ALL_LIMITED, MARK, MARKED, agreement_text
from testbed.trust.outcome import Outcome
from topologies.fabric import Fabric
from traffic.collectives.pattern import Pattern
from traffic.collectives.ring import Ring
from traffic.metrics import GB, bus_bytes, size_bytes
from traffic.rings_over import closed_form_s

WORDS = ("collective", "over")
HEADERS = ("GPUs", "rings", "count", "MB", "took", "busbw", "closed form", "/ closed form")
KIND = ["kind", "over", "gpus", "rings", "bytes"]
"""What is alike of the collectives in a row."""


def ring_page(
    run: RunRecord, outcomes: Sequence[Outcome], table: pd.DataFrame, claims: Sequence[Claim]
) -> Page:
    """Return the report of training steps: the collectives first, then what `node_page` has.

    Parameters
    ----------
    run, outcomes, table, claims
        As of `testbed.report.node_report.node_page`.
    """
    page = node_page(run, outcomes, table, claims)
    return replace(
        page,
        results=ring_sheet(outcomes),
        more=[node_sheet(outcomes)],
        definitions=(*DEFINITIONS, *page.definitions),
    )


def ring_sheet(outcomes: Sequence[Outcome]) -> Sheet:
    """Return the collectives of each outcome, a line per kind and size, and its iteration time."""
    emulated = any(outcome.emulated for outcome in outcomes)
    blocks = []
    for outcome in outcomes:
        rows = kinds_table(outcome).to_dict("records")
        lines = [
            Line([str(row["kind"]), str(row["over"]), *_cells({str(k): v for k, v in row.items()}, emulated)])
            for row in rows
        ]
        blocks += [Block(lines, titled(outcome, outcomes)), Block([_iteration(outcome, emulated)])]
    marked = any(MARK in cell for block in blocks for line in block.lines for cell in line.cells[2:])
    notes = dict.fromkeys(outcome.experiment.job.note for outcome in outcomes)
    said = "; ".join(dict.fromkeys(how_text(outcome) for outcome in outcomes))
    return Sheet(
        WORDS,
        (*HEADERS, *(("model", "/ model") if emulated else ())),
        blocks,
        f"Means over collectives that are alike, milliseconds and 1e9 bytes/s at real scale, {said}. "
        + " ".join(f"{note[0].upper()}{note[1:]}." for note in notes if note)
        + (f" {MARKED}" if marked else "")
        + (f" {ALL_LIMITED}" if any(each.experiment.predicted_as == LIMIT for each in outcomes) else ""),
    )


def kinds_table(outcome: Outcome) -> pd.DataFrame:
    """Return a row per kind and size of an outcome's collectives, the largest share of time first.

    Returns
    -------
    DataFrame
        kind; over, ``network`` or ``NVLink``; gpus and rings; bytes, as nccl-tests' size; count; took_s and
        predicted_s, means; busbw and closed_busbw [1e9 bytes/s], NaN where there is no closed form.
    """
    experiment = outcome.experiment
    nodes = nodes_of(outcome)
    took_s, predicted_s = (nodes.set_index("node")[column].to_dict() for column in ("took_s", "predicted_s"))
    known: dict[Pattern, dict[str, object]] = {}
    rows = []
    for node in experiment.job.collectives:
        if node.pattern not in known:  # equal collectives have equal patterns
            known[node.pattern] = _about(node.pattern, experiment.fabric)
        if node.name in took_s:
            times = {"took_s": took_s[node.name], "predicted_s": predicted_s[node.name]}
            rows.append({**known[node.pattern], **times})
    alike = pd.DataFrame(rows).groupby(KIND, sort=False)
    kinds = alike.agg(
        count=("took_s", "size"),
        took_s=("took_s", "mean"),
        predicted_s=("predicted_s", "mean"),
        bus_bytes=("bus_bytes", "mean"),
        closed_s=("closed_s", "mean"),
    ).reset_index()
    kinds["busbw"] = kinds["bus_bytes"] / GB / kinds["took_s"]
    kinds["closed_busbw"] = kinds["bus_bytes"] / GB / kinds["closed_s"]
    total = (kinds["count"] * kinds["took_s"]).sort_values(ascending=False, kind="stable")
    return kinds.drop(columns=["bus_bytes", "closed_s"]).loc[total.index].reset_index(drop=True)


def _about(pattern: Pattern, fabric: Fabric) -> dict[str, object]:
    """Return what a pattern is, what passes its busiest GPU, and its closed form."""
    servers = {fabric.gpu_servers[gpu] for gpu in pattern.gpus}
    ring = pattern if isinstance(pattern, Ring) else None
    return {
        "kind": pattern.name,
        "over": "network" if len(servers) > 1 else "NVLink",
        "gpus": len(pattern.gpus),
        "rings": len(ring.rings) if ring else 0,
        "bytes": size_bytes(pattern),
        "bus_bytes": bus_bytes(pattern),
        "closed_s": closed_form_s(ring, fabric) if ring else math.nan,
    }


def _cells(row: Mapping[str, float], emulated: bool) -> list[str]:
    cells = [
        f"{row['gpus']:.0f}",
        f"{row['rings']:.0f}" if row["rings"] else "-",
        f"{row['count']:.0f}",
        significant(row["bytes"] / 1e6),
        significant(1e3 * row["took_s"]),
        significant(row["busbw"]),
        significant(row["closed_busbw"]),
        number(row["busbw"] / row["closed_busbw"], "{:.2f}"),
    ]
    if emulated:
        predicted_s = row["predicted_s"]
        ratio = row["took_s"] / predicted_s if predicted_s else math.nan
        cells += [significant(1e3 * predicted_s), agreement_text(ratio)]
    return cells


def _iteration(outcome: Outcome, emulated: bool) -> Line:
    """Return the line of the whole step."""
    cells = whole(outcome, emulated)
    gpus, empty = str(outcome.experiment.job.gpus), [""] * 3
    return Line(["iteration", "all", gpus, *empty, cells[2], *empty, *cells[5:]], look="bound")


DEFINITIONS = (
    (
        "busbw",
        "As nccl-tests defines it: 2 (n - 1) / n of the bytes of an AllReduce, (n - 1) / n of those of an "
        "AllGather, a ReduceScatter or an all-to-all, and what the busiest GPU owes of others, over the "
        "time; GB = 1e9 bytes.",
    ),
    (
        "closed form",
        "The busbw of rings that have their links to themselves: the rates of the slowest NIC, or NVLink, of "
        "each, together. Collectives that share links are below it.",
    ),
    (
        "over NVLink",
        "Bytes inside a server are modelled in the emulation too: where steps are short its times are those "
        "of the engine's clock.",
    ),
)
