"""A run again: the same experiments at the same scale, each CCT held against the one before."""

import _checkout  # first: runs this file under the checkout's Python

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from testbed.experiment.dilation import UNSCALED
from testbed.experiment.experiment import Experiment
from testbed.machine.datapath import Datapath
from testbed.report.checksums import listed_bytes
from testbed.report.claims_repeat import repeat_claims
from testbed.report.csv_text import table_of
from testbed.report.run_json import changed_modules, datapath_of, experiments_of, kind_of, real_link_delay_of
from testbed.study.carry_out import carry_out
from testbed.study.command import loading, main
from testbed.study.options import Debug, DryRun, Events, NoSandbox, NoWait, Out, Plots
from testbed.study.study import Options, Study
from topologies.errors import ScenarioError
from topologies.own import own_sources

TITLE = "A run again"
NAMES = {"workload", "name", "transport"}
NEEDED = NAMES | {"seed", "cct_s", "verdict"}
Results = Annotated[Path, typer.Argument(help="The results directory of the run, or its run.json.")]

RepeatedDatapath = Annotated[
    Datapath | None, typer.Option("--datapath", help="What forwards; by default what did in that run.")
]


def repeat(
    results: Results,
    datapath: RepeatedDatapath = None,
    dry_run: DryRun = False,
    no_sandbox: NoSandbox = False,
    no_wait: NoWait = False,
    out: Out = None,
    plots: Plots = "png",
    events: Events = False,
    debug: Debug = False,
) -> None:
    """Run again what a results directory holds, and hold each CCT against the one before.

    Fabric, workloads, schemes, seeds, scale and datapath are those of its run.json, whatever this
    machine would choose today; so it may be another machine's run, too. Expect every CCT within 5 % of the
    one before where both machines kept up. What was only predicted is predicted again. A scheme, a
    transport or a pattern of your own whose module has changed since is measured, and not compared.
    """
    with loading(dry_run=dry_run):
        options = Options(
            no_sandbox=no_sandbox, no_wait=no_wait, out=out, dry_run=dry_run, plots=plots, events=events
        )
        _again(results, datapath, options)


def _again(results: Path, datapath: Datapath | None, options: Options) -> None:
    """Carry out what a results directory holds."""
    file = results / "run.json" if os.path.isdir(results) else results
    experiments = experiments_of(file)
    if not experiments:
        raise ScenarioError(f"{file} holds no experiments", "run the command line in it again")
    before = _summary(file.with_name("summary.csv"))
    changed = _changed(experiments, file)
    claims = partial(
        repeat_claims, before=before, source=f"as in {file.parent.resolve().name}", changed=changed
    )
    delay_s = real_link_delay_of(file)
    scenario = Study("repeat", TITLE, experiments, claims, kind_of(file), real_link_delay_s=delay_s)
    model_only = not options.dry_run and all(each.dilation == UNSCALED for each in experiments)
    found = datapath or datapath_of(file)
    carry_out(scenario, replace(options, model_only=model_only, datapath=found))


def _changed(experiments: Sequence[Experiment], file: Path) -> dict[tuple[str, str, str], str]:
    """Return what has changed since a run of the user's own code, by workload, scheme and transport."""
    points = {(each.job.name, each.name, each.transport_name): each.own for each in experiments if each.own}
    sources = own_sources(name for own in points.values() for name in own)
    changed = changed_modules(file, sources)
    imported = set(changed) - {_module(name) for own in points.values() for name in own}
    found = {}
    for point, own in points.items():
        if mine := [each for each in changed if each in {*map(_module, own), *imported}]:
            found[point] = f"the source of {' and '.join(mine)} has changed since"
    return found


def _module(name: str) -> str:
    return name.partition(":")[0]


def _summary(file: Path) -> pd.DataFrame:
    """Return the summary of the run before, but for half a line at its end; ScenarioError if it is none."""
    hint = "keep the summary.csv of the run beside its run.json"
    try:
        text = listed_bytes(file)
        table = table_of(text[: text.rfind(b"\n") + 1], NAMES)
    except OSError as error:
        raise ScenarioError(f"{file} cannot be read: {error.strerror}", hint) from error
    except ValueError as error:
        raise ScenarioError(f"{file} is not a valid summary: {error}", hint) from error
    if missing := NEEDED - set(table.columns):
        raise ScenarioError(f"{file} has no column {', '.join(sorted(missing))}", hint)
    return table


if __name__ == "__main__":
    main(repeat)
