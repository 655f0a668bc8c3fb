"""The page of errors: every message that it quotes is one that the sources can print."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from itertools import chain

import pytest

from tests.docs.pages import DOCS
from tests.tools import CHECKOUT

OTHERS = ("No module named", "No such option")
"""How messages begin that are Python's, and typer's."""
QUOTED = [
    message
    for heading in re.findall("^### .+$", (DOCS / "faq.md").read_text(), re.MULTILINE)
    for message in re.findall("`(.+?)`", heading)
    if not message.startswith(OTHERS)
]


@cache
def printable_texts() -> str:
    """Return all texts in the sources, a line each; what they fill in is left out."""
    rooms = ("topologies", "controller", "traffic", "testbed", "scenarios")
    files = chain.from_iterable((CHECKOUT / room).rglob("*.py") for room in rooms)
    texts = [text for file in files for text in texts_of(ast.parse(file.read_text()))]
    return "\n".join([*texts, (CHECKOUT / "vagrant" / "provision.sh").read_text()])


def texts_of(tree: ast.AST) -> Iterator[str]:
    """Yield the texts of a module, neighbours joined as Python joins them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "" for part in node.values]
            yield "".join(map(str, parts)).replace("\n", " ")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value.replace("\n", " ")


@pytest.mark.parametrize("message", QUOTED)
def test_a_quoted_message_is_one_of_the_sources(message: str) -> None:
    fixed = [re.escape(part.strip()) for part in message.split("...")]
    assert re.search("[^\n]*".join(fixed), printable_texts()) is not None, f"nothing prints {message!r}"


def test_there_are_messages() -> None:
    assert len(QUOTED) > 30
