"""mFabric at scale: costs, performance per dollar, iteration times, circuits and demand (section 7)."""

import _checkout  # first: runs this file under the checkout's Python

from functools import partial
from typing import Annotated

import typer

from scenarios._mfabric.fabrics import checked_rate, servers_of
from scenarios._mfabric.figures import alphas, batches, delays, size
from scenarios._mfabric.figures.circuits import circuits
from scenarios._mfabric.figures.copilot import copilot
from scenarios._mfabric.figures.costs import costs
from scenarios._mfabric.figures.efficiency import efficiency
from scenarios._mfabric.figures.failures import failures
from scenarios._mfabric.figures.gates import gates
from scenarios._mfabric.figures.iteration_times import iteration_points, iteration_times
from scenarios._mfabric.figures.lookahead import lookahead
from scenarios._mfabric.figures.shares import training_shares
from scenarios._mfabric.section import scale_report
from scenarios._mfabric.step.points import StepSetup
from scenarios._mfabric.step.study import StepStudy
from testbed.study.command import run_computed
from testbed.study.computed import ComputedStudy
from testbed.study.options import check_effect, chosen, seed_range, shares, whole_numbers, with_default
from topologies.errors import ScenarioError
from traffic.models.moe_step import Experts
from traffic.workloads.mixtral import GPU_FLOPS

MODELS = {"12a": "mixtral-8x22b", "12b": "mixtral-8x7b", "12c": "qwen-moe", "12d": "deepseek-r1"}
STUDIES = {
    figure: StepStudy(partial(iteration_points, model), partial(iteration_times, model))
    for figure, model in MODELS.items()
} | {
    "25": batches.STUDY,
    "26": size.STUDY,
    "27": alphas.STUDY,
    "28": delays.STUDY,
}
"""By figure, what training steps are predicted for."""
MOST_TFLOPS = 1e6
"""An exaFLOP/s: more than any GPU."""
FAILURES, NONE = "14", "none"
EVEN: Experts = "even"
SERVERS = "128,256,512"
STEPS = (*STUDIES, FAILURES)
"""Figures whose training steps can be predicted."""

Gpus = Annotated[
    str, typer.Option(help="GPUs of the clusters whose cost is computed, comma-separated multiples of 64.")
]
Rates = Annotated[
    str, typer.Option(help="Rates of a NIC, comma-separated: 100, 200, 400, 800 [Gbit/s] have prices.")
]
Seeds = Annotated[int, typer.Option(help="How many seeds; each draws the synthetic gates.")]
Figures = Annotated[
    str,
    typer.Option(
        help=f"Figures whose training steps are predicted, comma-separated: {', '.join(STEPS)}; or {NONE}. "
        "A step takes 10 to 60 s."
    ),
]
Tflops = Annotated[
    float | None,
    typer.Option(
        help=with_default(
            "What a GPU computes in training steps [TFLOP/s]; an H800 does 400.", f"{GPU_FLOPS / 1e12:g}"
        )
    ),
]
ExpertTimes = Annotated[
    Experts | None,
    typer.Option(
        help=with_default(
            "What experts compute in training steps: even, the mean load, one time for all as in the "
            "paper's simulations; or busiest, what their rank receives.",
            EVEN,
        )
    ),
]
Servers = Annotated[
    str | None,
    typer.Option(
        help=with_default(
            "Servers of the clusters of figure 26, comma-separated; the paper's grow to 4096, on which a "
            "step takes minutes and gigabytes.",
            SERVERS,
        )
    ),
]


def mfabric_scale(
    gpus: Gpus = "1024,2048,4096,8192,16384,32768",
    rates: Rates = "100,200,400,800",
    seeds: Seeds = 5,
    figures: Figures = "12a",
    gpu_tflops: Tflops = None,
    experts: ExpertTimes = None,
    servers: Servers = None,
) -> ComputedStudy:
    """What mFabric costs, how long its iterations take, what it is worth, and how good its circuits are.

    No network: bills of fabrics as they are wired (Figures 11 and 24); performance per dollar and the Pareto
    front by the iteration times that the project publishes (Figure 13); Algorithm 1 beside the best circuits
    of small regions; synthetic gates (Figures 4, 5, 18) and Copilot's accuracy on them (Figure 19); where
    bytes and time go in training (Figures 2, 3, 17); optical I/O beside NVL72 (Figure 16); whole training
    steps by the fluid model (Figures 12, 25 to 28), and what failures add to them (Figure 14). Expect
    fat-trees 2.0 times as dear as mFabric on average and 2.3 times at 400 Gbit/s, as the paper says; TopoOpt
    at half its cost, which the paper calls slightly less; Algorithm 1 up to twice as slow as the best
    circuits where demand is skewed; and iterations of Mixtral 8x7B as long as over a fat-tree whose GPUs send
    by their own NICs, within 5 % but for waits, of 8x22B 5 to 17 % longer. What the paper shows
    in figures only is labelled so. What follows from its prices and public times is arithmetic; what the
    fluid model alone says of iteration times stands beside the claims, and rules none.
    """
    clusters = whole_numbers(gpus, "--gpus")
    rates_bps = sorted({checked_rate(number) for number in shares(rates)})
    for cluster in clusters:
        servers_of(cluster)
    drawn = seed_range(seeds)
    sizes = size.checked_servers(whole_numbers(SERVERS if servers is None else servers, "--servers"))
    flops = GPU_FLOPS if gpu_tflops is None else _flops(gpu_tflops)
    steps = chosen(figures, (*STEPS, NONE), "--figures")
    if steps == [NONE]:
        check_effect("no training step is predicted", {"--gpu-tflops": gpu_tflops, "--experts": experts})
    if "26" not in steps:
        check_effect("figure 26 is not among --figures", {"--servers": servers})
    setup = StepSetup(rates_bps, flops, sizes=sizes, experts=experts or EVEN)
    planned = [
        costs(clusters, rates_bps),
        efficiency(rates_bps),
        circuits(drawn),
        gates(drawn),
        copilot(drawn),
        training_shares(drawn),
        lookahead(drawn),
        *(STUDIES[figure].planned(setup) for figure in steps if figure in STUDIES),
        *([failures(setup)] if FAILURES in steps else []),
    ]
    return ComputedStudy(
        "mfabric_scale",
        "mFabric: cost, iteration times and circuits",
        [point for section in planned for point in section.points],
        partial(scale_report, planned),
    )


def _flops(tflops: float) -> float:
    """Return a compute rate [FLOP/s]; ScenarioError if it is none."""
    if not 0 < tflops <= MOST_TFLOPS:
        raise ScenarioError(f"GPUs of {tflops:g} TFLOP/s", f"give a rate above 0, up to {MOST_TFLOPS:g}")
    return tflops * 1e12


if __name__ == "__main__":
    run_computed(mfabric_scale)
