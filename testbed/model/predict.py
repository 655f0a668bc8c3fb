"""The prediction: an experiment carried out over the fluid backend, without a network.

Beside an emulation there are two. The informed one follows the paths that the tap saw and the delays that
the OCSes drew, so what separates it from the emulation is physics. The free one chooses for itself, as
without an emulation: the switches' hash as computed, and mean delays. So what separates the two are
decisions; to be compared with nothing else, it too has what the emulation's shapers lend.

Over OCSes each circuit carries at a NIC's rate while it is lit. Before each slot all circuits are dark for
the delay or, where reconfigurations are partial, those that change; where none is new the device does not
move. Guard times, headers and what a switch takes beside its device's delay are not in it: they are what
the emulation costs.
"""

import math
from collections.abc import Mapping, Sequence

from testbed.core.event_log import EventLog
from testbed.core.packet_paths import paths_over
from testbed.core.run import Run
from testbed.experiment.audit_of import with_audit
from testbed.experiment.experiment import Experiment
from testbed.experiment.running import simulation_of
from testbed.machine.garbage import no_garbage_collection
from testbed.model.backend import FluidBackend
from testbed.model.solved_once import solved_once
from topologies.fabric import Path, Port
from traffic.bounds import NOTHING_LENT
from traffic.job import Job
from traffic.scheme import memory_of
from traffic.spraying.policy import ProactivePolicy, QueuePair
from traffic.spraying.registry import policy_named
from traffic.transports.registry import by_bytes, sends_datagrams, waits_for_grants

ROUNDED = 1e-9
"""By how much a delay differs that was dilated and back."""


def predict(
    experiment: Experiment,
    paths: Mapping[QueuePair, Path] | None = None,
    delays_s: Mapping[str, Sequence[float]] | None = None,
    *,
    couples: bool = False,
    lent_bytes: Mapping[Port, float] = NOTHING_LENT,
    log: EventLog | None = None,
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
        comes is said at `testbed.model.backend.FluidBackend._couple`. It is near where a scheme places
        all steps alike: ECMP does, RailS is within 1 % for rings that leave a server over one NIC at a time,
        else 4 %. Where circuits may change under rings and a scheme leads messages over others then, rings
        run step by step (`testbed.experiment.running`).
    lent_bytes
        What the shapers of an emulation lend after a pause (`testbed.model.backend.FluidBackend`), in
        real bytes of each port; nothing where nothing is emulated.
    log
        Where what happens is written down, by default nowhere; equal parts of a job are then solved each.
    """
    fabric, sprays = experiment.fabric, experiment.spraying
    datagrams = sends_datagrams(experiment.transport.name)
    weighs = bool(experiment.setup and experiment.setup.by_bytes)
    backend = FluidBackend(
        fabric,
        {name: delay.mean_s for name, delay in experiment.ocs_delays.items()},
        drawn_s=delays_s,
        flip_s={name: delay.flip_s for name, delay in experiment.ocs_delays.items()},
        by_bytes=by_bytes(experiment.transport.name)
        and (isinstance(policy_named(sprays), ProactivePolicy) if sprays else weighs),
        paths=dict(paths or {}),
        routing=experiment.bound_routing,
        datagrams=datagrams,
        hashing=experiment.hashing,
        grants=waits_for_grants(experiment.transport.name),
        lent_bytes=lent_bytes,
    )

    scheme, communicators = experiment.new_scheme(), experiment.communicators

    def run(job: Job) -> Run:
        simulation = simulation_of(
            experiment,
            backend,
            job=job,
            scheme=scheme,
            communicators=communicators,
            couples=couples,
            log=log,
        )
        with no_garbage_collection():  # a run makes many small things that last, and no cycles
            return simulation.run()

    if experiment.rule or experiment.faults or log is not None:
        found = run(experiment.job)
    else:
        found = solved_once(experiment.job, backend, run, lambda: memory_of(scheme))
    return with_audit(found, experiment, lent_bytes)


def is_informed(
    experiment: Experiment,
    paths: Mapping[QueuePair, Path],
    delays_s: Mapping[str, Sequence[float]] | None,
) -> bool:
    """Return whether an emulation took other paths, or had other delays, than a prediction without it has.

    Parameters
    ----------
    experiment, paths, delays_s
        As of `predict`. Delays that are as the devices' mean but for rounding are no other ones.
    """
    datagrams = sends_datagrams(experiment.transport.name)
    own = paths_over(
        experiment.fabric,
        routing=experiment.bound_routing,
        datagrams=datagrams,
        hashing=experiment.hashing,
    )
    if any(own[queue_pair] != path for queue_pair, path in paths.items()):
        return True
    mean_s = {name: delay.mean_s for name, delay in experiment.ocs_delays.items()}
    return any(
        not math.isclose(drawn_s, mean_s[name], rel_tol=ROUNDED, abs_tol=ROUNDED)
        for name, drawn in (delays_s or {}).items()
        for drawn_s in drawn
    )
