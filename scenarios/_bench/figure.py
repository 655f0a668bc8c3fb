"""The figures of what lightrail promises, and the median time of calls."""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """A measured number and what it is held to."""

    measure: Callable[[], tuple[float, str]]
    """Returns the value, and what else a reader should know."""
    unit: str
    bar: str
    sandbox: bool = True
    """True if it is measured inside a sandbox."""


Measure = Callable[..., tuple[float, str]]
FIGURES: dict[str, Figure] = {}
"""All figures of the modules that are imported, by the names of what measures them."""


def figure(unit: str, bar: str, *, sandbox: bool = True) -> Callable[[Measure], Measure]:
    """Enter what measures a figure among `FIGURES`."""

    def entered(measure: Measure) -> Measure:
        FIGURES[measure.__name__] = Figure(measure, unit, bar, sandbox)
        return measure

    return entered


def measured(measure: Callable[[], tuple[float, str]]) -> Iterator[tuple[float, str]]:
    """Yield a figure, measured here, by a worker."""
    yield measure()


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
