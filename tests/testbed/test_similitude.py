"""Dimensionless numbers: what dilation keeps is equal at both scales, and a case computed by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.circuits.devices import ReconfigurationDelay
from testbed.experiment.dilation import UNSCALED, Dilation
from testbed.experiment.experiment import Experiment
from testbed.experiment.ocs_plan import Scheduled, over_ocses
from testbed.model.predict import predict
from testbed.report.similitude_table import similitude_caption, similitude_rows
from testbed.trust.similitude import (
    DECISIVE,
    FEW_PACKETS,
    KEPT_WITHIN,
    REAL_LINK_DELAY_S,
    REAL_TIMEOUT_S,
    Facts,
    Medium,
    Number,
    compared,
    emulated_medium,
    facts_of,
    few_packets_text,
    likeness,
    message_packets,
    numbers,
    similitude,
)
from topologies.parallel_ocs import parallel_ocs_fabric
from topologies.rail import rail_fabric
from traffic.demand import Demand
from traffic.scheme_setup import WHILE_LIT
from traffic.steps import single
from traffic.transports.host_settings import TransportSetup

BDP, BUFFER = "bandwidth-delay product (BDP) [packets]", "port buffer / BDP"
MEDIAN, LEAST = "packets per message, median", "packets per message, least"
TRIP, TIMEOUT, DARK = "round trip / CCT", "least timeout / round trip", "reconfiguration delay / CCT"
RATE_BPS, TIMEOUT_S = 100e9, 1.0

positive = st.floats(1e-6, 1e6)
factors = st.floats(1e-4, 1.0)
media = st.builds(
    Medium,
    payload_bytes=st.floats(100, 9000),
    frame_bytes=st.floats(100, 9000),
    ack_bytes=st.floats(10, 100),
    buffer_bytes=st.floats(1e3, 1e8),
    least_timeout_s=st.floats(1e-3, 10),
)
facts = st.builds(
    Facts,
    sizes=st.lists(st.integers(1, 1 << 40), min_size=1, max_size=5).map(np.array),
    cct_s=positive,
    rates_bps=st.lists(st.floats(1e9, 1e12), min_size=1, max_size=6).map(tuple),
    delay_s=st.floats(0, 1e-3),
    reconfiguration_s=st.floats(1e-6, 1),
)


@given(facts, media)
def test_without_a_scale_both_sides_are_equal(facts: Facts, medium: Medium) -> None:
    found = compared(facts, UNSCALED, medium, medium)
    assert [number.name for number in found] == [BDP, BUFFER, MEDIAN, LEAST, TRIP, TIMEOUT, DARK]
    assert all(number.real == number.emulated and number.words == "kept" for number in found)


@given(facts, media, factors, factors)
def test_dilation_scales_each_number_as_it_scales_its_parts(
    facts: Facts, medium: Medium, rate: float, volume: float
) -> None:
    # Packets, buffers and timeouts that dilate as bytes and times do keep every number of the large messages.
    scale = Dilation(rate, volume)
    small = replace(
        medium,
        payload_bytes=medium.payload_bytes * volume,
        frame_bytes=medium.frame_bytes * volume,
        ack_bytes=medium.ack_bytes * volume,
        buffer_bytes=medium.buffer_bytes * volume,
        least_timeout_s=medium.least_timeout_s * scale.time,
    )
    here, there = numbers(facts, scale, small), numbers(facts, UNSCALED, medium)
    for name in (BDP, BUFFER, TRIP, TIMEOUT, DARK):
        assert here[name] == pytest.approx(there[name], rel=1e-6), name
    assert facts.reconfiguration_s is not None
    assert here[DARK] == pytest.approx(facts.reconfiguration_s / facts.cct_s)


@given(facts, media, factors, factors)
def test_the_cct_and_the_round_trip_cancel(facts: Facts, medium: Medium, rate: float, volume: float) -> None:
    found = numbers(facts, Dilation(rate, volume), medium)
    timeout_over_cct = medium.least_timeout_s / (facts.cct_s * volume / rate)
    assert found[TRIP] * found[TIMEOUT] == pytest.approx(timeout_over_cct)
    assert found[BDP] * found[BUFFER] == pytest.approx(medium.buffer_bytes / medium.frame_bytes)


@given(facts, media, factors)
def test_less_volume_is_fewer_packets_and_never_none(facts: Facts, medium: Medium, volume: float) -> None:
    few, many = numbers(facts, Dilation(1.0, volume), medium), numbers(facts, UNSCALED, medium)
    assert 1 <= few[LEAST] <= few[MEDIAN] <= many[MEDIAN]


@given(facts, media, media, factors, factors)
def test_kept_is_within_the_factor_and_words_say_by_how_much_it_is_not(
    facts: Facts, real: Medium, emulated: Medium, rate: float, volume: float
) -> None:
    for number in compared(facts, Dilation(rate, volume), real, emulated):
        apart = number.emulated / number.real
        assert number.kept == (1 / KEPT_WITHIN <= apart <= KEPT_WITHIN) == (number.words == "kept")
        if not number.kept:
            assert ("larger than real: " if apart > 1 else "smaller than real: ") in number.words


def experiment_of(delay_s: float = 0.0) -> Experiment:
    """Return an all-to-all of 1 MB a message between two servers on two rails, ten times as slow."""
    fabric = rail_fabric(2, 2, 0, rate_bps=RATE_BPS).with_links(delay_s=delay_s, loss=0.0)
    demand = Demand("tokens", np.full((4, 4), 1_000_000))
    return Experiment(fabric, single(demand), "rails", Dilation(1e-3, 1e-2), mtu=1500)


@pytest.mark.parametrize("real_delay_s", [REAL_LINK_DELAY_S, 0.0])
@pytest.mark.parametrize("delay_s", [0.0, 1e-6])
def test_an_example_computed_by_hand(delay_s: float, real_delay_s: float) -> None:
    experiment = experiment_of(delay_s)
    experiment = replace(experiment, fabric=experiment.fabric.with_buffer(15_140))
    predicted = predict(experiment)
    facts = facts_of(experiment, predicted)
    found = {n.name: n for n in similitude(experiment, facts, TIMEOUT_S, real_delay_s)}
    # A rail without spines: from a NIC over a leaf to a NIC is two links, a packet and an ACK sent onto each.
    real_s = 2 * 2 * real_delay_s + 2 * 8 * (4154 + 62) / RATE_BPS
    emulated_s = 2 * 2 * delay_s * 10 + 2 * 8 * (1514 + 66) / (RATE_BPS * 1e-3)
    longest = {TIMEOUT: REAL_TIMEOUT_S / real_s, BDP: RATE_BPS / 8 * real_s / 4154}
    assert {name: found[name].real for name in longest} == pytest.approx(longest)
    assert found[TIMEOUT].emulated == pytest.approx(TIMEOUT_S / emulated_s)
    assert found[BDP].emulated == pytest.approx(1e8 / 8 * emulated_s / 1514)
    assert found[BUFFER].emulated == pytest.approx(15_140 / (1e8 / 8 * emulated_s))
    assert (found[MEDIAN].real, found[MEDIAN].emulated) == (math.ceil(1e6 / 4096), math.ceil(1e4 / 1448))
    assert found[TRIP].emulated / found[TRIP].real == pytest.approx(emulated_s / real_s / 10)


@pytest.mark.parametrize("delay_s", [0.0, 3e-6])
def test_round_trips_are_alike_whether_the_kernel_delays_packets_or_the_engine(delay_s: float) -> None:
    experiment = experiment_of(delay_s)
    facts = facts_of(experiment, predict(experiment))  # of one CCT: that of credit has to wait for grants
    tcp, credit, nscc = (
        similitude(replace(experiment, transport=TransportSetup(name)), facts, TIMEOUT_S)
        for name in ("tcp", "credit", "nscc")
    )
    assert tcp == credit == nscc


def test_a_real_link_s_delay_is_not_the_emulated_one_s() -> None:
    """With neither a delay in the emulation nor one of the real network's its products were called kept."""
    experiment, none = experiment_of(), 0.0
    facts = facts_of(experiment, predict(experiment))
    found = {n.name: n for n in similitude(experiment, facts, TIMEOUT_S)}
    # 2 links x 2 x 1.5 us are 6 us, in which 100 Gbit/s carry 75 kB.
    assert found[BDP].real == pytest.approx(75_000 / 4154 + 2 * 4216 / 4154)
    assert not found[BDP].kept
    undelayed = {n.name: n for n in similitude(experiment, facts, TIMEOUT_S, none)}
    assert undelayed[BDP].kept
    assert found[BUFFER].real == pytest.approx(undelayed[BUFFER].real * undelayed[BDP].real / found[BDP].real)


