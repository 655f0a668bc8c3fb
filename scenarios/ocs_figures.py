"""Spectra's figures 6 to 10 at the paper's scale, on paper: every scheduler's makespan; nothing is sent."""

import _checkout  # first: runs this file under the checkout's Python

from typing import Annotated

import typer

from scenarios._spectra.ocs_sweep import points
from scenarios._spectra.sweep_report import sweep_report
from testbed.study.command import run_computed
from testbed.study.computed import ComputedStudy
from testbed.study.options import seed_range

Seeds = Annotated[int, typer.Option(help="Random demands of each workload; the paper has 50.")]


def ocs_figures(seeds: Seeds = 50) -> ComputedStudy:
    """How long schedules of parallel OCSes take, as planned: Spectra's figures 6 to 10.

    A GPT's demand, a MoE's and the field's benchmark are scheduled for 1 to 8 switches and for several
    reconfiguration delays: by Spectra, with and without its last step, and by LESS, Eclipse and spectra+.
    Expect Spectra within a few percent of the lower bound, and LESS well above it. ocs_spectra.py carries
    schedules out, of smaller demands.
    """
    plans = points(len(seed_range(seeds)))
    return ComputedStudy("ocs_figures", "Spectra's schedules, as planned", plans, sweep_report)


if __name__ == "__main__":
    run_computed(ocs_figures)
