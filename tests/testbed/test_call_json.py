"""Calls and results as JSON: calls that differ have texts that differ, and results are read as they were."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.study.call_json import Row, call_text, result_bytes, result_of
from topologies.errors import ScenarioError


@dataclass(frozen=True)
class Found:
    """A result of several parts."""

    name: str
    time_s: float
    shares: dict[str, float] = field(default_factory=dict)
    bounds: tuple[tuple[int, float | None], ...] = ()
    by_size: dict[int, dict[str, list[int]]] = field(default_factory=dict)


@dataclass(frozen=True)
class AsFound:
    """A class with the fields of another."""

    name: str
    time_s: float


def found() -> Found:
    """Return one."""
    raise AssertionError


def rows() -> list[Row]:
    """Return rows."""
    raise AssertionError


def pair() -> tuple[float, float]:
    """Return two numbers."""
    raise AssertionError


floats = st.floats(allow_nan=True, allow_infinity=True)
texts = st.text(st.characters(codec="utf-8"))
ints = st.integers(-(2**63), 2**63)
built = st.builds(
    Found,
    texts,
    floats,
    st.dictionaries(texts, floats),
    st.lists(st.tuples(ints, st.none() | floats)).map(tuple),
    st.dictionaries(ints, st.dictionaries(texts, st.lists(ints))),
)
row = st.dictionaries(texts, st.none() | st.booleans() | ints | floats | texts)


@given(
    st.tuples(st.just(found), built)
    | st.tuples(st.just(rows), st.lists(row))
    | st.tuples(st.just(pair), st.tuples(floats, floats))
)
def test_a_result_is_read_as_it_was(case: tuple[Callable[..., object], object]) -> None:
    function, result = case
    data = result_bytes(function, result)
    again = result_of(function, data)
    assert repr(again) == repr(result), "types too, and NaN"
    assert result_bytes(function, again) == data


@pytest.mark.parametrize(
    ("function", "result"),
    [
        (pair, [1.0, 2.0]),
        (pair, (1.0, 2.0, 3.0)),
        (pair, np.zeros(2)),
        (pair, ("1", 2.0)),
        (found, {"name": "x", "time_s": 1.0}),
        (rows, [{"x": (1, 2)}]),
        (rows, [{"x": np.int64(1)}]),
    ],
)
def test_what_is_not_of_the_annotated_type_is_not_written(
    function: Callable[..., object], result: object
) -> None:
    with pytest.raises(ScenarioError, match=f"{function.__name__} returned something else"):
        result_bytes(function, result)


scalars = st.none() | st.booleans() | st.integers() | floats | texts
arguments = st.recursive(
    scalars
    | st.lists(st.integers(0, 3)).map(np.array)
    | st.lists(st.floats(0, 3)).map(np.array)
    | st.just(np.zeros((2, 1)))
    | st.builds(np.float64, st.integers(0, 2))
    | st.builds(Path, st.sampled_from(["a", "a/b"]))
    | st.builds(AsFound, texts, floats),
    lambda each: (
        st.lists(each, max_size=3)
        | st.lists(each, max_size=3).map(tuple)
        | st.dictionaries(texts, each, max_size=3)
    ),
    max_leaves=6,
)


def shape(value: object) -> object:
    """Return a value with all of its types, so that equal shapes are the same argument."""
    match value:
        case tuple() | list():
            return type(value), [shape(each) for each in value]
        case dict():
            return dict, [(key, shape(each)) for key, each in value.items()]
        case np.ndarray():
            return value.dtype, value.shape, repr(value.tolist())
        case _:
            return type(value), repr(value)


@given(arguments, arguments)
def test_two_arguments_have_one_text_only_if_they_are_the_same(one: object, other: object) -> None:
    assert (call_text(found, [one]) == call_text(found, [other])) == (shape(one) == shape(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((1, 2), [1, 2]),
        (1, 1.0),
        (1, True),
        (0.0, -0.0),
        ("1", 1),
        ("NaN", math.nan),
        ((), ""),
        (["tuple", 1], (1,)),
        (["path", "a"], Path("a")),
        (Found("a", 1.0), ("a", 1.0, {}, (), {})),
        (AsFound("a", 1.0), ["tests.testbed.test_call_json:AsFound", "a", 1.0]),
        (np.zeros(2), np.zeros((2, 1))),
        (np.zeros(2, dtype=int), np.zeros(2)),
        (np.float64(1), 1.0),
        (((1,), 2), ((1, 2),)),
        ({"a": 1}, {"a": 1.0}),
    ],
)
def test_arguments_that_are_easily_taken_for_one_another_are_not(one: object, other: object) -> None:
    assert call_text(found, [one]) != call_text(found, [other])
    assert call_text(found, [one]) == call_text(found, [one])
    assert call_text(found, [one]) != call_text(rows, [one])


def test_an_argument_of_a_class_that_is_not_known_is_refused() -> None:
    with pytest.raises(ScenarioError, match="an argument of type set"):
        call_text(found, [{1, 2}])
