"""mFabric at scale: costs, performance per dollar, circuits, gates and their prediction (section 7)."""

import _checkout  # first: runs this file under the checkout's Python

import sys
from collections.abc import Callable
from datetime import datetime
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from scenarios._harness import main
from scenarios._mfabric.circuits import circuits
from scenarios._mfabric.copilot import copilot
from scenarios._mfabric.costs import costs
from scenarios._mfabric.efficiency import efficiency
from scenarios._mfabric.fabrics import checked_rate, servers_of
from scenarios._mfabric.failures import failure_iterations, failures
from scenarios._mfabric.gates import gates
from scenarios._mfabric.lookahead import lookahead
from scenarios._mfabric.section import ScaleResults, Section
from scenarios._mfabric.shares import training_shares
from scenarios._mfabric.size import PAPER_SERVERS, checked_servers, size, size_iterations
from scenarios._options import Debug, Out, seed_range, shares
from scenarios._output import print_results, sheet_table
from testbed.report.run_json import Run
from testbed.report.table import claims_table
from topologies.errors import ScenarioError

FIRST_SEED = 0
"""Of steps with failures, and by the size of the cluster: one is enough to compare them."""

Gpus = Annotated[
    str, typer.Option(help="GPUs of the clusters whose cost is computed, comma-separated multiples of 64.")
]
Rates = Annotated[
    str, typer.Option(help="Rates of a NIC, comma-separated: 100, 200, 400, 800 [Gbit/s] have prices.")
]
Seeds = Annotated[int, typer.Option(help="How many seeds; each draws the synthetic gates.")]
WithFailures = Annotated[
    bool,
    typer.Option(
        "--failures",
        help="Predict steps with a NIC, a GPU or a server gone, too (Figure 14): 12 of 10 to 60 s, which two "
        "processes share.",
    ),
]
Sizes = Annotated[
    str,
    typer.Option(
        help="Servers of clusters on which a step of Mixtral 8x7B is predicted (Figure 26), comma-separated; "
        f"the paper has {','.join(map(str, PAPER_SERVERS))}. On 128 it takes some 10 s, on 4,096 minutes and "
        "gigabytes. By default none."
    ),
]


def mfabric_scale(
    gpus: Gpus = "1024,2048,4096,8192,16384,32768",
    rates: Rates = "100,200,400,800",
    seeds: Seeds = 5,
    with_failures: WithFailures = False,
    sizes: Sizes = "",
    out: Out = None,
    debug: Debug = False,
) -> None:
    """What mFabric costs, what it is worth, how good its circuits are, and what its Copilot predicts.

    No network: bills of fabrics as they are wired (Figures 11 and 24); performance per dollar and the Pareto
    front by the iteration times that the project publishes (Figure 13); Algorithm 1 beside the best circuits
    of small regions; synthetic gates (Figures 4, 5, 18) and Copilot's accuracy on them (Figure 19); where
    bytes and time go in training (Figures 2, 3, 17); optical I/O beside NVL72 (Figure 16); with --failures
    what they add to an iteration on 1,024 GPUs, by the fluid model (Figure 14); with --sizes tokens per
    second by the size of the cluster (Figure 26). Expect fat-trees
    2.0 times as dear as mFabric on average and 2.3 times at 400 Gbit/s, as the paper says; TopoOpt
    at half its cost, which the paper calls slightly less; and Algorithm 1 up to twice as slow as the best
    circuits where demand is skewed. What the paper shows in figures only is labelled so, and what is
    synthetic confirms none of its claims.
    """
    clusters = list(dict.fromkeys(_whole(number) for number in shares(gpus)))
    trained = checked_servers([_whole(number) for number in shares(sizes)] if sizes else [])
    rates_bps = list(dict.fromkeys(checked_rate(number) for number in shares(rates)))
    for cluster in clusters:
        servers_of(cluster)
    drawn = seed_range(seeds)
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
        "mfabric_scale", "mFabric: cost, worth, circuits and demand", ["python", *sys.argv], datetime.now()
    )
    with ScaleResults(run, out=out) as results, Console(stderr=True).status("") as status:
        for number, section in enumerate(sections, 1):
            status.update(f"section {number} of {len(sections)}")
            results.add(section())
        if with_failures:
            status.stop()
            with Progress(console=status.console, transient=True) as progress:
                results.add(failures(failure_iterations(FIRST_SEED, progress), FIRST_SEED))
            status.start()
        if trained:
            status.stop()
            with Progress(console=status.console, transient=True) as progress:
                results.add(size(size_iterations(trained, FIRST_SEED, progress), FIRST_SEED))
            status.start()
        status.update("draw plots")
    tables = [sheet_table(sheet) for section in results.sections for sheet in section.findings.sheets]
    print_results([*tables, claims_table(results.claims)], results.path)


def _whole(number: float) -> int:
    if not number.is_integer():
        raise ScenarioError(f"a cluster of {number:g} GPUs", "give whole numbers")
    return int(number)


if __name__ == "__main__":
    main(mfabric_scale)
