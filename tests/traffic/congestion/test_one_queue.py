"""Algorithms on one queue: an incast, and mice beside an elephant, against uet-htsim at commit 40ccb05.

Of that simulator's fabric of 16 hosts only the queue in front of the receiver is here, which is where these
two matrices queue. Its base round trip is 16.35 us: 12 of links, and six times a packet and a header at 100
Gbit/s (datacenter/main_uec.cpp, calculate_rtt). Its flows send payloads of 8936 bytes in packets of 9000.
"""

from functools import cache
from statistics import mean, median

import pytest

from tests.traffic.congestion.controls import Constant, Late, ThirdPerMark
from tests.traffic.congestion.one_queue import Flow, Make, OneQueue
from traffic.congestion.control import Pipe, Red
from traffic.congestion.dctcp import Dctcp
from traffic.congestion.nscc import Nscc

REFERENCE = Pipe(12.5e9, 16.351e-6, 9000)
HEADER_BYTES, PAYLOAD_BYTES = 64, 8936


def wire_bytes(payload: int) -> int:
    return payload + -(-payload // PAYLOAD_BYTES) * HEADER_BYTES


INCAST = [Flow(wire_bytes(2_000_000))] * 8
MICE = [Flow(wire_bytes(200_000), 50e-6 * i) for i in range(1, 12)]
INCAST_BOUND_S, MICE_BOUND_S = 8 * 2e6 / 12.5e9, (20e6 + 11 * 200e3) / 12.5e9


FIGURES = ("incast's CCT", "incast's first", "incast's mean", "elephant's CCT", "mice's mean [us]")
OF_NSCC = dict(zip(FIGURES, (1.037, 0.917, 0.982, 1.016, 54.3), strict=True))
OF_ITS_DCTCP = dict(zip(FIGURES, (1.039, 0.908, 0.986, 1.057, 44.0), strict=True))
"""Over their bounds: medians of five seeds, sprayed obliviously, without trimming."""


@cache
def figures(make: Make, marks: Red | None) -> tuple[dict[str, float], float]:
    """Return the medians over five seeds of these figures, and of the incast's median queue [packets]."""
    incasts = [OneQueue(make, INCAST, REFERENCE, marks, seed).passed() for seed in range(5)]
    beside = [Flow(wire_bytes(20_000_000)), *MICE]
    with_mice = [OneQueue(make, beside, REFERENCE, marks, seed).passed().took_s for seed in range(5)]
    found = (
        median(max(each.took_s) for each in incasts) / INCAST_BOUND_S,
        median(min(each.took_s) for each in incasts) / INCAST_BOUND_S,
        median(mean(each.took_s) for each in incasts) / INCAST_BOUND_S,
        median(each[0] for each in with_mice) / MICE_BOUND_S,
        median(mean(each[1:]) for each in with_mice) * 1e6,
    )
    return dict(zip(FIGURES, found, strict=True)), median(median(each.queues) for each in incasts)


def test_nscc_does_as_the_reference_simulator() -> None:
    found, _ = figures(Nscc, Nscc.marks)
    assert found == pytest.approx(OF_NSCC, rel=0.08)
    assert found["mice's mean [us]"] == pytest.approx(54.3, rel=0.01), (
        "they wait for W_max - BDP of the elephant"
    )


def test_the_queue_is_that_of_the_reference_simulator() -> None:
    """By the rule that it calls DCTCP, which has no state but W."""
    found, _ = figures(ThirdPerMark, ThirdPerMark.marks)
    assert found == pytest.approx(OF_ITS_DCTCP, rel=0.08)


def test_a_window_that_never_shrinks_is_told_apart_by_the_first_flow() -> None:
    found, _ = figures(Constant, None)
    assert found["incast's first"] > 1.08 * OF_NSCC["incast's first"]


def test_a_later_target_is_told_apart_by_the_queue_alone() -> None:
    """The simulator's own figures do not leave 8 % either with -target_q_delay 65.4, which is 4 R."""
    found, queue = figures(Late, Late.marks)
    assert found == pytest.approx(OF_NSCC, rel=0.08)
    assert queue > 1.5 * figures(Nscc, Nscc.marks)[1]


class FromOne(Dctcp):
    """With alpha as RFC 8257 begins."""

    first_alpha = 1.0


def test_dctcp_of_the_paper_needs_sixteen_windows_to_shorten_a_queue_unless_it_begins_at_one() -> None:
    found, queue = figures(Dctcp, Dctcp.marks)
    quick, quick_queue = figures(FromOne, Dctcp.marks)
    nscc, nscc_queue = figures(Nscc, Nscc.marks)
    assert quick_queue < nscc_queue / 4 < 4 * nscc_queue < queue
    for each in (found, quick):
        assert each["mice's mean [us]"] < 0.85 * nscc["mice's mean [us]"]
        assert each["elephant's CCT"] > 1.1 * nscc["elephant's CCT"]
