"""The page about options: those that scenarios share stand in it, and nothing else does."""

import os
import re

import pytest

from testbed.machine.datapath import DEFAULT
from testbed.trust.kept import CACHE
from tests.docs.pages import DOCS
from tests.scenarios.command import ran
from tests.scenarios.test_rails import SHARED
from traffic.workloads.datasets import ENVIRONMENT

PAGE = (DOCS / "reference" / "options.md").read_text()
ROW = re.compile(r"^\| (`-[^|]*?) \|", re.MULTILINE)
"""The first cell of an option's row."""


def test_all_options_that_scenarios_share_stand_in_it_and_no_others() -> None:
    cells = ROW.findall(PAGE)
    assert sorted(re.findall(r"`(--[a-z-]+)", " ".join(cells))) == sorted(SHARED)
    assert len(cells) == len(SHARED), "an option has one row"


def test_options_that_it_names_elsewhere_are_options_of_scenarios() -> None:
    named = set(re.findall(r"`(--[a-z-]+)", PAGE)) - set(SHARED)
    wide = {**os.environ, "COLUMNS": "200"}
    help_text = "".join(ran(name, "-h", env=wide).stdout for name in ("rails_sparse", "ocs_spectra"))
    assert [each for each in named if each not in help_text] == []


@pytest.mark.parametrize("variable", [DEFAULT, CACHE, ENVIRONMENT])
def test_it_has_what_the_environment_sets(variable: str) -> None:
    assert f"| `{variable}` |" in PAGE
