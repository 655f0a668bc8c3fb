"""A page of the documentation as tests run it: its files are written, its commands are carried out, in order.

A fenced block is one of these:

- with a title (```` ```python title="own_scheme.py" ````): a file of that name, in the reader's folder;
- ``python`` without one: a script, which runs as it stands;
- ``sh``: commands, a line each;
- ``console``: commands after ``$``, lines of lightrail's CLI after its prompt, and what is printed.
  Of that every word must be printed; numbers may differ, and ``...`` leaves lines out;
- anything else is read, not run.

A comment on the line before a block says what is special: ``<!-- test: slow -->`` (it runs under ``-m slow``
alone, as do blocks with ``sudo``, which emulate), ``<!-- test: no, REASON -->``.
"""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.tools import CHECKOUT

DOCS = CHECKOUT / "docs"
PROMPT = "lightrail> "
BLOCK = re.compile(
    r"^(?:<!-- test: (?P<note>[^\n]*) -->\n)?"
    r"^```(?P<language>\w*)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
SHIMS = {
    "sudo": 'exec "$@"',
    "python": f'exec {sys.executable} "$@"',
    "lightrail": f'exec {sys.executable} -m lightrail "$@"',
}
"""Programs of the page that tests replace: they are root, or need no rights, and know their Python."""


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
        return re.search(r"^(\$ )?sudo ", self.text, re.MULTILINE) is not None


@dataclass(frozen=True)
class Command:
    """A command of a page, what is typed at lightrail's prompt, and what is shown of what it prints."""

    words: str
    typed: str
    shown: str


def blocks_of(page: str) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    text = (CHECKOUT / page).read_text()
    return [
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


def commands_of(block: Block) -> list[Command]:
    """Return the commands of a block of ``sh`` or ``console``."""
    if block.language == "sh":
        return [
            Command(line, "", "") for line in block.text.splitlines() if line and not line.startswith("#")
        ]
    commands: list[Command] = []
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        words, _, rest = re.sub(r"\\\n", "", part).partition("\n")
        lines = rest.splitlines(keepends=True)
        typed = "".join(line.removeprefix(PROMPT) for line in lines if line.startswith(PROMPT))
        shown = "".join(line for line in lines if not line.startswith(PROMPT))
        commands.append(Command(words, typed, shown))
    return commands


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
            if path.name not in ("results", ".git", ".coverage") and not (folder / path.name).exists():
                (folder / path.name).symlink_to(path)
        self._environment = os.environ | {
            "PATH": f"{shims}:{os.environ['PATH']}",
            "PYTHONPATH": str(CHECKOUT),
            "PYTHONUNBUFFERED": "1",
        }

    def does(self, block: Block) -> None:
        """Write a block's file, or carry out its commands; what goes wrong is an AssertionError."""
        if block.title:
            path = self.folder / block.title
            assert not path.is_symlink(), (
                f"{block.page}:{block.line} would overwrite the checkout's {block.title}"
            )
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
        elif block.is_script and block.runs:
            (self.folder / "script.py").write_text(block.text)
            self._carry_out(block, Command("python script.py", "", ""))
        elif block.runs:
            for command in commands_of(block):
                self._carry_out(block, command)

    def _carry_out(self, block: Block, command: Command) -> None:
        ran = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command.words],
            cwd=self.folder,
            env=self._environment,
            input=command.typed,
            capture_output=True,
            text=True,
        )
        where = f"{block.page}:{block.line}: {command.words}"
        assert ran.returncode == 0, f"{where}\n{ran.stdout}{ran.stderr}"
        printed = ran.stdout + ran.stderr
        missing = [word for word in re.findall(r"[A-Za-z_]{3,}", command.shown) if word not in printed]
        assert not missing, f"{where} did not print {missing}\n{printed}"
