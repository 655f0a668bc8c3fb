"""The pages of papers: each begins with what holds, and its commands name scenarios that are there."""

import re

import pytest

from tests.docs.pages import DOCS
from tests.scenarios.command import ran
from tests.tools import CHECKOUT

PAGES = {path.stem: path.read_text() for path in sorted((DOCS / "papers").glob("*.md"))}
ORDER = ["The result", "Conclusions that survive", "Conclusions that do not", "Run it"]
"""How the headings begin that stand first."""
LAST = "What is modelled, and what is not"
COMMANDS = re.compile(r"python scenarios/(\w+)\.py([^#`\n]*)")


@pytest.mark.parametrize("paper", PAGES)
def test_it_begins_with_what_holds_and_ends_with_what_is_modelled(paper: str) -> None:
    headings = re.findall(r"^## (.+)$", PAGES[paper], re.MULTILINE)
    begins = [heading.startswith(name) for heading, name in zip(headings, ORDER, strict=False)]
    assert begins == [True] * len(ORDER)
    assert headings[-1] == LAST


@pytest.mark.parametrize("paper", PAGES)
def test_the_files_that_it_names_are_there(paper: str) -> None:
    named = {f"scenarios/{scenario}.py" for scenario, _ in COMMANDS.findall(PAGES[paper])}
    named |= {f"scenarios/{name}" for name in re.findall(r"^\|.* `(\w+\.py)[ `]", PAGES[paper], re.MULTILINE)}
    assert {name for name in named if not (CHECKOUT / name).is_file()} == set()


@pytest.mark.slow  # a scenario takes seconds to explain itself
@pytest.mark.parametrize(
    "scenario", sorted({each for page in PAGES.values() for each, _ in COMMANDS.findall(page)})
)
def test_the_options_of_its_commands_are_there(scenario: str) -> None:
    words = " ".join(
        words for page in PAGES.values() for of, words in COMMANDS.findall(page) if of == scenario
    )
    done = ran(scenario, "--help")
    assert done.returncode == 0
    missing = [
        option for option in set(re.findall(r"--[\w-]+", words)) if not re.search(rf"{option}\b", done.stdout)
    ]
    assert missing == []
