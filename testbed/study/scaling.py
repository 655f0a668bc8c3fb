"""The scale of an emulation: the largest rate that this machine carries, and long enough to be timed."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from rich.progress import Progress

from controller.circuits.devices import LEAST_DELAY_S, ReconfigurationDelay
from controller.schedulers.bounds import makespan_lower_bound
from testbed.experiment.dilation import UNSCALED, Dilation
from testbed.experiment.experiment import Experiment
from testbed.experiment.ocs_plan import LONGEST_S, OcsPlan, dilation_for, plan_of
from testbed.network.netem import check_delays
from testbed.study.glances import Glance, glances
from testbed.study.machine import Machine
from testbed.study.study import Options, Study
from testbed.trust.calibrate import rate_factor
from testbed.trust.dark_excess import DarkExcess
from testbed.trust.outcome import bound_s
from testbed.trust.scale import job_volume, plain
from topologies.errors import ScenarioError
from topologies.fabric import Fabric

ROOM = 0.9
"""Share of the line that would just do which is advised: a bound is not quite proportional to its line."""
SLOTS_NIC_BPS = 25e6
"""What a NIC on an OCS that shows slots is shaped to at most [bit/s]: they are as long as needed anyway."""


def prepared(study: Study, options: Options, machine: Machine, progress: Progress) -> list[Experiment]:
    """Return the experiments with what fails, at their scale."""
    own_scale = UNSCALED not in {each.dilation for each in study.experiments}
    if own_scale and study.failures is None:
        return list(study.experiments)
    looked = glances(study.experiments, study.failures, progress, jobs=options.jobs)
    return scaled(study, looked, options, machine)


def scaled(
    study: Study, looked: Sequence[tuple[Experiment, Glance]], options: Options, machine: Machine
) -> list[Experiment]:
    """Return the experiments at the scale that this machine carries, or their own."""
    experiments = [each for each, _ in looked]
    if UNSCALED in {each.dilation for each in experiments}:
        rate = min(_rate(fabric, looked, study, options, machine) for fabric in study.fabrics)
        points = defaultdict[str, list[tuple[Experiment, Glance]]](list)
        for each, glance in looked:
            points[each.job.name].append((each, glance))
        volumes = {
            name: _volume(mine, rate, study, machine.excess) if options.volume is None else options.volume
            for name, mine in points.items()
        }
        experiments = [
            _dilated(each, Dilation(rate, volumes[each.job.name]), machine.excess) for each in experiments
        ]
    for experiment in experiments:
        check_delays(experiment.fabric, experiment.dilation.time, by_links=experiment.host.delays)
    return experiments


def _rate(
    fabric: Fabric,
    looked: Sequence[tuple[Experiment, Glance]],
    study: Study,
    options: Options,
    machine: Machine,
) -> float:
    """Return emulated over real rate at which this machine carries all points over a fabric."""
    mine = [(each, glance) for each, glance in looked if each.fabric == fabric]
    calibration, mtu = machine.calibration, min(each.mtu for each, _ in mine)
    most = max((glance.load for _, glance in mine), key=lambda load: calibration.share(load, mtu))
    rate_bps = None if options.emulated_rate_mbps is None else options.emulated_rate_mbps * 1e6
    rate = rate_factor(plain(fabric), most, calibration, rate_bps, mtu)
    if rate_bps is not None:
        return rate
    in_slots = any(each.has_slots for each, _ in mine)
    nic_bps = min(study.most_nic_bps, SLOTS_NIC_BPS) if in_slots else study.most_nic_bps
    return min(rate, nic_bps / max(map(fabric.nic_rate_bps, fabric.nics)))


def check_slots(study: Study, options: Options) -> None:
    """Refuse schedules whose delay is too short to be emulated, with what would do for all (`_check_delay`).

    Not at a volume of the user's own: that is refused itself where it is too small.
    """
    if options.volume is not None or not study.waits_for_light:
        return
    found = [
        (plan.setup.delay, makespan_lower_bound(plan.line_s, len(plan.ocses), plan.delay_s), plan.busiest_s)
        for plan in (plan_of(each.rule) for each in study.experiments if each.has_slots)
        if plan.delay_s
    ]
    if found:
        _check_delay(*max(found, key=lambda each: each[1] / each[0].mean_s))


def _check_delay(delay: ReconfigurationDelay, bound_s: float, busiest_s: float) -> None:
    """Refuse a delay too short to be emulated although the emulation took as long as it may.

    Said here: an experiment would advise a volume dilation, which is no option of a scenario. The bound is of
    the demand with its delays, 0 if nothing is sent; the busiest NIC would send so long alone [real s].
    """
    longest_s = LONGEST_S * delay.mean_s
    if longest_s >= LEAST_DELAY_S * bound_s:
        return
    share = longest_s / (LEAST_DELAY_S * bound_s)
    delay_ms, line_ms = (seconds * 1e3 for seconds in (delay.mean_s, busiest_s))
    raise ScenarioError(
        f"a delay of {delay_ms:g} ms would be {share * LEAST_DELAY_S * 1e3:.2g} ms in the emulation, "
        f"which honours {LEAST_DELAY_S * 1e3:g} ms and more",
        f"give a --device or a --delay-ms of {delay_ms / (ROOM * share):.2g} ms or more, or a demand whose "
        f"busiest NIC sends for {line_ms * ROOM * share:.2g} ms or less (--line-ms)",
    )


def _volume(
    points: Sequence[tuple[Experiment, Glance]], rate: float, study: Study, excess: DarkExcess | None
) -> float:
    """Return emulated over real bytes of a workload: for as long as its slots, or bytes and delays, need."""
    experiments = [each for each, _ in points]
    if excess and (slots := [each for each in experiments if each.has_slots]):
        return max(_slots_volume(plan_of(each.rule), rate, study.slot_s, excess) for each in slots)
    least = [_delays_volume(each, rate, excess) for each in experiments if excess and each.circuits]
    bounds_s = [bound_s(each, forwarded=True) for each in experiments]
    longest_s = max(glance.level_s for _, glance in points)
    last = experiments[-1]
    by_bytes = job_volume(last.job, last.fabric, rate, bounds_s, longest_s, last.mtu, study.rings_s)
    return max([by_bytes, *least])


def _slots_volume(plan: OcsPlan, rate: float, slot_s: float | None, excess: DarkExcess) -> float:
    """Return the volume at which a schedule's shortest slot and its delay are long enough."""
    ocses = len(plan.ocses)
    return dilation_for(
        plan.line_s,
        ocses,
        plan.delay_s,
        rate=rate,
        slot_s=excess.least_slot_s(ocses) if slot_s is None else slot_s,
        least_delay_s=excess.least_delay_s(ocses),
    ).volume


def _delays_volume(experiment: Experiment, rate: float, excess: DarkExcess) -> float:
    """Return the volume at which the delays of circuits are long beside what this machine adds to them."""
    delays = experiment.ocs_delays
    least_s = excess.least_delay_s(len(delays))
    return max(delay.volume_for(rate, least_s) for delay in dict.fromkeys(delays.values()))


def _dilated(experiment: Experiment, dilation: Dilation, excess: DarkExcess | None) -> Experiment:
    """Return a point at a scale; its slots are longer for what this machine's OCSes are late."""
    if not (excess and experiment.has_slots):
        return replace(experiment, dilation=dilation)
    margins = excess.margins(len(experiment.ocs_delays))
    return replace(experiment, dilation=dilation, scheme=replace(experiment.sending, margins=margins))
