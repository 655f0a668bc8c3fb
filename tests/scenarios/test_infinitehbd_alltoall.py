"""InfiniteHBD's all-to-alls: predictions take the time of their closed forms, circuits and all."""

from pathlib import Path

import pytest

from scenarios._infinitehbd.all_to_all import BY_DISTANCE, DELAY, EXCHANGE, ONE_WAY, TWO_WAY, all_to_alls
from testbed.report.run_json import experiments_of
from testbed.run.experiment import Experiment
from testbed.run.predict import predict
from tests.scenarios.command import ran
from traffic.metrics import communication_s

NODE_BYTES = 32_000_000


@pytest.mark.parametrize("bundles", [2, 3, 4])
def test_predictions_are_the_closed_forms_and_a_delay_for_each_round_that_waits(bundles: int) -> None:
    points = {point.scheme: point for point in all_to_alls(bundles, NODE_BYTES, 4, by_distance=True)}
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
    for point in all_to_alls(2, 400, 4, by_distance=True):
        assert Experiment.from_json(point.experiment.to_json()) == point.experiment


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
    assert sum("not comparable" in line for line in lines) >= 1
    read = experiments_of(out / "run.json")
    assert {each.label for each in read} == {EXCHANGE, ONE_WAY, TWO_WAY, BY_DISTANCE}
    assert all(each.circuits for each in read)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--bundles", "1"], "--bundles 1 on nodes of 4 GPUs; give numbers from 2 to 4"),
        (["--bundles", "5"], "on nodes of 4 GPUs"),
        (["--bundles", "two"], "--bundles two"),
        (["--mb", "0"], "0 MB to each node"),
        (["--mb", "0.000001"], "of a multiple of 4 bytes"),
        (["--fail", "nic:0:0@40%"], "leave out --fail"),
    ],
)
def test_bad_input_is_one_sentence(options: list[str], said: str) -> None:
    done = ran("infinitehbd_alltoall", "--model-only", *options)
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    assert said in line
