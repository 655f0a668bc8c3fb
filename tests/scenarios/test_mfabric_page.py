"""The page on mFabric: its script runs as it is printed there, and its order of fabrics holds."""

import re
from pathlib import Path

from tests.test_python_api import ran
from tests.tools import CHECKOUT

(BLOCK,) = re.findall(r"```python\n(.*?)```", (CHECKOUT / "docs" / "mfabric.md").read_text(), re.DOTALL)


def test_its_script_predicts_a_step_over_packets_and_circuits(tmp_path: Path) -> None:
    done = ran(BLOCK, tmp_path)
    assert done.returncode == 0, done.stderr
    found = dict(re.findall(r"([\w-]+): ([\d.]+) s", done.stdout))
    packets_s, block_s, reuse_s = (float(found[name]) for name in ("fat-tree", "block", "reuse"))
    assert packets_s < reuse_s
    assert packets_s < block_s
    changes = [int(number) for number in re.findall(r"(\d+) reconfigurations", done.stdout)]
    assert changes[0] == 0 < changes[2] <= changes[1]
