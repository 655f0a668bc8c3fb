"""The site: it builds without a warning, its menu has each page once, and reading it fetches nothing."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import DOCS
from tests.tools import CHECKOUT

QUESTIONS = (
    "Compare my OCS scheduler with Spectra on my 16 x 16 matrix",
    "20 seeds overnight, and on after a crash",
    "May I trust this number?",
    "A PDF for my paper",
    "My NCCL alltoallv matrix",
    "iperf3 between two hosts",
)
"""Questions with which newcomers come: each is the title or a heading of a page."""
FETCHED = re.compile(r"<(?:link|script|img|iframe|source)\b[^>]*?\b(?:src|href)=\"?((?:https?:)?//[^\"\s>]+)")
NO_FETCH = re.compile(r"<link\b[^>]*\brel=\"?(?:canonical|next|prev)\b[^>]*>")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built site."""
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],  # --quiet hides warnings
        cwd=CHECKOUT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    printed = built.stdout + built.stderr
    assert (built.returncode, "WARNING" in printed) == (0, False), printed
    return folder


def test_it_builds_and_can_be_searched(site: Path) -> None:
    assert (site / "index.html").is_file()
    assert (site / "search" / "search_index.json").stat().st_size > 10_000


def test_reading_it_fetches_nothing_from_elsewhere(site: Path) -> None:
    pages = {str(page.relative_to(site)): NO_FETCH.sub("", page.read_text()) for page in site.rglob("*.html")}
    assert len(pages) > 30
    fetched = {page: found for page, text in pages.items() if (found := FETCHED.findall(text))}
    assert fetched == {}
    styles = [style.read_text() for style in site.rglob("*.css")]
    assert [found for text in styles for found in re.findall(r"url\([\"']?((?:https?:)?//[^)]+)", text)] == []


def test_links_lead_to_files_so_it_is_read_without_a_server_too(site: Path) -> None:
    links = re.findall(r"<a\b[^>]*?\bhref=\"?([^\"#\s>]+)", (site / "index.html").read_text())
    own = [link for link in links if "//" not in link]
    assert len(own) > 30
    assert [link for link in own if not (site / link).is_file()] == []


def test_its_menu_has_each_page_once() -> None:
    _, menu = (CHECKOUT / "mkdocs.yml").read_text().split("\nnav:\n")
    pages = re.findall(r"^ +- (?:[^:\n]+: )?(\S+\.md)$", menu, re.MULTILINE)
    assert sorted(pages) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_newcomers_question_is_a_heading(question: str) -> None:
    headings = {
        " ".join(line.strip("# `").split()).lower()
        for page in DOCS.rglob("*.md")
        for line in page.read_text().splitlines()
        if line.startswith("#")
    }
    assert question.lower() in headings
