"""Objects of a JSON document, read strictly: every field is there, has its type, and there is no other."""

from collections.abc import Mapping
from typing import Any

Kind = type[str] | type[bool] | type[int] | type[float] | type[list[Any]]
NONE: Mapping[str, Kind] = {}
WORDS: Mapping[Kind, str] = {
    str: "a text",
    bool: "true or false",
    int: "an integer",
    float: "a number",
    list: "a list",
}


def record(
    data: object, what: str, kinds: Mapping[str, Kind], optional: Mapping[str, Kind] = NONE
) -> dict[str, Any]:
    """Return the fields of an object.

    Parameters
    ----------
    data
        What `json.loads` made of it.
    what
        What it stands for, as errors name it.
    kinds
        The type of each field; an integer is a number too, but true and false are none.
    optional
        The same of fields that may be left out.

    Raises
    ------
    ValueError
        If it is no object, or a field is missing, unknown or of another type.
    """
    if not isinstance(data, dict):
        raise ValueError(f"{what} is {_excerpt(data)}, not an object")
    for name in sorted(kinds.keys() ^ (data.keys() - optional.keys())):
        raise ValueError(f"{what} has {'no field' if name in kinds else 'an unknown field'} {name!r}")
    for name, value in data.items():
        _check(value, f"{name!r} of {what}", {**kinds, **optional}[name])
    return data


def pair(data: object, what: str) -> tuple[str, int]:
    """Return a list of a text and an integer; ValueError if it is none."""
    if not (isinstance(data, list) and len(data) == 2):
        raise ValueError(f"{what} is {_excerpt(data)}, not a name and a number")
    _check(data[0], f"the name of {what}", str)
    _check(data[1], f"the number of {what}", int)
    return data[0], data[1]


def integers(data: object, what: str) -> tuple[int, ...]:
    """Return a list of integers; ValueError if it is none."""
    if not isinstance(data, list):
        raise ValueError(f"{what} is {_excerpt(data)}, not a list")
    for value in data:
        _check(value, f"a number of {what}", int)
    return tuple(data)


def _check(value: object, what: str, kind: Kind) -> None:
    # Not isinstance: true is an int to it.
    if type(value) is not kind and not (kind is float and type(value) is int):
        raise ValueError(f"{what} is {_excerpt(value)}, not {WORDS[kind]}")
    if kind is float and type(value) is int and value.bit_length() > 1000:
        raise ValueError(f"{what} is too large")


def _excerpt(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."
