"""The changelog: its form is Keep a Changelog's, and its newest version is the project's."""

import re
import tomllib
from datetime import date
from itertools import pairwise

import pytest

from tests.tools import CHECKOUT

LINES = (CHECKOUT / "CHANGELOG.md").read_text().splitlines()
VERSION = re.compile(r"## \[(\d+)\.(\d+)\.(\d+)\] - (\d{4}-\d{2}-\d{2})")
SECTIONS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
LONGEST = 200


def test_it_begins_with_what_is_unreleased() -> None:
    assert next(line for line in LINES if line.startswith("## ")) == "## [Unreleased]"


def test_versions_and_their_dates_descend() -> None:
    headings = [line for line in LINES if line.startswith("## ")][1:]
    found = [VERSION.fullmatch(line) for line in headings]
    versions = [tuple(map(int, each.group(1, 2, 3))) for each in found if each]
    dates = [date.fromisoformat(each[4]) for each in found if each]
    assert len(versions) == len(headings) > 0
    assert all(newer > older for newer, older in pairwise(versions))
    assert all(newer >= older for newer, older in pairwise(dates))


def test_the_newest_version_is_the_project_s() -> None:
    with (CHECKOUT / "pyproject.toml").open("rb") as file:
        version = tomllib.load(file)["project"]["version"]
    newest = next(filter(None, map(VERSION.fullmatch, LINES)))
    assert ".".join(newest.group(1, 2, 3)) == version


def test_each_version_has_known_sections_once() -> None:
    for text in "\n".join(LINES).split("\n## ")[1:]:
        sections = re.findall(r"^### (.*)$", text, re.MULTILINE)
        assert sections == [name for name in SECTIONS if name in sections]


def test_entries_are_one_short_line_each_and_none_is_there_twice() -> None:
    body = LINES[LINES.index("## [Unreleased]") :]
    assert [line for line in body if line and not line.startswith(("## ", "### ", "- "))] == []
    assert [line for line in LINES if len(line) > LONGEST] == []
    entries = [line for line in body if line.startswith("- ")]
    assert len(set(entries)) == len(entries)


@pytest.mark.parametrize("page", sorted(set(re.findall(r"\]\((docs/[^)#]+)", "\n".join(LINES)))))
def test_its_links_lead_to_pages(page: str) -> None:
    assert (CHECKOUT / page).is_file()
