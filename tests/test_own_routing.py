"""The page that teaches a user's own routing: its code runs as printed, and is written down."""

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

PAGE = (CHECKOUT / "docs" / "howto" / "own_routing.md").read_text()
LINES = 20
ROUTING, SCRIPT, D_MOD_K = (str(found) for found in re.findall(r"```python[^\n]*\n(.*?)```", PAGE, re.DOTALL))
(COMMAND,) = (str(found) for found in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL))
SHIFT = """{"format": "lightrail job 1", "name": "shift", "gpus": 32, "nodes": [
    {"kind": "point_to_point", "name": "shift", "messages": [%s]}
]}"""


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in a folder with the page's routing in it, outside of the checkout."""
    (tmp_path / "own_routing.py").write_text(ROUTING)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "own_routing", raising=False)
    return tmp_path


def test_it_is_as_long_as_it_says() -> None:
    routing = ROUTING[ROUTING.index("@dataclass") :]
    assert len([line for line in routing.splitlines() if line.strip()]) <= LINES


def test_its_script_is_faster_than_shortest_paths_and_is_run_again_from_what_it_leaves(
    in_folder: Path,
) -> None:
    done = ran(SCRIPT, in_folder)
    assert done.returncode == 0, done.stderr
    table = pd.read_csv(in_folder / "dragonfly" / "summary.csv")
    assert table["circuits"].tolist() == ["fixed", "fixed, Valiant(seed=1)"]
    # Four messages of 100 MB over one circuit; and three.
    assert table["cct_s"].tolist() == pytest.approx([4 * 8e-3, 3 * 8e-3])
    *_, experiment = experiments_of(in_folder / "dragonfly" / "run.json")
    assert experiment.own == ["own_routing:Valiant"]
    back = Experiment.from_json(experiment.to_json())
    assert (back, back.key) == (experiment, experiment.key)
    carried_out("scenarios/repeat.py", "dragonfly", "--out", "again")
    assert pd.read_csv(in_folder / "again" / "summary.csv")["cct_s"].tolist() == table["cct_s"].tolist()
    (in_folder / "own_routing.py").write_text(f"{ROUTING}# edited\n")
    edited = carried_out("scenarios/repeat.py", "dragonfly", "--out", "edited")
    assert "the source of own_routing has changed since" in " ".join(edited.split())


def test_a_routing_of_switches_has_no_flows_collide(in_folder: Path) -> None:
    (in_folder / "d_mod_k.py").write_text(D_MOD_K)
    row = '{"source": %d, "destination": %d, "bytes": 100000000}'
    messages = ", ".join(row % (gpu, (gpu + 5) % 32) for gpu in range(32))
    (in_folder / "shift.json").write_text(SHIFT % messages)
    _, _, scenario, *options = COMMAND.split()
    by_hash = [word for word in options if word not in ("--routing", "d_mod_k:DModK")]
    carried_out(scenario, *options, "--out", "d_mod_k")
    carried_out(scenario, *by_hash, "--out", "hash")
    routed, hashed = (pd.read_csv(in_folder / out / "summary.csv") for out in ("d_mod_k", "hash"))
    assert routed["cct_s"].item() == pytest.approx(8e-3), "as if each were alone"
    assert hashed["cct_s"].item() > 1.5 * 8e-3
    assert routed["circuits"].tolist() == ["DModK"]
