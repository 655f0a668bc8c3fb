"""The tables of an application's run: what took how long, processes, phases, hosts, flows and their paths."""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict

import numpy as np

from testbed.apps.app_record import AppProcess, AppRecord, HostTcp
from testbed.apps.phases import TrafficPhase, busy_share, least_pause_s
from testbed.report.heat_maps import UNITS as BYTES
from testbed.report.page import Block, Line, Sheet, counted
from testbed.report.report_html import MACHINE, MACHINE_CAPTION, machine_cells
from testbed.report.table import UNITS, number, significant

MOST_LINES = 40
"""Lines that a table shows; files in the results have all."""
COUNTED = "segments", "resent", "timeouts", "nic_drops", "unread"
"""The counters of `HostTcp`."""
LONGEST_COMMAND = 80
"""Characters of a command in a table."""


def time_sheet(record: AppRecord, phases: Sequence[TrafficPhase]) -> Sheet:
    """Return how long it took, here and at the fabric's own rates."""
    factor, duration_s = record.rate_factor, record.duration_s
    share = busy_share(phases, duration_s)
    busy_s = share * duration_s
    lines = [
        Line(["all processes, from the barrier to the end of the last", seconds_text(duration_s), "-"]),
        Line([f"network busy, {share:.0%} of it", seconds_text(busy_s), seconds_text(busy_s * factor)]),
        Line(["network idle: programs compute, start or end", seconds_text(duration_s - busy_s), "-"]),
    ]
    if not math.isnan(record.predicted_s):
        lines.insert(1, Line(["the same as the model predicts it", seconds_text(record.predicted_s), "-"]))
    stretched = (
        f"Programs that heed LIGHTRAIL_SCALE computed {record.compute_scale:g} times as long."
        if record.compute_scale != 1
        else "--compute-scale asks programs that heed LIGHTRAIL_SCALE to compute longer."
    )
    return Sheet(
        ("",),
        ("emulated", "at real rates"),
        [Block(lines)],
        f"Links have {factor:.3g} of their real rate: 1 s of network here is {seconds_text(factor)} there. "
        "Programs are not slowed down. They compute as fast as this machine does, so that idle time has no "
        "counterpart at real rates. What else runs on this machine slows their computing, which the verdict "
        f"does not judge. {stretched}",
    )


def process_sheet(record: AppRecord) -> Sheet:
    """Return how each process ended, those that failed first where there are many."""
    every = sorted(record.processes, key=lambda each: (each.exit_code == 0, each.rank))
    shown = sorted(every[:MOST_LINES], key=lambda each: each.rank)
    lines = [
        Line(
            [
                _host(record, each.host),
                str(each.rank),
                _command(each),
                _code(each),
                seconds_text(each.end_s),
                each.output,
            ]
        )
        for each in shown
    ]
    left = len(every) - len(shown)
    more = f" {left} more are left out, first those that ended with 0." if left else ""
    return Sheet(
        ("host", "rank", "command"),
        ("exit code", "ended after", "output"),
        [Block(lines)],
        f"Processes that the launcher started. An exit code above 128 is a signal's number plus 128.{more}",
    )


def event_sheet(record: AppRecord) -> Sheet:
    """Return the faults and orders of the run."""
    lines = [Line([each.what, each.text, seconds_text(each.at_s)]) for each in record.events[:MOST_LINES]]
    return Sheet(
        ("what", "of what"),
        ("after",),
        [Block(lines)],
        "Faults and orders, in emulated seconds since the processes began; missed: the run had ended before.",
    )


