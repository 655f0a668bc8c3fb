"""The report: one HTML file that says what was run, what came of it, and whether to believe it."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from testbed.claims import Claim
from testbed.experiment import Experiment
from testbed.figures import Plot
from testbed.means import WORDS, in_order, points
from testbed.outcome import Measures, Outcome, Verdict
from testbed.run import Run
from testbed.table import bound_cells, caption, number, point_cells, range_text, significant, time_unit
from topologies.fabric import Fabric

TEMPLATES = Path(__file__).parent / "templates"
PIXELS_PER_INCH = 95
"""Of a browser, at which the plots' letters are a little smaller than the text's."""
Row = Mapping[str, object]


def report_html(
    *,
    run: Run,
    outcomes: Sequence[Outcome],
    table: pd.DataFrame,
    claims: Sequence[Claim],
    plots: Sequence[tuple[Plot, bytes]],
    unfinished: int = 0,
) -> str:
    """Return the report of a run.

    Parameters
    ----------
    run
        What was run.
    outcomes, table
        What came of it, at least one, and its summary.
    claims
        What papers say, held against the summary.
    plots
        Each with its PNG.
    unfinished
        How many experiments have no outcome, because the run was stopped.
    """
    unit, _ = time_unit(table)
    environment = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined)
    return environment.get_template("report.html").render(
        run=run,
        sentence=sentence(outcomes),
        unfinished=unfinished,
        counts=_counts(table),
        doubts=_doubts(outcomes),
        unit=unit,
        blocks=_blocks(table, run.baseline),
        caption=caption(points(table, run.baseline), run.baseline),
        claims={
            source: list(map(_claim_row, group)) for source, group in groupby(claims, lambda c: c.source)
        },
        plots=[_image(plot, png) for plot, png in plots],
        fidelity=_fidelity(outcomes),
        settings={
            "Settings": flat(run.settings),
            "Calibration": flat(run.calibration),
            "Made with": [*flat(run.versions), *flat(run.machine)],
        },
        seeds=", ".join(map(str, sorted({outcome.experiment.seed for outcome in outcomes}))),
    )


def sentence(outcomes: Sequence[Outcome]) -> str:
    """Return what was run, in one sentence or two."""
    experiments = [outcome.experiment for outcome in outcomes]
    schemes = in_order(experiment.policy for experiment in experiments)
    workloads = dict.fromkeys(experiment.collective.name for experiment in experiments)
    seeds = len({experiment.seed for experiment in experiments})
    fabrics = dict.fromkeys(experiment.fabric for experiment in experiments)
    text = (
        f"{_counted(len(workloads), 'workload')} ({', '.join(workloads)}) under "
        f"{_counted(len(schemes), 'scheme')} ({', '.join(schemes)}), {_counted(seeds, 'seed')}, over "
        f"{' and '.join(map(fabric_text, fabrics))}."
    )
    emulated = [outcome.experiment for outcome in outcomes if outcome.records is not None]
    return f"{text} {_scale(emulated)}"


def fabric_text(fabric: Fabric) -> str:
    """Return a fabric in words: ``a rail fabric of 8 servers with 4 NICs of 100 Gbit/s each``."""
    nics = sorted({server.nics for server in fabric.servers})
    rates = sorted({fabric.nic_rate_bps(nic) for nic in fabric.nics})
    spines = sum(switch.tier == 1 for switch in fabric.switches)
    return (
        f"a {fabric.name.replace('_', '-')} fabric of {_counted(len(fabric.servers), 'server')} with "
        f"{_span(nics)} NICs of {_span([rate / 1e9 for rate in rates])} Gbit/s each"
        + (f" and {_counted(spines, 'spine')}" if spines else "")
    )


def flat(values: Mapping[str, object], prefix: str = "") -> list[tuple[str, str]]:
    """Return nested values as pairs of a dotted name and a text.

    Examples
    --------
    >>> flat({"mtu": 9000, "queue": {"bytes": 2097152}})
    [('mtu', '9000'), ('queue.bytes', '2097152')]
    """
    pairs = []
    for key, value in values.items():
        if isinstance(value, Mapping):
            pairs += flat(value, f"{prefix}{key}.")
        else:
            pairs.append((f"{prefix}{key}", f"{value:.6g}" if isinstance(value, float) else str(value)))
    return pairs


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("s" if count != 1 else "")


def _span(numbers: Sequence[float]) -> str:
    return f"{numbers[0]:g}" if len(numbers) == 1 else f"{numbers[0]:g} to {numbers[-1]:g}"


def _scale(emulated: Sequence[Experiment]) -> str:
    if not emulated:
        return "Nothing was emulated: all numbers are the fluid model's."
    scales = dict.fromkeys(experiment.dilation for experiment in emulated)
    each = [f"rates × {s.rate:.3g}, bytes × {s.volume:.3g}, so times × {s.time:.3g}" for s in scales]
    return f"Emulated with real packets ({'; '.join(each)}); all numbers below are at real scale."


def _counts(table: pd.DataFrame) -> list[tuple[str, int]]:
    counts = table["verdict"].value_counts()
    return [(word, int(counts[word])) for word in reversed(WORDS) if word in counts]


def _doubts(outcomes: Sequence[Outcome]) -> list[Row]:
    """Return what is not to be believed and why, the worst first; seeds with the same reasons together."""
    doubtful = [outcome for outcome in outcomes if outcome.verdict.word in ("strained", "void")]
    seeds: dict[tuple[str, str, Verdict], list[str]] = {}
    for outcome in sorted(doubtful, key=lambda outcome: -WORDS.index(outcome.verdict.word)):
        experiment = outcome.experiment
        about = experiment.policy, experiment.collective.name, outcome.verdict
        seeds.setdefault(about, []).append(str(experiment.seed))
    return [
        {
            "word": verdict.word,
            "point": f"{scheme}, {workload}, seed {', '.join(mine)}",
            "reasons": " ".join(verdict.reasons) or "No reason was given.",
            "advice": verdict.advice.rstrip("."),
        }
        for (scheme, workload, verdict), mine in seeds.items()
    ]


def _blocks(table: pd.DataFrame, baseline: str) -> list[Row]:
    _, scale = time_unit(table)
    rows = points(table, baseline)
    blocks = [list(block) for _, block in groupby(rows, lambda point: point.workload)]
    return [
        {
            "workload": block[0].workload,
            "note": block[0].note,
            "points": [{"cells": point_cells(p, scale), "word": p.word, "void": p.void} for p in block],
            "bound": bound_cells(block, scale),
        }
        for block in blocks
    ]


def _image(plot: Plot, png: bytes) -> Row:
    width = round(PIXELS_PER_INCH * plot.figure.get_figwidth())
    return {"caption": plot.caption, "image": b64encode(png).decode(), "width": width}


def _claim_row(claim: Claim) -> Row:
    return {
        "text": claim.text,
        "expected": range_text(claim.expected),
        "measured": number(claim.measured, claim.pattern.replace("x", "×")),
        "ruling": claim.verdict,
        "reason": claim.reason,
    }


def _fidelity(outcomes: Sequence[Outcome]) -> list[Row]:
    """Return what was seen of the machine in each emulation, workload by workload."""
    emulated = [outcome for outcome in outcomes if outcome.records is not None]
    workloads = list(dict.fromkeys(outcome.experiment.collective.name for outcome in emulated))
    by_workload = sorted(emulated, key=lambda outcome: workloads.index(outcome.experiment.collective.name))
    return [
        {
            "about": (o.experiment.collective.name, o.experiment.policy, o.experiment.seed),
            "word": o.verdict.word,
            "numbers": _seen(o.measures),
        }
        for o in by_workload
    ]


def _seen(seen: Measures) -> list[str]:
    share = f" ({100 * seen.retransmits / seen.packets:.2f} %)" if seen.packets else ""
    return [
        f"{seen.retransmits}{share}",
        f"{seen.queue_drops} / {seen.socket_drops} / {seen.switch_drops}",
        f"{100 * seen.cpu_pressure:.0f} %",
        f"{seen.switch_cpu:.2f} + {seen.engine_cpu:.2f}",
        significant(1e3 * seen.lateness_s),
        significant(seen.aggregate_bps / 1e9),
        f"{100 * seen.worst_link_error:.1f} %",
    ]
