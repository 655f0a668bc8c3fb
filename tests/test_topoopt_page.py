"""The page of TopoOpt: its commands and files are there, and its script runs as it is printed."""

import re
from pathlib import Path

import pandas as pd
import pytest

from tests.scenarios.command import ran
from tests.test_python_api import ran as ran_script
from tests.tools import CHECKOUT

PAGE = (CHECKOUT / "docs" / "papers" / "topoopt.md").read_text()
(SCRIPT,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = re.findall(r"python scenarios/(\w+)\.py([^#`\n]*)", PAGE)
EMBEDDINGS_S, CLOSED_FORM_S = 0.020, 0.035
"""Of 7 x 100 MB over 10/7 hops, and of rings that sum 1 GB, with 50 GB/s a server."""


@pytest.mark.parametrize("scenario", sorted({scenario for scenario, _ in COMMANDS}))
def test_its_commands_and_their_options_are_there(scenario: str) -> None:
    done = ran(scenario, "--help")
    assert done.returncode == 0
    assert "topoopt" in done.stdout.lower()
    options = {
        option for of, words in COMMANDS if of == scenario for option in re.findall(r"--[\w-]+", words)
    }
    assert {option for option in options if not re.search(rf"{option}\b", done.stdout)} == set()


def test_its_files_are_there() -> None:
    named = set(re.findall(r"`((?:topologies|controller|traffic|testbed|scenarios)/[\w/]+\.py)`", PAGE))
    assert len(named) > 20
    assert {name for name in named if not (CHECKOUT / name).is_file()} == set()


def test_its_script_runs_over_circuits_that_stay_and_that_follow(tmp_path: Path) -> None:
    done = ran_script(SCRIPT, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "coins (1, 3, 5, 7): 1.43 hops on average, bandwidth tax 1.122" in done.stdout
    table = pd.read_csv(tmp_path / "fixed_or_following" / "summary.csv", keep_default_na=False)
    assert table["scheme"].tolist() == ["spread", "spread", "spread, anew"]
    even_s, by_coins_s, following_s = table["cct_s"]
    assert even_s == pytest.approx(EMBEDDINGS_S + CLOSED_FORM_S, rel=0.01)
    # Seven offsets cross ten coins, of four: one of these is crossed three times at least.
    assert by_coins_s == pytest.approx(3 / 2.5 * EMBEDDINGS_S + CLOSED_FORM_S, rel=0.01)
    assert 1.5 * even_s < following_s < 2.5 * even_s
