"""Run.json, the reports and the documents name transport and datapath, and claim no more than they are."""

import json
import re
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from testbed.experiment.dilation import Dilation
from testbed.live.sources import AckTraffic, Queueing
from testbed.machine.datapath import Datapath
from testbed.report.claims_circuits import circuit_claims
from testbed.report.collective_report import sentence
from testbed.report.results import ResultsDirectory
from testbed.report.run_json import RunRecord, datapath_of, experiments_of
from testbed.report.transports import (
    WHAT,
    acks_text,
    clairvoyant_text,
    shares_text,
    transport_sheets,
    transports_text,
)
from testbed.study.directories import new_run
from testbed.study.results_table import results_table
from testbed.trust.marks import MarkingRule, marking_rule
from testbed.trust.outcome import Outcome, Verdict
from tests.testbed.cases import outcome_of, small_outcomes
from tests.testbed.run_files import unsealed
from tests.testbed.test_ocs_report import big_switch, executed_of
from tests.tools import CHECKOUT
from topologies.errors import ScenarioError
from traffic.congestion.control import PerPacket, Pipe, Red
from traffic.congestion.ideal import Shares
from traffic.transports.host_settings import TransportSetup
from traffic.transports.registry import DATAGRAMS, NAMED


class Window(PerPacket):
    """A user's own congestion control, which changes nothing."""

    marks = Red(0.2, 0.8)


class SeesAll(Window):
    """One that says that it sees what no NIC can."""

    marks = Red(0.25, 0.25)
    overview = Shares

    def __init__(self, pipe: Pipe, rng: np.random.Generator, overview: Shares, number: int) -> None:
        super().__init__(pipe, rng)


OWN, SEES_ALL = f"{__name__}:Window", f"{__name__}:SeesAll"
RUN = RunRecord("rails_sparse", "RailS", ["rails_sparse.py"], datetime(2026, 1, 2))


@pytest.fixture(scope="module")
def packets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a run of collectives under the ideal transport."""
    with ResultsDirectory(RUN, out=tmp_path_factory.mktemp("packets")) as results:
        for outcome in small_outcomes(seeds=1):
            experiment = replace(outcome.experiment, transport=TransportSetup("ideal"))
            results.add(outcome_of(experiment, Verdict("faithful")))
    return results.path


@pytest.fixture(scope="module")
def circuits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a run of schedules."""
    run = new_run("ocs_spectra", "Schedules", report="circuits")
    with ResultsDirectory(run, claims=circuit_claims, out=tmp_path_factory.mktemp("circuits")) as results:
        results.add(executed_of("spectra"))
        results.add(big_switch())
    return results.path


def test_run_json_of_a_packet_run_names_its_transport(packets: Path) -> None:
    assert json.loads((packets / "run.json").read_text())["transports"] == ["ideal"]


def test_run_json_of_a_circuits_run_says_datagrams(circuits: Path) -> None:
    assert json.loads((circuits / "run.json").read_text())["transports"] == ["datagrams", "credit"]


def test_the_report_of_a_packet_run_names_the_ideal_transport(packets: Path) -> None:
    said = transports_text(["ideal"])
    assert said.startswith("Transport ideal: clairvoyant")
    assert f"All numbers below are at real scale. {said}</p>" in (packets / "report.html").read_text()


def test_the_report_of_a_circuits_run_says_datagrams(circuits: Path) -> None:
    assert "Transport datagrams: numbered packets over UDP" in (circuits / "report.html").read_text()


def test_every_transport_is_described_and_the_user_s_own_is_said_to_be_so() -> None:
    assert {*NAMED, DATAGRAMS} == set(WHAT)
    said = transports_text(["datagrams, tcp:bbr", OWN, SEES_ALL, "tcp:bbr"])
    assert re.findall(r"Transport ([\w.:]+):", said) == ["datagrams", "tcp:bbr", OWN, SEES_ALL]
    assert "TCP with bbr" in said
    assert f"{OWN}: the user's own congestion control over datagrams." in said
    assert f"{SEES_ALL}: clairvoyant, the user's own congestion control over datagrams." in said


