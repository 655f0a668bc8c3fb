"""InfiniteHBD's all-to-alls: predictions take the time of their closed forms, circuits and all."""

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from scenarios._infinitehbd.exchange.all_to_all import (
    BY_DISTANCE,
    DELAY,
    EXCHANGE,
    ONE_WAY,
    TWO_WAY,
    all_to_alls,
)
from scenarios._infinitehbd.exchange.report import all_to_all_findings
from scenarios._infinitehbd.exchange.sizes import ALL_FORMS, Forms
from testbed.experiment.experiment import Experiment
from testbed.model.predict import predict
from testbed.report.page import Findings
from testbed.report.run_json import experiments_of
from testbed.trust.outcome import Outcome, Verdict, Word
from tests.scenarios.command import ran
from tests.testbed.runs import changed
from traffic.metrics import communication_s


@pytest.mark.parametrize("bundles", [2, 3, 4])
def test_predictions_are_the_closed_forms_and_a_delay_for_each_round_that_waits(bundles: int) -> None:
    points = {point.scheme: point for point in all_to_alls([bundles], 4, [32], by_distance=True)}
    assert list(points) == [EXCHANGE, ONE_WAY, TWO_WAY, BY_DISTANCE]
    for point in points.values():
        run = predict(point.experiment)
        assert communication_s(run.tables) == pytest.approx(point.closed_form_s, rel=1e-9)
        assert (run.events["what"] == "drained").any() == (point.waiting_rounds > 0)
    waiting = {scheme: point.waiting_rounds for scheme, point in points.items()}
    assert waiting == {EXCHANGE: bundles // 2, ONE_WAY: 0, TWO_WAY: 0, BY_DISTANCE: 0}
    saved = points[EXCHANGE].closed_form_s - points[BY_DISTANCE].closed_form_s
    assert saved == pytest.approx(DELAY.mean_s * (bundles // 2))


def test_experiments_are_read_back_as_they_were_written() -> None:
    for point in all_to_alls([2], 4, [4e-4], by_distance=True):
        assert Experiment.from_json(point.experiment.to_json()) == point.experiment


def findings_of(word: Word, slower: dict[str, float] | None = None) -> Findings:
    """Return what is said of all-to-alls between 4 nodes that took the time of their models, or longer."""
    points = all_to_alls([2], 4, [40])
    outcomes = []
    for point in points:
        run, factor = predict(point.experiment), (slower or {}).get(point.scheme, 1.0)
        seen = changed(run, messages=run.messages.assign(end_s=run.messages["end_s"] * factor))
        outcomes.append(Outcome(point.experiment, run, None if word == "model" else seen, Verdict(word)))
    return all_to_all_findings(outcomes, points)


ROUNDS, ONE = "binary exchange takes log2 p rounds of p m / 2 bytes", "faster than a ring one way"


@pytest.mark.parametrize("word", ["model", "void", "unsound"])
def test_claims_say_nothing_without_a_sound_emulation(word: Word) -> None:
    found = findings_of(word)
    assert [claim.verdict for claim in found.claims] == ["not comparable"] * 3 + ["arithmetic"] * 2
    assert all(math.isnan(claim.measured) for claim in found.claims[:3])


@pytest.mark.parametrize(
    ("slower", "verdict", "rounds", "one_way"),
    [({}, "holds", 1.0, 300 / 270), ({EXCHANGE: 1.2}, "does not hold", 1.2, 300 / 270 / 1.2)],
)
def test_claims_are_ruled_from_what_was_emulated(
    slower: dict[str, float], verdict: str, rounds: float, one_way: float
) -> None:
    found = {claim.text.rpartition(": ")[2]: claim for claim in findings_of("faithful", slower).claims}
    assert (found[ROUNDS].verdict, found[ONE].verdict) == (verdict, "not comparable")
    assert [found[ROUNDS].measured, found[ONE].measured] == pytest.approx([rounds, one_way])


@pytest.mark.parametrize("forms", ALL_FORMS)
@pytest.mark.parametrize("both_ways", [False, True])
def test_a_crossover_is_where_the_exchange_begins_to_be_faster(forms: Forms, both_ways: bool) -> None:
    p, rounds, second_bytes = forms.nodes, forms.bundles, 800e9  # a bundle's 6.4 Tbit/s

    def exchange_is_faster(size: float) -> bool:
        ring_s = size * (p * p / 8 if both_ways else p * (p - 1) / 2) / second_bytes
        return rounds * p * size / 2 / second_bytes + (rounds // 2) * 70e-6 < ring_s

    faster = [size for size in np.geomspace(1e3, 1e9, 4000) if exchange_is_faster(size)]
    assert forms.crossover_bytes(both_ways=both_ways) == pytest.approx(
        min(faster, default=math.inf), rel=5e-3
    )
    assert forms.ratio(1e12, both_ways=both_ways) == pytest.approx(
        forms.slower(both_ways=both_ways), rel=1e-3
    )


def test_crossovers_are_printed_and_drawn_with_what_was_emulated() -> None:
    _, sheet = findings_of("faithful").sheets
    assert [line.cells for line in sheet.blocks[0].lines] == [
        ["4", "1 of 2", "28", "1.50", "never", "0.50"],
        ["8", "1 of 3", "3.5", "2.33", "never", "0.67"],
        ["16", "2 of 4", "1.27", "3.75", "never", "1.00"],
        ["32", "2 of 5", "0.269", "6.20", "2.33", "1.60"],
        ["64", "3 of 6", "0.0921", "10.50", "0.525", "2.67"],
    ]
    drawn = {word: _marks(findings_of(word)) for word in ("faithful", "model", "void")}
    assert drawn["faithful"] == {"D": 7, "o": 1, "s": 1}
    assert drawn["model"] == drawn["void"] == {"D": 7}


def _marks(found: Findings) -> Counter[str]:
    (plot,) = found.plots
    (axes,) = plot.draw().axes
    return Counter(str(line.get_marker()) for line in axes.lines if line.get_marker() != "None")


@pytest.mark.drawn
def test_a_table_has_each_beside_its_closed_form_and_claims_say_which_ring_is_slower(tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = ("--model-only", "--bundles", "2,3", "--mb", "80", "--by-distance", "--out", out)
    done = ran("infinitehbd_alltoall", *options)
    assert done.returncode == 0, done.stderr
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    for line in (
        "binary exchange, 1 wait 470.0 1.0000 - 1.00 -",
        "ring, one way 600.0 1.0000 - 1.28 -",
        "ring, both ways 200.0 1.0000 - 0.43 -",
        "exchange, by distance 400.0 1.0000 - 0.85 -",
        "binary exchange, 1 wait 1270.0 1.0000 - 1.00 -",
    ):
        assert line in lines
    assert "holds: 0 of 3; not comparable: 3; arithmetic: 2" in lines
    assert (out / "crossover.png").exists()
    read = experiments_of(out / "run.json")
    assert {each.label for each in read} == {EXCHANGE, ONE_WAY, TWO_WAY, BY_DISTANCE}
    assert all(each.circuits for each in read)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--bundles", "1"], "1 bundles of nodes of 4 GPUs; give 2 to 4"),
        (["--bundles", "5"], "5 bundles of nodes of 4 GPUs"),
        (["--bundles", "two"], "--bundles: found 'two', expected a whole number"),
        (["--mb", "0"], "a size of 0 MB"),
        (["--mb", "0.000001"], "give multiples of 4 bytes"),
        (["--fail", "nic:0:0@40%"], "leave out --fail"),
    ],
)
def test_bad_input_is_one_sentence(options: list[str], said: str) -> None:
    done = ran("infinitehbd_alltoall", "--model-only", *options)
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    assert said in line
