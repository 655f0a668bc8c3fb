"""JSON that users write, read strictly: known keys only, none twice, errors with their place."""

import json
from collections.abc import Sequence
from typing import cast

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, create_model

from topologies.errors import ScenarioError, TraceError


class Strict(BaseModel):
    """A model that takes no other key, no text for a number, and no number that is not finite."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


def json_value(text: str) -> object:
    """Return what a JSON text says; TraceError, without the name of a file, if it says none."""
    try:
        # 1e9 is a whole number to people, and 2.0 is one too.
        return json.loads(text, parse_float=_number, object_pairs_hook=object_of)
    except json.JSONDecodeError as error:
        raise TraceError(f"line {error.lineno}: {error.msg}, expected JSON") from error
    except (RecursionError, ValueError) as error:
        raise TraceError("a JSON value is too deep or too long") from error


def _number(text: str) -> int | float:
    value = float(text)
    return int(value) if value.is_integer() else value


def object_of(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    """Return an object; a key that is there twice would silently win over its first value."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise TraceError(f"the key {shown(twice)} is twice in one JSON object")
    return found


# What is wrong, in words

EXPECTED = {
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "finite_number": "a finite number",
    "string_type": "a text",
    "string_unicode": "a text in Unicode",
    "string_too_short": "a text that is not empty",
    "list_type": "a list",
    "tuple_type": "a list",
    "named_tuple_type": "a list",
    "too_short": "a list of {min_length} or more",
    "too_long": "a list of {max_length} or fewer",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "dataclass_type": "an object",
    "greater_than_equal": "{ge} or more",
    "less_than_equal": "{le} or less",
    "less_than": "less than {lt}",
    "literal_error": "{expected}",
    "union_tag_invalid": "one of {expected_tags}",
}
"""What was expected instead of what was found, by pydantic's type of error."""


def first_of(errors: ValidationError, tagged: str = "") -> str:
    """Return the first of pydantic's errors as place and sentence.

    Parameters
    ----------
    errors
        What a model found wrong.
    tagged
        The list whose members are of several kinds: pydantic has a member's kind after its number.
    """
    error = errors.errors(include_url=False)[0]
    loc = error["loc"]
    if error["type"].startswith("union_tag"):
        loc = (*loc, "", "kind")  # behind the kind that was not found
    return f"{_place(loc, tagged)}: {said_of(errors)}"


def said_of(errors: ValidationError) -> str:
    """Return what the first of pydantic's errors says is wrong, without its place."""
    error = errors.errors(include_url=False)[0]
    kind, context = error["type"], error.get("ctx", {})
    if kind in ("missing", "union_tag_not_found"):
        return "is missing"
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        return "unknown key"
    if kind == "json_invalid":  # its input is all of the bytes, and its place is in these
        return f"is not JSON: {context['error'].partition(' at line ')[0]}"
    if kind.startswith("recursion"):
        return "parts are nested too deep"
    found = context.get("tag") if kind.startswith("union_tag") else error["input"]
    bounds = {key: _plain(value) for key, value in context.items()}
    expected = EXPECTED[kind].format(**bounds) if kind in EXPECTED else error["msg"]
    return f"found {shown(found)}, expected {expected}"


def shown(value: object) -> str:
    """Return a value of a document on one short line."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else f"a list of {len(value)}"
    return _cut(repr(value) if isinstance(value, str) else json.dumps(value), 40)


def _place(loc: Sequence[int | str], tagged: str) -> str:
    """Return a place in a document as ``nodes[3].bytes``."""
    words = []
    for index, step in enumerate(loc):
        if isinstance(step, int):
            words.append(f"[{step}]")
        elif index < 2 or not (loc[index - 2] == tagged and isinstance(loc[index - 1], int)):
            words.append(f".{step if step.isidentifier() else shown(step)}")
    return _cut("".join(words).removeprefix("."), 80) or "the whole"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _plain(bound: object) -> object:
    """Return a bound as people write it: 0, not 0.0."""
    return int(bound) if isinstance(bound, float) else bound


# Values of lightrail's own classes


def fields_document(value: object) -> dict[str, object]:
    """Return the fields of a frozen dataclass as JSON has them."""
    fields: dict[str, object] = TypeAdapter(type(value)).dump_python(value, mode="json")
    return fields


def value_of_fields(kind: str, own: object, fields: object) -> object:
    """Return the value of a class of lightrail's that `fields_document` wrote.

    Parameters
    ----------
    kind
        What it is, in the words of an error: ``scheme``.
    own
        The class, a frozen dataclass.
    fields
        Its fields, all of them known, as JSON has them.

    Raises
    ------
    ScenarioError
        If the fields are not its.
    """
    exact = ConfigDict(extra="forbid", allow_inf_nan=False)
    made = create_model("Made", __config__=exact, value=(cast(type[object], own), ...))
    try:
        return cast(object, vars(made.model_validate({"value": fields}))["value"])
    except ValidationError as error:
        said = first_of(error).removeprefix("value.")
        raise ScenarioError(f"the {kind}, {said}", "give the fields of its class") from error
