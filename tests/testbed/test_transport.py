"""Run.json, the reports and the documents name transport and datapath, and claim no more than they are."""

import json
import re
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from testbed.machine.datapath import Datapath
from testbed.report.claims_circuits import circuit_claims
from testbed.report.collective_report import sentence
from testbed.report.results import ResultsDirectory
from testbed.report.run_json import RunRecord, datapath_of
from testbed.report.transports import WHAT, shares_text, transports_text
from testbed.study.directories import new_run
from testbed.trust.outcome import Verdict
from tests.testbed.cases import outcome_of, small_outcomes
from tests.testbed.run_files import unsealed
from tests.testbed.test_ocs_report import big_switch, executed_of
from tests.tools import CHECKOUT
from topologies.errors import ScenarioError
from traffic.transports.host_settings import TransportSetup
from traffic.transports.registry import DATAGRAMS, NAMED

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
    said = transports_text(["datagrams, tcp:bbr", "mine:Own", "tcp:bbr"])
    assert re.findall(r"Transport ([a-zA-Z:]+):", said) == ["datagrams", "tcp:bbr", "mine:Own"]
    assert "TCP with bbr" in said
    assert "mine:Own: the user's own." in said


def test_a_report_says_how_the_queue_pairs_of_its_transports_share_and_of_no_other() -> None:
    assert shares_text(["credit", "tcp"]) == "Queue pairs that meet share evenly under credit and tcp."
    assert "under ideal by their bytes" in shares_text(["datagrams", "ideal"])
    assert "evenly under" not in shares_text(["ideal"])
    assert shares_text(["datagrams"]) == ""


def test_a_report_of_predictions_says_that_they_are_and_names_the_transport() -> None:
    predicted = [replace(outcome, emulated=None) for outcome in small_outcomes(seeds=1)]
    assert "Nothing was emulated: all numbers are the fluid model's. Transport credit:" in sentence(predicted)


@pytest.mark.parametrize("datapath", ["netdev", "kernel"])
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
    with pytest.raises(ScenarioError, match="datapath: found 'dpdk', expected 'netdev' or"):
        datapath_of(tmp_path / "run.json")


@pytest.mark.parametrize("name", ["README.md", "ARCHITECTURE.md", "traffic/transports/ideal.py"])
def test_documents_call_the_transport_ideal_and_not_a_nics_or_tcps_own(name: str) -> None:
    text = " ".join((CHECKOUT / name).read_text().split())
    assert "ideal transport" in text.lower()
    assert "real TCP" not in text
    assert "as an RDMA NIC" not in text
    assert "As on an RDMA NIC" not in text
