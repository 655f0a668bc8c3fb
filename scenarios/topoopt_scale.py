"""TopoOpt at scale: iterations of six models on 128 servers by the fluid model, and costs (section 5)."""

import _checkout  # first: runs this file under the checkout's Python

import sys
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from controller.schedulers.totient import Rule
from scenarios._topoopt.scale_figures import FIGURES
from scenarios._topoopt.scale_points import Setting
from scenarios._topoopt.scale_report import scale_findings
from scenarios._topoopt.scale_study import PointResults, kept_rows, predicted
from testbed.report.run_json import Run
from testbed.report.table import claims_table
from testbed.study.command import main
from testbed.study.options import Debug, Out, chosen, nic_bps, shares
from testbed.study.output import print_results, sheet_table
from topologies.errors import ScenarioError

COSTS = "10"
ALL = ",".join((COSTS, *FIGURES))
PAPER, MOST_BUDGET = "paper", 100_000
PAPER_BUDGET = 4000
"""Steps of the artifact's searches."""

Figures = Annotated[
    str,
    typer.Option(help=f"Figures of the paper, comma-separated: {ALL}; 12 has what 13, 14 and 15 show too."),
]
Rates = Annotated[str, typer.Option(help="Rates of an interface in Figures 11 and 27 [Gbit/s].")]
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
Resume = Annotated[
    Path | None, typer.Option(help="Results of a run that was cut off: its points are not predicted again.")
]


def topoopt_scale(
    figures: Figures = ALL,
    rates: Rates = "10,25,40,100,200",
    budget: Budget = "500",
    rule: Jumps = "projected",
    fat_tree_rate: FatTreeRate = None,
    seed: Seed = 0,
    resume: Resume = None,
    out: Out = None,
    debug: Debug = False,
) -> None:
    """Iterations of TopoOpt's models on 128 servers, on TopoOpt and the fabrics it is compared with.

    No network: everything is by the fluid model. Strategies and topologies are searched in turn, from
    data parallelism on. Figure 10 is what fabrics cost; 11 and 27 six models on all fabrics with 4 and 8
    interfaces a server; 12 DLRM with more and more all-to-all, with the bandwidth tax, path lengths and loads
    of circuits (13 to 15); 17 circuits that follow demand, by how long they are dark; 28 more and more
    interfaces. Expect TopoOpt to be like the ideal switch where AllReduce is all, and near three times as
    fast as a fat-tree of its cost; behind the ideal switch where tables send to all servers; and the expander
    slowest. Two processes share the points, and --resume goes on where a run was cut off.
    """
    names = chosen(figures, (COSTS, *FIGURES), "--figures")
    rates_bps = sorted({nic_bps(number, "--rates") for number in shares(rates)})
    fat_tree_bps = 0.0 if fat_tree_rate is None else nic_bps(fat_tree_rate, "--fat-tree-rate")
    setting = Setting(_steps(budget), seed, rule, fat_tree_bps)
    points = [point for figure in names if figure in FIGURES for point in FIGURES[figure](rates_bps)]
    known = kept_rows(resume, setting)
    run = Run("topoopt_scale", "TopoOpt at scale", ["python", *sys.argv], datetime.now())
    with PointResults(run, partial(scale_findings, names), out=out) as results:
        if COSTS in names:
            results.add_costs()
        for point, row in predicted(points, setting, known):
            results.add(point, row, seed)
    tables = [sheet_table(sheet) for sheet in results.found.sheets]
    judged = [claims_table(results.found.claims)] if results.found.claims else []
    print_results([*tables, *judged], results.path)


def _steps(budget: str) -> int:
    if budget == PAPER:
        return PAPER_BUDGET
    if not budget.isdecimal() or int(budget[:9]) > MOST_BUDGET:
        raise ScenarioError(f"a budget of {budget[:20]!r}", f"give steps, up to {MOST_BUDGET}, or {PAPER!r}")
    return int(budget)


if __name__ == "__main__":
    main(topoopt_scale)
