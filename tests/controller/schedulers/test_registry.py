"""Schedulers by name: the registered ones, a user's own, and what is refused."""

from pathlib import Path

import numpy as np
import pytest

from controller.schedulers.demand import Matrix
from controller.schedulers.registry import SCHEDULERS, scheduler_named
from controller.schedulers.rotor import rotor
from controller.schedulers.schedule import Schedule, Slot
from controller.schedulers.spectra import spectra
from topologies.errors import DemandError, ScenarioError

DEMAND = np.array([[0.0, 2.0], [1.0, 0.0]])
SWAP = np.array([1, 0])


def of_spectra(demand: Matrix, switches: int, delay: float) -> Schedule:
    """A user's own scheduler."""
    return spectra(demand, switches, delay)


def raising(demand: Matrix, switches: int, delay: float) -> Schedule:
    """What fails on every demand."""
    raise IndexError(f"port {len(demand)}")


def nothing(demand: Matrix, switches: int, delay: float) -> None:
    """What returns no schedule."""


def too_many_switches(demand: Matrix, switches: int, delay: float) -> Schedule:
    """What plans for a switch too many."""
    return spectra(demand, switches + 1, delay)


def without_delay(demand: Matrix, switches: int, delay: float) -> Schedule:
    """What leaves the reconfiguration delay out."""
    return spectra(demand, switches, 0.0)


def too_many_ports(demand: Matrix, switches: int, delay: float) -> Schedule:
    """What plans for a port too many."""
    return spectra(np.pad(demand, ((0, 1), (0, 1))), switches, delay)


def endless(demand: Matrix, switches: int, delay: float) -> Schedule:
    """What never ends."""
    return Schedule(((Slot(SWAP, np.inf),),), delay)


def too_short(demand: Matrix, switches: int, delay: float) -> Schedule:
    """What serves half a second of each entry."""
    return Schedule(((Slot(SWAP, 0.5),),), delay)


def test_a_registered_scheduler_is_returned_by_its_name() -> None:
    found = [scheduler_named(name) for name in SCHEDULERS]
    assert [each.__name__ for each in found] == list(SCHEDULERS)
    assert scheduler_named("rotor") is rotor


def test_an_unknown_scheduler_is_answered_with_the_names() -> None:
    with pytest.raises(ScenarioError, match=r"unknown scheduler 'x'; choose among spectra, .*, rotor, or"):
        scheduler_named("x")


def test_a_users_own_function_is_a_scheduler() -> None:
    assert scheduler_named(f"{__name__}:of_spectra")(DEMAND, 2, 0.1) == spectra(DEMAND, 2, 0.1)


def test_a_users_own_scheduler_never_sees_a_demand_that_makes_no_sense() -> None:
    with pytest.raises(DemandError, match="0 switches"):
        scheduler_named(f"{__name__}:raising")(DEMAND, 0, 0.1)


written_in_c = max


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("no_such_module:plan", r"cannot be imported: ModuleNotFoundError: .* in this directory or on PYTH"),
        ("traffic.demand:no_such", "'traffic.demand:no_such' cannot be imported: AttributeError"),
        ("json:dumps", "'json:dumps' cannot be loaded: json is a module of Python itself; name it as"),
        (":plan", "cannot be imported"),
        ("topologies.own:__name__", "is not a scheduler; give a function of demand, switches, delay"),
        (
            "topologies.rail:rail_fabric",
            r"arguments demand, switches, delay; write it as: def rail_fabric\(\*, demand, .*/own_sch",
        ),
        ("builtins:max", "cannot be loaded: builtins is a module of Python itself"),
        (f"{__name__}:written_in_c", f"cannot be loaded: {__name__} has it from builtins"),
    ],
)
def test_what_cannot_be_called_as_a_scheduler_is_refused(name: str, sentence: str) -> None:
    with pytest.raises(ScenarioError, match=sentence):
        scheduler_named(name)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("raising", r"your scheduler raised IndexError at .*test_registry\.py:\d+: port 2; --debug shows"),
        ("nothing", "nothing' returned an object of type NoneType; return a Schedule"),
        ("too_many_switches", "returned a schedule for 2 switches instead of 1"),
        ("without_delay", "returned a schedule for a reconfiguration delay of 0 instead of 0.1"),
        ("too_many_ports", "returned a schedule for 3 ports instead of 2"),
        ("endless", "returned a schedule of makespan inf"),
        ("too_short", r"returned a schedule that leaves 1.5 of demand\[0, 1\] = 2 unserved"),
    ],
)
def test_what_returns_no_schedule_of_the_demand_is_refused(name: str, sentence: str) -> None:
    with pytest.raises(ScenarioError, match=sentence):
        scheduler_named(f"{__name__}:{name}")(DEMAND, 1, 0.1)


def test_a_module_whose_code_fails_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_scheduler.py").write_text("1 / 0\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        ScenarioError,
        match=r"your scheduler raised ZeroDivisionError at broken_scheduler.py:1: division by zero;",
    ):
        scheduler_named("broken_scheduler:plan")
