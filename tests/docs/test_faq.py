"""The page of errors: every message that it quotes is one that the sources can print."""

import ast
import re
from collections.abc import Iterator, Sequence
from itertools import chain

from tests.docs.pages import DOCS
from tests.tools import CHECKOUT

OTHERS = ("No module named", "No such option", "plm:rsh: Warning", "ORTE was unable")
"""How messages begin that are Python's, typer's and OpenMPI's."""
QUOTED = [
    message
    for heading in re.findall("^### .+$", (DOCS / "faq.md").read_text(), re.MULTILINE)
    for message in re.findall("`(.+?)`", heading)
    if not message.startswith(OTHERS)
]


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


def test_what_it_quotes_is_in_the_sources() -> None:
    assert len(QUOTED) > 30
    lines = printable_texts().splitlines()
    parts = {each: [part.strip() for part in each.split("...")] for each in QUOTED}
    assert [each for each in QUOTED if not any(has_in_order(line, parts[each]) for line in lines)] == []


def has_in_order(line: str, parts: Sequence[str]) -> bool:
    """Return whether a line has some parts, one after the other."""
    if not all(part in line for part in parts):  # of a million characters an expression alone takes 4 s
        return False
    return bool(re.search(".*".join(map(re.escape, parts)), line))
