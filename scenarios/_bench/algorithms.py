"""Promises of the algorithms' speed, measured."""

from functools import partial

import numpy as np

from scenarios._bench.figure import figure, median_s
from testbed.experiment.dilation import Dilation
from testbed.experiment.experiment import Experiment
from testbed.model.predict import predict
from topologies.rail import rail_fabric
from traffic.spraying.rails import lpt
from traffic.steps import single
from traffic.workloads.synthetic import uniform

CHUNKS, RAILS, REPEATS = 100_000, 8, 5


@figure("s", "< 0.3", sandbox=False)
def lpt_s() -> tuple[float, str]:
    """RailS' placing of 100,000 chunks of different sizes on 8 rails."""
    sizes = np.random.default_rng(0).integers(1, 1 << 40, CHUNKS)
    return median_s([partial(lpt, sizes, RAILS)] * REPEATS)


@figure("s", "< 1", sandbox=False)
def prediction_s() -> tuple[float, str]:
    """The fluid model of a uniform all-to-all between 8 servers of 4 rails under RailS."""
    experiment = Experiment(rail_fabric(8, 4), single(uniform(32)), "rails", Dilation(1.0, 1.0))
    return median_s([partial(predict, experiment)] * REPEATS)
