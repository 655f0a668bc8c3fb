"""An all-to-all that is gathered and scattered inside servers, for `bench.py memory_estimate`."""

from testbed.experiment.experiment import Experiment
from topologies.rail import rail_fabric
from traffic.delegated import DelegatedSetup
from traffic.steps import single
from traffic.workloads.synthetic import uniform


def case() -> Experiment:
    """Return the all-to-all."""
    fabric = rail_fabric(32, 8)
    return Experiment(fabric, single(uniform(fabric.gpus)), DelegatedSetup())
