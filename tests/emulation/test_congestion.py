"""Two flows to one NIC under a window and under grants: what the study of congestion controls has of them."""

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from testbed.report.kept_points import KeptPoints
from testbed.report.run_json import experiments_of
from tests.emulation.machine import Machine
from tests.tools import CHECKOUT, need_sandbox
from topologies.rail import rail_fabric

pytestmark = pytest.mark.emulation

INCAST = """Nodes 3
Connections 2
1->0 id 1 start 0 size 250000
2->0 id 2 start 0 size 250000
"""


@pytest.mark.usefixtures("modest")
def test_an_incast_queues_under_nscc_and_not_under_credit(tmp_path: Path, machine: Machine) -> None:
    need_sandbox()
    (tmp_path / "two.cm").write_text(INCAST)
    (tmp_path / "one_leaf.json").write_text(rail_fabric(3, 1).with_links(delay_s=3e-6, loss=0.0).to_json())
    words = "--schemes spray --transport nscc,credit --trace two.cm --fabric one_leaf.json --plots svg"
    command = [sys.executable, str(CHECKOUT / "scenarios" / "congestion.py"), *words.split()]
    command += ["--emulated-rate", "8", "--out", "out"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    out = tmp_path / "out"
    table = pd.read_csv(out / "summary.csv").set_index("transport")
    # NICs wait for their first grant: a round trip of 12 us, of 45 for all bytes.
    over_bound = table["cct_s"].div(table["bound_s"]) - pd.Series({"nscc": 0.0, "credit": 12 / 45})
    assert over_bound.between(0.97, 1.2).all() or machine.busy
    # Each window is 1.5 BDP at first, so half of what both send waits; NICs grant no more than they can take.
    assert table["queue_p50_s"]["nscc"] > 3 * table["queue_p50_s"]["credit"]
    [(where, settings)] = json.loads((out / "run.json").read_text())["settings"].items()
    assert where.endswith("nscc, credit")
    assert {"nscc", "credit"} <= {name.partition(":")[0] for name in settings["constants"]}
    kept = KeptPoints(out)
    flows = {
        point.transport_name: kept.outcome(point).run.tables.flows
        for point in experiments_of(out / "run.json")
    }
    for samples in flows.values():
        # The last sample is up to four packets before the end.
        assert (samples.groupby("source")["delivered_bytes"].max() > 200_000).tolist() == [True] * 2
    assert flows["nscc"]["window_bytes"].notna().all()
    assert flows["credit"]["window_bytes"].isna().all()
    assert {file.name for file in out.glob("flows_*.svg")} == {
        f"flows_trace_two.cm_spray_{name}.svg" for name in flows
    }
