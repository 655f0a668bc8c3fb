"""The report: one HTML file that says what was run, what came of it, and whether to believe it.

What a run has to say is its `Page`; what can be read off a summary alone is read here, once for all runs.
"""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from urllib.parse import quote

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from testbed.report.claims import Claim, side_by_side
from testbed.report.images import DOTS_PER_INCH
from testbed.report.means import WORDS
from testbed.report.page import Block, Line, Page, Plot, Sheet, counted
from testbed.report.similitude_table import similitude_caption, similitude_rows
from testbed.report.table import held_text, number, range_text, significant
from topologies.printable import printable

TEMPLATES = Path(__file__).parent / "templates"
PIXELS_PER_INCH = 95
"""Of a browser, at which the plots' letters are a little smaller than the text's."""
NOTEBOOK_BYTES = 250_000
"""Of the plots that a notebook shows of a run, and keeps in its file, at most."""
Row = Mapping[str, object]
POINT = ("verdict", "name", "transport", "workload", "reasons", "advice")
"""What the banner says of points that are not faithful; seeds with all of it in common stand together."""
RUN_OF = ("workload", "name", "transport", "seed", "verdict")
"""What names a row of the machine's table."""


def report_html(page: Page, images: Mapping[str, bytes], unfinished: int = 0) -> str:
    """Return a run's report.

    Parameters
    ----------
    page
        What it says.
    images
        The PNG of each plot, by its name.
    unfinished
        How many experiments have no outcome, because the run was stopped.
    """
    run, emulated = page.run, page.table[page.table["verdict"] != "model"]
    return page_template("report.html").render(
        page=page,
        run=run,
        unfinished=unfinished,
        counts=_counts(page.table),
        doubts=_doubts(emulated),
        findings=_findings(emulated),
        claims=_claims(page.claims),
        transports=list(dict.fromkeys(claim.transport or "measured" for claim in page.claims)),
        claims_count=held_text(page.claims),
        fabrics=[page_image(plot, images[plot.name]) for plot in page.fabrics],
        plots=[page_image(plot, images[plot.name]) for plot in page.plots],
        fidelity=_fidelity(emulated) if len(emulated) else None,
        similitude=similitude_rows(run.similitude),
        similitude_caption=similitude_caption(run.similitude, run.real_link_delay_s),
        settings={
            "Settings": flat(together(run.settings)),
            "Calibration": flat(run.calibration),
            "Made with": [("datapath", run.datapath), *flat(run.versions), *flat(run.machine)],
        },
        seeds=_seeds(page.table),
    )


def notebook_html(page: Page, directory: Path, written: Path) -> str:
    """Return the tables of a report, as many plots as are small together, and a link to the report.

    Parameters
    ----------
    page
        What the report says.
    directory
        Where it is, as it was asked for.
    written
        The same from anywhere; a plot that is not there as PNG is counted, not shown.
    """
    files = {plot: written / f"{plot.name}.png" for plot in page.plots}
    there = {plot: file for plot, file in files.items() if file.is_file()}
    sizes = accumulate(file.stat().st_size for file in there.values())
    shown = [plot for plot, size in zip(there, sizes, strict=True) if size <= NOTEBOOK_BYTES]
    return page_template("notebook.html").render(
        page=page,
        plots=[page_image(plot, files[plot].read_bytes()) for plot in shown],
        left=counted(len(page.plots) - len(shown), "more plot"),
        path=directory,
        link=quote(f"{directory}/report.html"),
    )


def page_template(name: str) -> Template:
    """Return one of the templates of `TEMPLATES`."""
    return Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, finalize=_printable
    ).get_template(name)


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


def together(values: Mapping[str, object]) -> dict[str, object]:
    """Return nested values with equal neighbours said once.

    Examples
    --------
    >>> together({"h0:0": {"mtu": 9000}, "h0:1": {"mtu": 9000}, "leaf0:0": {"mtu": 1500}})
    {'h0:0 and 1 alike': {'mtu': 9000}, 'leaf0:0': {'mtu': 1500}}
    """
    nested = {key: together(value) if isinstance(value, Mapping) else value for key, value in values.items()}
    said: dict[str, object] = {}
    for key, value in nested.items():
        if not isinstance(value, dict):
            said[key] = value
        elif value not in said.values():
            alike = sum(value == other for other in nested.values()) - 1
            said[f"{key} and {alike} alike" if alike else key] = value
    return said


def _counts(table: pd.DataFrame) -> list[tuple[str, int]]:
    counts = table["verdict"].value_counts()
    return [(word, int(counts[word])) for word in reversed(WORDS) if word in counts]


def _doubts(emulated: pd.DataFrame) -> list[Row]:
    """Return what is not to be believed and why, the worst first; seeds with the same reasons together."""
    seeds: dict[tuple[str, ...], list[str]] = {}
    for word in ("unsound", "void", "strained"):
        for row in emulated[emulated["verdict"] == word].to_dict("records"):
            about = tuple(str(row[name]) for name in POINT)
            seeds.setdefault(about, []).append(str(row["seed"]))
    return [
        {
            "word": word,
            "point": f"{scheme} over {transport}, {workload}, seed {', '.join(mine)}",
            "reasons": reasons or "No reason was given.",
            "advice": advice.rstrip("."),
        }
        for (word, scheme, transport, workload, reasons, advice), mine in seeds.items()
    ]


def _findings(emulated: pd.DataFrame) -> list[Row]:
    """Return where the time went for the points whose prediction disagrees."""
    found = emulated[emulated.get("findings", pd.Series("", emulated.index)) != ""]
    return [
        {
            "point": f"{row['name']} over {row['transport']}, {row['workload']}, seed {row['seed']}",
            "said": row["findings"],
        }
        for row in found.to_dict("records")
    ]


