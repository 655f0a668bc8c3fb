"""An experiment is a value: it survives JSON, and its key tells it from every other."""

import json
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.circuits.devices import ReconfigurationDelay
from testbed.experiment.dilation import Dilation
from testbed.experiment.experiment import Experiment
from testbed.experiment.ocs_plan import Scheduled
from testbed.model.predict import predict
from tests.topologies.strategies import fabrics
from topologies.errors import ScenarioError
from topologies.fabric import Fabric, Nic
from topologies.parallel_ocs import parallel_ocs_fabric
from topologies.rail import rail_fabric
from traffic.demand import Demand
from traffic.effects import Gone
from traffic.faults import Fault
from traffic.scheme import WholeMessages
from traffic.scheme_setup import WHILE_LIT, SchemeSetup, WhileLitSetup
from traffic.spraying.policy import QueuePair
from traffic.spread import SpreadSetup
from traffic.steps import Step, job_of_steps, single
from traffic.transports.host_settings import TransportSetup
from traffic.workloads.synthetic import uniform

SMALL = Experiment(
    rail_fabric(2, 2), single(Demand("d", np.full((4, 4), 8))), "rails", Dilation(1e-3, 1e-2), seed=3
)


@given(
    fabric=fabrics,
    steps=st.lists(st.floats(0, 10), min_size=1, max_size=3),
    seed=st.integers(0, 1 << 16),
    scheme=st.sampled_from(["ecmp", "rails", "mine:Scheme", SpreadSetup(2, anew=True)]),
    dilation=st.builds(Dilation, st.floats(1e-6, 1), st.floats(1e-6, 1)),
    label=st.sampled_from(["", "big switch"]),
    mtu=st.integers(1500, 9000),
    transport=st.builds(
        TransportSetup,
        st.sampled_from(["ideal", "credit", "tcp", "tcp:bbr"]),
        st.none() | st.integers(1, 1000),
        st.none() | st.floats(1e-3, 100),
    ),
)
def test_json_gives_back_the_experiment(
    fabric: Fabric,
    steps: list[float],
    seed: int,
    scheme: str | SpreadSetup,
    dilation: Dilation,
    label: str,
    mtu: int,
    transport: TransportSetup,
) -> None:
    rng = np.random.default_rng(seed)
    demands = [rng.integers(0, 1 << 40, (fabric.gpus, fabric.gpus)) for _ in steps]
    parts = [Step(Demand(f"s{i}", m, "n"), s) for i, (m, s) in enumerate(zip(demands, steps, strict=True))]
    job = job_of_steps("c", parts, "why")
    experiment = Experiment(fabric, job, scheme, dilation, seed, label=label, transport=transport, mtu=mtu)
    back = Experiment.from_json(experiment.to_json())
    assert back == experiment
    assert (back.to_json(), back.key) == (experiment.to_json(), experiment.key)


def test_every_part_has_a_say_in_the_key() -> None:
    others = [
        replace(SMALL, fabric=rail_fabric(2, 2, 1)),
        replace(SMALL, job=single(Demand("d", np.full((4, 4), 9)))),
        replace(SMALL, label="mine"),
        replace(SMALL, scheme="ecmp"),
        replace(SMALL, dilation=Dilation(1e-3, 2e-2)),
        replace(SMALL, seed=4),
        replace(SMALL, chunk_bytes=1 << 10),
        replace(SMALL, mtu=1500),
        replace(SMALL, transport=TransportSetup("tcp")),
        replace(SMALL, transport=TransportSetup("tcp:reno")),
        replace(SMALL, transport=TransportSetup("tcp", initial_window_packets=10)),
        replace(SMALL, transport=TransportSetup("tcp", least_timeout_s=1.0)),
    ]
    assert len({SMALL.key, *(other.key for other in others)}) == 1 + len(others)
    assert replace(SMALL).key == SMALL.key


def test_a_job_for_more_gpus_than_there_are_is_refused() -> None:
    with pytest.raises(ScenarioError, match="the job is for 4 GPUs, the fabric has 2"):
        replace(SMALL, fabric=rail_fabric(2, 1))


def test_a_schedule_is_of_one_collective() -> None:
    two = job_of_steps("two", [Step(Demand("d", np.ones((2, 2), dtype=np.int64)))] * 2)
    with pytest.raises(ScenarioError, match="job 'two' has 2 collectives, a schedule is of one"):
        replace(
            SMALL,
            fabric=parallel_ocs_fabric(2, 1),
            job=two,
            scheme=WHILE_LIT,
            circuits=Scheduled("spectra", ReconfigurationDelay("delay", 1e-3)),
        )


