"""Experiments from a Python script of one's own, carried out as a scenario's are (docs/howto/python.md)."""

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from testbed.experiment.experiment import Experiment
from testbed.machine.files import exists
from testbed.report.replaced import replaced
from testbed.report.results import ResultsDirectory
from testbed.report.run_json import Kind
from testbed.study.carry_out import carry_out
from testbed.study.study import RUN, Options, Study, no_claims
from topologies.errors import ScenarioError


def run(
    experiments: Sequence[Experiment],
    out: str | Path | None = None,
    *,
    overwrite: bool = False,
    emulate: bool = False,
    title: str = "Experiments from Python",
    plots: str = "png",
    events: bool = False,
) -> ResultsDirectory:
    """Carry experiments out, print their table, write their report, and return their results.

    Parameters
    ----------
    experiments
        At least one; all at real scale over one fabric, or each at a scale of its own.
    out
        The results directory; by default ``results/python/TIME``, a new one each time.
    overwrite
        True to replace the results that ``out`` holds, if lightrail wrote them: they go when the new ones are
        there, and stay if the run leaves none.
    emulate
        Whether to move real packets, beside the prediction: in a sandbox that ends with this call. What the
        experiments hold of one's own is then importable, not defined in the script that calls this.
    title
        What the report is called.
    plots
        Formats of the plots, comma-separated: ``png,pdf,svg``.
    events
        Whether what happens in each run is written down, beside its point (docs/explain/events.md).

    Raises
    ------
    LightrailError
        If they do not go together, or the machine cannot emulate them.
    """
    if not experiments:
        raise ScenarioError("there is no experiment to run", "give one at least")
    if out is not None and not str(out).strip():
        raise ScenarioError("out names no directory", "leave it out, or give a directory")
    if overwrite and out is None:
        raise ScenarioError("there is nothing to overwrite: each run has a new directory", "give its out")
    directory = None if out is None else Path(out)
    if directory and not overwrite and exists(directory / RUN):
        raise ScenarioError(f"{directory} holds the results of another run", "overwrite=True replaces them")
    report: Kind = "circuits" if all(each.has_slots for each in experiments) else "schemes"
    scenario = Study("python", title, list(experiments), no_claims, report)
    with replaced(directory) if directory and overwrite else nullcontext():
        options = Options(model_only=not emulate, out=directory, plots=plots, events=events)
        results = carry_out(scenario, options)
    assert results is not None  # only --cli and --dry-run leave none
    return results