def _seeds(table: pd.DataFrame) -> str:
    """Return the seeds in words: ``0, 1, 2``, or ``0 to 49``; rows that draw nothing have none."""
    seeds = sorted({int(seed) for seed in table["seed"].dropna()})
    if len(seeds) > 8 and seeds == list(range(seeds[0], seeds[-1] + 1)):
        return f"{seeds[0]} to {seeds[-1]}"
    return ", ".join(map(str, seeds))


def _printable(value: object) -> object:
    """Return a value as a page may have it; what the template itself made is `Markup` already."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return printable(value, keep="\n")
    return value


def page_image(plot: Plot, png: bytes) -> Row:
    """Return a plot as a template shows it."""
    pixels = int.from_bytes(png[16:20], "big")  # of a PNG's header
    width = round(PIXELS_PER_INCH * pixels / DOTS_PER_INCH)
    return {"caption": plot.caption, "image": b64encode(png).decode(), "width": width}


def _claims(claims: Sequence[Claim]) -> dict[str, list[Row]]:
    """Return the claims of each source, and what each transport gives."""
    transports = list(dict.fromkeys(claim.transport for claim in claims))
    groups: dict[str, list[Row]] = {}
    for row in side_by_side(claims):
        first = next(iter(row.values()))
        groups.setdefault(first.source, []).append(
            {
                "text": first.text,
                "expected": range_text(first.expected),
                "rulings": [_ruling(row.get(transport)) for transport in transports],
                "reasons": _bases(row),
            }
        )
    return groups


def _ruling(claim: Claim | None) -> Row:
    """Return what was measured of a claim and its ruling, nothing where it was not judged."""
    if claim is None:
        return {"measured": "", "ruling": ""}
    return {
        "measured": number(claim.measured, claim.pattern.replace("x", "×")),
        "ruling": claim.verdict,
    }


def _bases(row: Mapping[str, Claim]) -> list[str]:
    """Return what the rulings rest on, and why they are as they are: once where it is the same."""
    under: dict[str, list[str]] = {}
    for transport, claim in row.items():
        why = "; ".join(filter(None, [claim.reason, claim.basis]))
        under.setdefault(why, []).append(transport)
    if len(under) == 1:
        return list(under)
    return [f"{', '.join(transports)}: {reason}" for reason, transports in under.items()]


def _fidelity(emulated: pd.DataFrame) -> Sheet:
    """Return what was seen of the machine in each emulation, workload by workload."""
    lines = [
        Line([*(str(row[name]) for name in RUN_OF), *machine_cells(row)], word)
        for workload in dict.fromkeys(emulated["workload"])
        for row in emulated[emulated["workload"] == workload].to_dict("records")
        if (word := str(row["verdict"]))
    ]
    return Sheet(RUN_OF, MACHINE, [Block(lines)], MACHINE_CAPTION)


def machine_cells(row: Mapping[str, object]) -> list[str]:
    """Return the cells of `MACHINE` from a row that has the `Measures` of a run."""
    seen = {name: float(str(row[name])) for name in MEASURES}
    share = f" ({100 * seen['retransmits'] / seen['packets']:.2f} %)" if seen["packets"] > 0 else ""
    return [
        f"{number(seen['retransmits'], '{:.0f}')}{share}",
        number(seen["packets_late"], "{:.0f}"),
        number(seen["queue_marks"], "{:.0f}"),
        " / ".join(number(seen[name], "{:.0f}") for name in ("queue_drops", "socket_drops", "switch_drops")),
        number(100 * seen["cpu_pressure"], "{:.0f} %"),
        number(seen["switch_cpu"], "{:.2f}"),
        number(100 * seen["engine_cpu"], "{:.0f} %"),
        significant(1e3 * seen["lateness_s"]),
        " / ".join(significant(1e3 * seen[name]) for name in ("stall_s", "switch_stall_s")),
        significant(seen["aggregate_bps"] / 1e9),
        number(100 * seen["worst_link_error"], "{:.1f} %"),
        number(100 * seen["control_error"], "{:.1f} %"),
    ]


MACHINE = [
    "sent again", "late", "marked", "drops", "CPU pressure", "switch CPUs", "engine CPU", "lateness [ms]",
    "stalls [ms]", "aggregate [Gbit/s]", "link error", "control",
]  # fmt: skip
MACHINE_CAPTION = (
    "What was seen of this machine, at emulated scale. Sent again: packets that TCP sent once more, or that "
    "counted as lost; over circuits, datagrams. Late: datagrams that arrived and did "
    "not count, since they had counted as lost or were taken back. Marked: packets that port queues marked "
    "(ECN), for tcp:dctcp. Drops: by full port queues, by switches that were too slow to take packets, by "
    "switches for other reasons. CPU pressure: share of the run in which something waited for a CPU. Switch "
    "CPUs: used by Open vSwitch; where packet switches route, the share of the CPU that forwarded most. "
    "Engine CPU: the share of one that the engine used, which has one thread. Lateness: how long the engine "
    "kept an event waiting at most, but for one in ten. Stalls: the longest that the engine and switches "
    "stood still. Link error: the worst of the links sampled before the run, against its nominal rate; "
    "circuits, which go one way, have none. Control: how far traffic of a known duration, at the same "
    "packet rate, was off it before or after. A dash is unknown."
)
MEASURES = (
    "retransmits", "packets", "queue_marks", "queue_drops", "socket_drops", "switch_drops", "cpu_pressure",
    "switch_cpu", "engine_cpu", "lateness_s", "stall_s", "switch_stall_s", "aggregate_bps",
    "worst_link_error", "control_error", "packets_late",
)  # fmt: skip
