"""Errors as people read them: one line, whatever the input had in it."""

import pytest

from topologies.errors import ScenarioError


@pytest.mark.parametrize(
    ("sentence", "said"),
    [
        ("a scheme named 'é'", "a scheme named 'é'; choose"),
        ("read a\nb", r"read a\nb; choose"),
        ("\x1b[31mred", r"\x1b[31mred; choose"),
        ("\ud800", r"\ud800; choose"),
    ],
)
def test_what_cannot_be_printed_is_escaped(sentence: str, said: str) -> None:
    assert str(ScenarioError(sentence, "choose")) == said