def test_a_report_says_how_the_queue_pairs_of_its_transports_share_and_of_no_other() -> None:
    assert shares_text(["credit", "tcp"]) == "Queue pairs that meet share evenly under credit and tcp."
    assert "under ideal by their bytes" in shares_text(["datagrams", "ideal"])
    assert "evenly under" not in shares_text(["ideal"])
    assert shares_text(["datagrams"]) == ""


def test_a_report_of_predictions_says_that_they_are_and_names_the_transport() -> None:
    predicted = [replace(outcome, emulated=None) for outcome in small_outcomes(seeds=1)]
    assert "Nothing was emulated: all numbers are the fluid model's. Transport credit:" in sentence(predicted)


CREDIT_MARKS = asdict(MarkingRule("engine", unmarked_packets=8))


def queueing_of(least_us: float, most_us: float) -> Queueing:
    """Return the queues of sources whose round trips were so long; 100 Gbit/s carry 1.4 packets in 1 us."""
    trips_s = 1e-6 * least_us, 1e-6 * most_us
    return Queueing(0.0, 1e-6, 2e-6, 7, trips_s, (1.4 * least_us, 1.4 * most_us))


def under(name: str, queueing: Queueing | None, seed: int = 0) -> Outcome:
    """Return an outcome under a transport, as if emulated."""
    experiment = small_outcomes(seeds=1)[0].experiment
    setup = TransportSetup(name)
    return replace(
        outcome_of(replace(experiment, transport=setup, seed=seed), Verdict("faithful")), queueing=queueing
    )


def test_a_table_names_by_which_queue_and_by_whom_packets_are_marked_and_each_r_and_bdp() -> None:
    outcomes = [
        under("credit", queueing_of(10, 20)),
        under("credit", queueing_of(12, 30), seed=1),
        under("tcp", None),
        under("tcp:dctcp", None),
        under(OWN, queueing_of(10, 10)),
        under(SEES_ALL, queueing_of(10, 10)),
        replace(under("credit", None, seed=2), emulated=None),
    ]
    (sheet,) = transport_sheets(outcomes)
    assert [line.cells for line in sheet.blocks[0].lines] == [
        ["credit", "by the engine, from 8 packets on", "10 .. 30", "14 .. 42"],
        ["tcp", "by nobody", "-", "-"],
        ["tcp:dctcp", "by switches, from 90.14 kB on", "-", "-"],
        [OWN, "by the engine, from 0.2 BDP on, all from 0.8 BDP on", "10", "14"],
        [f"{SEES_ALL} (clairvoyant)", "by the engine, from 0.25 BDP on", "10", "14"],
    ]
    assert transport_sheets(outcomes[-1:]) == []


def test_what_sees_all_sources_is_called_clairvoyant_on_the_terminal(tmp_path: Path) -> None:
    with ResultsDirectory(RUN, out=tmp_path / "out") as results:
        for name in ("credit", "tcp", OWN, SEES_ALL):
            results.add(under(name, None))
    assert f"Clairvoyant, by what no NIC knows: {SEES_ALL}." in str(results_table(results).caption)
    assert clairvoyant_text(["datagrams, tcp", "credit"]) == ""


def test_the_terminal_names_a_datapath_that_is_not_the_usual_one(tmp_path: Path) -> None:
    for datapath in get_args(Datapath):
        with ResultsDirectory(replace(RUN, datapath=datapath), out=tmp_path / datapath) as results:
            results.add(under("credit", None))
        caption = str(results_table(results).caption)
        assert (f" Datapath: {datapath}." in caption) == (datapath != "netdev")