@pytest.mark.parametrize("mtu", [0, 1499, 9001])
def test_an_mtu_that_is_not_emulated_is_refused(mtu: int) -> None:
    with pytest.raises(ScenarioError, match=f"an MTU of {mtu} bytes; give --mtu from 1500 to 9000"):
        replace(SMALL, mtu=mtu)


@pytest.mark.parametrize("name", ["udp", "", "nowhere:Own", "os:getcwd"])
def test_an_unknown_transport_is_refused(name: str) -> None:
    with pytest.raises(ScenarioError, match="transport"):
        replace(SMALL, transport=TransportSetup(name))


def test_a_text_of_an_unknown_transport_is_refused() -> None:
    data = json.loads(SMALL.to_json())
    data["transport"]["name"] = "udp"
    with pytest.raises(ScenarioError, match="there is no transport named 'udp'"):
        Experiment.from_json(json.dumps(data))


@pytest.mark.parametrize(
    ("name", "rest", "shown"), [("credit", "", "datagrams"), ("tcp", "rails", "datagrams, tcp")]
)
def test_over_circuits_datagrams_go_whatever_the_transport(name: str, rest: str, shown: str) -> None:
    circuits = Scheduled("spectra", ReconfigurationDelay("delay", 1e-3))
    fabric, job = parallel_ocs_fabric(2, 1), single(Demand("d", np.full((2, 2), 8)))
    scheme, transport = WhileLitSetup(rest=rest), TransportSetup(name)
    experiment = replace(SMALL, fabric=fabric, job=job, scheme=scheme, circuits=circuits, transport=transport)
    assert experiment.transport_name == shown


def test_a_file_from_before_there_was_an_mtu_has_the_default() -> None:
    data = json.loads(SMALL.to_json())
    del data["mtu"]
    assert Experiment.from_json(json.dumps(data)) == SMALL


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 1}', "no experiment"])
def test_other_text_is_no_experiment(text: str) -> None:
    with pytest.raises(ScenarioError, match="the text is not a valid experiment"):
        Experiment.from_json(text)


def test_a_broken_part_is_told_of() -> None:
    data = json.loads(SMALL.to_json())
    data["dilation"] = {"rate": 1}
    with pytest.raises(ScenarioError, match="volume"):
        Experiment.from_json(json.dumps(data))


@dataclass(frozen=True)
class ByTheLastNic:
    """A scheme with settings of a user's own: each message whole by a NIC."""

    nic: int = 1
    name = "by one NIC"
    words = ()
    rest = ""
    by_bytes = True

    def scheme(self, rest: object, *, over_circuits: bool) -> WholeMessages:
        """Return it for one run."""
        return WholeMessages(lambda _view, a, b: QueuePair(Nic(a, self.nic), Nic(b, self.nic)))


@dataclass(frozen=True)
class ByAllGpus(ByTheLastNic):
    """The same, if it could not send without one of its GPUs."""

    needs_all_gpus = True


def test_a_scheme_that_needs_all_gpus_is_refused_where_one_is_gone() -> None:
    fabric = rail_fabric(2, 2)
    lost = Fault("lost", effects=(Gone((3,)),))
    other, own = (cast(SchemeSetup, kind()) for kind in (ByTheLastNic, ByAllGpus))
    experiment = Experiment(fabric, single(uniform(fabric.gpus)), other, faults=(lost,))
    with pytest.raises(ScenarioError, match="GPU 3 is gone for good, and its scheme needs all GPUs"):
        replace(experiment, scheme=own)


def test_a_user_s_own_scheme_with_settings_is_carried_out_and_written_down() -> None:
    fabric = rail_fabric(2, 2)
    setup = cast(SchemeSetup, ByTheLastNic())
    experiment = Experiment(fabric, single(uniform(fabric.gpus)), setup)
    assert Experiment.from_json(experiment.to_json()) == experiment
    assert experiment.own == [f"{__name__}:ByTheLastNic"]
    paths = predict(experiment).messages["path"]
    assert all("h0:1" in path or "h1:1" in path for path in paths if path != "nvlink")
    data = json.loads(experiment.to_json())
    others: list[object] = [1, [], {"scheme": "rails"}, {"scheme": "while lit", "fields": {"spil": True}}]
    for scheme in others:
        with pytest.raises(ScenarioError, match="scheme"):
            Experiment.from_json(json.dumps({**data, "scheme": scheme}))
