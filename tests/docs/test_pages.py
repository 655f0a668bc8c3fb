"""The pages that a newcomer reads: every block of code is carried out, as it is printed there."""

from pathlib import Path

import pytest

from tests.docs.pages import DOCS, Block, Reader, blocks_of
from tests.tools import CHECKOUT, need_sandbox

PAGES = [
    str(path.relative_to(CHECKOUT))
    for folder in ("start", "howto")
    for path in sorted((DOCS / folder).glob("*.md"))
]
REASONS = (
    "it boots a virtual machine",
    "it needs a container engine",
    "it installs this machine anew",
    "it serves until it is stopped",
)
"""Why a block is not carried out."""


def quick(page: str) -> list[Block]:
    """Return the blocks of a page that run by default."""
    return [block for block in blocks_of(page) if not block.is_slow]


@pytest.mark.parametrize("page", [page for page in PAGES if any(block.runs for block in quick(page))])
def test_its_code_runs(page: str, tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    for block in quick(page):
        reader.does(block)


@pytest.mark.slow
@pytest.mark.emulation
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("page", [page for page in PAGES if any(block.is_slow for block in blocks_of(page))])
def test_all_of_its_code_runs_twice(page: str, tmp_path: Path) -> None:
    need_sandbox()
    reader = Reader(tmp_path)
    for block in blocks_of(page) * 2:
        reader.does(block)


@pytest.mark.parametrize("page", ["README.md", *PAGES])
def test_what_is_not_run_says_why(page: str) -> None:
    left_out = [block for block in blocks_of(page) if block.note.startswith("no")]
    assert [block.note for block in left_out if block.note.removeprefix("no, ") not in REASONS] == []
