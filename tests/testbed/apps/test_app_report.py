"""The files and the report of an application's run."""

import re
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from testbed.apps.app_record import LINKS, AppRecord, AppTables
from testbed.report.app_files import TABLES, read_app
from testbed.report.app_plots import link_groups, links_plot
from testbed.report.app_report import outcome, sentence, write_app_report
from testbed.trust.fidelity import NOTHING_SENT
from testbed.trust.outcome import Verdict
from tests.testbed.apps.records import all_to_all, eventful, record_of
from topologies.errors import ScenarioError
from topologies.parallel_ocs import parallel_ocs_fabric
from topologies.rail import rail_fabric
from traffic.job_file import read_job
from traffic.readers.detect import read_trace
from traffic.tables import empty

FABRIC = rail_fabric(4, 2)
RECORD = record_of(FABRIC, all_to_all(4, [0.2, 1.5], 0.6, 6_000_000), 3.0)
SILENT = replace(
    RECORD,
    tables=AppTables(**{name: empty(columns) for name, columns in TABLES.items()}),
    hosts=(),
    processes=(),
)


def text_of(report: Path) -> str:
    """Return the text of a report, without its tags."""
    return " ".join(re.sub(r"<style>.*?</style>|<[^>]*>", " ", report.read_text(), flags=re.S).split())


@pytest.mark.parametrize("record", [RECORD, eventful(RECORD), SILENT])
def test_a_record_is_read_back_as_it_was_written(record: AppRecord, tmp_path: Path) -> None:
    write_app_report(record, tmp_path)
    back = read_app(tmp_path)
    for field in fields(AppRecord):
        found, expected = getattr(back, field.name), getattr(record, field.name)
        if isinstance(expected, AppTables):
            for table in TABLES:
                pd.testing.assert_frame_equal(
                    getattr(found, table), getattr(expected, table).reset_index(drop=True)
                )
        else:
            assert np.array_equal(found, expected) or repr(found) == repr(expected), field.name


def test_what_is_no_record_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="holds no run of an application"):
        read_app(tmp_path)
    write_app_report(RECORD, tmp_path)
    file = tmp_path / "app.json"
    file.write_text(file.read_text().replace('"launcher"', '"starter"'))
    with pytest.raises(ScenarioError, match=r"app.json, launcher: is missing"):
        read_app(tmp_path)


def test_the_demand_is_what_trace_and_job_read(tmp_path: Path) -> None:
    write_app_report(RECORD, tmp_path)
    for file, count in (("matrix.csv", 2), ("phases/1.csv", 1), ("phases/2.csv", 1)):
        job = read_trace(tmp_path / file)
        (node,) = job.collectives
        matrix = node.pattern.demand.matrix  # type: ignore[attr-defined]
        assert (job.gpus, matrix.sum()) == (FABRIC.gpus, count * 12 * 6_000_000)
    assert len(read_job(tmp_path / "job.json").nodes) == 3


def test_the_report_says_what_ran_what_it_did_and_whether_to_believe_it(tmp_path: Path) -> None:
    said = text_of(write_app_report(eventful(RECORD), tmp_path))
    for words in (
        "4 processes on 4 hosts, over a rail fabric of 4 servers",
        "strained It ran for 3 s and ended with exit code 139. Hosts sent 144 MB of payload",
        "Captured packets: h0-nic0.pcap.",
        "none of 144,000 packets was missed",
        "switches waited for a CPU 12 % of the time. To do: run fewer processes.",
        "network busy, 40% of it 1.2 s 1.2 ms",
        "Programs are not slowed down.",
        "h0 0 python alltoall.py 139 3 s hosts/h0.out",
        "failed nic:0:0 1.5 s missed nic:0:1",
        "the application (tcp:dctcp) 1.1 s 1.10 1.05",
        "Of what failed while the application ran, nothing fails here.",
        "1 of 1 change of path.",
        "Payload is 12.000 of the demand, between two hosts 12.000 to 12.000.",
        "python scenarios/rails_sparse.py --trace",
    ):
        assert words in said, words


