"""Where the points of a study go: a results directory, new or gone on with, or one that parts share."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from testbed.machine.datapath import Datapath
from testbed.report.means import BIG_SWITCH
from testbed.report.results import ResultsDirectory
from testbed.report.run_json import Kind, Run, with_readings
from testbed.run.experiment import Experiment
from testbed.study.parts import PARTS, RUN, PartDirectory
from testbed.study.resume import kept_plan
from testbed.study.study import Options, Study
from topologies.own import own_sources

Directory = ResultsDirectory | PartDirectory


def planned_before(study: Study, options: Options) -> list[Experiment] | None:
    """Return the points of the run that is gone on with, at its scale; None if a new one begins.

    Raises
    ------
    ScenarioError
        As of `kept_plan`.
    """
    if options.resume is None and not (options.part and options.out and (options.out / RUN).exists()):
        return None
    directory = options.resume or options.out
    assert directory is not None
    return kept_plan(directory, study, options)


def directory_of(
    study: Study,
    options: Options,
    planned: Sequence[Experiment],
    alike: Mapping[str, Sequence[str]] | None = None,
) -> Directory:
    """Return where the points of a study go.

    Parameters
    ----------
    study, options
        What is carried out, and how.
    planned
        All of its points.
    alike
        By transport, those that are predicted as it is and left out.
    """
    # Only an emulation knows what circuits did: schedules that are predicted get the report of schemes.
    report = "schemes" if options.model_only and study.report == "circuits" else study.report
    run = new_run(study.name, study.title, options.datapath, report)
    own = own_sources(name for each in planned for name in each.own)
    run = replace(run, own_modules=own, alike=alike or {}, real_link_delay_s=options.real_link_delay_s)
    if study.baseline:
        run = replace(run, baseline=study.baseline)
    out = options.resume or options.out
    if options.part and out:
        number, count = options.part
        return PartDirectory(run, planned, out, f"{number}-of-{count}.json")
    return ResultsDirectory(
        with_all_readings(run, options.resume) if options.resume else run,
        planned=planned,
        out=out,
        claims=study.claims,
        findings=study.findings,
        parameters=study.parameters_of,
        resume=options.resume is not None,
        jobs=options.jobs,
    )


def new_run(name: str, title: str, datapath: Datapath = "netdev", report: Kind = "schemes") -> Run:
    """Return a run that starts now."""
    run = Run(name, title, ["python", *sys.argv], datetime.now(), report=report, datapath=datapath)
    return replace(run, baseline=BIG_SWITCH) if report == "circuits" else run


def with_all_readings(run: Run, directory: Path) -> Run:
    """Return a run with what the one before, and each of its parts, read back of its machine."""
    for file in (directory / RUN, *sorted((directory / PARTS).glob("*.json"))):
        run = with_readings(run, file)
    return run
