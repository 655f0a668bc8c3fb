"""Studies of training steps: what figures make of iteration times, and what waits for circuits cost."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from scenarios._mfabric.fabrics import MFABRIC
from scenarios._mfabric.section import PlannedSection, Section
from scenarios._mfabric.step.parts import BACKWARD, FORWARD
from scenarios._mfabric.step.points import Iteration, StepPoint, StepSetup, iteration, of_step
from testbed.report.page import Findings
from testbed.study.computed import Call

Iterations = Mapping[StepPoint, Iteration]


@dataclass(frozen=True)
class StepStudy:
    """A figure whose numbers are iteration times."""

    points: Callable[[StepSetup], Sequence[StepPoint]]
    """Return the training steps that it needs."""
    section: Callable[[StepSetup, Iterations], Section]
    """Return its section, from the iterations of these."""

    def planned(self, setup: StepSetup) -> PlannedSection:
        """Return the section, with the predictions that it needs."""
        # Points of one model follow each other, so that a process makes its step once.
        points = sorted(self.points(setup), key=of_step)
        return PlannedSection(
            lambda found: self.section(setup, dict(zip(points, found, strict=True))),
            [Call(iteration, (setup.alike, point)) for point in points],
        )


def step_section(
    name: str,
    about: str,
    setup: StepSetup,
    table: pd.DataFrame,
    findings: Findings,
    definitions: Sequence[tuple[str, str]] = (),
    **settings: object,
) -> Section:
    """Return the section of a figure whose numbers are iteration times, in one table of its name."""
    basis = "computed by the fluid model, on synthetic gates"
    settings = {"gpu_flops": setup.gpu_flops, **settings}
    return Section(name, about, basis, findings, {name: table}, [setup.seed], definitions, settings)


def at_once(point: StepPoint) -> StepPoint:
    """Return the same point over OCSes that take no time."""
    return replace(point, delay_s=0.0)


def waits_s(point: StepPoint, found: Iterations) -> tuple[float, float]:
    """Return about how long an iteration waits for circuits in its forwards, and in its backwards [s].

    What both are together is exact: by how much the iteration is longer than `at_once`. It is divided as
    what the all-to-alls on the critical path are held for.

    Parameters
    ----------
    point
        Over an mFabric, else nothing waits.
    found
        With the iterations of the point and of the same `at_once`.
    """
    if point.fabric != MFABRIC:
        return 0.0, 0.0
    waits, parts_s = found[point].seconds - found[at_once(point)].seconds, found[point].parts_s
    held_s = parts_s[FORWARD] + parts_s[BACKWARD]
    forward_s = waits * parts_s[FORWARD] / held_s if held_s else waits
    return forward_s, waits - forward_s


def with_waits(points: Iterable[StepPoint]) -> list[StepPoint]:
    """Return points and, of those over mFabric, the same `at_once`, which say what waits cost."""
    return [
        each for point in points for each in (point, *([at_once(point)] if point.fabric == MFABRIC else []))
    ]


def as_simulated_s(point: StepPoint, found: Iterations) -> float:
    """Return an iteration with the waits that the paper's simulations have (7.1): those of forwards, about.

    "[mFabric] hides the reconfiguration time during computation for subsequent all-to-all communications."

    Parameters
    ----------
    point, found
        As of `waits_s`.
    """
    return found[point].seconds - waits_s(point, found)[1]
