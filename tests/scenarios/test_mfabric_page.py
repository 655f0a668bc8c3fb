"""The page on mFabric: its scripts run as they are printed there, and its order of fabrics holds."""

import re
from pathlib import Path

from tests.test_python_api import ran
from tests.tools import CHECKOUT

PAGE = (CHECKOUT / "docs" / "papers" / "mfabric.md").read_text()
BLOCK, *OTHERS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
(FROM_FILE,) = [block for block in OTHERS if "read_expert_step" in block]


def test_its_script_predicts_a_step_over_packets_and_circuits(tmp_path: Path) -> None:
    done = ran(BLOCK, tmp_path)
    assert done.returncode == 0, done.stderr
    found = dict(re.findall(r"([\w-]+): ([\d.]+) s", done.stdout))
    packets_s, block_s, reuse_s = (float(found[name]) for name in ("fat-tree", "block", "reuse"))
    assert packets_s < reuse_s
    assert packets_s < block_s
    changes = [int(number) for number in re.findall(r"(\d+) reconfigurations", done.stdout)]
    assert changes[0] == 0 < changes[2] <= changes[1]


def test_its_script_predicts_a_step_from_a_file(tmp_path: Path) -> None:
    done = ran(FROM_FILE, tmp_path)
    assert done.returncode == 0, done.stderr
    found = re.findall(r"(\w+): ([\d.]+) s, (\d+) reconfigurations, 2 dispatches", done.stdout)
    assert [first for first, *_ in found] == ["block", "reuse"]
    # Computes alone: attention and two rows forward, and back, in two layers.
    assert all(float(took_s) > 2 * 0.042 for _, took_s, _ in found)
    assert int(found[0][2]) >= int(found[1][2]) > 1