def phase_sheet(record: AppRecord, phases: Sequence[TrafficPhase]) -> Sheet:
    """Return when bytes flowed, and how many."""
    heaviest = sorted(phases, key=lambda phase: -phase.payload_bytes.sum())[:MOST_LINES]
    lines = []
    for place, phase in enumerate(phases, 1):
        if phase in heaviest:
            took_s, payload = phase.end_s - phase.start_s, int(phase.payload_bytes.sum())
            source, destination = np.unravel_index(phase.payload_bytes.argmax(), phase.payload_bytes.shape)
            pair = f"{_host(record, int(source))} to {_host(record, int(destination))}"
            cells = [
                str(place),
                seconds_text(phase.start_s),
                seconds_text(took_s),
                seconds_text(took_s * record.rate_factor),
            ]
            cells += [bytes_text(payload), bytes_text(int(phase.wire_bytes.sum()))]
            lines.append(Line([*cells, f"{8 * payload / took_s / 1e6:,.4g}", pair]))
    pause_s = least_pause_s(record.tap.bin_s)
    left = f" {len(phases) - len(lines)} more have fewer bytes." if len(lines) < len(phases) else ""
    outside = int(record.tables.traffic["payload_bytes"].sum() - sum(p.payload_bytes.sum() for p in phases))
    if outside:
        left += (
            f" {bytes_text(outside)} of payload are in no phase: they came where next to nothing was sent."
        )
    return Sheet(
        ("phase",),
        ("began", "took", "at real rates", "payload", "IP packets", "payload [Mbit/s]", "most bytes from"),
        [Block(lines)],
        f"Stretches of time in which hosts sent, divided by pauses of {seconds_text(pause_s)} and more. "
        "Payload is TCP's and UDP's, each byte once; IP packets have headers, acknowledgements and what was "
        f"sent again besides.{left}",
    )


def host_sheet(record: AppRecord) -> Sheet | None:
    """Return the counts of hosts that sent something, of many those whose TCP sent most again."""
    sent, received = (
        record.tables.traffic.groupby(end)["payload_bytes"].sum() for end in ("source", "destination")
    )
    used = [
        each
        for each in record.hosts
        if any(getattr(each, name) for name in COUNTED) or sent.get(each.host, 0)
    ]
    if not used:
        return None
    shown = sorted(used, key=lambda each: (-each.resent, each.host))[:MOST_LINES]
    lines = [
        _host_line(_host(record, each.host), sent.get(each.host, 0), received.get(each.host, 0), each)
        for each in sorted(shown, key=lambda each: each.host)
    ]
    totals = (sum(getattr(each, name) for each in used) for name in COUNTED)
    lines.append(_host_line("all hosts", sent.sum(), received.sum(), HostTcp(-1, *totals)))
    left = f" {len(used) - len(shown)} more hosts sent less again." if len(shown) < len(used) else ""
    return Sheet(
        ("host",),
        ("payload sent", "sent to it", "TCP segments", "sent again", "timeouts", "drops at NICs", "unread"),
        [Block(lines)],
        "Payload as the tap saw it leave NICs, also what was lost later; the others are the hosts' own "
        "counters. Unread: datagrams that came, and for which a socket had no room because its program read "
        f"too slowly.{left}",
    )


def _host_line(name: str, sent_bytes: float, received_bytes: float, counts: HostTcp) -> Line:
    again = f"{counts.resent:,} ({counts.resent / max(counts.segments, 1):.2%})"
    numbers = [f"{counts.segments:,}", again, f"{counts.timeouts:,}", f"{counts.nic_drops:,}"]
    numbers.append(f"{counts.unread:,}")
    return Line([name, bytes_text(sent_bytes), bytes_text(received_bytes), *numbers])


def flow_sheet(record: AppRecord) -> Sheet:
    """Return the flows with the most bytes, and the path that each had for most of its packets."""
    flows, paths = record.tables.flows, record.tables.paths
    most = paths.sort_values("packets", kind="stable").groupby("flow")["path"].last()
    count = paths.groupby("flow").size()
    lines = []
    for row in (
        flows.sort_values("wire_bytes", ascending=False, kind="stable").head(MOST_LINES).to_dict("records")
    ):
        flow = row["flow"]
        changes = max(int(count.get(flow, 0)) - 1, 0)
        cells = [_flow_text(record, row), str(most.get(flow, "-")), bytes_text(row["payload_bytes"])]
        cells += [
            bytes_text(row["resent_bytes"]),
            seconds_text(row["first_s"]),
            seconds_text(row["last_s"]),
            str(changes),
        ]
        lines.append(Line(cells))
    return Sheet(
        ("flow", "path"),
        ("payload", "again", "first packet", "last", "changes of path"),
        [Block(lines)],
        f"The {len(lines)} flows with the most bytes of {len(flows):,}; flows.parquet and paths.parquet have "
        "all. A path is the ports that send, the NIC first; of several the one of most packets.",
    )


