"""What moves bytes has the same constants at every scale, and what has not is named."""

from dataclasses import replace
from typing import ClassVar

import pytest

from testbed.experiment.dilation import Dilation
from testbed.experiment.experiment import Experiment
from testbed.trust.constants import Constant, Unit, constant_numbers, constants
from topologies.errors import ScenarioError
from topologies.rail import rail_fabric
from traffic.congestion.control import Red
from traffic.congestion.credit import Credit
from traffic.steps import single
from traffic.transports.host_settings import TransportSetup
from traffic.transports.registry import algorithm_named
from traffic.transports.transport import packet_s
from traffic.workloads.synthetic import uniform


def experiment_of(nic_bps: float, transport: str = "credit", scheme: str = "reps") -> Experiment:
    """Return a uniform all-to-all whose NICs are emulated at a rate."""
    fabric = rail_fabric(2, 2)
    rate = nic_bps / fabric.nic_rate_bps(fabric.nics[0])
    setup = TransportSetup(transport)
    return Experiment(fabric, single(uniform(4)), scheme, Dilation(rate, 0.1), transport=setup)


class Windowed(Credit):
    """A congestion control with constants of each kind."""

    receiver = None  # type: ignore[assignment]
    marks = Red(0.2, 0.8)
    in_packets: ClassVar = {"least window": 1}
    in_round_trips: ClassVar = {"target": 0.75}
    in_packet_times: ClassVar = {"looks again": 16}


WINDOWED = f"{__name__}:Windowed"


@pytest.mark.parametrize("transport", ["credit", "ideal", WINDOWED])
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
    found = {each.name: each for each in constants(experiment_of(288e6, WINDOWED)) if "shap" not in each.name}
    more = {name: round(each.emulated / each.value, 1) for name, each in found.items() if not each.kept}
    assert more == dict.fromkeys(
        [
            f"{WINDOWED}: looks again",
            "datagrams: between looks at congestion controls and NICs",
            "datagrams: held by a NIC before it takes another packet",
            "datagrams: missing before it counts as lost, at least",
        ],
        4.0,
    )


@pytest.mark.parametrize("nic_bps", [8e6, 288e6])
def test_sizes_in_packets_and_what_is_of_round_trips_are_the_same_at_every_scale(nic_bps: float) -> None:
    found = {each.name: each for each in constants(experiment_of(nic_bps, WINDOWED, "rails"))}
    of_scale: dict[str, tuple[Unit, float]] = {
        "least window": ("packets", 1),
        "target": ("round trips", 0.75),
        "queued unmarked": ("round trips", 0.2),
        "queued and marked always": ("round trips", 0.8),
    }
    for what, (unit, value) in of_scale.items():
        assert found[f"{WINDOWED}: {what}"] == Constant(f"{WINDOWED}: {what}", unit, value, value, None, True)


@pytest.mark.parametrize("transport", ["nscc", "dctcp", "swift"])
def test_windows_of_senders_have_no_constant_that_a_fast_nic_changes(transport: str) -> None:
    slow, fast = (
        [
            each
            for each in constants(experiment_of(rate, transport))
            if each.name.startswith(transport) and each.name != f"{transport}: queued unmarked, at least"
        ]
        for rate in (8e6, 288e6)
    )
    assert len(slow) > 3
    assert slow == fast
    assert all(each.kept for each in fast)


class Wordy(Windowed):
    """A congestion control whose constants are no numbers."""

    in_packets: ClassVar = {"least window": "one"}  # type: ignore[dict-item]


def test_constants_of_a_user_s_own_that_are_not_numbers_are_refused() -> None:
    with pytest.raises(
        ScenarioError, match=r"in_packets of the transport .*:Wordy' is \{'least window': 'one'"
    ):
        algorithm_named(f"{__name__}:Wordy")


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
        {each.name.partition(":")[0] for each in constants(experiment_of(8e6, transport, scheme))}
        for transport, scheme in (("tcp", "reps"), ("credit", "reps"), ("credit", "rails"))
    ]
    assert said == [
        {"tcp", "reactive schemes", "shapers", "reps"},
        *[{"credit", "datagrams", "shapers", "reps"}, {"credit", "datagrams", "shapers"}],
    ]
