"""What lightrail promises of Spectra's planning and of executed schedules, measured."""

from functools import partial
from itertools import product
from statistics import fmean
from time import process_time

from controller.schedulers.spectra import spectra
from scenarios._bench.figure import figure, median_s
from scenarios._spectra.ocs_sweep import SWITCHES as PAPERS_SWITCHES
from scenarios._spectra.ocs_sweep import cases
from scenarios.ocs_spectra import ocs_spectra
from testbed.experiment.ocs_plan import plan_of
from testbed.machine.datapath import default_datapath
from testbed.study.emulating import network_of
from testbed.study.machine import Machine
from testbed.study.output import progress_bar
from testbed.study.scaling import prepared
from testbed.study.study import Options
from testbed.trust.calibrate import CALIBRATIONS
from testbed.trust.dark_excess import DARK_EXCESSES
from testbed.trust.trial import tried
from traffic.workloads.ocs_workloads import Matrix, benchmark, moe

SWITCHES, DELAY, SEEDS = 4, 0.01, 30
SLOT_MS = 100.0
RUNS = 50
"""Random matrices of each datapoint, as the paper has them."""
PAPERS_LONGEST_S = 0.014
PAPERS = "the paper has under 1 to 14 ms, on a 3.7 GHz AMD Ryzen Threadripper 3970X"
"""Spectra, section V, *Implementation and Runs*."""


@figure("s", "<= 0.008", sandbox=False)
def planning_sparse_s() -> tuple[float, str]:
    """Spectra's planning for the benchmark, 100 ports and 16 flows each, on 4 switches: median."""
    return _planning_s([benchmark(seed) for seed in range(SEEDS)])


@figure("s", "<= 0.020", sandbox=False)
def planning_dense_s() -> tuple[float, str]:
    """Spectra's planning for the MoE's dense 64 x 64 on 4 switches: median."""
    return _planning_s([moe(seed) for seed in range(SEEDS)])


@figure("ratio", "<= 2", sandbox=False)
def planning_over_papers() -> tuple[float, str]:
    """Spectra's CPU time at each datapoint of its figures 6 to 10, a mean each: the longest over 14 ms."""
    means_s = {}
    for case in cases():
        demands = [case.demand(seed) for seed in range(RUNS)]
        spectra(demands[0], SWITCHES, DELAY)  # the first call is longer
        for switches, delay in product(set(PAPERS_SWITCHES).intersection(case.switches), case.delays):
            flows = f", {case.flows} flows a port" * (case.flows is not None)
            about = f"{case.workload}{flows}, noise {case.noise:g}, {switches} switches, delay {delay:g}"
            means_s[about] = fmean(_cpu_s(demand, switches, delay) for demand in demands)
    about, longest_s = max(means_s.items(), key=lambda each: each[1])
    spread = f"{1e3 * min(means_s.values()):.2f} to {1e3 * longest_s:.1f} ms"
    return longest_s / PAPERS_LONGEST_S, f"{spread}, {len(means_s)} datapoints, the longest {about}; {PAPERS}"


def _cpu_s(demand: Matrix, switches: int, delay: float) -> float:
    """Return the CPU time of a plan [s], which is the run time of one thread on an idle machine."""
    started = process_time()
    spectra(demand, switches, delay)
    return process_time() - started


@figure("ratio", "<= 1.15")
def executed_over_planned() -> tuple[float, str]:
    """Spectra's schedules for the small benchmark on 2 and 4 OCSes: measured CCT over makespan, the worse."""
    datapath = default_datapath()
    machine = Machine(CALIBRATIONS.of(datapath), DARK_EXCESSES.of(datapath))
    study = ocs_spectra(schedulers="spectra", slot_ms=SLOT_MS)
    with progress_bar() as progress:
        points = prepared(study, Options(datapath=datapath), machine, progress)
    ratios, said = [], []
    for experiment in points:
        if experiment.has_slots:
            with network_of(experiment, datapath) as network:
                outcome = tried(experiment, network)
            ratios.append(outcome.cct_s / plan_of(experiment.rule).schedule.makespan)
            said.append(f"{len(experiment.ocs_delays)} OCSes: {ratios[-1]:.3f}, {outcome.verdict.word}")
    return max(ratios), "; ".join(said)


def _planning_s(demands: list[Matrix]) -> tuple[float, str]:
    value, said = median_s([partial(spectra, demand, SWITCHES, DELAY) for demand in demands])
    return value, f"{said}, {len(demands[0])} ports, {SWITCHES} switches"
