"""The options that choose transports: what they give, and what is refused in a sentence."""

from inspect import signature
from pathlib import Path
from subprocess import CompletedProcess

import pandas as pd
import pytest

from scenarios._infinitehbd.ring.dying import Dying, dying_ring
from scenarios.ocs_spectra import ocs_spectra
from testbed.cli.cli import FabricCLI
from testbed.experiment.experiment import Experiment
from testbed.live.backend import LiveBackend
from testbed.study.command import MOST_WINDOW_PACKETS, StudyChanges
from testbed.study.study import Study
from tests.scenarios.command import ran
from topologies.errors import ScenarioError
from topologies.khop_ring import KHopRing
from topologies.rail import rail_fabric
from traffic.steps import single
from traffic.transports.host_settings import TransportSetup
from traffic.transports.registry import NAMED
from traffic.workloads.synthetic import uniform

SMALL = ["--servers", "2", "--rails", "2", "--seeds", "1", "--schemes", "rails", "--model-only"]


def small(out: Path, *options: str) -> "CompletedProcess[str]":
    """Run a small scenario with some options."""
    return ran("rails_uniform", *SMALL, "--out", out, *options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--transport", "udp"], "there is no transport named 'udp'; choose among credit, "),
        (["--transport", "credit,tcp:nope"], "no congestion control is named 'nope'; choose among bbr, "),
        (["--transport", ","], "the list ',' is empty"),
        (["--transport", ""], "the list '' is empty"),
        (["--transport", "nowhere:Own"], "the transport 'nowhere:Own' cannot be imported"),
        (["--transport", "traffic.demand:Demand"], "'traffic.demand:Demand' is not a transport"),
        (["--transport", "os:getcwd"], "the transport 'os:getcwd' cannot be loaded: os is a module of"),
        (["--initial-window", "0"], "an initial window of 0 packets"),
        (["--least-rto-ms", "nan"], "a least timeout of nan ms"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(tmp_path: Path, options: list[str], said: str) -> None:
    done = small(tmp_path / "out", *options)
    assert done.returncode == 2
    [sentence] = done.stderr.strip().splitlines()
    assert said in sentence
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("window", "timeout_ms"),
    [(-1, None), (0, None), (MOST_WINDOW_PACKETS + 1, None), (None, 0.0), (None, -5.0), (None, float("inf"))],
)
def test_windows_and_timeouts_have_limits(window: int | None, timeout_ms: float | None) -> None:
    with pytest.raises(ScenarioError, match=r"an initial window of|a least timeout of"):
        StudyChanges(transport="tcp", initial_window=window, least_rto_ms=timeout_ms)


def test_each_transport_of_a_list_is_taken_once_and_with_what_hosts_are_set_to() -> None:
    assert StudyChanges(transport="tcp, credit,tcp", initial_window=4, least_rto_ms=250.0).setups() == [
        TransportSetup("tcp", 4, 0.25),
        TransportSetup("credit", 4, 0.25),
    ]


def test_the_default_is_two_transports_that_exist() -> None:
    names = [setup.name for setup in StudyChanges().setups()]
    assert len(names) == 2
    assert set(names) <= {*NAMED, "tcp"} - {"ideal"}


@pytest.mark.parametrize("transport", [None, "nscc,dctcp,ideal"])
def test_each_transport_of_a_list_is_taken_over_duplex_circuits_and_none_over_slots(
    transport: str | None,
) -> None:
    dying = Dying((0,), "shrink", 0.4, 1e-3, 1)
    ring = dying_ring(KHopRing(6, 4, 2), 8, 1_000_000, dying, gpu_bps=100e9)
    slots = [each for each in ocs_spectra(ocses="2", schedulers="spectra").experiments if each.has_slots]
    study = Study(name="a study", title="of circuits", experiments=[ring, slots[0]])
    made = StudyChanges(transport=transport).made(study, model_only=False).experiments
    listed = ["credit"] if transport is None else transport.split(",")
    assert [each.transport.name for each in made] == [*listed, listed[0]]


def test_nothing_is_clairvoyant_unless_that_is_asked_for() -> None:
    job = single(uniform(4))
    assert Experiment(rail_fabric(2, 2), job, "rails").transport == TransportSetup("credit")
    assert ocs_spectra().transports == "credit"
    for entry in (FabricCLI, LiveBackend):
        assert "credit" in str(signature(entry).parameters["transport"].default)


def test_transports_that_are_predicted_alike_are_predicted_once(tmp_path: Path) -> None:
    done = small(tmp_path / "out", "--transport", "credit,tcp,tcp:reno,ideal")
    assert done.returncode == 0, done.stderr
    assert pd.read_csv(tmp_path / "out" / "summary.csv")["transport"].tolist() == ["credit", "tcp", "ideal"]
