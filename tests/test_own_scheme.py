"""The page that teaches a user's own scheme: its code runs, as it is printed there."""

from pathlib import Path

import pandas as pd

from tests.docs.pages import Reader, file_of, lines_of, read_by

PAGE = "docs/howto/own_scheme.md"
LINES = 20


def test_it_is_20_lines() -> None:
    assert lines_of(file_of(PAGE, "own_scheme.py")) <= LINES


def test_it_runs_beside_the_others_by_the_command_that_the_page_gives(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    read_by(reader, PAGE)
    table = pd.read_csv(reader.results("rails_sender_skew") / "summary.csv")
    assert table["scheme"].tolist() == ["ecmp", "rails", "own_scheme:in_turn"]
    assert (table["cct_s"] / table["bound_s"]).tolist()[-1] < 1.1
