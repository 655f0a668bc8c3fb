"""What lightrail promises of its optical side, measured: circuits on the wire, and executed schedules."""

import numpy as np

from controller.circuits.devices import ReconfigurationDelay
from testbed.machine.datapath import default_datapath
from testbed.network.network import Network
from testbed.network.ocs_bench import TRAFFIC_NICS, Figures, ocs_figures
from testbed.run.calibrate import calibration
from testbed.run.dark_excess import dark_excess
from testbed.run.ocs_plan import plan_of
from testbed.run.trial import tried
from testbed.study.comparison import Comparison
from traffic.workloads.ocs_workloads import ocs_demand

RATE_BPS, LINE_S, DELAY_S, SLOT_S = 100e9, 0.1, 1e-3, 0.1
SERVERS, OCSES = 8, (2, 4)
ROUNDS = 300


def ocs_dark_excess_p99_s() -> tuple[float, str]:
    """How much longer than its device an OCS of 64 ports is dark on the wire: p99; and under traffic."""
    idle, busy = ocs_figures(rounds=ROUNDS, traffic=0), ocs_figures(rounds=ROUNDS)
    return idle.dark_excess_p99_s, (
        f"{_seen(idle)}; with {TRAFFIC_NICS} NICs sending at full rate {1e3 * busy.dark_excess_p99_s:.2f} ms"
    )


def ocs_overhead_p99_s() -> tuple[float, str]:
    """From the command to light on the wire, less the device's delay, with 64 ports under traffic: p99."""
    figures = ocs_figures(rounds=ROUNDS)
    return figures.overhead_p99_s, _seen(figures)


def ocs_strays() -> tuple[float, str]:
    """Probes that left an OCS of 64 ports by a port to which no circuit led."""
    figures = ocs_figures(rounds=ROUNDS)
    return float(figures.strays), _seen(figures)


def _seen(figures: Figures) -> str:
    dark_ms, overhead_ms = 1e3 * (figures.dark_s - figures.delay_s), 1e3 * figures.overhead_s
    return (
        f"{figures.probes} probes, {len(dark_ms)} nights of {1e3 * figures.delay_s:g} ms, in the median "
        f"{np.median(dark_ms):.2f} ms too long, with {np.median(overhead_ms):.2f} ms of overhead; "
        f"{1e3 * max(-figures.early_s, 0):.2f} ms too short at worst, {figures.strays} strays"
    )


def executed_over_planned() -> tuple[float, str]:
    """Spectra's schedules for the small benchmark on 2 and 4 OCSes: measured CCT over makespan, the worse."""
    comparison = Comparison(
        name="bench",
        title="",
        demands=[ocs_demand("benchmark", 0, SERVERS, LINE_S * RATE_BPS / 8)],
        ocses=OCSES,
        schedulers=["spectra"],
        meetings=["drain"],
        rate_bps=RATE_BPS,
        delay=ReconfigurationDelay("delay", DELAY_S),
        slot_s=SLOT_S,
        datapath=default_datapath(),
    )
    rate = comparison.rate(calibration(comparison.datapath))
    excess, ratios, said = dark_excess(comparison.datapath), [], []
    for ocses in OCSES:
        (experiment,) = comparison.experiments(ocses, rate, excess)
        with Network(experiment.fabric, rate) as network:
            outcome = tried(experiment, network)
        ratios.append(outcome.cct_s / plan_of(experiment.rule).schedule.makespan)
        said.append(f"{ocses} OCSes: {ratios[-1]:.3f}, {outcome.verdict.word}")
    return max(ratios), "; ".join(said)
