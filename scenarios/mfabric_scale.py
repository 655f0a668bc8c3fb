"""mFabric at scale: costs, performance per dollar, iteration times, circuits and demand (section 7)."""

import _checkout  # first: runs this file under the checkout's Python

import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from scenarios._mfabric.alphas import alpha_points, alphas
from scenarios._mfabric.batches import batch_points, batches
from scenarios._mfabric.circuits import circuits
from scenarios._mfabric.copilot import copilot
from scenarios._mfabric.costs import costs
from scenarios._mfabric.delays import delay_points, delays
from scenarios._mfabric.efficiency import efficiency
from scenarios._mfabric.fabrics import checked_rate, servers_of
from scenarios._mfabric.failures import failure_iterations, failures
from scenarios._mfabric.gates import gates
from scenarios._mfabric.iteration_times import iteration_points, iteration_times
from scenarios._mfabric.lookahead import lookahead
from scenarios._mfabric.section import ScaleResults, Section
from scenarios._mfabric.shares import training_shares
from scenarios._mfabric.size import checked_servers, size, size_points
from scenarios._mfabric.steps import Setting, StepStudy, iterations
from testbed.report.run_json import Run
from testbed.report.table import claims_table
from testbed.study.command import main
from testbed.study.options import Debug, Out, chosen, seed_range, shares, whole_numbers
from testbed.study.output import print_results, sheet_table
from topologies.errors import ScenarioError
from traffic.models.moe_step import Experts
from traffic.workloads.mixtral import GPU_FLOPS

MODELS = {"12a": "mixtral-8x22b", "12b": "mixtral-8x7b", "12c": "qwen-moe", "12d": "deepseek-r1"}
STUDIES = {
    figure: StepStudy(partial(iteration_points, model), partial(iteration_times, model))
    for figure, model in MODELS.items()
} | {
    "25": StepStudy(batch_points, batches),
    "26": StepStudy(size_points, size),
    "27": StepStudy(alpha_points, alphas),
    "28": StepStudy(delay_points, delays),
}
"""By figure, what training steps are predicted for."""
MOST_TFLOPS = 1e6
"""An exaFLOP/s: more than any GPU."""
FAILURES, NONE = "14", "none"
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
        "A step takes 10 to 60 s, and two processes share them."
    ),
]
Tflops = Annotated[
    float,
    typer.Option(
        "--gpu-tflops",
        help="What a GPU computes in training steps [TFLOP/s]; an H800 does 400.",
    ),
]
ExpertTimes = Annotated[
    Experts,
    typer.Option(
        "--experts",
        help="What experts compute in training steps: even, the mean load, one time for all as in the "
        "paper's simulations; or busiest, what their rank receives.",
    ),
]
Servers = Annotated[
    str,
    typer.Option(
        help="Servers of the clusters of figure 26, comma-separated; the paper's grow to 4096, on which a "
        "step takes minutes and gigabytes."
    ),
]


def mfabric_scale(
    gpus: Gpus = "1024,2048,4096,8192,16384,32768",
    rates: Rates = "100,200,400,800",
    seeds: Seeds = 5,
    figures: Figures = "12a",
    gpu_tflops: Tflops = GPU_FLOPS / 1e12,
    experts: ExpertTimes = "even",
    servers: Servers = "128,256,512",
    out: Out = None,
    debug: Debug = False,
) -> None:
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
    sizes = checked_servers(whole_numbers(servers, "--servers"))
    steps = chosen(figures, (*STEPS, NONE), "--figures")
    setting = Setting(rates_bps, _flops(gpu_tflops), sizes=sizes, experts=experts)
    sections: list[Callable[[], Section]] = [
        lambda: costs(clusters, rates_bps),
        lambda: efficiency(rates_bps),
        lambda: circuits(drawn),
        lambda: gates(drawn),
        lambda: copilot(drawn),
        lambda: training_shares(drawn),
        lambda: lookahead(drawn),
    ]
    run = Run(
        "mfabric_scale", "mFabric: cost, iteration times and circuits", ["python", *sys.argv], datetime.now()
    )
    with ScaleResults(run, out=out) as results, Console(stderr=True).status("") as status:
        for number, section in enumerate(sections, 1):
            status.update(f"section {number} of {len(sections)}")
            results.add(section())
        status.stop()
        with Progress(console=status.console, transient=True) as progress:
            for predicted in _step_sections(steps, setting, progress):
                results.add(predicted)
        status.start()
        status.update("draw plots")
    tables = [sheet_table(sheet) for section in results.sections for sheet in section.findings.sheets]
    print_results([*tables, claims_table(results.claims)], results.path)


def _step_sections(figures: Sequence[str], setting: Setting, progress: Progress) -> Iterator[Section]:
    """Yield the sections of figures whose training steps are predicted."""
    studies = [STUDIES[figure] for figure in figures if figure in STUDIES]
    found = iterations([point for study in studies for point in study.points(setting)], setting, progress)
    for study in studies:
        yield study.section(setting, found)
    if FAILURES in figures:
        yield failures(setting, failure_iterations(setting, progress))


def _flops(tflops: float) -> float:
    """Return a compute rate [FLOP/s]; ScenarioError if it is none."""
    if not 0 < tflops <= MOST_TFLOPS:
        raise ScenarioError(f"GPUs of {tflops:g} TFLOP/s", f"give a rate above 0, up to {MOST_TFLOPS:g}")
    return tflops * 1e12


if __name__ == "__main__":
    main(mfabric_scale)
