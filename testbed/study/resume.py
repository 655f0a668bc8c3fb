"""A run that is gone on with: its points at the scale that it began with, if they are those of the study."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from testbed.machine.versions import versions
from testbed.report.run_json import commit_of, experiments_of
from testbed.run.dilation import UNSCALED
from testbed.run.experiment import Experiment
from topologies.errors import ScenarioError

HINT = "give the options of that run, or another --out without --resume"


def kept_plan(directory: Path, experiments: Sequence[Experiment], *, emulated: bool) -> list[Experiment]:
    """Return the points of a run at its own scale.

    Parameters
    ----------
    directory
        The results directory.
    experiments
        The points of the study, at real scale or at a scale of their own.
    emulated
        Whether they are to be emulated.

    Raises
    ------
    ScenarioError
        If it is the run of another study, of another version, or was emulated and is now to be predicted, or
        the reverse.
    """
    file = directory / "run.json"
    if not file.exists():
        raise ScenarioError(f"{directory} holds no run to go on with", "give the directory of one")
    planned, commit, now = experiments_of(file), commit_of(file), versions()["commit"]
    if commit != now:
        raise ScenarioError(
            f"{directory} was begun by the commit {commit}, and this is {now}: their numbers are not mixed",
            "go on with that commit, or begin anew",
        )
    if emulated != any(each.dilation != UNSCALED for each in planned):
        did, now_does = ("predicted", "emulated") if emulated else ("emulated", "predicted")
        raise ScenarioError(f"{directory} was {did}, and would now be {now_does}", HINT)
    if real_keys(planned) != real_keys(experiments):
        raise ScenarioError(f"{directory} holds the points of another study", HINT)
    return planned


def real_keys(experiments: Sequence[Experiment]) -> list[str]:
    """Return the keys of points whatever their scale, in order."""
    return sorted({replace(each, dilation=UNSCALED).key for each in experiments})
