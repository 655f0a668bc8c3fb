"""A scenario run by its command: how near emulation and prediction are, and what a killed run leaves."""

import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd

from scenarios._bench.figure import figure
from testbed.machine.commands import output_of
from testbed.machine.residue import MARKER, left_behind, things

SCENARIO = str(Path(__file__).parents[1] / "rails_sparse.py")
KILLS = 20


@figure("ratio", "0.90 .. 1.15", sandbox=False)
def emulated_over_predicted_worst() -> tuple[float, str]:
    """All default points of rails_sparse: the emulated CCT over the predicted that is farthest from 1."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, SCENARIO, "--out", f"{folder}/out"]
        output_of(command)
        table = pd.read_csv(f"{folder}/out/summary.csv")
    ratio = (table["cct_s"] / table["predicted_s"]).to_numpy()
    worst = float(ratio[abs(ratio - 1).argmax()])
    words = table["verdict"].value_counts().to_dict()
    return worst, f"{len(ratio)} points, {ratio.min():.3f} to {ratio.max():.3f}, {words}"


@figure("things", "0", sandbox=False)
def kill_residue() -> tuple[float, str]:
    """A scenario's launcher killed by SIGKILL at 20 random moments: interfaces, mounts, processes left."""
    before, draw, left = things(), random.Random(0), []
    for number in range(KILLS):
        mark = f"bench-{os.getpid()}-{number}"
        with tempfile.TemporaryDirectory() as folder:
            launcher = subprocess.Popen(
                [sys.executable, SCENARIO, "--seeds", "1", "--out", folder],
                env=os.environ | {MARKER: mark},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            time.sleep(draw.uniform(0.1, 6.0))
            launcher.kill()
            launcher.wait()
            left += left_behind(before, mark)
    return float(
        len(left)
    ), f"{KILLS} kills, 0.1 to 6 s after the start; {', '.join(left[:5]) or 'nothing left'}"
