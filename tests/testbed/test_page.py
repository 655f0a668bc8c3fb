"""Names of files: short, whatever the names that they are made of, and apart where these are."""

from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from testbed.report.page import LONGEST_SLUG, Plot, apart, slug
from tests.hostile_names import NAMES

TEXTS = st.one_of(st.sampled_from([*NAMES.values()]), st.text(st.characters()))


@given(st.lists(TEXTS, min_size=1, max_size=3))
def test_a_file_may_be_named_so(names: list[str]) -> None:
    made = slug(*names)
    assert 0 <= len(made.encode()) <= LONGEST_SLUG
    assert all(c.isalnum() or c in "._" for c in made)


@given(st.text("é/x[", min_size=1, max_size=300), st.text("é/x[", min_size=1, max_size=300))
def test_two_names_are_two_files(one: str, other: str) -> None:
    assert (slug(one) == slug(other)) is (one == other)
    assert (slug("n" * 300 + one) == slug("n" * 300 + other)) is (one == other)


def test_plots_named_alike_are_files_apart() -> None:
    plots = [Plot(f"timeline_{slug(name)}", Figure, name) for name in ("a b", "a_b", "c")]
    assert [plot.name for plot in apart(plots)] == ["timeline_a_b", "timeline_a_b_2", "timeline_c"]
    assert [plot.caption for plot in apart(plots)] == ["a b", "a_b", "c"]
