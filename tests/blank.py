"""Reports whose plots are left blank, where a test is about all else: drawing takes most of a small run."""

from collections.abc import Sequence

import pytest

from testbed.report import pages
from testbed.report.page import Format, Plot

PNG = b"\x89PNG, left blank"


def blank(
    plots: Sequence[Plot], formats: Sequence[Format] = ("png",), _jobs: int = 1
) -> dict[Format, dict[str, bytes]]:
    """Return the same image for each plot in each format, by its name."""
    return {form: dict.fromkeys((plot.name for plot in plots), PNG) for form in formats}


@pytest.fixture(autouse=True)
def blank_plots(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave plots blank, also in commands that the test forks, unless it is marked ``drawn``."""
    if request.node.get_closest_marker("drawn") is None:
        monkeypatch.setattr(pages, "drawn", blank)
