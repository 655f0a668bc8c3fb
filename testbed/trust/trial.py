"""One experiment tried on a booted network: emulated, predicted over the paths taken, and judged."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from testbed.audit.finding import Wire
from testbed.core.event_log import NO_LOGS, EventLog
from testbed.experiment.audit_of import lent_by_shapers, with_audit
from testbed.experiment.experiment import LIMIT, Experiment
from testbed.live.emulate import emulate
from testbed.live.light_log import drawn_s
from testbed.model.predict import is_informed, predict
from testbed.network.network import Network
from testbed.trust.carried import carried
from testbed.trust.evidence import Watch
from testbed.trust.fidelity import CHOSEN, LIT, PACKETS, Limit, verdict, verdict_of_light
from testbed.trust.outcome import Outcome, bound_s, completion_s
from topologies.fabric import Port
from traffic.bounds import NOTHING_LENT


def tried(
    experiment: Experiment,
    network: Network,
    link_error: float = math.nan,
    broken: Sequence[str] = (),
    logs: Mapping[str, EventLog] = NO_LOGS,
) -> Outcome:
    """Return what came of an experiment.

    Parameters
    ----------
    experiment, network
        As of `emulate`.
    link_error
        The worst relative error of a link's rate, where links were sampled.
    broken
        Settings that did not take effect, a sentence each.
    logs
        Where what happens in each run is written down, by the run's name; by default nowhere.
    """
    experiment = replace(experiment, hashing=network.hashing)  # whatever it was made for
    restarts = any(fault.daemon == "switches" for fault in experiment.faults)
    relit = bool(experiment.circuits) and not experiment.has_slots
    with Watch(network, experiment.failing, restarts=restarts, relit=relit) as watch:
        emulation = emulate(experiment, network, log=logs.get("emulated"))
    broken = [*broken, *(sentence for sentence in watch.unmet if sentence not in broken)]
    light = emulation.light
    lent_bytes = lent_real_bytes(experiment, network)
    first = experiment.rule.first if experiment.rule else {}
    lit_before = [ocs for ocs, circuits in first.items() if circuits]
    delays_s = drawn_s(emulation.logs, experiment.dilation, lit_before)
    predicted = predict(
        experiment, emulation.paths, delays_s, lent_bytes=lent_bytes, log=logs.get("predicted")
    )
    informed = is_informed(experiment, emulation.paths, delays_s)
    free = predict(experiment, lent_bytes=lent_bytes, log=logs.get("free")) if informed else None
    measures = watch.measures(emulation, link_error)
    measured_s, predicted_s = (completion_s(experiment.job, run) for run in (emulation.run, predicted))
    if light:
        judged = verdict_of_light(measures, light, measured_s=measured_s, unmet=broken)
    else:
        judged = verdict(
            measures,
            measured_s=measured_s,
            bound_s=bound_s(experiment, lent_bytes, forwarded=True),
            emulated_s=experiment.dilation.emulated_s(predicted_s),
            unmet=broken,
            limits=limits_of(experiment),
        )
    counted = Wire(experiment.dilation.volume, experiment.mtu, measures.retransmits, emulation.on_the_way)
    run = watch.with_packets(watch.wired(emulation.run), emulation.packets)
    emulated = with_audit(run, experiment, lent_by_shapers(experiment, network), counted)
    seen = emulation.crossings
    wire = None if seen is None else carried(seen, emulation.logs, experiment.dilation)
    return Outcome(
        experiment,
        predicted,
        emulated,
        judged,
        measures,
        light,
        lent_bytes,
        emulation.shares,
        wire,
        emulation.inert,
        free,
        order=emulation.order,
        queueing=emulation.queueing,
    )


def limits_of(experiment: Experiment) -> tuple[Limit, ...]:
    """Return the limits of the measures of a run without slots."""
    if experiment.over_circuits:
        return LIT
    return CHOSEN if experiment.predicted_as == LIMIT else PACKETS


def lent_real_bytes(experiment: Experiment, network: Network) -> Mapping[Port, float]:
    """Return what each port's shaper lends after a pause [real bytes]; datagrams over circuits are paced."""
    if experiment.has_slots:
        return NOTHING_LENT
    return lent_by_shapers(experiment, network)
