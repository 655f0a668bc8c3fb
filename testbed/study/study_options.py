"""The command of a scenario that is a TOML file: its table ``[options]`` names the keys that are options."""

from collections.abc import Callable
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from testbed.study.command import run
from testbed.study.options import with_default
from testbed.study.study import Study
from testbed.study.study_file import Whole, homes, study_of_file
from testbed.study.study_tables import FORMS, keys_of
from testbed.study.toml_document import Document, Override, read_document, value_at, value_of

OWN_TABLE = {
    "fabric": "A fabric of your own, as module:function or a JSON file (docs/howto/own_fabric.md), in place"
    " of the fabric that the options above describe.",
    "circuits": "Which circuits of the fabric's OCSes are lit when: a rule of your own as module:Class"
    " (docs/howto/own_circuits.md).",
}
"""What is said of an option that is a whole table."""
ALONE = {
    "workload.trace": " It is run alone, unless options are given for other workloads, on as many servers as"
    " its GPUs fill, unless their number is given."
}
"""Further help of an option, on the meaning that it has beside its key's (`testbed.study.named_trace`)."""


def run_file(scenario: str) -> NoReturn:
    """Run the study in the TOML file beside a scenario's: options are those of its table ``[options]``."""
    run(described(Path(scenario).with_suffix(".toml")))


def described(file: Path) -> Callable[..., Study]:
    """Return the function from a file's options to its study, with the parameters that typer reads.

    Raises
    ------
    LightrailError
        If the file cannot be read, or an option names no key.
    """
    document = read_document(file, list(FORMS))
    keys = {name.replace("-", "_"): str(key) for name, key in document.table("options").items()}

    parameters = [_parameter(document, name, key) for name, key in keys.items()]

    def describe(**given: str | bool | None) -> Study:
        return study_of_file(
            file,
            [
                Override(keys[name], _value(document, keys[name], text), _option(name))
                for name, text in given.items()
                if text is not None
            ],
        )

    describe.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    about = str(document.values.get("about", "")).rstrip()
    describe.__doc__ = f"{about}\n\nAn option of the study takes several values by commas where it may vary."
    return describe


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _parameter(document: Document, name: str, key: str) -> Parameter:
    """Return a parameter that takes a text, or is a flag; None is that it was not given.

    What the file has is in its help alone: given by a user it may exclude another option all the same.
    """
    told, default, words = OWN_TABLE.get(key), None, _option(name)
    if told is None:
        field = _field(document, key)
        told, default = field.description, _default(document, key, field)
        if field.annotation is bool:
            words = f"{words}/{_option(f'no-{name}')}" if default == "True" else words
            flag = Annotated[bool | None, typer.Option(words, help=told)]
            return Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=flag)
    option = Annotated[
        str | None, typer.Option(words, help=with_default((told or "") + ALONE.get(key, ""), default))
    ]
    usual = Parameter.empty if default == "" else None  # it has to be given
    return Parameter(name, Parameter.KEYWORD_ONLY, default=usual, annotation=option)


def _field(document: Document, key: str) -> FieldInfo:
    """Return what a key takes, and what it means."""
    home = homes(document, key, ("options",))[0]
    if len(home) == 1:
        return Whole.model_fields[key]
    table, number, rest, *_ = home
    return keys_of(document, (table, number), document.tables(str(table))[int(number)])[str(rest)]


def _default(document: Document, key: str, field: FieldInfo) -> str | None:
    """Return what a key has without its option: an empty text where the file leaves it to the option."""
    given = [value_at(document.values, home) for home in homes(document, key, ("options",))]
    found = next((value for value in given if value is not None), field.default or None)
    if found is None or found is PydanticUndefined:
        return None
    return ",".join(map(str, found)) if isinstance(found, list) else str(found)


def _value(document: Document, key: str, text: str | bool) -> object:
    """Return what an option says: of its text words by commas where its key takes a text."""
    if isinstance(text, bool):
        return text
    takes = str if key in FORMS else _field(document, key).annotation
    if takes is not str and "str" not in str(takes) and "Literal" not in str(takes):
        return value_of(text)
    words = [word.strip() for word in text.split(",") if word.strip()]
    return words[0] if len(words) == 1 else words
