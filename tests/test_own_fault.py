"""The page that teaches a user's own kind of fault: its code runs as it is printed, and is written down."""

import re
import sys
from pathlib import Path

import pandas as pd
import pytest

from testbed.report.run_json import experiments_of
from testbed.run.experiment import Experiment
from tests.test_own_pattern import carried_out
from tests.test_python_api import ran
from tests.tools import CHECKOUT

PAGE = (CHECKOUT / "docs" / "howto" / "own_fault.md").read_text()
LINES = 10
EFFECT, SCRIPT = (str(found) for found in re.findall(r"```python[^\n]*\n(.*?)```", PAGE, re.DOTALL))


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in a folder with the page's effect in it, outside of the checkout."""
    (tmp_path / "own_fault.py").write_text(EFFECT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "own_fault", raising=False)
    return tmp_path


def test_it_is_as_long_as_it_says() -> None:
    assert len([line for line in EFFECT.splitlines() if line.strip()]) <= LINES


def test_its_script_runs_and_is_run_again_from_what_it_leaves(in_folder: Path) -> None:
    done = ran(SCRIPT, in_folder)
    assert done.returncode == 0, done.stderr
    table = pd.read_csv(in_folder / "flapping" / "summary.csv")
    assert table["scheme"].tolist() == ["rails", "rails, flaps", "rails, slow", "rails, slow, flaps"]
    healthy, flaps, slow, both = table["cct_s"]
    # What is not carried meanwhile is sent later: 0.9 of 0.4 ms, 0.6 of 1 ms.
    assert [flaps - healthy, slow - healthy] == pytest.approx([3.6e-4, 6e-4], rel=0.02)
    assert both > slow
    happened = pd.read_csv(in_folder / "flapping" / "faults.csv")
    led_around = happened["gone_around_s"].notna().tolist()
    assert happened["fault"].tolist() == ["flaps", "slow", "slow", "flaps"]
    assert led_around == [False, False, False, True], "both together take the link down"
    assert (table["cct_s"] >= table["bound_s"]).all()
    *_, experiment = experiments_of(in_folder / "flapping" / "run.json")
    assert experiment.own == ["own_fault:Flaps"]
    back = Experiment.from_json(experiment.to_json())
    assert (back, back.key) == (experiment, experiment.key)
    carried_out("scenarios/repeat.py", "flapping", "--out", "again")
    assert pd.read_csv(in_folder / "again" / "summary.csv")["cct_s"].tolist() == table["cct_s"].tolist()
    (in_folder / "own_fault.py").write_text(f"{EFFECT}# edited\n")
    edited = carried_out("scenarios/repeat.py", "flapping", "--out", "edited")
    assert "the source of own_fault has changed since" in " ".join(edited.split())


def test_an_effect_of_the_script_itself_is_refused_before_anything_runs(in_folder: Path) -> None:
    done = ran(EFFECT + SCRIPT.replace("from own_fault import Flaps\n", ""), in_folder)
    assert done.returncode != 0
    assert "the effect '__main__:Flaps' cannot be written down" in done.stderr
    assert "its class is in the script that runs; put it in a module of its own" in done.stderr
    assert not (in_folder / "flapping").exists()
