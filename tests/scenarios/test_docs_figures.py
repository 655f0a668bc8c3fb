"""The figures of the documentation are what their script draws today."""

import re
from pathlib import Path

import pytest

from scenarios._docs.ruler import rulers
from scenarios._docs.trust_tree import BRANCHES
from scenarios._docs_figures import FOLDER, SPARSE, write


def drawn(svg: Path) -> list[str]:
    """Return the texts and names of a drawing, in order: no width of a letter, and no place."""
    return re.findall(r'<text[^>]*>([^<]*)</text>|<g id="([^"]*\|[^"]*)"', svg.read_text())


def test_the_figures_of_the_documentation_are_those_of_today(tmp_path: Path) -> None:
    write(tmp_path)
    made = {path.name: drawn(path) for path in tmp_path.iterdir()}
    assert made == {path.name: drawn(path) for path in FOLDER.glob("*.svg")}
    assert all(made.values())


def test_figures_are_small() -> None:
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 1_000_000


def test_time_on_the_ruler_is_volume_over_rate() -> None:
    rate, volume, time, delay, _packet = (each.emulated / each.real for each in rulers(SPARSE))
    assert [time, delay] == [pytest.approx(volume / rate)] * 2
    assert rulers(SPARSE)[0].real == 100e9
    assert round(rulers(SPARSE)[0].emulated) == 28_000_000


def test_the_trust_tree_asks_for_every_word_of_a_row() -> None:
    words = " ".join(f"{branch.question} {branch.answer}" for branch in BRANCHES)
    asked = ["unsound", "void", "model", "strained", "!", "unlike", "partly", "alike"]
    assert [word for word in asked if word not in words] == []
