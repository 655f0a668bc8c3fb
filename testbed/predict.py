"""The prediction: an experiment through the runner over the fluid backend, without a network."""

from collections.abc import Mapping, Sequence
from functools import cache

from testbed.experiment import Experiment
from testbed.fluid_backend import FluidBackend
from testbed.packet_paths import computed_paths
from testbed.runner import Runner, records_of_run
from topologies.fabric import Path
from traffic.records import Records, path_text
from traffic.spraying.policy import ProactivePolicy, QueuePair
from traffic.spraying.registry import policy_named


def predict(experiment: Experiment, paths: Mapping[QueuePair, Path] | None = None) -> Records:
    """Return the records that max-min fair fluids give, in real seconds.

    A proactive scheme's queue pairs share links in proportion to the bytes of each, so that those
    which start together at a NIC end together, as the engine has it.

    Parameters
    ----------
    experiment
        What to predict.
    paths
        The path that each queue pair took, where an emulation has seen them; by default they are
        computed with the switches' own hash.
    """
    fabric, known = experiment.fabric, dict(paths or {})

    def paths_of(queue_pairs: Sequence[QueuePair]) -> Sequence[Path]:
        new = [queue_pair for queue_pair in queue_pairs if queue_pair not in known]
        known.update(zip(new, computed_paths(fabric, new), strict=True))
        return [known[queue_pair] for queue_pair in queue_pairs]

    by_bytes = isinstance(policy_named(experiment.policy), ProactivePolicy)
    backend = FluidBackend(fabric, {}, by_bytes=by_bytes, paths=paths_of)
    leg_name = cache(lambda queue_pair: path_text(known[queue_pair]))
    runner = Runner(fabric, experiment.job, backend, experiment.scheme, leg_name=leg_name)
    return records_of_run(runner.run())
