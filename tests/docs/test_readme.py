"""README: short, each of its commands run, and each link of it and of all pages leads somewhere."""

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from markdown.extensions.toc import slugify  # type: ignore[import-untyped]

from tests.docs.pages import DOCS, Block, Reader, blocks_of
from tests.tools import CHECKOUT, need_sandbox

README = "README.md"
MOST_LINES, MOST_WORDS = 120, 900
TOP = (README, "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")
PAGES = [*TOP, *(str(path.relative_to(CHECKOUT)) for path in sorted(DOCS.rglob("*.md")))]
FENCED = re.compile(r"^( *)```.*?^\1```$", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL)
LINK = re.compile(r"\]\(([^()\s]+(?:\([^()\s]*\)[^()\s]*)*)\)|(?:src|href)=\"([^\"]+)\"")
HEADING = re.compile(r"^#+ +(.+?) *#*$", re.MULTILINE)
COMMAND = re.compile(r"`((?:sudo )?python scenarios/[^`]+)`")


def text_of(page: str) -> str:
    return (CHECKOUT / page).read_text()


def commands() -> list[Block]:
    """Return the commands of README as blocks: each line to try, the CLI, and each in a sentence."""
    blocks = [block for block in blocks_of(README) if block.runs]
    lines = [
        replace(block, text=f"{line}\n")
        for block in blocks
        if block.language == "sh"
        for line in block.text.splitlines()
    ]
    text = FENCED.sub("", text_of(README))
    bullets = [Block(README, 0, "sh", "", f"{words}\n", "") for words in COMMAND.findall(text)]
    return [*lines, *(block for block in blocks if block.language == "console"), *bullets]


def test_it_is_short() -> None:
    text = text_of(README)
    assert len(text.splitlines()) <= MOST_LINES
    assert len(text.split()) <= MOST_WORDS


def test_its_first_commands_are_those_of_ci_and_of_a_fresh_machine() -> None:
    install = next(block for block in blocks_of(README) if "provision.sh" in block.text)
    lines = [line for line in install.text.splitlines() if line.startswith("sudo bash")]
    main_job, tests = ([part.replace("sudo ", "") for part in line.split(" && ")] for line in lines)
    fresh, ci = text_of("vagrant/fresh_machine.sh"), text_of(".ci/run")
    assert main_job[0] == tests[0] == "bash vagrant/provision.sh"
    assert all(part in fresh for part in (*main_job, *tests))
    assert all(re.search(rf"(^| ){re.escape(part)}( |$)", ci, re.MULTILINE) for part in tests)


def test_its_first_try_runs_without_root(tmp_path: Path) -> None:
    first = commands()[0]
    assert not first.emulates
    Reader(tmp_path).does(first)


@pytest.mark.slow
@pytest.mark.emulation
@pytest.mark.timeout(3600)
def test_its_commands_run_twice(tmp_path: Path) -> None:
    need_sandbox()
    found, reader = commands(), Reader(tmp_path)
    assert len(found) == 11, "two to try, the CLI, and eight bullets"
    for block in found * 2:
        reader.does(block)


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    assert [link for link in links_of(page) if not leads_somewhere(page, link)] == []


def links_of(page: str) -> Iterator[str]:
    text = INLINE.sub("", FENCED.sub("", text_of(page)))
    return (found[1] or found[2] for found in LINK.finditer(text))


def leads_somewhere(page: str, link: str) -> bool:
    """Return True for a well-formed address, and for a path of the checkout whose heading is there."""
    address = urlsplit(link)
    if address.scheme:
        return address.scheme == "https" and re.fullmatch(r"[\w-]+(\.[\w-]+)+", address.netloc) is not None
    target = (CHECKOUT / page).parent / address.path if address.path else CHECKOUT / page
    return target.exists() and (not address.fragment or address.fragment in anchors_of(target))


@cache
def anchors_of(path: Path) -> set[str]:
    """Return the anchors of a page's headings: a forge's; for a page of docs/ those that the site has too."""
    headings = [
        re.sub(r"[`*]|\]\([^)]*\)|\[", "", each) for each in HEADING.findall(FENCED.sub("", path.read_text()))
    ]
    forge = {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}
    return forge & {slugify(each, "-") for each in headings} if path.resolve().is_relative_to(DOCS) else forge
