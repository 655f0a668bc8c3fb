"""The prediction: an experiment through the runner over the fluid backend, without a network.

Over OCSes each circuit carries at a NIC's rate while it is lit. Before each slot all circuits are dark for
the delay or, where reconfigurations are partial, those that change; where none is new the device does not
move. Guard times, headers and what a switch takes beside its device's delay are not in it: they are what
the emulation costs.
"""

from collections.abc import Mapping, Sequence

from testbed.machine.garbage import no_garbage_collection
from testbed.run.audit_of import lent_by_all, with_audit
from testbed.run.experiment import Experiment
from testbed.run.fluid_backend import FluidBackend
from testbed.run.packet_paths import optical_path, seen_or_computed
from testbed.run.run import Run
from testbed.run.runner import Runner
from testbed.run.solved_once import solved_once
from topologies.fabric import Path
from traffic.job import Job
from traffic.spraying.policy import ProactivePolicy, QueuePair
from traffic.spraying.registry import policy_named
from traffic.transports.registry import by_bytes


def predict(
    experiment: Experiment,
    paths: Mapping[QueuePair, Path] | None = None,
    delays_s: Mapping[str, Sequence[float]] | None = None,
    *,
    couples: bool = False,
    lent_s: float = 0.0,
) -> Run:
    """Return the run that max-min fair fluids give, audited, in real seconds.

    Queue pairs that meet share a link as their transport has it: evenly, or in proportion to the bytes that
    each has left, so that those which start together at a NIC end together.

    Parameters
    ----------
    experiment
        What to predict.
    paths
        The path that each queue pair took, where an emulation has seen them; by default they are
        computed with the switches' own hash.
    delays_s
        How long each OCS was dark before each of its slots, where that is known; then a slot comes as much
        later or earlier, and is lit as long as planned. By default the mean [s].
    couples
        Whether rings run as coupled flows, for jobs whose rings would be too many messages. How near that
        comes is said at `testbed.run.fluid_backend.FluidBackend.couple`. It is near where a scheme places
        all steps alike: ECMP does, RailS is within 1 % for rings that leave a server over one NIC at a time,
        else 4 %.
    lent_s
        What the shapers of an emulation lend after a pause (`testbed.run.fluid_backend.FluidBackend`), in
        real seconds; nothing where nothing is emulated.
    """
    fabric, known, sprays = experiment.fabric, dict(paths or {}), experiment.spraying
    backend = FluidBackend(
        fabric,
        {name: delay.mean_s for name, delay in experiment.ocs_delays.items()},
        drawn_s=delays_s,
        by_bytes=by_bytes(experiment.transport.name)
        and (isinstance(policy_named(sprays), ProactivePolicy) if sprays else bool(experiment.delegated)),
        paths=seen_or_computed(fabric, known),
        couples=couples,
        lent_s=lent_s,
    )

    def run(job: Job) -> Run:
        runner = Runner(
            fabric,
            job,
            backend,
            experiment.scheme,
            circuits=experiment.circuits,
            faults=experiment.faults,
            revise=experiment.revisions,
            lit=dict(experiment.foreseen.first) if experiment.foreseen else None,
            path=lambda pair: backend.path(pair) or optical_path(fabric, pair),
        )
        with no_garbage_collection():  # a run makes many small things that last, and no cycles
            return runner.run()

    if experiment.circuits or experiment.faults:
        found = run(experiment.job)
    else:
        found = solved_once(experiment.job, backend, run)
    return with_audit(found, experiment, lent_by_all(experiment, lent_s))
