"""Calls and their results as JSON: what tells one call from another, and what the file of a result holds.

A result has the type that its function is annotated to return, and is read as that type or not at all. JSON
here has NaN and the infinities, and its numbers are read as exactly those that were written.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import PurePath
from typing import Any, Literal, get_type_hints

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic_core import PydanticSerializationError

from topologies.errors import ScenarioError
from topologies.own_value import class_name
from topologies.strict_json import first_of

FORMAT_VERSION = 1
EXACT = ConfigDict(strict=True, extra="forbid", ser_json_inf_nan="constants")
Row = dict[str, str | int | float | bool | None]
"""A row of a table, by its columns: what a function returns that has such rows as its result."""


def call_text(function: Callable[..., object], arguments: Sequence[object]) -> str:
    """Return a call as JSON: the same in every process, and never that of another call.

    Raises
    ------
    ScenarioError
        If an argument is of a class that is not known here.
    """
    return json.dumps([_named(function), *map(_document, arguments)])


def _document(value: object) -> object:
    """Return a value as JSON has it; but for texts, numbers, booleans and None a list that names its type."""
    own = type(value)
    if value is None or own in (str, int, float, bool):
        return value
    if own in (tuple, list):
        return [own.__name__, *map(_document, value)]  # type: ignore[call-overload]
    if isinstance(value, Mapping):
        return ["mapping", *([_document(key), _document(each)] for key, each in value.items())]
    if is_dataclass(value) and not isinstance(value, type):
        return [class_name(own), *(_document(getattr(value, each.name)) for each in fields(value))]
    if isinstance(value, np.ndarray | np.generic):
        return ["numpy", str(value.dtype), list(value.shape), *map(_document, value.ravel().tolist())]
    if isinstance(value, PurePath):
        return ["path", str(value)]
    raise ScenarioError(
        f"a call has an argument of type {own.__name__}", "give frozen dataclasses, tuples, numbers and texts"
    )


def check_result(function: Callable[..., object]) -> None:
    """Raise ScenarioError for a function that is not annotated to return what JSON can hold."""
    _model(function)


def result_bytes(function: Callable[..., object], result: object) -> bytes:
    """Return the result of a function as JSON; ScenarioError if it is not what its annotation says."""
    try:
        made = _model(function).model_construct(format=FORMAT_VERSION, result=result)
        return made.model_dump_json(warnings="error").encode()
    except PydanticSerializationError as error:
        said = " ".join(str(error).split())
        raise ScenarioError(
            f"{_named(function)} returned something else than it is annotated to: {said}",
            "correct one of both",
        ) from error


def result_of(function: Callable[..., object], data: bytes) -> object:
    """Return the result that `result_bytes` wrote.

    Raises
    ------
    LightrailError
        If the data is something else, or of another format.
    """
    try:
        return vars(_model(function).model_validate_json(data))["result"]
    except ValidationError as error:
        raise ScenarioError(f"the result of {_named(function)}, {first_of(error)}") from error


@cache
def _model(function: Callable[..., object]) -> type[BaseModel]:
    """Return the model of the file of a function's result."""
    try:
        returned: Any = get_type_hints(function)["return"]
        return create_model("Result", __config__=EXACT, format=(Literal[1], ...), result=(returned, ...))
    except (KeyError, NameError, TypeError, PydanticUserError) as error:
        raise ScenarioError(
            f"the results of {_named(function)} cannot be kept: its annotation of what it returns is missing,"
            " or nothing that JSON can hold",
            "annotate it with dataclasses, tuples, lists, dicts by texts, numbers and texts",
        ) from error


def _named(function: Callable[..., object]) -> str:
    return f"{function.__module__}:{function.__qualname__}"
