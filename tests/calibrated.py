"""A calibration that a test makes up: scenarios take this machine for the one that it describes."""

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from testbed.machine.datapath import Datapath
from testbed.run.calibrate import FORMAT_VERSION, Calibration
from testbed.run.kept import CACHE, machine_name
from traffic.packets import DEFAULT_MTU, packet_bytes


def calibrated(
    folder: Path,
    hop_bps: float = 3.6e9,
    datapath: Datapath = "netdev",
    taken: datetime | None = None,
) -> dict[str, str]:
    """Return the environment of a run that finds a calibration of this machine.

    Parameters
    ----------
    folder
        Where it is kept.
    hop_bps
        What the machine is said to forward [bit/s].
    datapath
        By which.
    taken
        When; None for now.
    """
    packets_s = hop_bps / 8 / packet_bytes(DEFAULT_MTU)
    at = (taken or datetime.now(UTC)).isoformat()
    kept = asdict(Calibration(machine_name(datapath), at, True, hop_bps, packets_s))
    folder.mkdir(exist_ok=True)
    (folder / "calibration.json").write_text(json.dumps({"format": FORMAT_VERSION, "calibrations": [kept]}))
    return {CACHE: str(folder)}
