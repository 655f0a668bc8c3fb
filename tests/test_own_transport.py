"""The page that teaches a user's own transport: its code runs, as it is printed there."""

import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pandas as pd
import pytest

from tests.tools import CHECKOUT
from traffic.transports.transport import Limits, Offered

PAGE = (CHECKOUT / "docs" / "howto" / "own_transport.md").read_text()
LINES = 25


def block(language: str) -> str:
    """Return the page's one block of a language."""
    (found,) = re.findall(rf"```{language}[^\n]*\n(.*?)```", PAGE, re.DOTALL)
    return str(found)


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in a folder with the page's transport in it."""
    (tmp_path / "own_transport.py").write_text(block("python"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_it_is_25_lines() -> None:
    assert len([line for line in block("python").splitlines() if line.strip()]) <= LINES


def test_its_command_predicts_it_beside_the_others(in_folder: Path) -> None:
    scenario, *options = block("console").removeprefix("$ python ").split()
    small = ["--servers", "2", "--rails", "2", "--model-only", "--out", "out"]
    subprocess.run([sys.executable, str(CHECKOUT / scenario), *options, *small], check=True)
    table = pd.read_csv(in_folder / "out" / "summary.csv")
    assert set(table["transport"]) == {"ideal", "own_transport:EvenShares"}
    assert set(table["scheme"]) == {"ecmp", "rails"}


@pytest.mark.parametrize("value", [Offered, Limits])
def test_the_page_explains_each_field(value: type[Offered] | type[Limits]) -> None:
    assert [field.name for field in fields(value) if f"`{field.name}`" not in PAGE] == []
