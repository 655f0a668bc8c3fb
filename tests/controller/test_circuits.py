"""Circuits, what a reconfiguration does to them, programs and devices."""

import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.circuits.circuits import IDLE, Circuits, check_permitted, circuits_from_text
from controller.circuits.devices import (
    DEVICES,
    LEAST_DELAY_S,
    MOST_P99,
    ReconfigurationDelay,
    delay_of,
    device_named,
    real_delay,
)
from controller.circuits.programs import Day, Program, program_from_text
from topologies.errors import DemandError, ScenarioError
from topologies.fabric import Switch
from topologies.khop_ring import PATHS


@st.composite
def some_circuits(draw: st.DrawFn, ports: int = 8) -> Circuits:
    """Draw a partial matching."""
    permutation = draw(st.permutations(range(ports)))
    lit = draw(st.sets(st.integers(0, ports - 1)))
    return Circuits.of_permutation([out if port in lit else -1 for port, out in enumerate(permutation)])


@given(some_circuits())
def test_circuits_are_their_permutation_and_their_text(circuits: Circuits) -> None:
    output = dict(circuits.pairs)
    assert Circuits.of_permutation([output.get(port, IDLE) for port in range(circuits.ports)]) == circuits
    assert circuits_from_text(str(circuits), circuits.ports) == circuits


@pytest.mark.parametrize(
    ("pairs", "reason"),
    [
        ([(0, 4)], "port 4 of an OCS whose ports are 0 to 3"),
        ([(-1, 0)], "port -1"),
        ([(0, 1), (0, 2)], "input port 0 is lit twice"),
        ([(0, 2), (1, 2)], "output port 2 is lit twice"),
        ([(1, 1)], "port 1 lights itself"),
    ],
)
def test_what_no_ocs_can_light_is_refused(pairs: list[tuple[int, int]], reason: str) -> None:
    with pytest.raises(DemandError, match=reason):
        Circuits(4, tuple(pairs))


def test_circuits_back_and_forth() -> None:
    assert circuits_from_text("3>0, 0>3", 4) == Circuits(4, ((0, 3), (3, 0)))
    with pytest.raises(DemandError, match=r"'9{36}\.\.\. is not a valid circuit"):
        circuits_from_text(f"{'9' * 5_000}>0", 4)
    with pytest.raises(DemandError, match="'0-3' is not a valid circuit"):
        circuits_from_text("0-3", 4)


def test_days_and_nights_as_a_person_types_them() -> None:
    program = program_from_text("50ms 0>1,1>0 20ms - .5s 0>2 10us -", 4)
    first, second = (circuits_from_text(text, 4) for text in ("0>1 1>0", "0>2"))
    assert program == Program((Day(first, 0.05), Day(second, 0.5, 0.02), Day(Circuits(4), 10 * 1e-6)))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "50ms",
        "50 0>1",
        "0>1 50ms",
        "50ms 0>1 0ms 0>2",
        "50ms 0>1 0ms -",
        "1s 0>1,2>1",
        "2000000000s 0>1",
        f"1{'0' * 400}s 0>1",
        f"1s {'1' * 5000}>0",
        "1s 0>\u0663",
        "1000000000s - 1s - 1s 0>1",
    ],
)
def test_what_is_no_program_is_refused(text: str) -> None:
    with pytest.raises(DemandError):
        program_from_text(text, 4)


def test_days_are_for_one_ocs() -> None:
    with pytest.raises(DemandError, match="not all for one OCS"):
        Program((Day(Circuits(2), 1.0), Day(Circuits(3), 1.0)))


def test_every_device_has_a_source() -> None:
    assert all(device.source and device.delay_s > 0 for device in DEVICES.values())


