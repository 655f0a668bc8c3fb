"""What is executed on OCSes is a value: it survives JSON, and its key tells it from every other."""

import json
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.circuits.devices import DEVICES, ReconfigurationDelay, device_named, real_delay
from controller.schedulers.registry import SCHEDULERS
from testbed.experiment.dilation import Dilation
from testbed.experiment.experiment import Experiment
from testbed.experiment.ocs_plan import Scheduled, over_ocses, plan_of
from testbed.model.predict import predict
from testbed.trust.scale import load_of
from tests.testbed.ocs_cases import experiment_of, partially, planned
from topologies.errors import ScenarioError
from topologies.fabric import Fabric, Link, Port, Server, Switch
from topologies.parallel_ocs import parallel_ocs_fabric
from traffic.demand import Demand
from traffic.scheme_setup import WhileLitSetup
from traffic.transports.host_settings import TransportSetup
from traffic.transports.slots import Margins, Meeting

SMALL = planned(
    parallel_ocs_fabric(2, 2),
    Demand("d", np.array([[0, 8], [9, 0]])),
    "spectra",
    ReconfigurationDelay("delay", 1e-3),
    Dilation(1e-3, 1e-2),
)
measured = st.sampled_from([name for name, device in DEVICES.items() if device.delay_p99_s])
delays = st.one_of(
    st.builds(ReconfigurationDelay, st.just("delay"), st.floats(1e-3, 1.0)),
    st.builds(real_delay, measured.map(device_named), varying=st.booleans()),
)


@given(
    servers=st.integers(2, 5),
    ocses=st.integers(1, 3),
    scheduler=st.sampled_from(sorted(SCHEDULERS)),
    delay=delays,
    rate=st.floats(1e-6, 1),
    time=st.floats(2, 1e3),
    meeting=st.sampled_from(get_args(Meeting)),
    seed=st.integers(0, 1 << 16),
    partial=st.booleans(),
    margins=st.builds(Margins, st.floats(0.003, 0.1), st.floats(0.004, 0.1)),
)
def test_json_gives_back_the_experiment(
    servers: int,
    ocses: int,
    scheduler: str,
    delay: ReconfigurationDelay,
    rate: float,
    time: float,
    meeting: Meeting,
    seed: int,
    partial: bool,
    margins: Margins,
) -> None:
    matrix = np.random.default_rng(seed).integers(0, 1 << 40, (servers, servers))
    experiment = planned(
        parallel_ocs_fabric(servers, ocses),
        Demand("d", matrix, "why"),
        scheduler,
        delay,
        Dilation(rate, 1.01 * rate * time),
        meeting,
        seed=seed,
        partial=partial,
    )
    experiment = replace(experiment, scheme=WhileLitSetup(margins=margins))
    back = Experiment.from_json(experiment.to_json())
    assert back == experiment
    assert (back.to_json(), back.key) == (experiment.to_json(), experiment.key)


def test_every_part_has_a_say_in_the_key() -> None:
    others = [
        replace(SMALL, fabric=parallel_ocs_fabric(2, 1)),
        replace(SMALL, job=over_ocses(Demand("d", np.array([[0, 8], [8, 0]])), 2)),
        replace(SMALL, circuits=Scheduled("rotor", ReconfigurationDelay("delay", 1e-3))),
        replace(SMALL, circuits=Scheduled("spectra", ReconfigurationDelay("delay", 2e-3))),
        replace(SMALL, circuits=Scheduled("spectra", ReconfigurationDelay("delay", 1e-3, 2e-3))),
        replace(SMALL, dilation=Dilation(1e-3, 2e-2)),
        replace(SMALL, scheme=WhileLitSetup("cut")),
        replace(SMALL, seed=1),
        partially(SMALL),
        replace(SMALL, scheme=WhileLitSetup(margins=Margins(0.01, 0.011))),
    ]
    assert len({SMALL.key, *(other.key for other in others)}) == 1 + len(others)
    assert replace(SMALL).key == SMALL.key


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 1}', "no experiment"])
def test_other_text_is_no_experiment(text: str) -> None:
    with pytest.raises(ScenarioError, match="the text is not a valid experiment"):
        Experiment.from_json(text)


def test_a_broken_part_is_told_of() -> None:
    data = json.loads(SMALL.to_json())
    with pytest.raises(ScenarioError, match="volume"):
        Experiment.from_json(json.dumps({**data, "dilation": {"rate": 1}}))
    fields = data["circuits"]["fields"] | {"scheduler": "x"}
    with pytest.raises(ScenarioError, match="unknown scheduler 'x'"):
        Experiment.from_json(json.dumps({**data, "circuits": {"rule": "scheduled", "fields": fields}}))


def test_links_with_delay_or_loss_are_refused() -> None:
    for delay_s, loss in ((1e-6, 0.0), (0.0, 1e-3)):
        with pytest.raises(ScenarioError, match="which schedules over OCSes do not reckon with"):
            replace(SMALL, fabric=SMALL.fabric.with_links(delay_s=delay_s, loss=loss))


def test_the_time_that_nics_need_is_planned_as_dark_and_emulated_as_dark() -> None:
    circuits = Scheduled("spectra", real_delay(device_named("polatis-nic"), varying=True))
    plan = plan_of(replace(SMALL, circuits=circuits).rule)
    assert plan.delay_s == plan.schedule.delay == 46.75e-3 + 5.67
    assert plan.emulated_delay.mean_s == pytest.approx(10 * plan.delay_s)


@given(st.lists(st.sampled_from([10e9, 100e9, 400e9]), min_size=3, max_size=4), st.data())
def test_beside_packets_the_slowest_server_at_its_own_rates_is_the_bound(
    packet_bps: list[float], data: st.DataObject
) -> None:
    """Each server has a NIC of 100 Gbit/s on an OCS, and one of its own rate on a packet switch."""
    count = len(packet_bps)
    names = [f"h{number}" for number in range(count)]
    links = [Link(Port(name, 0), Port("ocs0", k), 100e9) for k, name in enumerate(names)]
    links += [Link(Port(name, 1), Port("eps", k), packet_bps[k]) for k, name in enumerate(names)]
    servers = tuple(Server(name, 2, 1, 1e12) for name in names)
    switches = (Switch("ocs0", count, "ocs"), Switch("eps", count))
    fabric = Fabric("both", servers, switches, tuple(links))
    matrix = np.array(data.draw(st.lists(st.integers(0, 10**8), min_size=count**2, max_size=count**2)))
    matrix = matrix.reshape(count, count) * ~np.eye(count, dtype=bool)
    matrix[0, 1] += 1
    circuits = Scheduled("spectra", ReconfigurationDelay("delay", 1e-3))
    job = over_ocses(Demand("d", matrix), 1)
    experiment = Experiment(fabric, job, WhileLitSetup(rest="ecmp"), circuits=circuits)
    load, rates = np.maximum(matrix.sum(axis=0), matrix.sum(axis=1)), np.array(packet_bps) + 100e9
    assert plan_of(experiment.rule).lower_bound_s == pytest.approx(max(8 * load / rates))


def test_packets_that_acknowledge_load_no_light() -> None:
    asked = experiment_of("spectra")
    run, acks = predict(asked), replace(asked, transport=TransportSetup("credit", ack_packets=True))
    assert load_of(acks, run) == load_of(asked, run)
