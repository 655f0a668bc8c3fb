"""The audit of an experiment's run: what of the experiment it has to know, on either backend."""

from collections.abc import Mapping
from dataclasses import replace

from testbed.audit.audit import audited
from testbed.audit.finding import Circumstances, Wire
from testbed.core.run import Run
from testbed.experiment.experiment import Experiment
from testbed.machine.garbage import no_garbage_collection
from testbed.network.network import Network
from topologies.errors import UnsoundError
from topologies.fabric import Fabric, Port
from traffic.clock import ps
from traffic.scheme_setup import pipelined
from traffic.spraying.policy import ProactivePolicy
from traffic.spraying.registry import policy_named

LATE_LIGHT_S = 0.02
"""How far from what the log says light may come and go in an emulation [emulated s]: *lit* and *dark* are
logged after they were proved, and senders hear of both."""


def with_audit(
    run: Run, experiment: Experiment, lent_bytes: Mapping[Port, float], wire: Wire | None = None
) -> Run:
    """Return a run with its audit.

    Parameters
    ----------
    run, experiment
        What ran, and what came of it.
    lent_bytes
        What the bucket at each port lends after a pause [real bytes].
    wire
        The scale of what ports counted, of an emulation; None of a prediction.
    """
    live = wire is not None
    known = Circumstances(
        lent_bytes=_lent_everywhere(experiment.fabric, lent_bytes),
        live=live,
        faults=experiment.faults,
        revisions=experiment.revisions,
        estimates=not live and _chooses(experiment),
        pipelined=pipelined(experiment.scheme),
        late_light_ps=ps(experiment.dilation.real_s(LATE_LIGHT_S)) if live else 0,
        wire=wire,
    )
    with no_garbage_collection():  # it makes none, and looking through all that a run holds takes as long
        return replace(run, audit=audited(run.tables, experiment.job, experiment.fabric, known))


def _chooses(experiment: Experiment) -> bool:
    """Return whether messages choose their lanes as they go, or take those that are lit."""
    sprays = experiment.spraying
    return experiment.has_slots or bool(sprays and not isinstance(policy_named(sprays), ProactivePolicy))


def _lent_everywhere(fabric: Fabric, lent_bytes: Mapping[Port, float]) -> dict[Port, float]:
    """Return what each port lets through at once: one without a shaper whatever another's bucket lends."""
    most = max(lent_bytes.values(), default=0.0)
    return {port: lent_bytes.get(port, most) for port in fabric.link_at} if most else {}


def lent_by_shapers(experiment: Experiment, network: Network) -> dict[Port, float]:
    """Return what the token bucket of each port of an emulation lends [real bytes]."""
    shapes = network.wiring.shapes
    return {port: shape.burst_bytes / experiment.dilation.volume for port, shape in shapes.items()}


def sound(run: Run) -> Run:
    """Return a run; UnsoundError if its tables say what cannot be."""
    if run.audit and run.audit.findings:
        raise UnsoundError(f"a prediction is unsound: {run.audit.findings[0]}")
    return run