def change_sheet(record: AppRecord) -> Sheet | None:
    """Return where flows changed their path, with the last time seen on one and the first on the next."""
    paths = record.tables.paths
    before = paths.groupby("flow")[["last_s", "path"]].shift()
    changed = paths.assign(left_s=before["last_s"], old=before["path"]).dropna()
    if not len(changed):
        return None
    flows = record.tables.flows.set_index("flow")
    lines = []
    for row in changed.sort_values("first_s", kind="stable").head(MOST_LINES).to_dict("records"):
        known = row["flow"] in flows.index
        text = _flow_text(record, flows.loc[row["flow"]].to_dict()) if known else "-"
        times = [f"{row['left_s']:.3f} s", f"{row['first_s']:.3f} s"]
        lines.append(
            Line([text, row["old"], row["path"], *times, f"{1e3 * (row['first_s'] - row['left_s']):.0f} ms"])
        )
    return Sheet(
        ("flow", "path before", "path after"),
        ("last seen", "first seen", "between"),
        [Block(lines)],
        f"{len(lines)} of {counted(len(changed), 'change')} of path. One packet of sixteen is followed; "
        "the path changed between the two times.",
    )


def beside_sheet(record: AppRecord) -> Sheet | None:
    """Return how long the generator and the model took for the same bytes."""
    beside = record.beside
    if beside is None:
        return None
    times = {
        f"the application ({record.transport})": beside.application_s,
        f"lightrail's generator ({beside.transport})": beside.generator_s,
        "the fluid model": beside.predicted_s,
    }
    lines = [
        Line(
            [
                who,
                seconds_text(took_s),
                _ratio(took_s, beside.predicted_s),
                _ratio(took_s, beside.generator_s),
                number(8 * beside.payload_bytes / took_s / 1e6 if took_s else math.nan, "{:,.4g}"),
            ]
        )
        for who, took_s in times.items()
    ]
    verdict = ", ".join([beside.verdict.word, *beside.verdict.reasons])
    mended = " Of what failed while the application ran, nothing fails here." if record.failed else ""
    return Sheet(
        ("who carried it",),
        ("took", "/ model", "/ generator", "payload [Mbit/s]"),
        [Block(lines)],
        f"{beside.what}, {bytes_text(beside.payload_bytes)}, over the same network; emulated seconds. "
        "Generator and model have bytes cross the NICs that flows took where a hash chose these; OpenMPI's "
        f"over NICs are spread evenly.{mended} The generator's run is {verdict}.",
    )


def machine_sheet(record: AppRecord) -> Sheet:
    """Return the measurements of the machine."""
    line = Line([record.verdict.word, *machine_cells(asdict(record.measures))], record.verdict.word)
    return Sheet(("verdict",), MACHINE, [Block([line])], MACHINE_CAPTION)


def bytes_text(size: float) -> str:
    """Return a number of bytes in words.

    Examples
    --------
    >>> bytes_text(4_194_304), bytes_text(0)
    ('4.19 MB', '0 bytes')
    """
    unit, scale = next(((name, each) for name, each in BYTES if size >= each), BYTES[-1])
    return f"{significant(size / scale)} {unit}"


def seconds_text(time_s: float) -> str:
    """Return a duration in the unit that suits it, a dash where there is none.

    Examples
    --------
    >>> seconds_text(0.5), seconds_text(110.6), seconds_text(0.0), seconds_text(math.nan)
    ('500 ms', '111 s', '0 s', '-')
    """
    unit, scale = next(((name, each) for name, each in UNITS if time_s >= each), ("s", 1.0))
    return "-" if math.isnan(time_s) else f"{significant(time_s / scale)} {unit}"


def _ratio(time_s: float, of_s: float) -> str:
    return number(time_s / of_s if of_s else math.nan, "{:.2f}")


def _host(record: AppRecord, index: int) -> str:
    return record.fabric.servers[index].name


def _code(process: AppProcess) -> str:
    return "ended" if process.exit_code is None else str(process.exit_code)


def _command(process: AppProcess) -> str:
    text = " ".join(process.command)
    return text if len(text) <= LONGEST_COMMAND else f"{text[: LONGEST_COMMAND - 3]}..."


def _flow_text(record: AppRecord, row: Mapping[Hashable, object]) -> str:
    ends = [
        f"{_host(record, int(str(row[end])))} {row[f'{end}_address']}:{row[f'{end}_port']}"
        for end in ("source", "destination")
    ]
    return f"{' > '.join(ends)}, {row['protocol']}"
