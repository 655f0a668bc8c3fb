"""The page that teaches a user's own transport: its code runs, as it is printed there."""

from dataclasses import fields
from pathlib import Path

import pandas as pd
import pytest

from tests.docs.pages import Reader, file_of, lines_of, read_by
from tests.tools import CHECKOUT
from traffic.transports.transport import Limits, Offered

PAGE = "docs/howto/own_transport.md"
RULES = (CHECKOUT / "docs" / "reference" / "extension_points.md").read_text()
LINES = 25


def test_it_is_25_lines() -> None:
    assert lines_of(file_of(PAGE, "own_transport.py")) <= LINES


def test_its_command_and_its_script_predict_it_beside_the_others(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    read_by(reader, PAGE)
    table = pd.read_csv(reader.results("rails_uniform") / "summary.csv")
    assert set(table["transport"]) == {"ideal", "own_transport:EvenShares"}
    assert set(table["scheme"]) == {"ecmp", "rails"}
    scripts = pd.read_csv(reader.results() / "summary.csv")
    assert scripts["transport"].tolist() == ["credit", "own_transport:EvenShares"]


@pytest.mark.parametrize("value", [Offered, Limits])
def test_its_rules_explain_each_field(value: type[Offered] | type[Limits]) -> None:
    assert [field.name for field in fields(value) if f"`{field.name}`" not in RULES] == []
