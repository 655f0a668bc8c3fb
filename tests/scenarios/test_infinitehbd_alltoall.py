"""InfiniteHBD's all-to-alls: predictions take the time of their closed forms, circuits and all."""

import pytest

from scenarios._infinitehbd.all_to_all import BY_DISTANCE, DELAY, EXCHANGE, ONE_WAY, TWO_WAY, all_to_alls
from testbed.run.experiment import Experiment
from testbed.run.predict import predict
from traffic.metrics import communication_s

NODE_BYTES = 32_000_000


@pytest.mark.parametrize("bundles", [2, 3, 4])
def test_predictions_are_the_closed_forms_and_a_delay_for_each_round_that_waits(bundles: int) -> None:
    points = {point.scheme: point for point in all_to_alls(bundles, NODE_BYTES, 4, by_distance=True)}
    assert list(points) == [EXCHANGE, ONE_WAY, TWO_WAY, BY_DISTANCE]
    for point in points.values():
        run = predict(point.experiment)
        assert communication_s(run.records) == pytest.approx(point.closed_form_s, rel=1e-9)
        assert (run.events["what"] == "drained").any() == (point.waiting_rounds > 0)
    waiting = {scheme: point.waiting_rounds for scheme, point in points.items()}
    assert waiting == {EXCHANGE: bundles // 2, ONE_WAY: 0, TWO_WAY: 0, BY_DISTANCE: 0}
    saved = points[EXCHANGE].closed_form_s - points[BY_DISTANCE].closed_form_s
    assert saved == pytest.approx(DELAY.mean_s * (bundles // 2))


def test_experiments_are_read_back_as_they_were_written() -> None:
    for point in all_to_alls(2, 400, 4, by_distance=True):
        assert Experiment.from_json(point.experiment.to_json()) == point.experiment
