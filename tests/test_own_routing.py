"""The page that teaches a user's own routing: its code runs as printed, and is written down."""

from pathlib import Path

import pandas as pd
import pytest

from testbed.experiment.experiment import Experiment
from testbed.report.run_json import experiments_of
from tests.docs.pages import Reader, file_of, lines_of, read_by

PAGE = "docs/howto/own_routing.md"
RULES = "docs/reference/extension_points.md"
LINES = 20
ROUTING = file_of(PAGE, "own_routing.py")
SHIFT = """{"format": "lightrail job 1", "name": "shift", "gpus": 32, "nodes": [
    {"kind": "point_to_point", "name": "shift", "messages": [%s]}
]}"""


def test_it_is_as_long_as_it_says() -> None:
    assert lines_of(ROUTING) <= LINES


def test_its_script_is_faster_than_shortest_paths_and_is_run_again_from_what_it_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Reader(tmp_path)
    read_by(reader, PAGE)
    results = reader.results()
    table = pd.read_csv(results / "summary.csv")
    assert table["circuits"].tolist() == ["fixed", "fixed, Valiant(seed=1)"]
    # Four messages of 100 MB over one circuit; and three.
    assert table["cct_s"].tolist() == pytest.approx([4 * 8e-3, 3 * 8e-3])
    monkeypatch.syspath_prepend(tmp_path)
    *_, experiment = experiments_of(results / "run.json")
    assert experiment.own == ["own_routing:Valiant"]
    back = Experiment.from_json(experiment.to_json())
    assert (back, back.key) == (experiment, experiment.key)
    (tmp_path / "own_routing.py").write_text(f"{ROUTING}# edited\n")
    again, said = reader.repeated(results)
    assert "the source of own_routing has changed since" in said
    assert again["cct_s"].tolist() == table["cct_s"].tolist()


def test_a_routing_of_switches_has_no_flows_collide(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    (tmp_path / "d_mod_k.py").write_text(file_of(RULES, "d_mod_k.py"))
    row = '{"source": %d, "destination": %d, "bytes": 100000000}'
    messages = ", ".join(row % (gpu, (gpu + 5) % 32) for gpu in range(32))
    (tmp_path / "shift.json").write_text(SHIFT % messages)
    by_hash = "python scenarios/job.py --job shift.json --schemes ecmp --model-only"
    for out, options in (("d_mod_k", "--routing d_mod_k:DModK"), ("hash", "")):
        ran = reader.runs(f"{by_hash} {options} --out {out}")
        assert ran.returncode == 0, ran.stdout
    routed, hashed = (pd.read_csv(tmp_path / out / "summary.csv") for out in ("d_mod_k", "hash"))
    assert routed["cct_s"].item() == pytest.approx(8e-3), "as if each were alone"
    assert hashed["cct_s"].item() > 1.5 * 8e-3
    assert routed["circuits"].tolist() == ["DModK"]