def test_a_report_says_whether_packets_that_acknowledge_wait_behind_data(tmp_path: Path) -> None:
    def acknowledged(*before_data: bool) -> list[Outcome]:
        traffic = [AckTraffic(9, 0.01, before, 1e-6, 2e-6) for before in before_data]
        return [under("credit", replace(queueing_of(10, 20), acks=acks)) for acks in traffic]

    assert acks_text([under("credit", queueing_of(10, 20)), under("tcp", None)]) == ""
    first, some = acknowledged(True), acknowledged(True, False)
    assert acks_text(first).endswith("packets of 64 bytes, which leave ports before data.")
    assert "wait behind data" in acks_text(some)
    with ResultsDirectory(RUN, out=tmp_path / "out") as results:
        results.add(some[1])
    ((_, point),) = json.loads(unsealed(results.path / "run.json"))["congestion"].items()
    assert point["acks"] == asdict(AckTraffic(9, 0.01, False, 1e-6, 2e-6))
    assert "wait behind data" in (results.path / "report.html").read_text()
    assert experiments_of(results.path / "run.json") == [some[1].experiment]


def test_marks_of_switches_are_in_bytes_of_their_queues() -> None:
    plain = small_outcomes(seeds=1)[0].experiment
    fabric = plain.fabric.with_links(delay_s=1e-6, loss=0.0)
    by_switches = TransportSetup("nscc", marks="switches")
    experiment = replace(plain, fabric=fabric, dilation=Dilation(1e-4, 1.0), transport=by_switches)
    # Over leaf, spine and leaf there and back 100 kB fit in 8 us, and a packet.
    least, most = 0.2 * 109_014, 0.8 * 109_014
    rule = marking_rule(experiment)
    assert rule.by == "switches"
    assert (rule.unmarked_bytes, rule.marked_bytes) == pytest.approx((least, most), rel=0.01)
    least_kb, most_kb = rule.unmarked_bytes / 1000, rule.marked_bytes / 1000
    assert rule.text == f"by switches, from {least_kb:g} kB on, all from {most_kb:g} kB on"


def test_run_json_has_the_r_and_bdp_of_each_point_and_is_read_without(tmp_path: Path) -> None:
    with ResultsDirectory(RUN, out=tmp_path / "out") as results:
        results.add(under("credit", queueing_of(10, 20)))
        results.add(under("tcp", None))
    file = results.path / "run.json"
    data = json.loads(unsealed(file))
    (about,) = data["congestion"].items()
    assert about == (
        "uniform, ecmp, credit, seed 0",
        {"round_trip_us": [10.0, 20.0], "bdp_packets": [14.0, 28.0], "marks": CREDIT_MARKS, "acks": None},
    )
    assert "Transports as they were emulated" in (results.path / "report.html").read_text()
    del data["congestion"]
    file.write_text(json.dumps(data))
    assert len(experiments_of(file)) == 2


@pytest.mark.parametrize("datapath", get_args(Datapath))
def test_run_json_and_report_name_the_datapath(datapath: Datapath, tmp_path: Path) -> None:
    with ResultsDirectory(replace(RUN, datapath=datapath), out=tmp_path / "out") as results:
        for outcome in small_outcomes(seeds=1):
            experiment = replace(outcome.experiment, transport=TransportSetup("ideal"))
            results.add(outcome_of(experiment, Verdict("faithful")))
    assert datapath_of(results.path / "run.json") == datapath
    assert f"datapath</td><td>{datapath}" in (results.path / "report.html").read_text().replace(
        ' class="free"', ""
    )


def test_a_run_on_a_datapath_that_is_none_is_refused(packets: Path, tmp_path: Path) -> None:
    data = json.loads(unsealed(packets / "run.json")) | {"datapath": "dpdk"}
    (tmp_path / "run.json").write_text(json.dumps(data))
    with pytest.raises(ScenarioError, match="datapath: found 'dpdk', expected 'netdev', "):
        datapath_of(tmp_path / "run.json")


@pytest.mark.parametrize("name", ["README.md", "docs/explain/transports.md", "traffic/congestion/ideal.py"])
def test_documents_call_ideal_clairvoyant_and_not_a_nics_or_tcps_own(name: str) -> None:
    text = " ".join((CHECKOUT / name).read_text().split())
    assert "clairvoyant" in text
    assert "real TCP" not in text
    assert "as an RDMA NIC" not in text
    assert "As on an RDMA NIC" not in text