def test_delays_are_dilated_and_too_short_ones_refused_with_what_would_do() -> None:
    assert delay_of(device_named("mems-3d"), 2.0) == ReconfigurationDelay("mems-3d", 0.025)
    with pytest.raises(ScenarioError, match=r"would be 1e-05 s, .*; give --time 200 or more"):
        delay_of(device_named("rotornet"), 1.0)
    assert delay_of(device_named("rotornet"), 200.0).delay_s >= LEAST_DELAY_S
    with pytest.raises(ScenarioError, match="unknown device 'x'"):
        device_named("x")


def test_varying_delays_have_the_mean_and_the_percentile_that_were_measured() -> None:
    delay = real_delay(device_named("polatis-16"), varying=True)
    draws = [delay.draw_s(np.random.default_rng(seed)) for seed in range(4000)]
    assert np.mean(draws) == pytest.approx(46.75e-3, rel=0.02)
    assert np.percentile(draws, 99) == pytest.approx(68e-3, rel=0.05)
    assert ReconfigurationDelay("fixed", 0.01).draw_s(np.random.default_rng(0)) == 0.01


def test_no_lognormal_has_a_p99_of_more_than_14_97_times_its_mean() -> None:
    z = NormalDist().inv_cdf(0.99)
    ratios = [math.exp(z * sigma - sigma**2 / 2) for sigma in np.linspace(0, 2 * z, 10_001).tolist()]
    assert max(ratios) == pytest.approx(MOST_P99, rel=1e-9) == pytest.approx(14.9685, abs=1e-4)
    delay = ReconfigurationDelay("wide", 1e-3, MOST_P99 * 1e-3)
    rng = np.random.default_rng(0)
    assert np.percentile([delay.draw_s(rng) for _ in range(100_000)], 99) == pytest.approx(15e-3, rel=0.05)
    with pytest.raises(DemandError, match=r"a delay of 0\.001 s with a p99 of 0\.1 s; .* 1 to 14\.96 times"):
        ReconfigurationDelay("wider", 1e-3, 0.1)


def test_the_time_that_nics_need_is_dark_too_and_all_of_it_is_dilated() -> None:
    device = device_named("polatis-nic")
    assert real_delay(device).draw_s(np.random.default_rng(0)) == real_delay(device).mean_s == 46.75e-3 + 5.67
    delay = real_delay(device, varying=True).scaled(2.0)
    assert delay == ReconfigurationDelay("polatis-nic", 93.5e-3, 0.136, 11.34, 12.66)
    draws = [delay.draw_s(np.random.default_rng(seed)) for seed in range(4000)]
    assert np.mean(draws) == pytest.approx(delay.mean_s, rel=0.02)
    assert np.percentile(draws, 99) == pytest.approx(12.66 + 93.5e-3, rel=0.02)


def test_only_what_was_measured_varies() -> None:
    assert not real_delay(device_named("polatis-16")).varies
    measured = {name for name, device in DEVICES.items() if device.delay_p99_s is not None}
    assert measured == {"polatis-1", "polatis-4", "polatis-16", "polatis-nic"}
    for name, device in DEVICES.items():
        if name in measured:
            assert real_delay(device, varying=True).varies
        else:
            with pytest.raises(ScenarioError, match=f"no 99th percentile of the delay of {name} is known"):
                real_delay(device, varying=True)


def test_circuits_of_two_paths_at_once_are_not_permitted() -> None:
    """Of a transceiver whose light takes one of two paths, or loops back."""
    ocs = Switch("n0b0", 6, "ocs", permitted=PATHS)
    for text in ("0>2 1>3 2>0 3>1", "0>4 1>5 4>0 5>1", "0>1 1>0", "0>2", "-"):
        check_permitted(ocs, circuits_from_text(text, 6))
    for text in ("0>2 1>5", "0>1 2>4", "0>3", "2>4 4>2"):
        with pytest.raises(DemandError, match=f"OCS n0b0 cannot show {text}; take circuits of one of the 3"):
            check_permitted(ocs, circuits_from_text(text, 6))
    check_permitted(Switch("ocs0", 6, "ocs"), circuits_from_text("0>2 1>5", 6))
