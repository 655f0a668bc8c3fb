"""A study predicted by processes of this machine or of a cluster, behind `concurrent.futures.Executor`."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from testbed.experiment.experiment import Experiment
from testbed.machine.processes import in_processes
from testbed.model.predict import predict
from testbed.report.finished import Finished, finished
from testbed.report.kept_points import KeptPoints
from testbed.study.directories import Directory, directory_of, of_part, planned_before
from testbed.study.emulating import Asked
from testbed.study.glances import glances, predicted_by
from testbed.study.output import progress_bar
from testbed.study.ray_cluster import opened
from testbed.study.study import Options, Study
from testbed.trust.outcome import Outcome

Result = TypeVar("Result")


def predicted(study: Study, options: Options) -> Directory:
    """Predict what is missing of a study; return the directory of its results."""
    planned_before(study, options)  # refuses another study's
    experiments = list(study.experiments)
    if asked := experiments if study.failures else _first_of_own(experiments):
        with progress_bar() as progress:
            looked = glances(asked, study.failures, progress, jobs=options.jobs)
        experiments = [each for each, _ in looked] if study.failures else experiments
    experiments, alike = _each_prediction(experiments)
    mine = of_part(experiments, options.part, emulated=False)
    with (
        executor_of(options) as predicting,  # first: without its cluster a run has no directory
        directory_of(study, options, experiments, alike) as results,
        progress_bar() as progress,
    ):
        task = progress.add_task("predict", total=len(mine))
        for experiment, point in _points(mine, results, options, predicting):
            results.add_finished(experiment, point)
            progress.advance(task)
    return results


def _first_of_own(experiments: Sequence[Experiment]) -> list[Experiment]:
    """Return the first point of each of a user's own schemes and the like: if that raises, nothing is begun.

    The very first point comes before them in any case.
    """
    first = {tuple(each.own): each for each in reversed(experiments)}
    return [each for own, each in first.items() if own and each is not experiments[0]]


def _points(
    mine: Sequence[Experiment], results: Directory, options: Options, predicting: Executor
) -> Iterator[tuple[Experiment, Finished]]:
    """Yield each point in order: those that are there as they are read, the others as they are predicted."""
    asked = [Asked(each, results.wants_trace(each), options.events) for each in mine]
    there = [each in results.kept for each in mine]
    read = partial(kept_point, results.path)
    kept_asked = [each for each, is_there in zip(asked, there, strict=True) if is_there]
    with in_processes(read, kept_asked, options.jobs) as kept:
        made = predicting.map(
            predicted_point, [each for each, is_there in zip(asked, there, strict=True) if not is_there]
        )
        for experiment, is_there in zip(mine, there, strict=True):
            yield experiment, next(kept if is_there else made)


def kept_point(directory: Path, asked: Asked) -> Finished:
    """Return a point that is there already as it is written into new tables."""
    kept, experiment = KeptPoints(directory), asked.experiment
    with kept.valid(experiment):
        return finished(kept.outcome(experiment), traced=asked.traced, kept=True)


def predicted_point(asked: Asked) -> Finished:
    """Return a point as the model has it."""
    logs = asked.logs("predicted")
    outcome = Outcome(asked.experiment, predict(asked.experiment, log=logs.get("predicted")))
    return finished(outcome, traced=asked.traced, logs=logs)


def _each_prediction(
    experiments: Sequence[Experiment],
) -> tuple[list[Experiment], dict[str, list[str]]]:
    """Return the first of all experiments that are predicted alike, and by its transport the others'.

    Transports that share alike are predicted alike: one of them is enough.
    """
    first: dict[tuple[object, ...], Experiment] = {}
    alike = defaultdict[str, dict[str, None]](dict)
    for each in experiments:
        kept = first.setdefault(predicted_by(each), each)
        if each.transport_name != kept.transport_name:
            alike[kept.transport_name][each.transport_name] = None
    return list(first.values()), {name: list(others) for name, others in alike.items()}


class Forked(Executor):
    """Processes of this machine, forked for the items of a `map`, which they therefore have without sending.

    Nothing else is asked of it: what is submitted alone has no process.

    Parameters
    ----------
    jobs
        How many work at once.
    """

    def __init__(self, jobs: int) -> None:
        self._jobs, self._stack = jobs, ExitStack()

    def map(
        self,
        fn: Callable[..., Result],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
    ) -> Iterator[Result]:
        """Return what a function returns for each item, in their order, as it is computed."""
        items = list(zip(*iterables, strict=True))
        return self._stack.enter_context(in_processes(lambda each: fn(*each), items, self._jobs))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End all; what is still being computed ends at once."""
        self._stack.close()


def executor_of(options: Options) -> AbstractContextManager[Executor]:
    """Return who predicts, a context manager: a cluster if one is named, else processes of this machine."""
    return opened(options.cluster) if options.cluster else Forked(options.jobs)
