"""ARCHITECTURE.md, the pages that explain and the glossary: one page, paths that exist, terms in order."""

import re

import pytest

from tests.docs.pages import DOCS
from tests.tools import CHECKOUT

MOST_WORDS, MOST_FILES = 1_200, 8
PATH = re.compile(r"`((?:topologies|controller|traffic|testbed|scenarios|tests|vagrant|docs)/[\w./-]*)`")
PAGES = ["ARCHITECTURE.md"] + [str(page.relative_to(CHECKOUT)) for page in sorted(DOCS.glob("explain/*.md"))]


def test_the_architecture_is_one_page() -> None:
    assert len((CHECKOUT / "ARCHITECTURE.md").read_text().split()) <= MOST_WORDS


@pytest.mark.parametrize("what", ["message", "circuit"])
def test_a_reader_follows_one_through_few_files(what: str) -> None:
    section = (CHECKOUT / "ARCHITECTURE.md").read_text().split(f"## One {what} in ")[1].split("\n## ")[0]
    steps = re.findall(r"^\d+\. (.*)$", section, re.MULTILINE)
    assert 0 < len(steps) == sum(len(PATH.findall(step)) for step in steps) <= MOST_FILES


@pytest.mark.parametrize("page", PAGES)
def test_every_path_exists(page: str) -> None:
    paths = set(PATH.findall((CHECKOUT / page).read_text()))
    assert sorted(path for path in paths if not (CHECKOUT / path).exists()) == []


def test_every_room_is_on_the_map() -> None:
    rooms = {path.parent.name for path in CHECKOUT.glob("*/__init__.py")}
    text = (CHECKOUT / "ARCHITECTURE.md").read_text()
    assert sorted(room for room in rooms if f"| `{room}/` |" not in text) == []


def test_terms_of_the_glossary_are_in_order_and_stand_once() -> None:
    text = (DOCS / "reference" / "glossary.md").read_text()
    terms = [term.casefold() for term in re.findall(r"^- \*\*(.+?)\*\*: ", text, re.MULTILINE)]
    assert len(terms) > 100
    assert terms == sorted(set(terms))
