"""A figure of what lightrail promises, and the median time of calls."""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module


@dataclass(frozen=True)
class Figure:
    """A measured number and what it is held to."""

    measure: Callable[[], tuple[float, str]]
    """Returns the value, and what else a reader should know."""
    unit: str
    bar: str
    sandbox: bool = True
    """Whether it is measured inside a sandbox."""


def measured(name: str) -> Iterator[tuple[float, str]]:
    """Yield a figure of the bench, measured here: what a worker is called with."""
    yield import_module("scenarios.bench").FIGURES[name].measure()


def median_s(calls: Sequence[Callable[[], object]]) -> tuple[float, str]:
    """Return the median time of some calls, the first once more before they count."""
    calls[0]()
    times_s = []
    for call in calls:
        started = time.perf_counter()
        call()
        times_s.append(time.perf_counter() - started)
    return statistics.median(
        times_s
    ), f"{1e3 * min(times_s):.1f} to {1e3 * max(times_s):.1f} ms of {len(calls)}"
