"""Promises of the optical side, measured: circuits on the wire."""

import numpy as np

from scenarios._bench.figure import figure
from testbed.network.ocs_bench import TRAFFIC_NICS, Figures, ocs_figures

ROUNDS = 300


@figure("s", "<= 0.003")
def ocs_dark_excess_p99_s() -> tuple[float, str]:
    """How much longer than its device an OCS of 64 ports is dark on the wire: p99; and under traffic."""
    idle, busy = ocs_figures(rounds=ROUNDS, traffic=0), ocs_figures(rounds=ROUNDS)
    return idle.dark_excess_p99_s, (
        f"{_seen(idle)}; with {TRAFFIC_NICS} NICs sending at full rate {1e3 * busy.dark_excess_p99_s:.2f} ms"
    )


@figure("s", "<= 0.008")
def ocs_overhead_p99_s() -> tuple[float, str]:
    """From the command to light on the wire, less the device's delay, with 64 ports under traffic: p99."""
    figures = ocs_figures(rounds=ROUNDS)
    return figures.overhead_p99_s, _seen(figures)


@figure("probes", "0")
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
