"""A TOML document that knows where each of its keys stands, so that a mistake is reported with its place."""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime, time
from pathlib import Path

from topologies.errors import LightrailError, ScenarioError
from topologies.strict_json import shown
from traffic.readers.text import text_of

Keys = tuple[str | int, ...]
"""Where a value is: names of tables and of keys, and numbers in lists of tables."""
Table = dict[str, object]
MOST_POINTS = 100_000
LONGEST_KEY = 100
"""How many letters of a key a sentence repeats."""
MOST_COMPARED = 1000
"""How many values of a list are compared with each other: a range is longer, and its values differ."""
TWICE = ("Cannot overwrite", "Cannot declare", "Cannot mutate", "Duplicate")
_RANGE = re.compile(r"(-?\d{1,12})\.\.(-?\d{1,12})")
_AT = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")


class MistakeError(ScenarioError):
    """A mistake in a file, with its place."""


@dataclass(frozen=True)
class Override:
    """A value that the command line gives a key."""

    key: str
    """Dotted: ``fabric.servers``."""
    value: object
    source: str
    """How the command line names it: ``--set fabric.servers`` or ``--servers``."""


@dataclass(frozen=True)
class Document:
    """The values of a file, with its tables as lists of tables, and where they come from."""

    file: Path
    text: str
    values: Table
    sources: dict[Keys, str | Keys] = field(default_factory=dict)
    """Of what does not come from where it is: the option that gave it, or its keys in the file."""
    left_out: set[Keys] = field(default_factory=set)
    """Tables that options leave out."""

    def mistake(self, keys: Keys, said: str, hint: str = "") -> MistakeError:
        """Return what is wrong with a value, with the place of its key, or else of its table.

        Of a table it has also the places of what was given to it elsewhere.
        """
        given = self._given(keys)
        if isinstance(given, str):
            return MistakeError(f"{given}: {said}", hint)
        more = [source for at, source in self.sources.items() if keys and at[: len(keys)] == keys != at]
        beside = " and ".join(dict.fromkeys(map(self._place, more)))
        places = filter(None, [str(self.file), self._place(given), beside and f"with {beside}"])
        return MistakeError(f"{', '.join(places)}: {said}", hint)

    def _place(self, given: str | Keys) -> str:
        """Return an option, or the line of a key, or else of its table, and the key."""
        if isinstance(given, str):
            return given
        lines = lines_of(self.text, tuple(key for key, value in self.values.items() if _are_tables(value)))
        known = next((given[:size] for size in range(len(given), 0, -1) if given[:size] in lines), ())
        name = ".".join(key for key in given if isinstance(key, str))[:LONGEST_KEY]
        return ", ".join(filter(None, [f"line {lines[known]}" if known else "", name]))

    @contextmanager
    def at(self, keys: Keys) -> Iterator[None]:
        """Give an error in this context the place of what it is about, unless it has one."""
        try:
            yield
        except MistakeError:
            raise
        except LightrailError as error:
            raise self.mistake(keys, error.sentence, error.hint) from error

    def table(self, name: str) -> Table:
        """Return the table of a name that has one at most; an empty one if there is none."""
        found = self.values.get(name, {})
        if not isinstance(found, dict):
            raise self.mistake((name,), f"found {shown(found)}, expected a table", f"write [{name}]")
        return found

    def is_given(self, keys: Keys) -> bool:
        """Return whether the command line gave a value."""
        return isinstance(self._given(keys), str)

    def _given(self, keys: Keys) -> str | Keys:
        for size in range(len(keys), 0, -1):
            if (source := self.sources.get(keys[:size])) is not None:
                return source
        return keys

    def tables(self, name: str) -> list[Table]:
        """Return the tables of a name: ``[fabric]``, or several ``[[fabric]]``; none if there are none."""
        found = self.values.get(name, [])
        if not _are_tables(found):
            raise self.mistake((name,), f"found {shown(found)}, expected a table", f"write [{name}]")
        return found  # type: ignore[return-value]


def read_document(file: Path, in_tables: Sequence[str]) -> Document:
    """Return what a TOML file says.

    Parameters
    ----------
    file
        The file.
    in_tables
        The names that have a table or several: a single one becomes a list of one.

    Raises
    ------
    LightrailError
        If it cannot be read, or is not TOML; it says in which line.
    """
    text = text_of(file)
    try:
        values = _loaded(text)
    except (ValueError, RecursionError) as error:
        where = _AT.search(str(error))
        line = f", line {where[1] or len(text.splitlines())}" if where else ""
        said = _AT.sub("", str(error)) if isinstance(error, ValueError) else "it is nested too deep"
        said = "a key or a table is there twice" if said.startswith(TWICE) else said
        raise MistakeError(
            f"{file}{line}: {said[:1].lower()}{said[1:]}", "see docs/reference/study.md"
        ) from error
    for name in in_tables:
        if isinstance(values.get(name), dict):
            values[name] = [values[name]]
    return Document(file, text, values)


