"""A value of a user's own class as it is written down: the class, and the fields that it is made of."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Generic, TypeVar, cast

import numpy as np

from topologies.errors import LightrailError, ScenarioError
from topologies.own import own_code, own_object
from topologies.strict_json import fields_document, shown, value_of_fields

Value = TypeVar("Value")


@dataclass(frozen=True)
class Kind(Generic[Value]):
    """A kind of value that users bring: how one is named, and written down."""

    name: str
    """In the words of an error: ``pattern``."""
    page: str
    """Where to read more."""
    methods: tuple[str, ...]
    """What its class has."""
    values: tuple[str, ...]
    """What each value has besides."""
    parts: str
    """Both, in words."""
    error: type[LightrailError]
    """What is raised for one that cannot be written down."""
    word: str
    """By which key JSON has its class: ``rule``."""
    built_in: Mapping[str, str] = field(default_factory=dict)
    """The classes of lightrail's own by their words; imported when they are asked for."""
    arguments: Callable[[Mapping[str, object]], Mapping[str, object]] = dict
    """Returns what a user's class takes, of the fields as they are read."""

    def value(self, name: str, made_of: Mapping[str, object]) -> Value:
        """Return a value of a user's own class.

        Parameters
        ----------
        name
            ``module:Class``, with the module on Python's path or in the current directory.
        made_of
            The arguments of the class by name; lists become tuples.

        Raises
        ------
        LightrailError
            If there is no such class, it makes no such value of them, or its own code raises.
        """
        own = own_object(self.name, name)
        # Looked at before it is called: a file that names it may come from anybody.
        if not isinstance(own, type) or not all(
            callable(getattr(own, method, None)) for method in self.methods
        ):
            raise self._not_one(name)
        make = cast(Callable[..., Value], own)
        with own_code(self.name, name):
            value = make(**self.arguments({key: _frozen(each) for key, each in made_of.items()}))
            if lacking := [each for each in self.values if not hasattr(value, each)]:
                raise self._not_one(name, lacking[0])
        return value

    def named(self, name: str, made_of: Mapping[str, object] | None = None) -> Value:
        """Return a value of a user's own class, of a kind where nothing else has a name.

        Raises
        ------
        LightrailError
            If the name is not ``module:Class``, or as of `value`.
        """
        if ":" not in name:
            raise ScenarioError(
                f"unknown {self.name} {name!r}", f"name your own as module:Class, see {self.page}"
            )
        return self.value(name, made_of or {})

    def is_own(self, value: object) -> bool:
        """Return whether a value is of a user's own class."""
        return class_name(type(value)) not in self.built_in.values()

    def document(self, value: object) -> dict[str, object]:
        """Return a value as JSON has it, by its word or class.

        Raises
        ------
        LightrailError
            Of the kind, if `of_document` makes no equal value of it: its class cannot be named, or holds what
            JSON does not.
        """
        own = class_name(type(value))
        for word, name in self.built_in.items():
            if name == own:
                return {self.word: word, "fields": fields_document(value)}
        name, made_of = self._words(value)
        return {self.word: name, "fields": made_of}

    def of_document(self, data: object) -> Value:
        """Return the value that `document` wrote.

        Raises
        ------
        LightrailError
            If the data is something else, or what a user's own class makes of it is.
        """
        found = data if isinstance(data, dict) else {}
        word, made_of = found.get(self.word), found.get("fields", {})
        if not isinstance(word, str) or not isinstance(made_of, dict):
            raise ScenarioError(f"{shown(data)} is not {_a(self.name)}", f"see {self.page}")
        if more := sorted(found.keys() - {self.word, "fields"}):
            raise ScenarioError(f"the {self.name} {shown(word)}, {more[0]}: unknown key", f"see {self.page}")
        if ":" in word:
            return self.value(word, made_of)
        if word not in self.built_in:
            names = ", ".join(self.built_in) + " or " * bool(self.built_in) + "module:Class"
            raise ScenarioError(f"unknown {self.name} {shown(word)}", f"name {names}")
        own = own_object(self.name, self.built_in[word])
        return cast(Value, value_of_fields(self.name, own, made_of))

    def _words(self, value: object) -> tuple[str, dict[str, object]]:
        """Return what `value` makes an equal value of: its class, and its fields as JSON has them."""
        name = class_name(type(value))
        module, _, own = name.partition(":")
        if module == "__main__" or "." in own:
            where = "the script that runs" if module == "__main__" else "another class or a function"
            raise self._unwritable(name, f"its class is in {where}", "put it in a module of its own")
        hint = "make it a frozen dataclass of numbers, texts and tuples of them"
        try:
            made_of: dict[str, object] = json.loads(
                json.dumps(_fields(value), allow_nan=False, default=_plain)
            )
        except (TypeError, ValueError) as error:
            raise self._unwritable(name, str(error), hint) from error
        try:
            again = self.value(name, made_of)
            with own_code(self.name, name):
                is_equal = bool(again == value)
        except LightrailError as error:
            raise self._unwritable(name, error.sentence, error.hint) from error
        if not is_equal:
            raise self._unwritable(name, "what its class makes of its fields is not equal to it", hint)
        return name, made_of

    def _unwritable(self, name: str, why: str, hint: str) -> LightrailError:
        sentence = f"the {self.name} {name!r} cannot be written down: {why}"
        return self.error(sentence, hint if self.page in hint else f"{hint}, see {self.page}")

    def _not_one(self, name: str, lacking: str = "") -> ScenarioError:
        return ScenarioError(
            f"{name!r} is not {_a(self.name)}" + (f": it has no {lacking}" if lacking else ""),
            f"name a class with {self.parts}, see {self.page}",
        )


def class_name(own: type) -> str:
    """Return a class as ``module:Class``."""
    return f"{own.__module__}:{own.__qualname__}"


def check_hash(kind: str, value: object) -> None:
    """Raise ScenarioError for a value of a kind that has no hash, as experiments need to be compared."""
    name = class_name(type(value))
    try:
        with own_code(kind, name):
            hash(value)
    except LightrailError as error:
        raise ScenarioError(f"the {kind} {name!r} has no hash", "make it a frozen dataclass") from error


def words_of_own(value: object) -> list[str]:
    """Return how tables name a value: by its class, and those of its fields that are not as by default."""
    words = []
    if is_dataclass(value):
        own = [(each, getattr(value, each.name)) for each in fields(value)]
        words = [f"{each.name}={found}" for each, found in own if found != each.default]
    name = type(value).__name__
    return [f"{name}({' '.join(words)})" if words else name]


def _fields(value: object) -> dict[str, object]:
    if not is_dataclass(value):
        return {}
    return {each.name: getattr(value, each.name) for each in fields(value) if each.init}


def _plain(value: object) -> object:
    """Return a number of numpy's as one of Python's."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"it holds an object of type {type(value).__name__}")


def _frozen(value: object) -> object:
    """Return a value of JSON as a frozen value holds it."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _a(word: str) -> str:
    return f"an {word}" if word[0] in "aeiou" else f"a {word}"
