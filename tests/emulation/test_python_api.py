"""The page that teaches Python scripts: they move real packets once they are asked to."""

from pathlib import Path

import pandas as pd
import pytest

from tests.test_python_api import BLOCKS, ran
from tests.tools import need_sandbox

pytestmark = [pytest.mark.emulation, pytest.mark.usefixtures("modest")]


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(BLOCKS[0], id="packets", marks=pytest.mark.slow),
        pytest.param(BLOCKS[1], id="circuits"),
    ],
)
def test_a_script_that_emulates_has_every_number_beside_its_prediction(block: str, tmp_path: Path) -> None:
    need_sandbox()
    assert block.count("lr.run(") == 1
    live = block.replace("lr.run(", 'partial(lr.run, out="live", emulate=True)(')
    done = ran(f"from functools import partial\n{live}", tmp_path)
    assert done.returncode == 0, done.stderr
    table = pd.read_csv(tmp_path / "live" / "summary.csv")
    assert len(table) == 2
    assert (table["verdict"] != "model").all()
    assert (table["cct_s"] >= 0.98 * table["bound_s"]).all()
    assert table["over_predicted"].notna().all()
