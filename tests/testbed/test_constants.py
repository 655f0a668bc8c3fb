"""What moves bytes has the same constants at every scale, and what has not is named."""

from dataclasses import replace

import pytest

from testbed.experiment.dilation import Dilation
from testbed.experiment.experiment import Experiment
from testbed.trust.constants import constant_numbers, constants
from topologies.rail import rail_fabric
from traffic.steps import single
from traffic.transports.host_settings import TransportSetup
from traffic.transports.transport import packet_s
from traffic.workloads.synthetic import uniform


def experiment_of(nic_bps: float, transport: str = "credit", scheme: str = "reps") -> Experiment:
    """Return a uniform all-to-all whose NICs are emulated at a rate."""
    fabric = rail_fabric(2, 2)
    rate = nic_bps / fabric.nic_rate_bps(fabric.nics[0])
    setup = TransportSetup(transport)
    return Experiment(fabric, single(uniform(4)), scheme, Dilation(rate, 0.1), transport=setup)


@pytest.mark.parametrize("transport", ["credit", "ideal"])
def test_at_the_rates_of_every_day_all_are_as_they_are_meant(transport: str) -> None:
    slow, fast = (constants(experiment_of(rate, transport)) for rate in (8e6, 24e6))
    assert len(slow) > 8
    for here, there in zip(slow, fast, strict=True):
        assert here.kept
        assert here.emulated == pytest.approx(here.value)
        assert replace(here, emulated_s=0, emulated=0) == replace(there, emulated_s=0, emulated=0)
        if here.emulated_s is not None and there.emulated_s is not None:
            assert here.emulated_s == pytest.approx(3 * there.emulated_s)
            assert here.emulated_s == pytest.approx(here.value * packet_s(8e6))


def test_where_a_packet_takes_less_than_a_turn_all_in_packets_are_more() -> None:
    found = [each for each in constants(experiment_of(288e6)) if each.unit == "packets"]
    assert not any(each.kept for each in found)
    assert {round(each.emulated / each.value, 1) for each in found if "shapers" not in each.name} == {4.0}


def test_what_the_kernel_times_itself_is_not_kept() -> None:
    found = {each.name: each for each in constants(experiment_of(36e6, "tcp", "rails"))}
    late = found["tcp: delayed acknowledgement, at least"]
    assert not late.kept
    assert late.emulated_s == pytest.approx(0.04)
    assert late.emulated == pytest.approx(20, rel=0.01)
    assert any("window before a loss" in each for each in found), "cubic's clock"
    numbers = {number.name: number for number in constant_numbers(experiment_of(36e6, "tcp", "rails"))}
    assert "not dilated, 40 ms here" in numbers["tcp: delayed acknowledgement, at least [packets]"].words


def test_what_chooses_has_its_constants_where_something_chooses() -> None:
    said = [
        {each.name.partition(":")[0] for each in constants(experiment_of(8e6, scheme=scheme))}
        for scheme in ("reps", "rails")
    ]
    assert said == [{"credit", "shapers", "reactive schemes", "reps"}, {"credit", "shapers"}]
