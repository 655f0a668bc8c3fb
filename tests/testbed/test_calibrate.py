"""What a machine was measured to carry is kept, for the machine and the datapath that it was measured on."""

from pathlib import Path

import pytest

from testbed.machine.datapath import Datapath
from testbed.run import calibrate
from testbed.run.calibrate import CACHE, Calibration, calibration, machine_name

HOP_BPS: dict[Datapath, float] = {"netdev": 3e9, "kernel": 4e9}


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Datapath]:
    """Have an empty cache; return on which datapaths something was measured since."""
    datapaths: list[Datapath] = []

    def measure(datapath: Datapath) -> Calibration:
        datapaths.append(datapath)
        return Calibration(machine_name(datapath), HOP_BPS[datapath], 1e5)

    monkeypatch.setenv(CACHE, str(tmp_path))
    monkeypatch.setattr(calibrate, "measure", measure)
    return datapaths


def test_a_calibration_of_one_datapath_never_serves_the_other(measured: list[Datapath]) -> None:
    order: list[Datapath] = ["netdev", "kernel", "netdev", "kernel"]
    assert [calibration(each).hop_bps for each in order] == [3e9, 4e9, 3e9, 4e9]
    assert measured == ["netdev", "kernel"], "both are kept"


@pytest.mark.parametrize(
    "text",
    [
        '{"format": 1, "calibration": {"machine": "m", "hop_bps": 1.0, "hop_packets_s": 1.0}}',
        '{"format": 2, "calibrations": [{"machine": "m"}]}',
        '{"format": 2, "calibrations": 7}',
        "[]",
        "{",
    ],
)
def test_a_file_of_another_format_is_measured_anew_and_replaced(
    measured: list[Datapath], tmp_path: Path, text: str
) -> None:
    (tmp_path / "calibration.json").write_text(text)
    assert [calibration("netdev").hop_bps, calibration("netdev").hop_bps] == [3e9, 3e9]
    assert measured == ["netdev"]
