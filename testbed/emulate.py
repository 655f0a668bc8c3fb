"""The emulation: an experiment through the runner over a booted network."""

from dataclasses import dataclass
from functools import cache

from testbed.experiment import Experiment
from testbed.live_backend import LiveBackend
from testbed.network import Network
from testbed.runner import Runner, records_of_run
from topologies.errors import ScenarioError
from topologies.fabric import Path
from traffic.engine import STUCK_S, Health
from traffic.metrics import communication_s
from traffic.records import Records, path_text
from traffic.spraying.policy import QueuePair


@dataclass(frozen=True, eq=False)
class Emulation:
    """What was seen of an experiment over a network."""

    records: Records
    """In real seconds and bytes."""
    paths: dict[QueuePair, Path]
    """The path of each queue pair, read off the wire."""
    health: Health
    """How the engine fared, at emulated scale."""
    emulated_s: float
    """How long the steps took together without compute, at emulated scale [s]."""


def emulate(
    experiment: Experiment, network: Network, *, stuck_s: float = STUCK_S, skips: bool = True
) -> Emulation:
    """Carry an experiment's collective over a network that was booted at its scale.

    Parameters
    ----------
    experiment, network
        The network's fabric and rate are the experiment's.
    stuck_s
        After how long without progress a queue pair is an error, at emulated scale [s].
    skips
        Whether compute between steps only shows in the records, and is not waited for.

    Raises
    ------
    ScenarioError
        If the network is another fabric's, or at another rate, or a link's delay cannot be honoured.
    StuckError, NetworkError
        If bytes do not arrive, or a part of the network died.
    """
    if (network.fabric, network.rate_factor) != (experiment.fabric, experiment.dilation.rate):
        raise ScenarioError("the network was booted for another experiment", "boot one for this")
    with LiveBackend(network, experiment.dilation, stuck_s=stuck_s, skips=skips) as backend:
        runner = Runner(
            experiment.fabric,
            experiment.job,
            backend,
            experiment.scheme,
            leg_name=cache(lambda queue_pair: path_text(backend.paths[queue_pair])),
        )
        records = records_of_run(runner.run())
        emulated_s = experiment.dilation.emulated_s(communication_s(records))
        return Emulation(records, backend.paths, backend.health, emulated_s)
