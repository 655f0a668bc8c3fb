"""The page of InfiniteHBD: its commands are there, and the paper's MFU adds up as it says."""

import re

import pytest

from tests.scenarios.command import ran
from tests.tools import CHECKOUT

PAGE = (CHECKOUT / "docs" / "papers" / "infinitehbd.md").read_text()


@pytest.mark.parametrize("scenario", re.findall(r"scenarios/(\w+)\.py`", PAGE))
def test_its_commands_are_there(scenario: str) -> None:
    done = ran(scenario, "--help")
    assert done.returncode == 0
    assert "InfiniteHBD" in done.stdout


def test_the_tables_of_mfu_are_consistent() -> None:
    rows = re.findall(
        r"^\| ([\d,]+) \| (\d+) / (\d+) / (\d+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", PAGE, re.M
    )
    assert len(rows) == 7
    for gpus, tp, pp, dp, mfu, at_tp_8, gain in rows:
        assert int(tp) * int(pp) * int(dp) == int(gpus.replace(",", ""))
        assert round(float(mfu) / float(at_tp_8), 4) == float(gain)