def _loaded(text: str) -> Table:
    # 1e9 is a whole number to people, and 2.0 is one too.
    return _plain(tomllib.loads(text, parse_float=_number))  # type: ignore[return-value]


def _number(text: str) -> int | float:
    value = float(text)
    return int(value) if value.is_integer() else value


def _plain(value: object) -> object:
    """Return a value without dates, which are texts here."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value.isoformat() if isinstance(value, date | datetime | time) else value


def lines_of(text: str, in_tables: Sequence[str]) -> Mapping[Keys, int]:
    """Return the line of each key and table: the one behind the longest beginning that is TOML without it."""
    found: dict[Keys, int] = {}
    lines, behind = text.splitlines(keepends=True), 1
    for number in range(1, len(lines) + 1):
        try:
            values = tomllib.loads("".join(lines[:number]))
        except ValueError:  # in the middle of a value
            continue
        for name in in_tables:
            if isinstance(values.get(name), dict):
                values[name] = [values[name]]
        for keys in _walked(values, ()):
            found.setdefault(keys, behind)
        behind = number + 1
    return found


def _walked(value: object, keys: Keys) -> Iterator[Keys]:
    inside: Iterable[tuple[str | int, object]] = ()
    if isinstance(value, dict):
        inside = value.items()
    elif isinstance(value, list) and _are_tables(value):
        inside = enumerate(value)
    for key, each in inside:
        yield (*keys, key)
        yield from _walked(each, (*keys, key))


def _are_tables(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, dict) for each in value)


def assigned(text: str) -> Override:
    """Return what ``--set KEY=VALUE`` gives; ScenarioError if it has no such form."""
    key, equals, value = text.partition("=")
    if not (key.strip() and equals and value.strip()):
        raise ScenarioError(
            f"--set {text[:LONGEST_KEY]}: it has no key or no value",
            "write --set KEY=VALUE, as in servers=8 or grid.seed=0..4",
        )
    return Override(key.strip(), value_of(value.strip()), f"--set {key.strip()[:LONGEST_KEY]}")


def value_of(text: str) -> object:
    """Return what a text on the command line says: a value of TOML, a list by commas, or itself.

    Examples
    --------
    >>> value_of("0.6,0"), value_of("[1, 2]"), value_of("ecmp:4,rails"), value_of("0..4")
    ([0.6, 0], [1, 2], ['ecmp:4', 'rails'], '0..4')
    """
    try:
        found = _loaded(f"value = {text}")
    except (ValueError, RecursionError):
        found = {}
    if [*found] == ["value"]:
        return found["value"]
    words = [word.strip() for word in text.split(",")]
    return [value_of(word) for word in words if word] if len(words) > 1 else text


def alternatives(document: Document, keys: Keys, value: object) -> list[object]:
    """Return the values that a key takes one after the other.

    Parameters
    ----------
    document, keys
        Where the value is.
    value
        A list of values, or a value; ``"0..4"`` is 0, 1, 2, 3, 4. A value that is a list itself is a list in
        the list.

    Raises
    ------
    ScenarioError
        If there is none, one is there twice, or there are too many.
    """
    found = [
        each
        for some in (value if isinstance(value, list) else [value])
        for each in _ranged(document, keys, some)
    ]
    if not found:
        raise document.mistake(keys, "the list is empty", "give a value, or several")
    if twice := [each for number, each in enumerate(found[:MOST_COMPARED]) if _same(each, found[:number])]:
        raise document.mistake(keys, f"{shown(twice[0])} is there twice", "leave out one of them")
    return found


def _same(value: object, others: Sequence[object]) -> bool:
    return any(value == other and isinstance(value, bool) == isinstance(other, bool) for other in others)


def _ranged(document: Document, keys: Keys, value: object) -> Sequence[object]:
    found = _RANGE.fullmatch(value) if isinstance(value, str) else None
    if not found:
        return [value]
    first, last = int(found[1]), int(found[2])
    if last < first:
        raise document.mistake(keys, f"the range {value} is empty", f"write {last}..{first}")
    if last - first >= MOST_POINTS:
        raise document.mistake(
            keys, f"{value} are {last - first + 1:,} values", f"give at most {MOST_POINTS:,}"
        )
    return range(first, last + 1)


def value_at(values: Mapping[str, object], keys: Keys) -> object:
    """Return the value under some keys; None if there is none."""
    found: object = values
    for key in keys:
        if isinstance(found, list) and isinstance(key, int):
            found = found[key]
        else:
            found = found.get(key) if isinstance(found, dict) else None
    return found