def test_of_many_processes_and_hosts_those_that_matter_are_shown(tmp_path: Path) -> None:
    fabric = rail_fabric(64, 1)
    record = record_of(fabric, all_to_all(64, [0.0], 0.02, 1000), 1.0)
    processes = [replace(each, exit_code=int(each.host == 63)) for each in record.processes]
    said = text_of(write_app_report(replace(record, processes=tuple(processes)), tmp_path))
    assert "h38 38" in said
    assert "h39 39" not in said
    assert "h63 63 python alltoall.py 1" in said
    assert "24 more are left out, first those that ended with 0." in said
    assert "24 more hosts sent less again." in said


def test_one_process_is_named_by_what_started_it() -> None:
    one = replace(RECORD, processes=RECORD.processes[:1])
    assert sentence(one).startswith("mpirun on h0, over a rail fabric")
    assert sentence(replace(one, launcher="each")).startswith("1 process on h0, over a rail fabric")


def test_a_run_in_which_nothing_was_sent_has_a_report(tmp_path: Path) -> None:
    report = write_app_report(replace(SILENT, verdict=Verdict("model", (NOTHING_SENT,))), tmp_path)
    assert "no verdict It ran for" in text_of(report)
    assert "Hosts sent 0 bytes of payload" in text_of(report)
    parts = ["What came of it", "Can it be believed?", "How to repeat it", "Definitions"]
    assert re.findall("<h2>(.*?)</h2>", report.read_text()) == parts
    assert not (tmp_path / "matrix.csv").exists()


def test_payload_of_no_phase_is_named(tmp_path: Path) -> None:
    trickle = all_to_all(4, [2.5], 0.3, 30_000)
    record = record_of(FABRIC, pd.concat([all_to_all(4, [0.2], 0.6, 6_000_000), trickle]), 3.0)
    said = text_of(write_app_report(record, tmp_path))
    assert "360 kB of payload are in no phase" in said
    assert "1 of 1 phases, 99.5% of all payload" in read_job(tmp_path / "job.json").note
    assert "in no phase" not in text_of(write_app_report(RECORD, tmp_path))


def test_packets_that_vanish_in_a_switch_are_named() -> None:
    links = RECORD.tables.links
    last = links[links["port"].str.startswith("leaf") & (links["packets"] > 100)].index[-1]
    dropped, vanished = (links.copy() for _ in range(2))
    for table in (dropped, vanished):
        table.loc[last, "packets"] -= 90
    dropped.loc[last, "drops"] += 90
    found = [
        outcome(replace(RECORD, tables=replace(RECORD.tables, links=each))) for each in (dropped, vanished)
    ]
    assert "gone into switches" not in outcome(RECORD) + found[0]
    assert "90 packets had gone into switches, and neither left them nor count as dropped" in found[1]


@pytest.mark.drawn
def test_every_plot_is_drawn(tmp_path: Path) -> None:
    write_app_report(eventful(RECORD), tmp_path)
    names = {"fabric", "sent", "hosts", "links", "queues", "light"}
    assert {path.stem for path in tmp_path.glob("*.png")} == names


def test_every_port_that_sends_is_in_one_group() -> None:
    for fabric in (FABRIC, parallel_ocs_fabric(3, 2, packet_switch=True)):
        ports = [port for group in link_groups(fabric) for port in group.ports]
        assert sorted(ports) == sorted(fabric.link_at)


def test_a_link_that_sends_at_its_rate_is_full_whatever_the_ticks() -> None:
    tick_s, rate_bytes_s = 0.13, FABRIC.nic_rate_bps(FABRIC.nics[0]) * RECORD.rate_factor / 8
    rows = [("h0:0", -0.01 + number * tick_s, round(rate_bytes_s * tick_s), 1, 0, 0) for number in range(25)]
    links = pd.DataFrame(rows, columns=list(LINKS)).astype(LINKS)
    figure = links_plot(replace(RECORD, tick_s=tick_s, tables=replace(RECORD.tables, links=links)))
    first = figure.axes[0].images[0].get_array()
    assert first is not None
    assert np.allclose(first[0], 1.0, rtol=1e-3)
    assert not np.any(first[1:])
