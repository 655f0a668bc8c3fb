"""Means over seeds: what they are, and that no void point hides in one."""

import math

import pandas as pd

from testbed.report.means import Mean, in_order, points, with_ratios


def row(
    scheme: str,
    seed: int,
    cct_s: float,
    verdict: str = "faithful",
    workload: str = "uniform",
    transport: str = "credit",
) -> dict[str, object]:
    return {
        "workload": workload,
        "note": "",
        "predicted_as": "placed",
        "scheme": scheme,
        "circuits": "",
        "name": scheme,
        "transport": transport,
        "seed": seed,
        "cct_s": cct_s,
        "busbw_gbytes_s": 12.0 / cct_s,
        "bound_s": 2.0,
        "verdict": verdict,
        "likeness": "",
    }


def test_ratios_are_to_the_baseline_with_the_same_seed_and_to_the_bound() -> None:
    table = pd.DataFrame(
        [row("ecmp", 0, 4.0), row("ecmp", 1, 8.0), row("rails", 0, 2.0), row("rails", 1, 4.0)]
    )
    ratios = with_ratios(table)
    assert ratios["busbw_relative"].tolist() == [1, 1, 2, 2]
    assert ratios["over_bound"].tolist() == [2, 4, 1, 2]
    assert ratios["busbw_limit"].tolist() == [2, 4, 2, 4]


def test_a_void_seed_is_left_out_where_there_are_others() -> None:
    rows = [row("rails", 0, 3.0), row("rails", 1, 900.0, "void"), row("rails", 2, 5.0, "strained")]
    (point,) = points(pd.DataFrame(rows), baseline="rails")
    assert point["cct_s"] == Mean(4.0, math.sqrt(2), void=False)
    assert (point.verdict, point.void, point.word) == ("strained 1/3, void 1/3", False, "void")


def test_a_mean_of_void_seeds_alone_says_so() -> None:
    (point,) = points(pd.DataFrame([row("rails", 0, 3.0, "void"), row("rails", 1, 5.0, "void")]))
    assert point["cct_s"] == Mean(4.0, math.sqrt(2), void=True)
    assert (point.verdict, point.void) == ("void", True)


def test_what_is_relative_to_a_void_baseline_is_void_and_the_bound_never_is() -> None:
    ecmp, rails = points(pd.DataFrame([row("ecmp", 0, 4.0, "void"), row("rails", 0, 2.0)]))
    assert rails["busbw_relative"] == Mean(2.0, void=True)
    assert rails["cct_s"] == Mean(2.0, void=False)
    assert ecmp["bound_s"] == rails["bound_s"] == Mean(2.0, void=False)


def test_without_the_baseline_nothing_is_relative() -> None:
    (point,) = points(pd.DataFrame([row("rails", 0, 2.0)]))
    assert math.isnan(point["busbw_relative"].value)


def test_schemes_are_shown_in_the_order_of_the_papers_and_others_after_them() -> None:
    assert in_order(["mine:two", "rails", "a:one", "ecmp:4", "ecmp", "optimal", "ecmp", "pxn"]) == [
        "ecmp",
        "ecmp:4",
        "pxn",
        "rails",
        "optimal",
        "a:one",
        "mine:two",
    ]
