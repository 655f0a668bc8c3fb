"""What lightrail promises of Spectra's planning, measured."""

from functools import partial

from controller.schedulers.spectra import spectra
from scenarios._figure import Figure, median_s
from traffic.workloads.ocs_workloads import Matrix, benchmark, moe

SWITCHES, DELAY, SEEDS = 4, 0.01, 30


def planning_sparse_s() -> tuple[float, str]:
    """Spectra's planning for the benchmark, 100 ports and 16 flows each, on 4 switches: median."""
    return _planning_s([benchmark(seed) for seed in range(SEEDS)])


def planning_dense_s() -> tuple[float, str]:
    """Spectra's planning for the MoE's dense 64 x 64 on 4 switches: median."""
    return _planning_s([moe(seed) for seed in range(SEEDS)])


def _planning_s(demands: list[Matrix]) -> tuple[float, str]:
    value, said = median_s([partial(spectra, demand, SWITCHES, DELAY) for demand in demands])
    return value, f"{said}, {len(demands[0])} ports, {SWITCHES} switches"


FIGURES = {
    "planning_sparse_s": Figure(planning_sparse_s, "s", "<= 0.008", sandbox=False),
    "planning_dense_s": Figure(planning_dense_s, "s", "<= 0.020", sandbox=False),
}