def scaled(name: str, factor: float) -> Number:
    """Return a number that is so many times as large in the emulation."""
    medium = Medium(1000, 1000, 50, 1e6, 1.0)
    facts = Facts(np.array([100_000_000]), 1.0, (RATE_BPS,), 1e-6, 2, 1e-3)
    parts = {
        BDP: replace(medium, frame_bytes=1000.0, link_delay_s=factor * 1e-3),
        BUFFER: replace(medium, buffer_bytes=factor * 1e6),
        MEDIAN: replace(medium, payload_bytes=1000 / factor),
        TIMEOUT: replace(medium, least_timeout_s=factor),
    }
    real = replace(medium, link_delay_s=1e-3) if name == BDP else medium
    return next(n for n in compared(facts, UNSCALED, real, parts[name]) if n.name == name)


@pytest.mark.parametrize("name", [BDP, BUFFER, MEDIAN, TIMEOUT])
@pytest.mark.parametrize(
    ("factor", "kept"), [(1.99, True), (2.01, False), (1 / 1.99, True), (1 / 2.01, False)]
)
def test_one_word_says_how_like_the_scales_are(name: str, factor: float, kept: bool) -> None:
    others = [Number(each, 1.0, 1.0, True, "kept") for each in (BDP, BUFFER, MEDIAN, DARK) if each != name]
    number = scaled(name, factor)
    assert number.emulated / number.real == pytest.approx(factor, rel=0.01)
    assert number.kept == kept
    missing = "unlike" if name in DECISIVE else "partly"
    assert likeness([number, *others]) == ("alike" if kept else missing)


