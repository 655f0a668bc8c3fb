"""The terminal: texts stand there as they are, and nothing in them is obeyed."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from testbed.report.table import block_table, least_width
from testbed.report.terminal import Terminal
from testbed.study.output import print_tables, progress_bar, say
from tests.hostile_names import NAMES, raw

TEXTS = st.one_of(st.sampled_from([*NAMES.values()]), st.text(st.characters(), max_size=40))
CODES = re.compile(r"\x1b\[[0-9;]*m")
"""Rich's own, where it draws in colours."""


def drawn(renderable: RenderableType, width: int = 2_000) -> str:
    """Return a thing as a terminal draws it."""
    terminal = Terminal(width=width)
    with terminal.capture() as captured:
        terminal.print(renderable)
    return captured.get()


def table_of(text: str) -> Table:
    """Return a table with a text wherever a table has texts."""
    table = block_table(text)
    table.title = text
    table.add_column(text)
    table.add_column(Text(text))
    table.add_row(text, Text(text, "bold"))
    return table


@given(TEXTS)
def test_a_table_of_any_texts_is_drawn_and_orders_nothing(text: str) -> None:
    table = table_of(text)
    assert not raw(CODES.sub("", drawn(table, max(80, least_width(table)))))


@pytest.mark.parametrize("text", ["[/w] [bold]", ":smile:", "[link=x]y[/]", "$a$", "=cmd"])
def test_a_name_is_shown_as_it_is(text: str) -> None:
    assert drawn(table_of(text)).count(text) == 6
    assert drawn(text).strip() == text


@pytest.mark.parametrize("text", NAMES.values(), ids=NAMES)
def test_a_bar_and_a_sentence_may_have_any_name(text: str, capfd: pytest.CaptureFixture[str]) -> None:
    with progress_bar() as progress:
        progress.add_task(text, total=1)
        progress.refresh()
        shown = drawn(progress.get_renderable())
    say(text)
    assert not raw(CODES.sub("", shown) + capfd.readouterr().err)
    assert "[/w]" in shown or "[/w]" not in text


def test_a_notebook_has_tables_and_no_bar(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")  # as kernels of notebooks do
    with progress_bar() as progress:
        progress.add_task("predict", total=1)
        print_tables([table_of("x")], "nothing was booted")
    shown, beside = capfd.readouterr()
    assert ("x" in shown, beside) == (True, "")
