"""Spectra's figures 6 to 10 at the paper's scale, on paper: every scheduler's makespan; nothing is sent."""

import _checkout  # first: runs this file under the checkout's Python

from typing import Annotated

import typer

from scenarios._spectra.ocs_sweep import sweep
from scenarios._spectra.sweep_results import SweepResults
from testbed.report.table import claims_table
from testbed.study.command import main
from testbed.study.directories import new_run
from testbed.study.options import Debug, Out, seed_range
from testbed.study.output import print_results

Seeds = Annotated[int, typer.Option(help="Random demands of each workload; the paper has 50.")]


def ocs_figures(seeds: Seeds = 50, out: Out = None, debug: Debug = False) -> None:
    """How long schedules of parallel OCSes take, as planned: Spectra's figures 6 to 10.

    A GPT's demand, a MoE's and the field's benchmark are scheduled for 1 to 8 switches and for several
    reconfiguration delays: by Spectra, with and without its last step, and by LESS, Eclipse and spectra+.
    Expect Spectra within a few percent of the lower bound, and LESS well above it. ocs_spectra.py carries
    schedules out, of smaller demands.
    """
    run = new_run("ocs_figures", "Spectra's schedules, as planned", report="circuits")
    with SweepResults(run, out=out) as results:
        results.add(sweep(len(seed_range(seeds))))
    print_results([claims_table(results.page().claims)], results.path)


if __name__ == "__main__":
    main(ocs_figures)
