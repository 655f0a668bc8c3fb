"""Reports whose plots are left blank, where a test is about all else: drawing takes most of a small run."""

import pytest

from testbed.report import pages
from testbed.report.page import Page

PNG = b"\x89PNG, left blank"


def blank(page: Page, _jobs: int = 1) -> dict[str, bytes]:
    """Return what stands for each plot of a page, by its name."""
    return dict.fromkeys((plot.name for plot in page.plots), PNG)


@pytest.fixture(autouse=True)
def blank_plots(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave plots blank, also in commands that the test forks, unless it is marked ``drawn``."""
    if request.node.get_closest_marker("drawn") is None:
        monkeypatch.setattr(pages, "drawn", blank)
