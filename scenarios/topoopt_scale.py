"""TopoOpt at scale: iterations of six models on 128 servers by the fluid model, and costs (section 5)."""

import _checkout  # first: runs this file under the checkout's Python

from functools import partial
from typing import Annotated

import typer

from controller.schedulers.totient import Rule
from scenarios._topoopt.scale.figures import FIGURES, points_of
from scenarios._topoopt.scale.points import ScaleParameters, row_of
from scenarios._topoopt.scale.report import COSTS, scale_report
from testbed.study.command import run_computed
from testbed.study.computed import Call, ComputedStudy
from testbed.study.options import check_effect, chosen, nic_bps, shares, with_default
from topologies.errors import ScenarioError

ALL = ",".join((COSTS, *FIGURES))
PAPER, MOST_BUDGET = "paper", 100_000
PAPER_BUDGET = 4000
"""Steps of the artifact's searches."""

Figures = Annotated[
    str,
    typer.Option(help=f"Figures of the paper, comma-separated: {ALL}; 12 has what 13, 14 and 15 show too."),
]
RATES = "10,25,40,100,200"
Rates = Annotated[
    str | None,
    typer.Option(help=with_default("Rates of an interface in Figures 11 and 27 [Gbit/s].", RATES)),
]
Budget = Annotated[
    str,
    typer.Option(
        help="Steps of each search for a strategy; 0 trains all layers on all servers, and paper takes 4000, "
        "as the artifact, for hours."
    ),
]
Jumps = Annotated[
    Rule,
    typer.Option("--rule", help="How TopoOpt's jumps are selected: as printed, or as its artifact does."),
]
FatTreeRate = Annotated[
    float | None,
    typer.Option(
        help="Of a link of the fat-tree of similar cost [Gbit/s]; by default a quarter of what a server has"
        " on TopoOpt."
    ),
]
Seed = Annotated[int, typer.Option(help="Of searches, of the expander, and of OCSes' first circuits.")]


def topoopt_scale(
    figures: Figures = ALL,
    rates: Rates = None,
    budget: Budget = "500",
    rule: Jumps = "projected",
    fat_tree_rate: FatTreeRate = None,
    seed: Seed = 0,
) -> ComputedStudy:
    """Iterations of TopoOpt's models on 128 servers, on TopoOpt and the fabrics it is compared with.

    No network: everything is by the fluid model. Strategies and topologies are searched in turn, from
    data parallelism on. Figure 10 is what fabrics cost; 11 and 27 six models on all fabrics with 4 and 8
    interfaces a server; 12 DLRM with more and more all-to-all, with the bandwidth tax, path lengths and loads
    of circuits (13 to 15); 17 circuits that follow demand, by how long they are dark; 28 more and more
    interfaces. Expect TopoOpt to be like the ideal switch where AllReduce is all, and near three times as
    fast as a fat-tree of its cost; behind the ideal switch where tables send to all servers; and the expander
    slowest.
    """
    names = chosen(figures, (COSTS, *FIGURES), "--figures")
    rates_bps = sorted({nic_bps(number, "--rates") for number in shares(RATES if rates is None else rates)})
    if not {"11", "27"} & {*names}:
        check_effect("figures 11 and 27 are not among --figures", {"--rates": rates})
    fat_tree_bps = 0.0 if fat_tree_rate is None else nic_bps(fat_tree_rate, "--fat-tree-rate")
    parameters = ScaleParameters(_steps(budget), seed, rule, fat_tree_bps)
    points = points_of(names, rates_bps)
    calls = [Call(row_of, (parameters, point)) for point in points]
    return ComputedStudy(
        "topoopt_scale", "TopoOpt at scale", calls, partial(scale_report, names, seed, points)
    )


def _steps(budget: str) -> int:
    if budget == PAPER:
        return PAPER_BUDGET
    if not budget.isdecimal() or int(budget[:9]) > MOST_BUDGET:
        raise ScenarioError(f"a budget of {budget[:20]!r}", f"give steps, up to {MOST_BUDGET}, or {PAPER!r}")
    return int(budget)


if __name__ == "__main__":
    run_computed(topoopt_scale)
