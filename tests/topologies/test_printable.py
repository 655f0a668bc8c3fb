"""Texts of others: whatever they hold, what is shown of them orders nothing and takes any encoding."""

from hypothesis import given
from hypothesis import strategies as st

from tests.hostile_names import raw
from topologies.printable import printable

TEXTS = st.text(st.characters(), max_size=50)


@given(TEXTS)
def test_what_is_shown_can_be_printed_and_written(text: str) -> None:
    shown = printable(text)
    assert not raw(shown)
    assert "\n" not in shown
    shown.encode()
    assert printable(shown) == shown


@given(TEXTS.filter(str.isprintable))
def test_what_can_be_printed_stays(text: str) -> None:
    assert printable(text) == text


@given(TEXTS)
def test_lines_stay_where_they_are_to(text: str) -> None:
    assert printable(text, keep="\n").split("\n") == list(map(printable, text.split("\n")))
