"""A model's iteration over a big switch takes what it takes by hand."""

from dataclasses import replace

import pytest

from testbed.experiment.experiment import Experiment
from testbed.model.predict import predict
from topologies.big_switch import big_switch_fabric
from traffic.models.layered import Layer, LayeredModel
from traffic.strategies.iteration_job import iteration_job
from traffic.strategies.strategy import Share, start_strategy

RATE_BPS = 8e6
MEGABYTE = 1_000_000
"""One second at this rate."""


def iteration_s(model: LayeredModel, strategy: dict[str, Share]) -> float:
    """Return how long an iteration takes on servers of one NIC, summed over one ring."""
    job = iteration_job(model, strategy, lambda members: (members,), bucket_bytes=1)
    return predict(Experiment(big_switch_fabric(model.servers, rate_bps=RATE_BPS), job, "rails")).iteration_s


def test_tables_and_sums_beside_computing() -> None:
    """Two servers, a sample and a table each.

    Lookups to 1, outputs to 2, bottom to 1.5 beside them; top to 3, its backward to 4, its sum to 5;
    the join's backward to 6, gradients of tables to 7, the bottom's backward to 7.25, its sum to 8.25; the
    tables' backward, which waits for that of the bottom, to 9.25.
    """
    table = Layer("table a", "table", 0, MEGABYTE // 8, 1.0, 2.0, element_bytes=8, rows=1)
    model = LayeredModel(
        "own",
        servers=2,
        gpus_per_server=1,
        batch=1,
        layers=(
            table,
            replace(table, name="table b"),
            Layer("bottom", "dense", MEGABYTE // 4, 1, 0.5, 1.25),
            Layer("join", "concat", 0, 1, 0.0, 2.0, ("table a", "table b", "bottom")),
            Layer("top", "dense", MEGABYTE // 4, 1, 1.0, 1.0, ("join",)),
        ),
        source="a test",
    )
    assert iteration_s(model, start_strategy(model)) == pytest.approx(9.25, rel=1e-6)


def test_a_layer_on_half_of_the_servers() -> None:
    """Four servers, two samples each; the middle layer has four samples on each of servers 1 and 3.

    First to 1; servers 0 and 2 send two samples each, to 2; the middle takes twice its 1.5, to 5; two samples
    go back to 0 and 2, to 6; last to 7, its backward to 8. Gradients go to 1 and 3, to 9; the middle's
    backward to 12; then its sum and the gradients for the first share the NICs of 1 and 3, to 14; its
    backward to 15.
    """
    model = LayeredModel(
        "own",
        servers=4,
        gpus_per_server=1,
        batch=2,
        layers=(
            Layer("first", "dense", 0, MEGABYTE // 8, 1.0, 1.0),
            Layer("middle", "dense", MEGABYTE // 4, MEGABYTE // 8, 1.5, 1.5, ("first",)),
            Layer("last", "dense", 0, 1, 1.0, 1.0, ("middle",)),
        ),
        source="a test",
    )
    strategy = start_strategy(model) | {"middle": Share(2, 1)}
    assert iteration_s(model, strategy) == pytest.approx(15.0, rel=1e-6)
