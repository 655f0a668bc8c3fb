"""Whose hash chooses paths: that of the datapath which a prediction stands beside."""

from dataclasses import replace
from pathlib import Path

import pytest

from testbed.core.packet_paths import paths_over
from testbed.experiment.experiment import Experiment
from testbed.machine.datapath import Datapath, hashing_of
from testbed.model.predict import is_informed, predict
from testbed.report.run_json import experiments_of
from testbed.study.carry_out import carry_out
from testbed.study.study import Options, Study
from topologies.errors import ScenarioError
from topologies.fabric import Nic
from topologies.leaf_spine import leaf_spine_fabric
from traffic.collectives.point_to_point import PointToPoint
from traffic.job import Collective, Job
from traffic.spraying.policy import QueuePair
from traffic.transports.host_settings import TransportSetup

FABRIC = leaf_spine_fabric(4, 2, 8)
JOB = Job("four", 4, (Collective("send", PointToPoint(((0, 2, 10**7), (1, 3, 10**7)))),))
EXPERIMENT = Experiment(FABRIC, JOB, "ecmp")
PAIRS = [QueuePair(Nic(0, 0), Nic(2, 0), entropy) for entropy in range(16)]


@pytest.mark.parametrize(("datapath", "hashing"), [("netdev", 0), ("kernel", 0), ("route", 1)])
def test_a_datapath_has_open_vswitchs_hash_unless_it_routes(datapath: Datapath, hashing: int) -> None:
    assert hashing_of(datapath) == ("openvswitch", "kernel")[hashing]


@pytest.mark.parametrize("datagrams", [False, True])
def test_hashes_choose_different_paths_of_equal_length(datagrams: bool) -> None:
    one, other = (
        [paths_over(FABRIC, datagrams=datagrams, hashing=hashing)[pair] for pair in PAIRS]
        for hashing in (hashing_of("netdev"), hashing_of("route"))
    )
    assert one != other
    assert {len(path) for path in (*one, *other)} == {4}


@pytest.mark.parametrize("transport", ["credit", "tcp"])
def test_a_prediction_takes_the_paths_of_its_experiments_hash(transport: str) -> None:
    """Beside a run whose packets took these paths it is a free one; beside another's it is informed."""
    plain = replace(EXPERIMENT, transport=TransportSetup(transport))
    routed = replace(plain, hashing="kernel")
    datagrams = transport == "credit"
    paths = {pair: paths_over(FABRIC, datagrams=datagrams, hashing="kernel")[pair] for pair in PAIRS}
    assert not is_informed(routed, paths, None)
    assert is_informed(plain, paths, None)
    assert set(predict(routed).messages["path"]) != set(predict(plain).messages["path"])


def test_an_experiment_says_whose_hash() -> None:
    routed = replace(EXPERIMENT, hashing="kernel")
    assert Experiment.from_json(routed.to_json()) == routed
    assert routed.key != EXPERIMENT.key
    assert Experiment.from_json(EXPERIMENT.to_json().replace(',"hashing":"openvswitch"', "")) == EXPERIMENT
    with pytest.raises(ScenarioError, match="hashing"):
        Experiment.from_json(routed.to_json().replace('"kernel"', '"crc"'))


def test_a_study_predicts_by_the_hash_of_its_datapath(tmp_path: Path) -> None:
    study = Study("four", "Four", [EXPERIMENT], parameters={EXPERIMENT.key: {"n": 4}})
    for datapath in ("netdev", "route"):
        out = tmp_path / datapath
        carry_out(study, Options(model_only=True, datapath=datapath, out=out))
        (found,) = experiments_of(out / "run.json")
        assert found.hashing == hashing_of(datapath)
        assert "n" in (out / "summary.csv").read_text().splitlines()[0].split(",")
