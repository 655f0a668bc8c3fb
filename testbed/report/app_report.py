"""The report of an application's run, one HTML file: what ran, what it did, and whether to believe it."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from textwrap import shorten

from testbed.apps.app_record import AppRecord
from testbed.apps.phases import TrafficPhase, busy_share, demand_of, traffic_phases
from testbed.machine.files import write_whole
from testbed.report import pages
from testbed.report.app_files import FABRIC, JOB, MATRIX, write_app
from testbed.report.app_plots import demand_plot, light_plot, links_plot, queues_plot, sent_plot
from testbed.report.app_sheets import (
    beside_sheet,
    bytes_text,
    change_sheet,
    event_sheet,
    flow_sheet,
    host_sheet,
    machine_sheet,
    phase_sheet,
    process_sheet,
    seconds_text,
    time_sheet,
)
from testbed.report.collective_report import VERDICTS, fabric_text
from testbed.report.page import Format, Plot, Sheet, counted
from testbed.report.report_html import flat, page_image, page_template, together
from testbed.report.table import significant

LONGEST_TITLE = 60
"""Characters of a command in a title."""
EVENT_LINES = " Red lines: a fault (whole), its end or an order (dashed)."


@dataclass(frozen=True, eq=False)
class ReportPart:
    """A part of the report."""

    title: str
    sheets: Sequence[Sheet]
    plots: Sequence[Plot] = ()


def write_app_report(record: AppRecord, directory: Path, formats: Sequence[Format] = ("png",)) -> Path:
    """Write all files of a run into its directory, which is there; return where the report is.

    Parameters
    ----------
    record
        The run.
    directory
        Outputs of processes and captures lie there already.
    formats
        Of the plots' files; the report embeds PNGs in any case.

    Raises
    ------
    MachineError
        If something cannot be written.
    """
    phases = traffic_phases(record.tables.traffic, len(record.fabric.servers), record.tap.bin_s)
    write_app(record, phases, directory)
    sections, fabrics = sections_of(record, phases), pages.fabric_plots([record.fabric])
    plots = [*fabrics, *(plot for section in sections for plot in section.plots)]
    images = pages.drawn(plots, tuple(dict.fromkeys(("png", *formats))))
    for form in formats:
        for name, image in images[form].items():
            write_whole(directory / f"{name}.{form}", image)
    report = directory / "report.html"
    write_whole(report, app_html(record, phases, directory, images["png"]))
    return report


def app_html(
    record: AppRecord, phases: Sequence[TrafficPhase], directory: Path, images: Mapping[str, bytes]
) -> str:
    """Return the report.

    Parameters
    ----------
    record, phases
        The run.
    directory
        Where its files are, for commands that read them.
    images
        The PNG of each plot, by its name.
    """
    sections = [
        {
            "title": section.title,
            "sheets": section.sheets,
            "images": [page_image(plot, images[plot.name]) for plot in section.plots],
        }
        for section in sections_of(record, phases)
    ]
    command = shlex.join(record.command)
    return page_template("app.html").render(
        record=record,
        title=shorten(command, LONGEST_TITLE, placeholder=" ..."),
        sentence=sentence(record),
        outcome=outcome(record),
        has_verdict=record.verdict.word != "model",
        fabrics=[page_image(plot, images[plot.name]) for plot in pages.fabric_plots([record.fabric])],
        sections=sections,
        command_line=shlex.join(record.command_line),
        replays=replays(record, directory),
        files=" ".join([FILES, *[f"Captured packets: {', '.join(record.pcaps)}."] * bool(record.pcaps)]),
        settings={
            "Settings": flat(together(record.settings)),
            "Made with": [*flat(record.versions), *flat(record.machine)],
        },
        definitions=DEFINITIONS,
    )


def sections_of(record: AppRecord, phases: Sequence[TrafficPhase]) -> list[ReportPart]:
    """Return the parts of the report, without those about which there is nothing to say."""
    tables = record.tables
    sent, has_paths = bool(len(tables.traffic)), bool(len(tables.flows))
    parts = [
        ReportPart(
            "What came of it",
            _sheets(
                time_sheet(record, phases),
                process_sheet(record),
                event_sheet(record) if record.events else None,
            ),
        ),
        ReportPart("Beside the generator", _sheets(beside_sheet(record))),
        ReportPart(
            "What it sent",
            _sheets(phase_sheet(record, phases) if sent else None, host_sheet(record)),
            _sent_plots(record, phases) if sent else [],
        ),
        ReportPart("Links", [], _link_plots(record)),
        ReportPart("Paths", _sheets(flow_sheet(record), change_sheet(record)) if has_paths else []),
        ReportPart("Can it be believed?", [machine_sheet(record)]),
    ]
    return [part for part in parts if part.sheets or part.plots]


def _sheets(*sheets: Sheet | None) -> list[Sheet]:
    return [sheet for sheet in sheets if sheet]


def _sent_plots(record: AppRecord, phases: Sequence[TrafficPhase]) -> list[Plot]:
    """Return the plots of what hosts sent, over time and between each other."""
    share = busy_share(phases, record.duration_s)
    caption = (
        "What all hosts together handed to the network: packets with their headers (grey), and payload that "
        f"was sent for the first time (blue). Pale: {counted(len(phases), 'phase')}, {share:.0%} of the time."
    )
    return [
        Plot("sent", partial(sent_plot, record, phases), f"{caption}{EVENT_LINES}"),
        Plot("hosts", partial(demand_plot, record), f"{DEMAND}{demand_text(record)}"),
    ]


def _link_plots(record: AppRecord) -> list[Plot]:
    """Return the plots of links, queues and circuits over time."""
    links = record.tables.links
    queued = bool((links[["backlog_bytes", "drops"]] > 0).to_numpy().any())
    plots = {
        "links": (links_plot, LINKS, len(links) > 0),
        "queues": (queues_plot, QUEUES, queued),
        "light": (light_plot, LIGHT, len(record.tables.light) > 0),
    }
    return [
        Plot(name, partial(draw, record), f"{caption}{EVENT_LINES}")
        for name, (draw, caption, wanted) in plots.items()
        if wanted
    ]


def sentence(record: AppRecord) -> str:
    """Return a sentence on processes and network."""
    processes, hosts = len(record.processes), len({each.host for each in record.processes})
    started = f"{processes} processes on {counted(hosts, 'host')}"
    if processes == 1:
        host = record.fabric.servers[record.processes[0].host].name
        started = f"{record.launcher} on {host}" if record.launcher != "each" else f"1 process on {host}"
    return (
        f"{started}, over {fabric_text(record.fabric)}, by {record.transport}, "
        f"at {significant(record.rate_factor)} of the fabric's rates."
    )


def outcome(record: AppRecord) -> str:
    """Return how it ended, and what the tap saw of it."""
    tap, share = record.tap, record.tap.cpu_s / max(record.duration_s, 1e-9)
    payload = int(record.tables.traffic["payload_bytes"].sum())
    missed = (
        f"{tap.missed:,} of {tap.packets + tap.missed:,} packets were missed, so that bytes lack them"
        if tap.missed
        else f"none of {tap.packets:,} packets was missed"
    )
    ran = f"It ran for {seconds_text(record.duration_s)} and ended with exit code {record.exit_code}."
    sent = f"Hosts sent {bytes_text(payload)} of payload to each other"
    if not tap.packets + tap.missed:
        return f"{ran} {sent}."
    return f"{ran} {sent}; {missed}. Listening took {share:.1%} of a CPU.{lost_text(record)}"


def lost_text(record: AppRecord) -> str:
    """Return how many packets were lost in switches and count as dropped nowhere; nothing if none was.

    Open vSwitch hands packets to a port in batches. Where one finds the queue full, those behind it in its
    batch are lost too, and neither the queue nor the daemon counts them. Links that are cut have packets that
    were on them.
    """
    fabric, counts = record.fabric, record.tables.links.groupby("port")[["packets", "drops"]].sum()
    came, left = counts["packets"].to_dict(), counts.sum(axis=1).to_dict()
    packet_switches = {switch.name for switch in fabric.switches if switch.kind == "packet"}
    lost = 0
    for port in fabric.link_at:
        if port.node in packet_switches:
            lost += came.get(str(fabric.peer(port)), 0) - left.get(str(port), 0)
    if lost <= 0:
        return ""
    return (
        f" By the end {lost:,} packets had gone into switches, and neither left them nor count as dropped. "
        "Open vSwitch loses what it hands to a port in one batch behind a packet that finds the queue full, "
        "and what is for a link that is down."
    )


def demand_text(record: AppRecord) -> str:
    """Return how near payload came to the demand, a sentence; nothing where there is no demand."""
    if record.demand is None or not record.demand.any():
        return ""
    payload, _ = demand_of(record.tables.traffic, len(record.fabric.servers))
    wanted = record.demand > 0
    ratios = payload[wanted] / record.demand[wanted]
    return (
        f" Payload is {payload.sum() / record.demand.sum():.3f} of the demand, between two hosts "
        f"{ratios.min():.3f} to {ratios.max():.3f}."
    )


def replays(record: AppRecord, directory: Path) -> list[str]:
    """Return the commands that replay what was sent; none where packet switches do not join all hosts."""
    if record.fabric.ocs_parts or not record.tables.traffic["payload_bytes"].any():
        return []
    fabric = ["--fabric", str(directory / FABRIC), "--schemes", "rails,ecmp,pxn", "--model-only"]
    return [
        shlex.join(["python", "scenarios/rails_sparse.py", "--trace", str(directory / MATRIX), *fabric]),
        shlex.join(["python", "scenarios/job.py", "--job", str(directory / JOB), *fabric]),
    ]


DEMAND = (
    "Bytes from each host (row) to each other (column). Payload is the data of TCP and UDP, each byte once; "
    "IP packets have headers, acknowledgements and what was sent again besides."
)
LINKS = (
    "The rate of each direction of a link, as a share of the link's emulated rate, from counters that were "
    "read ten times a second. A row is named for the port that sends; of many links it is the busiest of "
    "several."
)
QUEUES = (
    "The most that was seen waiting at ports of switches (colour), and ticks in which they dropped packets "
    "(red squares). Ports at which nothing ever waited are left out."
)
LIGHT = "What each OCS showed: a colour for each set of circuits, black while it was dark for the next."
FILES = (
    "app.json has all about the run but the tables, which are links, traffic, flows, paths and light, as "
    "Parquet. hosts.csv is payload from server to server, hosts_wire.csv packets. matrix.csv is hosts.csv "
    "from GPU to GPU: packets do not say which GPU of a server sent them, so bytes are spread evenly. "
    "phases/ has the same of each phase, job.json phases and pauses as a job, hosts/ what processes wrote."
)
DEFINITIONS = [
    (
        "payload",
        "The data of TCP and UDP between hosts, counted where it leaves its host's NIC, each byte once.",
    ),
    ("IP packets", "The lengths of IP packets: headers, acknowledgements and what was sent again count."),
    (
        "phase",
        "A stretch of time in which hosts send; pauses divide them. Less than 1 % of what hosts send while "
        "they are busy counts as a pause.",
    ),
    (
        "busy",
        "Time in a phase, at whatever rate: a program that sends slowly keeps the network busy for longer, "
        "also at real rates. Beside the generator (--against) one sees who was slow.",
    ),
    (
        "emulated, real",
        "Emulated seconds are this machine's. At real rates a phase takes them times the factor.",
    ),
    ("path", "The ports that send a packet, from the NIC of its host to the last switch, seen on the wire."),
    *VERDICTS[:3],
]
