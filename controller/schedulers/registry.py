"""The schedulers by name; a user's own is named ``module:function``.

What is registered here is what scenarios offer and what the tests validate.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import ArrayLike

from controller.schedulers.demand import Matrix, checked_demand
from controller.schedulers.schedule import Schedule
from topologies.errors import ScenarioError
from topologies.own import check_arguments, own_code, own_object

Scheduler = Callable[[ArrayLike, int, float], Schedule]
"""Takes a demand matrix, a number of switches and a reconfiguration delay, see `spectra`."""

SCHEDULERS: dict[str, str | Scheduler] = {
    "spectra": "controller.schedulers.spectra:spectra",
    "spectra_plus": "controller.schedulers.spectra_plus:spectra_plus",
    "less": "controller.schedulers.less:less",
    "eclipse": "controller.schedulers.eclipse:eclipse",
    "bvn": "controller.schedulers.bvn:bvn",
    "solstice": "controller.schedulers.solstice:solstice",
    "rotor": "controller.schedulers.rotor:rotor",
}
"""Every scheduler that comes with lightrail; imported when it is asked for."""

ARGUMENTS = ("demand", "switches", "delay")
PAGE = "docs/howto/own_scheduler.md"


def scheduler_named(name: str, *, covering: bool = True) -> Scheduler:
    """Return a scheduler.

    Parameters
    ----------
    name
        A key of `SCHEDULERS`, or ``module:function`` with a module on Python's path or in the current
        directory.
    covering
        Whether a user's own must cover the demand: not where what it leaves over goes over packets.

    Raises
    ------
    ScenarioError
        If no scheduler has that name, or what has it cannot be called as a scheduler.
    """
    if ":" in name:
        return _own(name, covering)
    if name not in SCHEDULERS:
        raise ScenarioError(
            f"unknown scheduler {name!r}",
            f"choose among {', '.join(SCHEDULERS)}, or name your own as module:function",
        )
    found = SCHEDULERS[name]
    return cast(Scheduler, own_object("scheduler", found)) if isinstance(found, str) else found


@dataclass(frozen=True, slots=True)
class OwnScheduler:
    """A user's own scheduler: its demand is checked before the call, its schedule after it."""

    name: str
    """How it was named: ``module:function``."""
    function: Callable[..., object]
    """Takes what `spectra` takes, and returns a `Schedule`."""
    covering: bool = True
    """Whether its schedules must cover the demand."""

    def __call__(self, demand: ArrayLike, switches: int, delay: float) -> Schedule:
        """Return the function's schedule.

        Raises
        ------
        DemandError
            If the demand makes no sense.
        ScenarioError
            If the function raises, or returns no schedule on these switches or, where it must cover the
            demand, one that does not.
        """
        matrix = checked_demand(demand, switches, delay)
        with own_code("scheduler", self.name):
            plan = self.function(demand=matrix.copy(), switches=switches, delay=delay)
        if not isinstance(plan, Schedule):
            raise ScenarioError(
                f"the scheduler {self.name!r} returned an object of type {type(plan).__name__}",
                f"return a Schedule, see {PAGE}",
            )
        fault = _fault(plan, matrix, switches, delay) or (self.covering and _unserved(plan, matrix))
        if fault:
            raise ScenarioError(f"the scheduler {self.name!r} returned a schedule {fault}", f"see {PAGE}")
        return plan


def _own(name: str, covering: bool) -> Scheduler:
    function = own_object("scheduler", name)
    if not callable(function):
        raise ScenarioError(f"{name!r} is not a scheduler", f"give a function of {', '.join(ARGUMENTS)}")
    check_arguments("scheduler", name, function, ARGUMENTS, PAGE)
    return OwnScheduler(name, function, covering)


def _fault(plan: Schedule, demand: Matrix, switches: int, delay: float) -> str:
    """Return why a schedule is none on these switches, nothing if it is one."""
    if len(plan.switches) != switches:
        return f"for {len(plan.switches)} switches instead of {switches}"
    if plan.delay != delay:
        return f"for a reconfiguration delay of {plan.delay:g} instead of {delay:g}"
    ports = {slot.permutation.size for slots in plan.switches for slot in slots} - {len(demand)}
    if ports:
        return f"for {ports.pop()} ports instead of {len(demand)}"
    if not math.isfinite(plan.makespan):
        return f"of makespan {plan.makespan}"
    return ""


def _unserved(plan: Schedule, demand: Matrix) -> str:
    """Return what a schedule leaves over, nothing if it covers the demand.

    Predictions and bounds without packets assume that it does; clean-up rounds are for what the network lost.
    """
    if not plan.covers(demand):
        short = demand - plan.served(len(demand))
        row, column = np.unravel_index(short.argmax(), short.shape)
        return f"that leaves {short.max():g} of demand[{row}, {column}] = {demand[row, column]:g} unserved"
    return ""
