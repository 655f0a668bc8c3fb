"""The page that teaches a user's own kind of fault: its code runs as it is printed, and is written down."""

from pathlib import Path

import pandas as pd
import pytest

from testbed.experiment.experiment import Experiment
from testbed.report.run_json import experiments_of
from tests.docs.pages import Reader, blocks_of, file_of, lines_of, read_by
from tests.test_python_api import ran

PAGE = "docs/howto/own_fault.md"
LINES = 10
EFFECT = file_of(PAGE, "own_fault.py")
(SCRIPT,) = (block.text for block in blocks_of(PAGE) if block.is_script)


def test_it_is_as_long_as_it_says() -> None:
    assert lines_of(EFFECT) <= LINES


def test_its_script_runs_and_is_run_again_from_what_it_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Reader(tmp_path)
    read_by(reader, PAGE)
    results = reader.results()
    table = pd.read_csv(results / "summary.csv")
    assert table["scheme"].tolist() == ["rails", "rails, flaps", "rails, slow", "rails, slow, flaps"]
    healthy, flaps, slow, both = table["cct_s"]
    # What is not carried meanwhile is sent later: 0.9 of 0.4 ms, 0.6 of 1 ms.
    assert [flaps - healthy, slow - healthy] == pytest.approx([3.6e-4, 6e-4], rel=0.02)
    assert both > slow
    happened = pd.read_csv(results / "faults.csv")
    led_around = happened["gone_around_s"].notna().tolist()
    assert happened["fault"].tolist() == ["flaps", "slow", "slow", "flaps"]
    assert led_around == [False, False, False, True], "both together take the link down"
    assert (table["cct_s"] >= table["bound_s"]).all()
    monkeypatch.syspath_prepend(tmp_path)
    *_, experiment = experiments_of(results / "run.json")
    assert experiment.own == ["own_fault:Flaps"]
    back = Experiment.from_json(experiment.to_json())
    assert (back, back.key) == (experiment, experiment.key)
    (tmp_path / "own_fault.py").write_text(f"{EFFECT}# edited\n")
    again, said = reader.repeated(results)
    assert "the source of own_fault has changed since" in said
    assert again["cct_s"].tolist() == table["cct_s"].tolist()


def test_an_effect_of_the_script_itself_is_refused_before_anything_runs(tmp_path: Path) -> None:
    done = ran(EFFECT + SCRIPT.replace("from own_fault import Flaps\n", ""), tmp_path)
    assert done.returncode != 0
    assert "the effect '__main__:Flaps' cannot be written down" in done.stderr
    assert "its class is in the script that runs; put it in a module of its own" in done.stderr
    assert not (tmp_path / "results").exists()
