"""Rules of the core: no callbacks, files of reactions that do not know each other, events that are values."""

import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Protocol, get_args, get_origin, get_type_hints

import pytest

from testbed import core
from testbed.core.events import PHASE, Event, Later
from testbed.core.reactions import REACTIONS
from tests.test_style import imports_of

NAMES = tuple(each.name for each in pkgutil.iter_modules(core.__path__))
REACTING = {"circuits", "computing", "failures", "sending"}
"""The files of reactions."""
OUTSIDE = {"live", "model", "experiment", "trust", "cli"}
"""Folders of testbed that the core does not know."""


def path_of(name: str) -> Path:
    return Path("testbed", "core", f"{name}.py")


def classes() -> Iterator[type]:
    """Yield the classes of the core of which there are values."""
    for name in NAMES:
        module = import_module(f"testbed.core.{name}")
        for each in vars(module).values():
            if isinstance(each, type) and each.__module__ == module.__name__ and not is_protocol(each):
                yield each


def is_protocol(each: object) -> bool:
    return isinstance(each, type) and Protocol in each.__bases__


def parameters(cls: type) -> dict[str, object]:
    """Return the annotations of what a class is made of."""
    if is_dataclass(cls) or hasattr(cls, "_fields"):
        return get_type_hints(cls)
    begin = vars(cls).get("__init__")
    return get_type_hints(begin) if isinstance(begin, FunctionType) else {}


def holds_callables(annotation: object) -> bool:
    """Return whether values of an annotation are called, or hold some that are."""
    if annotation is Callable or get_origin(annotation) is Callable:
        return True
    if is_protocol(annotation):
        return "__call__" in vars(annotation)
    return any(map(holds_callables, get_args(annotation)))


def members(union: object) -> set[type]:
    """Return the classes of a union; it may have others in it."""
    parts = get_args(union)
    return set().union(*map(members, parts)) if parts else {union}  # type: ignore[arg-type]


def test_there_are_some() -> None:
    assert REACTING.issubset(NAMES)
    assert len(list(classes())) > 50
    assert len(members(Event)) > 30


@pytest.mark.parametrize(
    ("annotation", "holds"),
    [(Callable[[int], int], True), (dict[str, Callable[[], None] | None], True), (dict[str, int], False)],
)
def test_callables_are_seen(annotation: object, holds: bool) -> None:
    class Called(Protocol):
        def __call__(self) -> None: ...

    assert holds_callables(annotation) == holds
    assert holds_callables(Called)


def test_no_constructor_takes_a_callable() -> None:
    taken = [
        f"{cls.__qualname__}({name})"
        for cls in classes()
        for name, annotation in parameters(cls).items()
        if holds_callables(annotation)
    ]
    assert taken == [], "what crosses from one part to another is an event, or a value"


@pytest.mark.parametrize("name", sorted(REACTING))
def test_files_of_reactions_do_not_import_each_other(name: str) -> None:
    imported = {each.removeprefix("testbed.core.").split(".")[0] for each in imports_of(path_of(name))}
    assert not imported & (REACTING | {"reactions", "simulation"}) - {name}


@pytest.mark.parametrize("name", NAMES)
def test_the_core_does_not_know_who_uses_it(name: str) -> None:
    folders = {each.split(".")[1] for each in imports_of(path_of(name)) if each.startswith("testbed.")}
    assert not folders & OUTSIDE


def test_each_event_has_its_reactions() -> None:
    assert members(Event) == REACTIONS.keys()
    assert all(REACTIONS.values())


def test_reactions_stand_in_their_files() -> None:
    files = {reaction.__module__ for found in REACTIONS.values() for reaction in found}
    assert files == {f"testbed.core.{name}" for name in REACTING}


def test_each_event_that_waits_has_a_phase() -> None:
    assert members(Later) == PHASE.keys()
    assert members(Later) <= members(Event)


@pytest.mark.parametrize("event", sorted(members(Event), key=str))
def test_events_are_frozen_values(event: type) -> None:
    assert is_dataclass(event)
    assert event.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert not any(map(holds_callables, get_type_hints(event).values()))