def test_a_schedule_is_judged_by_the_dark_and_what_crosses_nothing_by_no_word() -> None:
    short, dark = Number(MEDIAN, 2000, 20, False, "x"), Number(DARK, 0.01, 0.01, True, "kept")
    assert likeness([short, dark]) == "partly"
    assert likeness([short, replace(dark, kept=False)]) == "unlike"
    assert likeness([]) is None
    assert math.isnan(message_packets([]))
    assert message_packets([short, dark]) == 20


def test_messages_of_few_packets_are_warned_of_in_one_line() -> None:
    packets = {"enough": float(FEW_PACKETS), "few": FEW_PACKETS - 1.0, "unknown": math.nan}
    assert (
        few_packets_text(packets)
        == "Warning: under 16 packets a message, median of few (15); give more --volume."
    )
    assert few_packets_text({"enough": 16.0}) == ""


def test_a_caption_says_the_word_of_each_workload_and_the_real_delay() -> None:
    kept, short = Number(BDP, 9.0, 9.0, True, "kept"), Number(MEDIAN, 200, 15, False, "x")
    said = similitude_caption({"a": (kept,), "b": (kept, short)}, 2e-6)
    assert "a real one's 2 µs" in said
    assert "alike: a. partly: b. Warning: under 16 packets a message, median of b (15);" in said
    assert similitude_caption({"a": (kept,), "c": (kept,)}, 0.0).endswith(" This run: alike.")


def test_a_job_that_stays_within_a_server_has_no_numbers() -> None:
    demand = Demand("near", np.kron(np.eye(2, dtype=np.int64), np.full((2, 2), 1000)))
    experiment = replace(experiment_of(), job=single(demand))
    assert similitude(experiment, facts_of(experiment, predict(experiment)), TIMEOUT_S) == ()


def test_a_byte_that_takes_no_time_of_the_clock_s_has_no_numbers() -> None:
    fabric = rail_fabric(2, 1, rate_bps=400e9)
    experiment = Experiment(fabric, single(Demand("a byte", np.eye(2, k=1, dtype=np.int64))), "ecmp")
    facts = facts_of(experiment, predict(experiment))
    assert similitude(experiment, facts, TIMEOUT_S)
    assert similitude(experiment, replace(facts, cct_s=0.0), TIMEOUT_S) == ()


def test_circuits_go_one_way_and_have_no_round_trip() -> None:
    demand = Demand("d", np.array([[0, 5, 1], [1, 0, 5], [5, 1, 0]]) * 10_000_000)
    circuits = Scheduled("spectra", ReconfigurationDelay("delay", 1e-3))
    fabric = parallel_ocs_fabric(3, 2, rate_bps=RATE_BPS)
    experiment = Experiment(fabric, over_ocses(demand, 2), WHILE_LIT, Dilation(1e-3, 1e-2), circuits=circuits)
    predicted = predict(experiment)
    found = {n.name: n for n in similitude(experiment, facts_of(experiment, predicted), TIMEOUT_S)}
    assert found.keys() == {MEDIAN, LEAST, DARK}
    assert found[DARK].kept
    assert found[DARK].real == pytest.approx(1e-3 / facts_of(experiment, predicted).cct_s)
    assert emulated_medium(experiment, TIMEOUT_S).payload_bytes == 9000 - 28


def test_the_table_has_ranges_where_workloads_differ_and_the_worst_words() -> None:
    near = Number(MEDIAN, 100, 60, True, "kept")
    far = Number(MEDIAN, 2000, 20, False, "100 times smaller than real: x")
    one = Number(DARK, 0.01, 0.01, True, "kept")
    rows = similitude_rows({"a": (one, near), "b": (far,)})
    assert [(row.name, row.real, row.emulated, row.kept, row.words) for row in rows] == [
        (MEDIAN, "100 .. 2000", "20 .. 60", False, "at most 100 times smaller than real: x"),
        (DARK, "0.01", "0.01", True, "kept"),
    ]
