"""A calibration that a test makes up: scenarios take this machine for the one that it describes."""

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from testbed.machine.datapath import Datapath
from testbed.trust import dark_excess
from testbed.trust.calibrate import FORMAT_VERSION, Calibration
from testbed.trust.dark_excess import DarkExcess, Excess
from testbed.trust.kept import CACHE, machine_name
from traffic.packets import DEFAULT_MTU, packet_bytes

SAFE_SHARE = 0.42


def calibrated(
    folder: Path,
    carried_bps: float = 3.6e9,
    datapath: Datapath = "netdev",
    taken: datetime | None = None,
    dark_s: float = 2e-3,
) -> dict[str, str]:
    """Return the environment of a run that finds a calibration of this machine.

    Parameters
    ----------
    folder
        Where it is kept.
    carried_bps
        What the machine is said to carry over one hop [bit/s]; each further hop costs as much again.
    datapath
        By which.
    taken
        When; None for now.
    dark_s
        How much longer than their devices OCSes are said to be dark [s].
    """
    packets_s = carried_bps / 8 / packet_bytes(DEFAULT_MTU)
    at = (taken or datetime.now(UTC)).isoformat()
    name = machine_name(datapath)
    late = tuple(Excess(ocses, dark_s / 2, dark_s) for ocses in dark_excess.OCSES)
    kept = {
        "calibration": (FORMAT_VERSION, Calibration(name, at, True, packets_s, 1.0, SAFE_SHARE)),
        "dark_excess": (dark_excess.FORMAT_VERSION, DarkExcess(name, at, True, late)),
    }
    folder.mkdir(exist_ok=True)
    for file, (version, measured) in kept.items():
        data = {"format": version, "calibrations": [asdict(measured)]}
        (folder / f"{file}.json").write_text(json.dumps(data))
    return {CACHE: str(folder)}
