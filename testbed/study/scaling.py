"""The scale of an emulation: the largest rate that this machine carries, and long enough to be timed."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from rich.progress import Progress

from testbed.network.netem import check_delays
from testbed.run.calibrate import rate_factor
from testbed.run.dark_excess import DarkExcess
from testbed.run.dilation import UNSCALED, Dilation
from testbed.run.experiment import Experiment
from testbed.run.outcome import bound_s
from testbed.run.scale import job_volume, plain
from testbed.study.glances import Glance, glances
from testbed.study.machine import Machine
from testbed.study.study import Options, Study
from topologies.fabric import Fabric


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
    experiments, seen = [each for each, _ in looked], [glance for _, glance in looked]
    if UNSCALED in {each.dilation for each in experiments}:
        rate = min(_rate(fabric, looked, study, options, machine) for fabric in study.fabrics)
        times_s = [glance.level_s for glance in seen]
        experiments = _dilated(experiments, rate, times_s, options.volume, study.rings_s, machine.excess)
    for experiment in experiments:
        check_delays(experiment.fabric, experiment.dilation.time)
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
    most_bps, mtu = max(glance.load_bps for _, glance in mine), min(each.mtu for each, _ in mine)
    rate = rate_factor(plain(fabric), most_bps, machine.calibration, options.emulated_rate_bps, mtu)
    if options.emulated_rate_bps is not None:
        return rate
    return min(rate, study.most_nic_bps / max(map(fabric.nic_rate_bps, fabric.nics)))


def waits_for_light(study: Study, options: Options) -> bool:
    """Return whether its scale follows from how long OCSes are dark."""
    unscaled = UNSCALED in {each.dilation for each in study.experiments}
    return unscaled and study.relights and options.volume is None


def _dilated(
    experiments: Sequence[Experiment],
    rate: float,
    times_s: Sequence[float],
    volume: float | None,
    rings_s: float,
    excess: DarkExcess | None,
) -> list[Experiment]:
    """Return experiments at a rate, each workload at its own volume, or all at the one asked for."""
    if volume is not None:
        return [replace(each, dilation=Dilation(rate, volume)) for each in experiments]
    bounds_s, longest_s = defaultdict[str, list[float]](list), defaultdict[str, float](float)
    least = defaultdict[str, float](float)
    for experiment, time_s in zip(experiments, times_s, strict=True):
        job = experiment.job
        bounds_s[job.name].append(bound_s(experiment))
        longest_s[job.name] = max(longest_s[job.name], time_s)
        if excess and experiment.circuits and not experiment.has_slots:
            delays = experiment.ocs_delays
            least_s = excess.least_delay_s(len(delays))
            timed = [delay.volume_for(rate, least_s) for delay in dict.fromkeys(delays.values())]
            least[job.name] = max(least[job.name], *timed)
    volumes = {
        name: max(
            job_volume(each.job, each.fabric, rate, bounds_s[name], longest_s[name], each.mtu, rings_s),
            least[name],
        )
        for name, each in {experiment.job.name: experiment for experiment in experiments}.items()
    }
    return [replace(each, dilation=Dilation(rate, volumes[each.job.name])) for each in experiments]
