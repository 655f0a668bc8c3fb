"""The pages that a newcomer reads: every block of code is carried out, as it is printed there."""

import ast
import re
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, Block, Reader, blocks_in, blocks_of, read_by
from tests.tools import CHECKOUT, need_sandbox

PAGES = [
    str(path.relative_to(CHECKOUT))
    for folder in ("start", "howto")
    for path in sorted((DOCS / folder).glob("*.md"))
]
MOST_LINES = 80
"""Of a page that says how to do one thing."""
REASONS = (
    "it boots a virtual machine",
    "it needs a container engine",
    "it installs this machine anew",
    "it serves until it is stopped",
    "it needs JAX, which is asked for",  # tests/emulation/apps/test_examples.py runs it
)
"""Why a block is not carried out."""


def runs(page: str, *, by_default: bool) -> bool:
    """Return whether a page has a block that runs at all, or by default."""
    return any(block.runs and not (by_default and block.is_slow) for block in blocks_of(page))


OWN_TESTS = "\n".join(path.read_text() for path in sorted((CHECKOUT / "tests").glob("test_*.py")))
"""Modules of tests that carry a page out by `read_by`, and look at what it leaves."""
LONG = ("docs/howto/faults.md", "docs/howto/figures.md", "docs/howto/overnight.md", "docs/start/your_idea.md")
"""Pages that take longer than others; they run with the slow ones alone."""
ALONE = [page for page in PAGES if runs(page, by_default=True) and f'PAGE = "{page}"' not in OWN_TESTS]


@pytest.mark.parametrize("page", [page for page in ALONE if page not in LONG])
def test_its_code_runs(page: str, tmp_path: Path) -> None:
    read_by(Reader(tmp_path), page)


@pytest.mark.slow
@pytest.mark.emulation
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("page", [page for page in PAGES if runs(page, by_default=False)])
def test_all_of_its_code_runs_twice(page: str, tmp_path: Path) -> None:
    need_sandbox()
    reader = Reader(tmp_path)
    for block in blocks_of(page) * 2:
        reader.does(block)


@pytest.mark.parametrize("page", ["README.md", *PAGES])
def test_what_it_leaves_is_in_nobodys_way_when_it_runs_again(page: str) -> None:
    """A run into a directory of a name replaces what is there, or goes on with it; so a drawing."""
    for block in blocks_of(page):
        for line in block.text.splitlines() if block.runs and not block.is_script else ():
            assert "--out" not in line or re.search("--resume|--part|lightrail draw", line), (
                f"{page}:{block.line}: {line}"
            )
        for call in ast.walk(ast.parse(block.text)) if block.language == "python" else ():
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "lr.run":
                given = {keyword.arg for keyword in call.keywords}
                is_named = len(call.args) > 1 or "out" in given
                assert not is_named or "overwrite" in given, f"{page}:{block.line}: {ast.unparse(call)}"


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("docs/howto/")])
def test_it_is_short(page: str) -> None:
    assert len((CHECKOUT / page).read_text().splitlines()) < MOST_LINES


@pytest.mark.parametrize("page", ["README.md", *PAGES])
def test_what_is_not_run_says_why(page: str) -> None:
    left_out = [block for block in blocks_of(page) if block.note.startswith("no")]
    assert [block.note for block in left_out if block.note.removeprefix("no, ") not in REASONS] == []


def test_a_page_that_does_what_it_says_passes(tmp_path: Path) -> None:
    page = """\
```sh
# a comment
echo from \\
    two lines >said.txt
```
```python title="made/own.py"
SAID = "three"
```
```python
from made.own import SAID
assert SAID == "three"
```
<!-- test: exact -->
```console
$ cat said.txt; wc -w said.txt
from two ...
3 said.txt
$ cat
lightrail> h0 ping h1
h0 ping h1
$ python -c "print('error', 12)"
error 12
```
<!-- test: no, it serves until it is stopped -->
```sh
exit 1
```
"""
    reader = Reader(tmp_path)
    printed = [reader.does(block) for block in blocks_in("made_up.md", page)]
    assert (tmp_path / "made" / "own.py").read_text() == 'SAID = "three"\n'
    assert printed[3].startswith("from two lines\n3 said.txt\nh0 ping h1\n")


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("```sh\nfalse\n```\n", "made_up.md:1: false"),
        ("```sh\nfalse | true\n```\n", "false"),
        ("```sh\necho $NOT_SET_HERE\n```\n", "unbound"),
        ("```sh\n# nothing\n```\n", "has no command"),
        ("```console\nprinted\n```\n", "begins with something else than a command"),
        ("```console\nlightrail> typed\n```\n", "begins with something else than a command"),
        ("```console\n$ echo one two\ntwo one\n```\n", "did not print 'one'"),
        ("```console\n$ echo three 3\nfour 3\n```\n", "did not print 'four'"),
        ("<!-- test: exact -->\n```console\n$ echo three 3\nthree 4\n```\n", "did not print '4'"),
        ("```console\n$ echo unfaithful\nfaithful\n```\n", "did not print 'faithful'"),
        ("<!-- test: exact -->\n```console\n$ echo 112.5\n12.5\n```\n", "did not print '12.5'"),
        ("```bash\nfalse\n```\n", "languages that tests would not run: ['bash']"),
        ("```python\nraise SystemExit(2)\n```\n", "made_up.md:1: python script.py"),
        ("```sh\nlightrail list\n```\n", "command not found"),
        ('```python title="traffic/job.py"\n```\n', "into the checkout"),
        ('```python title="README.md"\n```\n', "into the checkout"),
        ("- a list\n\n  ```sh\n  false\n  ```\n", "a fence that is no block of a known form"),
        ("```sh\ntrue\n", "a fence that is no block of a known form"),
        ("<!-- test: slow -->\n\n```sh\ntrue\n```\n", "a comment for tests that is above no block"),
        ("<!-- test: quick -->\n```sh\ntrue\n```\n", "comments for tests that mean nothing"),
    ],
)
def test_a_page_that_does_not_fails(page: str, said: str, tmp_path: Path) -> None:
    def is_read() -> None:
        (block,) = blocks_in("made_up.md", page)
        Reader(tmp_path).does(block)

    with pytest.raises(AssertionError, match=re.escape(said)):
        is_read()


@pytest.mark.parametrize(
    ("block", "is_slow"),
    [
        ("```sh\nsudo true\n```\n", True),
        ("```sh\ncd results && sudo true\n```\n", True),
        ("<!-- test: slow -->\n```python\n```\n", True),
        ("```console\n$ echo\nsudo true\n```\n", False),
    ],
)
def test_what_emulates_is_slow(block: str, is_slow: bool) -> None:
    found: list[Block] = blocks_in("made_up.md", block)
    assert [each.is_slow for each in found] == [is_slow]
