"""Mutations of valid inputs: of a JSON document's values, of a text's characters, of a command's options."""

import json
import re
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

DIGITS = "9" * 5_000
"""More than Python reads as a whole number."""
NUMBERS = [
    0, -1, 1, 2, 3, 7, 64, 256, 0.5, 1.5, -0.0, 1e9, 1e-9, 1e-300, 1e308, float("nan"), float("inf"),
    float("-inf"), 1 << 31, 1 << 53, 1 << 63, 10**20, 10**400,
]  # fmt: skip
EXTREME = [number for number in NUMBERS if not 7 < number < 1e9]
"""Those that ask for next to nothing, or for more than there is: what lies between may take its time."""
TEXTS = [
    "", "x", "-x", "--", "a/b", "..", "h0", "leaf0", "ocs0", "packet", "ocs", "\x1b[31mred", "two\nlines",
    "\ud800", "é", "٣", "x" * 5_000, "0>1", "1e9", "nan", "null", "%s{0}", "[bold]",
]  # fmt: skip
VALUES: list[Any] = [*NUMBERS, *TEXTS, None, True, False, [], {}, [[]], [0], [1, 0], ["h0", 0], {"a": 1}]
PIECES = [*'0-9,.e:@>% \n"{}[]', "", "\x00", "\x1b"]
DEEP = "[" * 20_000


def json_mutated(rng: Random, text: str) -> str:
    """Return a JSON text with some values changed, left out, repeated or moved, or damaged as a text."""
    if rng.random() < 0.1:
        return text_mutated(rng, text)
    document = json.loads(text)
    change = _exchange if rng.random() < 0.6 else _change
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        if places := list(_places(document)):
            change(rng, *rng.choice(places), [within[key] for within, key in places])
    changed = json.dumps(document)
    if rng.random() < 0.02:
        return changed.replace("1", rng.choice([DIGITS, DEEP]), 1)
    return changed


def _places(document: Any) -> Iterator[tuple[Any, Any]]:  # noqa: ANN401 (any JSON value)
    """Yield the list or object that each value of a document is in, and its index or key there."""
    if isinstance(document, dict | list):
        keys = list(document) if isinstance(document, dict) else range(len(document))
        for key in keys:
            yield document, key
            yield from _places(document[key])


def _exchange(rng: Random, within: Any, key: Any, others: Sequence[Any]) -> None:  # noqa: ANN401
    """Take another value of the same type, so that what reads it comes far."""
    value = within[key]
    if isinstance(value, list) and value:
        match rng.randrange(3):
            case 0:
                value.pop(rng.randrange(len(value)))
            case 1:
                value.append(_copy(rng.choice(value)))
            case _:
                rng.shuffle(value)
    elif type(value) in (int, float) and rng.random() < 0.5:
        within[key] = rng.choice([value - 1, value + 1, 2 * value, 10 * value, -value])
    elif alike := [other for other in (*others, *NUMBERS) if type(other) is type(value)]:
        within[key] = _copy(rng.choice(alike))


def _change(rng: Random, within: Any, key: Any, others: Sequence[Any]) -> None:  # noqa: ANN401
    """Take a value of any type, or none."""
    match rng.randrange(6):
        case 0:
            within[key] = _copy(rng.choice(others))
        case 1:
            del within[key]
        case 2 if isinstance(within, dict):
            within[rng.choice(["colour", "name", "", "a\nb"])] = within[key]
        case _:
            within[key] = _copy(
                rng.choice(VALUES)
            )  # a list that two cases share would have the one change the other


def _copy(value: Any) -> Any:  # noqa: ANN401
    return json.loads(json.dumps(value))


def text_mutated(rng: Random, text: str) -> str:
    """Return a text with some words exchanged for others of it, or spans left out, repeated or replaced."""
    change = _words_exchanged if rng.random() < 0.6 else _spans_changed
    for _ in range(rng.choice([1, 1, 2, 3])):
        text = change(rng, text)
    return text


def _words_exchanged(rng: Random, text: str) -> str:
    """Put a number in the place of a number, or a word in the place of a word."""
    words = list(re.finditer(r"\d+|[A-Za-z_]+", text))
    if not words:
        return text
    out = rng.choice(words)
    alike = [found[0] for found in words if found[0].isdigit() == out[0].isdigit()]
    if out[0].isdigit():
        alike += [str(int(out[0]) + 1), *map(str, rng.sample(NUMBERS, 3))]
    return text[: out.start()] + rng.choice(alike) + text[out.end() :]


def _spans_changed(rng: Random, text: str) -> str:
    start = rng.randint(0, len(text))
    end = min(len(text), start + rng.choice([0, 1, 1, 2, 5, 40]))
    middle = rng.choice(
        [text[start:end] * 2, *rng.sample(PIECES, 2), str(rng.choice(NUMBERS)), rng.choice(TEXTS)]
    )
    return text[:start] + (DIGITS if rng.random() < 0.02 else middle) + text[end:]


def options_mutated(rng: Random, words: Sequence[str], others: Sequence[str]) -> list[str]:
    """Return a command's words with some values changed, and maybe one option more.

    Parameters
    ----------
    words
        Options, each with its value behind it.
    others
        Options that it has too.
    """
    changed = list(words)
    for _ in range(rng.choice([1, 1, 2])):
        at = rng.randrange(1, len(changed), 2)
        changed[at] = _word(rng, changed[at])
    if rng.random() < 0.6:
        changed += [rng.choice(others), _word(rng, "1")]
    return changed


def _word(rng: Random, word: str) -> str:
    """Return another word for an option; no argument of a command has a zero byte."""
    at = rng.randint(0, len(word))
    damaged = word[:at] + rng.choice(PIECES) + word[at:]
    drawn = rng.choice([str(rng.choice(EXTREME)), rng.choice(TEXTS), damaged, f"{word},{word}"])
    return (DIGITS if rng.random() < 0.02 else drawn).replace("\x00", "")
