"""The report of schedules that were planned and not executed: Spectra's figures."""

from collections.abc import Sequence
from itertools import chain

import pandas as pd

from scenarios._spectra.claims_spectra import spectra_claims
from scenarios._spectra.ocs_sweep import COLUMNS
from scenarios._spectra.sweep_plots import sweep_plots
from testbed.report.collective_report import VERDICTS
from testbed.report.page import Block, Findings, Line, Sheet, counted
from testbed.study.computed import ComputedReport, Found

WORKLOADS = ("gpt", "moe", "benchmark")


def sweep_report(found: Found) -> ComputedReport:
    """Return the report of schedules that were planned and not executed: Spectra's figures.

    Parameters
    ----------
    found
        The rows of each of `scenarios._spectra.ocs_sweep.points`.
    """
    table = pd.DataFrame(chain.from_iterable(found), columns=COLUMNS).assign(verdict="model")
    seeds = table["seed"].nunique()
    delays = sorted(table["delay"].unique())
    switches = sorted(table["switches"].unique())
    makespans = Sheet(
        ("scheme",),
        [f"{size} switch{'es' if size > 1 else ''}" for size in switches],
        _planned_blocks(table, switches),
        "Makespan over the lower bound: means over all delays and seeds ± standard deviation.",
    )
    return ComputedReport(
        f"Spectra's figures 6 to 10: {', '.join(WORKLOADS)} at the paper's "
        f"size, {counted(seeds, 'seed')}, planned for {', '.join(map(str, switches))} parallel switches and "
        f"for delays of {delays[0]:g} to {delays[-1]:g} line times. Nothing was sent.",
        Findings([makespans], sweep_plots(table), spectra_claims(table)),
        table.to_dict("records"),
        "Every plan is a row of summary.csv beside this file.",
        definitions=(
            ("makespan", "How long the plan keeps the busiest switch: its slots, and a delay before each."),
            (
                "bound",
                "Spectra's lower bound for a demand, a number of switches and a delay: no schedule beats it.",
            ),
            ("line time", "How long the busiest port would send alone; all times are shares of it."),
            VERDICTS[-1],
        ),
    )


def _planned_blocks(table: pd.DataFrame, switches: Sequence[int]) -> list[Block]:
    """Return a block per workload, with a line per scheme."""
    over = table.assign(over=table["makespan"] / table["bound"]).fillna({"flows": 0})
    blocks = []
    for workload in WORKLOADS:
        mine = over[over["workload"] == workload]
        for flows, noise in sorted(set(zip(mine["flows"], mine["noise"], strict=True))):
            rows = mine[(mine["flows"] == flows) & (mine["noise"] == noise)]
            by_point = rows.groupby(["scheme", "switches"])["over"]
            means, spreads = by_point.mean(), by_point.std().fillna(0)
            lines = [
                Line([scheme, *(_spread(means, spreads, (scheme, size)) for size in switches)])
                for scheme in dict.fromkeys(rows["scheme"])
            ]
            title = f"{workload}, {flows:.0f} flows per port" if flows else workload
            blocks.append(Block(lines, title, f"synthetic, noise {100 * noise:g} %"))
    return blocks


def _spread(means: "pd.Series[float]", spreads: "pd.Series[float]", at: tuple[str, int]) -> str:
    return f"{means[at]:.3f} ±{spreads[at]:.3f}" if at in means.index else "-"
