"""The page about app.py: it has all of its options, and no others."""

import re

from testbed.apps.app_verdict import WAIT_STRAINED, WAIT_VOID
from testbed.apps.launchers import LAUNCHERS
from tests.docs.pages import DOCS
from tests.scenarios.command import ran

PAGE = (DOCS / "reference" / "apps.md").read_text()
ROW = re.compile(r"^\| `(--[a-z-]+)", re.MULTILINE)
"""An option, which begins its row."""


def test_it_has_all_options_of_app_and_no_others() -> None:
    told = ran("app", "-h").stdout
    assert sorted(ROW.findall(PAGE)) == sorted(re.findall(r"^\W{1,2}(--[a-z-]+)", told, re.MULTILINE))


def test_it_has_all_launchers() -> None:
    assert set(re.findall(r"^\| `([a-z]+)` \|", PAGE, re.MULTILINE)) == set(LAUNCHERS)


def test_it_has_the_limits_of_the_verdict() -> None:
    assert f"{WAIT_STRAINED:.0%} of the time (*strained*), or {WAIT_VOID:.0%} (*void*)" in PAGE.replace(
        " %", "%"
    )
