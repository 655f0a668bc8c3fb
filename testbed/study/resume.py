"""A run that is gone on with: its points at the scale that it began with, if they are those of the study."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from testbed.machine.versions import sources
from testbed.report.run_json import (
    changed_modules,
    datapath_of,
    experiments_of,
    real_link_delay_of,
    sources_of,
)
from testbed.run.dilation import UNSCALED
from testbed.run.experiment import Experiment
from testbed.study.study import Options, Study
from topologies.errors import ScenarioError
from topologies.own import own_sources

OTHER_OPTIONS = "give the options of that run, or another --out without --resume"


def kept_plan(directory: Path, study: Study, options: Options) -> list[Experiment]:
    """Return the points of a run at its own scale.

    Parameters
    ----------
    directory
        The results directory.
    study, options
        What is carried out now, and how.

    Raises
    ------
    ScenarioError
        If it is the run of another study, or of other code, lightrail's or a user's own, or was emulated and
        is now to be predicted, or the reverse.
    """
    file = directory / "run.json"
    planned = experiments_of(file) if file.exists() else []
    check_code(directory, planned)
    emulated = not options.model_only
    if emulated != any(each.dilation != UNSCALED for each in planned):
        did, now_does = ("predicted", "emulated") if emulated else ("emulated", "predicted")
        raise ScenarioError(f"{directory} was {did}, and would now be {now_does}", OTHER_OPTIONS)
    if real_keys(planned) != real_keys(study.experiments) or _failing(planned) != _would_fail(study):
        raise ScenarioError(f"{directory} holds the points of another study", OTHER_OPTIONS)
    if (datapath_of(file), real_link_delay_of(file)) != (options.datapath, options.real_link_delay_s):
        raise ScenarioError(
            f"{directory} was run with another --datapath or --real-link-delay-us", OTHER_OPTIONS
        )
    return planned


def check_code(directory: Path, planned: Sequence[Experiment]) -> None:
    """Raise ScenarioError if a directory holds no run, or one of other code: both are not mixed."""
    file, now = directory / "run.json", sources()
    if not file.exists():
        raise ScenarioError(f"{directory} holds no run to go on with", "give the directory of one")
    if (before := sources_of(file)) != now:
        raise ScenarioError(
            f"{directory} was begun by lightrail {before}, and this is {now}: their numbers are not mixed",
            "go on with that one, or begin anew",
        )
    own = own_sources(name for each in planned for name in each.own)
    if changed := changed_modules(file, own):
        raise ScenarioError(
            f"the source of {' and '.join(changed)} has changed since {directory} was begun: numbers of both"
            " are not mixed",
            "put the old one back, or begin anew",
        )


def _failing(planned: Sequence[Experiment]) -> set[tuple[str, float]]:
    return {(fault.name, fault.detect_s) for each in planned for fault in each.faults}


def _would_fail(study: Study) -> set[tuple[str, float]]:
    failures = study.failures
    written = [(fault.text, failures.detect_s) for fault in failures.faults] if failures else []
    return _failing(study.experiments).union(written)


def real_keys(experiments: Sequence[Experiment]) -> list[str]:
    """Return the keys of points whatever their scale, in order."""
    return sorted({replace(each.unscaled, faults=()).key for each in experiments})
