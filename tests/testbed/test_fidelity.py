"""Verdicts: what is far from its prediction is not faithful, on either side, whatever else was seen."""

import math

import pytest

from testbed.run.fidelity import SHORT_S, verdict
from testbed.run.outcome import Measures


@pytest.mark.parametrize(
    ("ratio", "word"),
    [
        (0.10, "void"),
        (0.66, "void"),
        (0.68, "strained"),
        (0.89, "strained"),
        (0.91, "faithful"),
        (0.98, "faithful"),
        (1.14, "faithful"),
        (1.24, "strained"),
        (1.49, "strained"),
        (1.51, "void"),
    ],
)
def test_the_distance_from_the_prediction_decides_on_both_sides(ratio: float, word: str) -> None:
    """The bound lies far below, as under ECMP or receiver skew, so that it says nothing."""
    judged = verdict(Measures(), measured_s=ratio * 3, predicted_s=3.0, bound_s=0.2)
    assert judged.word == word
    assert judged.reasons == (() if word == "faithful" else (f"it took {ratio:.2f} times the prediction",))


def test_what_beats_its_bound_is_void_though_near_its_prediction() -> None:
    judged = verdict(Measures(), measured_s=0.97, predicted_s=1.0, bound_s=1.0)
    assert judged.word == "void"
    assert judged.reasons == ("it took 0.97 of the least time possible, so something was not measured",)
    assert verdict(Measures(), measured_s=0.985, predicted_s=1.0, bound_s=1.0).word == "faithful"


@pytest.mark.parametrize(
    ("measured_s", "predicted_s", "bound_s"),
    [
        (math.nan, 1.0, 1.0),
        (math.inf, 1.0, 1.0),
        (1.0, math.nan, 1.0),
        (1.0, math.inf, 1.0),
        (1.0, 1.0, math.nan),
        (5.0, 0.0, 0.0),
        (0.0, 0.0, 1.0),
    ],
)
def test_times_that_cannot_be_compared_are_void(
    measured_s: float, predicted_s: float, bound_s: float
) -> None:
    judged = verdict(Measures(), measured_s=measured_s, predicted_s=predicted_s, bound_s=bound_s)
    assert judged.word == "void"
    assert (
        f"it took {measured_s:g} s, the prediction is {predicted_s:g} s and the bound {bound_s:g} s, "
        "which cannot be compared"
    ) in judged.reasons


def test_nothing_owed_takes_no_time_faithfully() -> None:
    assert verdict(Measures(), measured_s=0.0, predicted_s=0.0, bound_s=0.0).word == "faithful"


def test_a_link_that_was_not_sampled_is_not_held_against_a_run() -> None:
    unsampled = Measures(worst_link_error=math.nan)
    assert verdict(unsampled, measured_s=1.0, predicted_s=1.0, bound_s=1.0).word == "faithful"


@pytest.mark.parametrize("measured_s", [1.3, 3.0])
def test_a_run_too_short_to_be_timed_is_not_advised_to_go_slower(measured_s: float) -> None:
    long, short = (
        verdict(Measures(), measured_s=measured_s, predicted_s=1.0, bound_s=1.0, emulated_s=emulated_s)
        for emulated_s in (2 * SHORT_S, SHORT_S / 1e6)
    )
    assert "--emulated-rate" in long.advice
    assert short.advice == "send more bytes: these take under 0.1 s here, too little to be timed"


def test_what_links_lose_is_sent_again_and_no_doubt() -> None:
    measures = Measures(packets=1000, retransmits=35)
    clean, lossy = (
        verdict(measures, measured_s=1.0, predicted_s=1.0, bound_s=1.0, loss=loss) for loss in (0.0, 0.02)
    )
    assert clean.reasons == ("TCP sent 3.5% of the packets again",)
    assert lossy.word == "faithful"
    slow = verdict(measures, measured_s=1.3, predicted_s=1.0, bound_s=1.0, loss=0.02)
    assert slow.word == "strained"
    assert "--loss" in slow.advice
