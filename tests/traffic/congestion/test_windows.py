"""Windows after each event: those of an algorithm, and those of a reference written apart from it."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.traffic.congestion import reference_dctcp, reference_nscc, reference_swift
from tests.traffic.congestion.reference_nscc import Event
from traffic.congestion.control import (
    OVERTAKEN,
    SILENT,
    TAKEN_BACK,
    Acknowledged,
    Lost,
    PerPacket,
    Pipe,
    Sent,
)
from traffic.congestion.dctcp import Dctcp
from traffic.congestion.nscc import Nscc
from traffic.congestion.swift import Swift

Phase = tuple[int, str, float, float, bool]
"""Number of packets, kind of their event, time between them [R], their round trip [R], and marks."""
PACKET_BYTES = 9000
BDP = 16.0
"""Bandwidth-delay product, so that the largest window is 24 and an eighth of it 3 [packets]."""
A = BDP * PACKET_BYTES / 150_000


def pipe(bdp: float, rate_bps: float = 8e6) -> Pipe:
    rate_bytes_s = rate_bps / 8
    return Pipe(rate_bytes_s, bdp * PACKET_BYTES / rate_bytes_s, PACKET_BYTES)


def events(*phases: Phase, packets: float = 1.0) -> list[Event]:
    """Return the events of packets: each phase first sends its own, and one that stays on its way."""
    found: list[Event] = []
    now = 0.0
    for count, kind, apart, rtt, marked in phases:
        found += [("sent", now, packets, 0.0, False)] * (count + 1)
        for _ in range(count):
            now += apart
            found.append((kind, now, packets, rtt, marked))
    return found


def window(control: Nscc | PerPacket) -> float:
    """Return W [packets]."""
    window_bytes = control.cwnd_bytes if isinstance(control, Swift) else control.window_bytes
    return window_bytes / PACKET_BYTES


def windows(control: Nscc | PerPacket, batches: Sequence[Sequence[Event]]) -> list[float]:
    """Return W after each batch [packets]; all of a batch is heard when its last event is."""
    found = []
    for batch in batches:
        sent, acknowledged, lost = list[Sent](), list[Acknowledged](), list[Lost]()
        for kind, _, packets, rtt, marked in batch:
            size = round(packets * PACKET_BYTES)
            if kind == "sent":
                sent.append(Sent(size, 0))
            elif kind == "acknowledged":
                acknowledged.append(Acknowledged(size, rtt * control.pipe.round_trip_s, marked, 0))
            else:
                lost += [Lost(size, 0, how) for how in (OVERTAKEN, SILENT, TAKEN_BACK) if how == kind]
        control.on_events(sent, acknowledged, lost, batch[-1][1] * control.pipe.round_trip_s)
        found.append(window(control))
    return found


def one_by_one(sequence: Sequence[Event]) -> list[list[Event]]:
    return [[event] for event in sequence]


def of_nscc(bdp: float, sequence: Sequence[Event]) -> tuple[list[float], list[float]]:
    """Return the windows of the algorithm, and those of the reference."""
    product = windows(Nscc(pipe(bdp), np.random.default_rng(0)), one_by_one(sequence))
    return product, reference_nscc.windows(sequence, bdp, bdp * PACKET_BYTES / 150_000)


def of_dctcp(bdp: float, sequence: Sequence[Event]) -> tuple[list[float], list[float]]:
    """Return the windows of the algorithm, and those of the reference."""
    product = windows(Dctcp(pipe(bdp), np.random.default_rng(0)), one_by_one(sequence))
    return product, reference_dctcp.windows(sequence, bdp)


def of_swift(bdp: float, sequence: Sequence[Event]) -> tuple[list[float], list[float]]:
    """Return the windows of the algorithm, and those of the reference."""
    product = windows(Swift(pipe(bdp), np.random.default_rng(0)), one_by_one(sequence))
    return product, reference_swift.windows(sequence, bdp)


ALGORITHMS: list[type[Nscc | PerPacket]] = [Nscc, Dctcp, Swift]
of_each = pytest.mark.parametrize("of", [of_nscc, of_dctcp, of_swift], ids=["nscc", "dctcp", "swift"])
Both = Callable[[float, Sequence[Event]], tuple[list[float], list[float]]]

phases = st.tuples(
    st.integers(1, 40),
    st.sampled_from(["acknowledged"] * 5 + ["overtaken", "silent", "taken back"]),
    st.sampled_from([2**0.5 / 200, 3**0.5 / 56, 5**0.5 / 17, 7**0.5 / 4.6, 11**0.5 / 2.8]),
    st.sampled_from([0.93, 1.0, 1.03, 1.4, 1.9, 2.2, 4.3, 5.7, 13.0]),
    st.booleans(),
)
"""Phases with times apart of which no sums are R or R + T, so that rounding decides nothing."""
bdps = st.integers(0, 60).map(lambda packets: packets + 2**0.5 / 3)
"""Bandwidth-delay products of which no share is a whole packet [packets]."""


@of_each
@given(bdps, st.lists(phases, min_size=1, max_size=8), st.sampled_from([1.0, 0.5]))
def test_windows_are_those_of_the_reference(of: Both, bdp: float, drawn: list[Phase], packets: float) -> None:
    product, reference = of(bdp, events(*drawn, packets=packets))
    assert product == pytest.approx(reference, rel=1e-9)


FIRST: Phase = (1, "acknowledged", 1.0, 1.4, True)
"""Begins the first period of quick adapt, and moves nothing else."""
DROP: list[Phase] = [FIRST, (1, "acknowledged", 2.1, 5.5, True)]
"""One packet came through in R + T, late by more than 4 T: W is one packet, and two are on their way."""
AWAY: Phase = (1, "acknowledged", 0.01, 1.4, True)
"""One of them, so that acknowledgements count again from the next on."""
LOSS: Phase = (1, "overtaken", 0.1, 0, False)
OF_NSCC: dict[str, tuple[list[Phase], float]] = {
    "quick adapt by delay": (DROP, 1),
    "quick adapt by a loss": (
        [FIRST, (2, "acknowledged", 0.9, 1.4, True), (1, "overtaken", 0.3, 0, False)],
        2,
    ),
    "no quick adapt below 4 T": ([FIRST, (1, "acknowledged", 2.1, 4.9, True)], 24),
    "no quick adapt within R + T": ([FIRST, (1, "acknowledged", 1.9, 5.5, True)], 24),
    "no quick adapt as enough came": ([FIRST, (30, "acknowledged", 0.07, 5.5, True)], 24),
    "ignored": ([*DROP, (1, "acknowledged", 1.5, 1.9, False)], 1),
    "ignored, and then eta and alpha": (
        [*DROP, (3, "acknowledged", 0.4, 1.4, False)],
        1 + 4 * A * 0.6 + 0.15 * A,
    ),
    "taken back: nothing": ([FIRST, (9, "taken back", 1, 0, False)], 24),
    "taken back packets have passed": (
        [*DROP, (2, "taken back", 0.01, 0, False), (1, "acknowledged", 1.2, 1.4, False)],
        1 + 4 * A * 0.6 + 0.15 * A,
    ),
    "silent: no quick adapt": ([FIRST, (1, "silent", 2.1, 0, False)], 24 - 1),
    "a loss is remembered": ([FIRST, LOSS, (1, "acknowledged", 2.1, 1.4, True)], 1),
    "until quick adapt has answered it": (
        [
            *(FIRST, LOSS, (1, "acknowledged", 2.1, 1.4, True), (2, "taken back", 0.01, 0, False)),
            (1, "acknowledged", 2.1, 1.4, True),
        ],
        1 + 0.15 * A,
    ),
    "silent: its bytes": ([FIRST, (5, "silent", 0.1, 0, False)], 24 - 5),
    "overtaken: its bytes": ([FIRST, (5, "overtaken", 0.1, 0, False)], 24 - 5),
    "no less than m": ([FIRST, (50, "silent", 0.01, 0, False)], 1),
    "no more than 1.5 BDP": ([*DROP, AWAY, (90, "acknowledged", 0.3, 1.0, False)], 24),
    "eta alone": ([*DROP, AWAY, (1, "acknowledged", 1.5, 1.4, True)], 1 + 0.15 * A),
    "eta once in R": ([*DROP, AWAY, (6, "acknowledged", 0.29, 1.4, True)], 1 + 2 * 0.15 * A),
    "fair increase": (
        [*DROP, AWAY, (1, "acknowledged", 1.2, 2.5, False)],
        1 + 5 * A + 0.15 * A,
    ),
    "eight packets": (
        [*DROP, AWAY, (1, "acknowledged", 1.2, 1.4, True), (8, "acknowledged", 0.01, 1.5, False)],
        1 + 0.15 * A + 8 * 4 * A * 0.5 / (1 + 0.15 * A),
    ),
    "fast increase after more than W": (
        [*DROP, AWAY, (1, "acknowledged", 0.3, 1.4, True), (2, "acknowledged", 0.1, 1.0, False)],
        1 + 0.15 * A + 0.25 * A,
    ),
    "no fast increase after a delay": (
        [
            *(*DROP, AWAY, (1, "acknowledged", 0.3, 1.4, True)),
            *[
                (1, "acknowledged", 0.1, rtt, marked)
                for rtt, marked in [(1.0, False), (1.4, True), (1.0, False)]
            ],
        ],
        1 + 0.15 * A,
    ),
}


@pytest.mark.parametrize(("drawn", "expected"), OF_NSCC.values(), ids=OF_NSCC)
def test_each_branch_of_nscc_moves_the_window_as_its_formula_says(
    drawn: list[Phase], expected: float
) -> None:
    product, reference = of_nscc(BDP, events(*drawn))
    assert product == pytest.approx(reference, rel=1e-9)
    assert product[-1] == pytest.approx(expected, rel=1e-9)


def test_nscc_decreases_once_in_a_round_trip_by_how_far_the_average_is_above_its_target() -> None:
    product, reference = of_nscc(BDP, events((60, "acknowledged", 0.06, 11.0, True)))
    assert product == pytest.approx(reference, rel=1e-9)
    acknowledged = pairwise(product[-61:])
    kept = {i: after / before for i, (before, after) in enumerate(acknowledged, 1) if after < before}
    average = {i: 10 * (1 - 0.9875**i) for i in kept}
    # D is above T from the 9th on, and 17 packets take more than R.
    expected = {i: max(1 - 0.8 * (average[i] - 1) / average[i], 0.5) for i in (9, 26, 43, 60)}
    assert kept == pytest.approx(expected)


MARKED, UNMARKED = (24, "acknowledged", 0.05, 1.5, True), (24, "acknowledged", 0.05, 1.0, False)
OF_DCTCP: dict[str, tuple[list[Phase], float]] = {
    "a marked window": ([MARKED], 24 * (1 - 1 / 16 / 2)),
    "alpha falls": ([MARKED, UNMARKED, MARKED], 24 * (1 - ((15 / 16) ** 2 + 1) / 16 / 2)),
    "a packet a window": ([MARKED, MARKED, UNMARKED], 24 * (1 - 1 / 16 / 2) * (1 - 31 / 256 / 2) + 1),
    "no more than 1.5 BDP": ([UNMARKED, UNMARKED], 24),
    "a loss halves": ([UNMARKED, (1, "overtaken", 0.05, 0, False), (23, *UNMARKED[1:])], 12),
    "once in a window": ([UNMARKED, (5, "silent", 0.05, 0, False), (19, *UNMARKED[1:])], 12),
    "taken back: nothing": ([(48, "taken back", 0.05, 0, False)], 24),
    "no less than m": ([MARKED] * 40, 1),
}


@pytest.mark.parametrize(("drawn", "expected"), OF_DCTCP.values(), ids=OF_DCTCP)
def test_each_branch_of_dctcp_moves_the_window_as_its_formula_says(
    drawn: list[Phase], expected: float
) -> None:
    product, reference = of_dctcp(BDP, events(*drawn))
    assert product == pytest.approx(reference, rel=1e-9)
    assert product[-1] == pytest.approx(expected, rel=1e-9)


LATE, IN_TIME = 2.2, 1.4
"""Round trips above the target of 12 to 24 packets, and below that of any window [R]."""
TARGET = reference_swift.target_delay(24, 2)
BY_HALF: list[Phase] = [(1, "acknowledged", 20, 13, False)] * 5
"""Halves W five times: it is 24 / 32, 0.75 packets."""
SEVERAL: list[Phase] = [(9, "silent", 0.101, 0, False)] * 5
"""Five timeouts, each of nine packets and a little more than R after the one before."""
OF_SWIFT: dict[str, tuple[list[Phase], float]] = {
    "by how far it is late": ([(1, "acknowledged", 1, LATE, False)], 24 * (1 - 0.8 * (1 - TARGET / LATE))),
    "marks are nothing": ([(1, "acknowledged", 1, IN_TIME, True)], 24),
    "by half at most": (BY_HALF[:1], 12),
    "once in a smoothed round trip": ([(26, "acknowledged", 0.1, 13, False)], 12),
    "then again": ([(1, "acknowledged", 1, 13, False), (1, "acknowledged", 4, 13, False)], 6),
    "a packet in a window": ([*BY_HALF[:1], (1, "acknowledged", 0.1, IN_TIME, False)], 12 + 1 / 12),
    "no more than 1.5 BDP": ([*BY_HALF[:1], (400, "acknowledged", 0.1, IN_TIME, False)], 24),
    "as many bytes below a packet": ([*BY_HALF, (1, "acknowledged", 0.1, IN_TIME, False)], 1.75),
    "later targets of small windows": ([*BY_HALF, (1, "acknowledged", 20, 3.7, False)], 1.75),
    "no less than 0.1": (BY_HALF * 4, 0.1),
    "the least is no decrease": (
        [*BY_HALF * 4, (1, "acknowledged", 0.1, IN_TIME, False), (1, "acknowledged", 0.1, 13, False)],
        1.1 / 2,
    ),
    "overtaken: half": ([LOSS], 12),
    "overtaken: once in a round trip": ([(9, "overtaken", 0.1, 0, False)], 12),
    "silent: half": ([(1, "silent", 0.1, 0, False)], 12),
    "silent: once, however late": ([(23, "silent", 2, 0, False)], 12),
    "four timeouts in a row": (SEVERAL[1:], 24 / 2**4),
    "several timeouts in a row": (SEVERAL, 0.1),
    "which are a decrease": (
        [*SEVERAL, (1, "acknowledged", 0.05, IN_TIME, False), (1, "acknowledged", 0.05, 4, False)],
        1.1,
    ),
    "not in a row": ([*SEVERAL[1:], FIRST, SEVERAL[0]], (1.5 + 1 / 1.5) / 2),
    "after a loss not in a row": ([*SEVERAL[1:], LOSS, SEVERAL[0]], 1.5 / 2),
    "taken back: nothing": ([(9, "taken back", 1, 0, False)], 24),
}


@pytest.mark.parametrize(("drawn", "expected"), OF_SWIFT.values(), ids=OF_SWIFT)
def test_each_branch_of_swift_moves_the_window_as_its_formula_says(
    drawn: list[Phase], expected: float
) -> None:
    product, reference = of_swift(BDP, events(*drawn))
    assert product == pytest.approx(reference, rel=1e-9)
    assert product[-1] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(st.lists(phases, min_size=1, max_size=8))
def test_windows_are_the_same_at_every_emulated_rate(
    algorithm: type[Nscc | PerPacket], drawn: list[Phase]
) -> None:
    at_8, at_24 = (
        windows(algorithm(pipe(BDP, rate), np.random.default_rng(0)), one_by_one(events(*drawn)))
        for rate in (8e6, 24e6)
    )
    assert at_8 == pytest.approx(at_24, rel=1e-9)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(st.lists(phases, min_size=1, max_size=8), st.integers(2, 12))
def test_a_batch_is_its_events_one_at_a_time(
    algorithm: type[Nscc | PerPacket], drawn: list[Phase], together: int
) -> None:
    sequence = events(*drawn)
    chunks = [sequence[i : i + together] for i in range(0, len(sequence), together)]
    order = {"sent": 0, "acknowledged": 1}
    batches = [
        [(e[0], chunk[-1][1], *e[2:]) for e in sorted(chunk, key=lambda e: order.get(e[0], 2))]
        for chunk in chunks
    ]
    batched, single = (algorithm(pipe(BDP), np.random.default_rng(0)) for _ in range(2))
    ends = np.cumsum([len(batch) for batch in batches]) - 1
    after_each = windows(single, one_by_one([event for batch in batches for event in batch]))
    assert windows(batched, batches) == [after_each[end] for end in ends]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_window_keeps_within_the_bounds_of_a_path_that_changed(algorithm: type[Nscc | PerPacket]) -> None:
    control = algorithm(pipe(BDP), np.random.default_rng(0))
    control.rates_changed(pipe(BDP / 4))
    assert window(control) == pytest.approx(6)
    control.rates_changed(pipe(BDP))
    assert window(control) == pytest.approx(6), "it grows by what it hears alone"
    assert windows(control, one_by_one(events((99, "acknowledged", 0.1, 1.0, False))))[-1] > 6
