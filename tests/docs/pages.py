"""A page of the documentation as tests run it: its files are written, its commands are carried out, in order.

A fenced block is one of these:

- with a title (```` ```python title="own_scheme.py" ````): a file of that name, in the reader's folder;
- ``python`` without one: a script, which runs as it stands;
- ``sh``: commands, a line each;
- ``console``: commands after ``$``, lines of lightrail's CLI after its prompt, and what is printed.
  Of that every word must be printed, in this order; numbers may differ, and what is left out is not missed;
- anything else is read, not run.

A comment on the line before a block says what is special: ``<!-- test: slow -->`` (it runs under ``-m slow``
alone, as do blocks with ``sudo``, which emulate), ``<!-- test: exact -->`` (numbers must be printed too),
``<!-- test: no, REASON -->``.
"""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from tests.tools import CHECKOUT

DOCS = CHECKOUT / "docs"
PROMPT = "lightrail> "
LANGUAGES = ("sh", "console", "python", "", "text", "toml", "json", "csv", "mermaid")
"""Of blocks: three that run, and what is read. Commands in another (bash, shell, py) would never run."""
BLOCK = re.compile(
    r"^(?:<!-- test: (?P<note>[^\n]*) -->\n)?"
    r"^```(?P<language>\w*)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
FENCE = re.compile(r"^\s*(```|~~~)", re.MULTILINE)
WORD, TOKEN = re.compile(r"[A-Za-z_]{3,}"), re.compile(r"\S+")
SHIMS = {
    "sudo": 'exec "$@"',
    "python": f'case $1 in *scenarios/* | script.py) ;; *) set -- -S "$@";; esac; exec {sys.executable} "$@"',
    "lightrail": 'echo "lightrail: command not found"; exit 127',
}
"""Programs of the page that tests replace: they are root, or need no rights, and know their Python.

Scenarios find the checkout's Python; for other files ``python`` is the system's, which has no packages,
and ``lightrail`` is in no folder of the system's.
"""


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str
    """The page, relative to the checkout."""
    line: int
    language: str
    title: str
    """The file that it is; empty if none."""
    text: str
    note: str
    """The text of its comment."""

    @property
    def runs(self) -> bool:
        """True if it is carried out at all."""
        return not self.note.startswith("no") and (self.language in ("sh", "console") or self.is_script)

    @property
    def is_script(self) -> bool:
        """True for a script without a name."""
        return self.language == "python" and not self.title

    @property
    def is_slow(self) -> bool:
        """True if it runs under ``-m slow`` alone."""
        return self.note == "slow" or self.emulates

    @property
    def emulates(self) -> bool:
        """True if it moves packets."""
        has_commands = self.runs and not self.title and not self.is_script
        return has_commands and any("sudo" in command.words.split() for command in commands_of(self))

    @property
    def says(self) -> re.Pattern[str]:
        """The parts of its output that are compared."""
        return TOKEN if self.note == "exact" else WORD

    def whole(self, part: str) -> re.Pattern[str]:
        """Return a pattern for a part of its output, and not within a longer one."""
        more = r"\S" if self.note == "exact" else "[A-Za-z_]"
        return re.compile(f"(?<!{more}){re.escape(part)}(?!{more})")


@dataclass(frozen=True)
class Command:
    """A command of a page, what is typed at lightrail's prompt, and what is shown of what it prints."""

    words: str
    typed: str
    shown: str


def blocks_of(page: str) -> list[Block]:
    """Return the fenced blocks of a page, in order; AssertionError if there is one that tests would miss."""
    return blocks_in(page, (CHECKOUT / page).read_text())


def blocks_in(page: str, text: str) -> list[Block]:
    """Return the fenced blocks of a text, as `blocks_of`."""
    blocks = [
        Block(
            page,
            text.count("\n", 0, found.start()) + 1,
            found["language"],
            found["title"] or "",
            found["text"],
            found["note"] or "",
        )
        for found in BLOCK.finditer(text)
    ]
    assert len(FENCE.findall(text)) == 2 * len(blocks), f"{page} has a fence that is no block of a known form"
    notes = [block.note for block in blocks if block.note]
    assert text.count("<!-- test:") == len(notes), f"{page} has a comment for tests that is above no block"
    unknown = [note for note in notes if note not in ("slow", "exact") and not note.startswith("no, ")]
    assert not unknown, f"{page} has comments for tests that mean nothing: {unknown}"
    strange = [block.language for block in blocks if block.language not in LANGUAGES]
    assert not strange, f"{page} has blocks of languages that tests would not run: {strange}"
    return blocks


def commands_of(block: Block) -> list[Command]:
    """Return the commands of a block of ``sh`` or ``console``; AssertionError if it has none."""
    text = block.text.replace("\\\n", "")
    if block.language == "sh":
        commands = [Command(line, "", "") for line in text.splitlines() if line and not line.startswith("#")]
    else:
        first, *parts = re.split(r"^\$ ", text, flags=re.MULTILINE)
        assert not first.strip(), f"{block.page}:{block.line} begins with something else than a command"
        commands = [_command(part) for part in parts]
    assert commands, f"{block.page}:{block.line} has no command"
    return commands


def _command(part: str) -> Command:
    """Return a command of a console, which stands before what is typed and printed."""
    words, _, rest = part.partition("\n")
    lines = rest.splitlines(keepends=True)
    typed = "".join(line.removeprefix(PROMPT) for line in lines if line.startswith(PROMPT))
    return Command(words, typed, "".join(line for line in lines if not line.startswith(PROMPT)))


class Reader:
    """Somebody who does what pages say, in a folder that looks like the checkout."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shims = folder / ".shims"
        shims.mkdir()
        for name, line in SHIMS.items():
            (shims / name).write_text(f"#!/bin/sh\n{line}\n")
            (shims / name).chmod(0o755)
        for path in CHECKOUT.iterdir():
            if path.name not in ("results", ".git", ".coverage"):
                (folder / path.name).symlink_to(path)
        self._environment = os.environ | {
            "PATH": f"{shims}:{os.environ['PATH']}",
            "PYTHONPATH": str(CHECKOUT),
            "PYTHONUNBUFFERED": "1",
        }

    def does(self, block: Block) -> str:
        """Write a block's file, or carry out its commands; return what they print.

        What goes wrong is an AssertionError.
        """
        if block.title:
            path = self.folder / block.title
            assert path.resolve().is_relative_to(self.folder.resolve()), (
                f"{block.page}:{block.line} would write {block.title} into the checkout"
            )
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
            return ""
        if not block.runs:
            return ""
        if block.is_script:
            (self.folder / "script.py").write_text(block.text)
            return self._printed_by(block, Command("python script.py", "", ""))
        return "".join([self._printed_by(block, command) for command in commands_of(block)])

    def runs(self, words: str, typed: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command of a shell; return its exit code, and all that it prints as its output."""
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", words],
            cwd=self.folder,
            env=self._environment,
            input=typed,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def repeated(self, results: Path) -> tuple[pd.DataFrame, str]:
        """Return the summary of results that are measured again, and what that prints."""
        ran = self.runs(f"python scenarios/repeat.py {results} --out again")
        assert ran.returncode == 0, ran.stdout
        return pd.read_csv(self.folder / "again" / "summary.csv"), " ".join(ran.stdout.split())

    def results(self, scenario: str = "python") -> Path:
        """Return the only results of a scenario."""
        (found,) = (self.folder / "results" / scenario).iterdir()
        return found

    def _printed_by(self, block: Block, command: Command) -> str:
        ran = self.runs(command.words, command.typed)
        where, printed = f"{block.page}:{block.line}: {command.words}", ran.stdout
        assert ran.returncode == 0, f"{where}\n{printed}"
        place = 0
        for word in block.says.findall(command.shown):
            if word == "...":
                continue
            found = block.whole(word).search(printed, place)
            assert found, f"{where} did not print {word!r} there\n{printed}"
            place = found.end()
        return printed


def read_by(reader: Reader, page: str) -> list[str]:
    """Return the output of each block of a page; slow blocks are left out."""
    return [reader.does(block) for block in blocks_of(page) if not block.is_slow]


def file_of(page: str, name: str) -> str:
    """Return the text of a file that a page has the reader save."""
    (text,) = (block.text for block in blocks_of(page) if block.title == name)
    return text


def lines_of(text: str) -> int:
    """Return how many lines of code a text has, as pages count them: from its dataclass on, if it has one."""
    return len([line for line in text[max(text.find("@dataclass"), 0) :].splitlines() if line.strip()])
