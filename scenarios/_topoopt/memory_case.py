"""An iteration of DLRM over its circuits, for `bench.py memory_estimate`."""

from scenarios._topoopt.experiments import data_parallel, over_panel, plan_for
from testbed.experiment.experiment import Experiment
from traffic.models.topoopt import layered_model


def case() -> Experiment:
    """Return the iteration."""
    trained = data_parallel(layered_model("dlrm", section="5.6"))
    return over_panel(trained, plan_for(trained, degree=4), 10e9)
