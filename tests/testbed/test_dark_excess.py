"""The OCSes' dark excess: kept by machine, and what delays, slots and guards are because of it."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from controller.circuits.devices import LEAST_DELAY_S
from testbed.machine.datapath import Datapath
from testbed.trust.dark_excess import DARK_EXCESSES, FORMAT_VERSION, DarkExcess, Excess, usual_p99
from testbed.trust.kept import CACHE, SHARED_S, KeptMeasurements, machine_name
from traffic.transports.slots import GUARD_S, START_S

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)


def late_by(*p99_s: float, alone: bool = True) -> DarkExcess:
    """Return a machine of such 99th percentiles with 1 and with 4 OCSes at once."""
    rows = tuple(Excess(ocses, late_s / 2, late_s) for ocses, late_s in zip((1, 4), p99_s, strict=True))
    return DarkExcess("m", NOW.isoformat(), alone, rows)


def test_it_is_linear_between_what_was_measured_and_never_less_for_more_ocses() -> None:
    found = late_by(2e-3, 5e-3)
    assert [found.p99_s(ocses) for ocses in (1, 2, 4, 64)] == pytest.approx([2e-3, 3e-3, 5e-3, 5e-3])
    noisy = late_by(5e-3, 4e-3)
    assert [noisy.p99_s(ocses) for ocses in (1, 2, 4)] == pytest.approx([5e-3] * 3)


def test_one_reconfiguration_that_was_held_up_does_not_decide_and_a_slow_machine_does() -> None:
    number = np.tile(np.arange(30), 2)
    usual_s = np.random.default_rng(0).uniform(1e-3, 4e-3, 60)
    held_up_s = np.where(number == 17, 40e-3, usual_s)
    assert usual_p99(held_up_s, number) == pytest.approx(usual_p99(usual_s, number), rel=0.1)
    assert usual_p99(3 * usual_s, number) == pytest.approx(3 * usual_p99(usual_s, number))


def test_what_follows_from_it_grows_with_it_and_has_a_least() -> None:
    fast, slow = late_by(1e-4, 1e-4), late_by(9.2e-3, 9.2e-3)
    assert fast.least_delay_s(4) == LEAST_DELAY_S
    assert (fast.margins(4).guard_s, fast.margins(4).start_s) == pytest.approx((GUARD_S, START_S))
    assert slow.least_delay_s(4) == pytest.approx(92e-3)
    assert (slow.margins(4).guard_s, slow.margins(4).start_s) == pytest.approx((9.2e-3, 10.2e-3))
    assert slow.least_slot_s(4) / fast.least_slot_s(4) == pytest.approx(19.4 / 7)


def test_a_run_says_what_it_is_and_how_old() -> None:
    assert late_by(2e-3, 5e-3).sentence(NOW + timedelta(hours=40)) == (
        "OCSes here are dark for up to 2.0 ms longer than their devices, 4 at once for 5.0 ms; that was "
        "measured 40 h ago"
    )


@pytest.fixture
def measured() -> list[Datapath]:
    """Return the datapaths that were measured since."""
    return []


@pytest.fixture
def kept(
    measured: list[Datapath], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> KeptMeasurements[DarkExcess]:
    """Have an empty cache, and a machine that is measured at once."""

    def measure(datapath: Datapath) -> DarkExcess:
        measured.append(datapath)
        now = datetime.now(UTC).isoformat()
        return DarkExcess(machine_name(datapath), now, True, (Excess(1, 1e-3, 2e-3), Excess(4, 2e-3, 3e-3)))

    monkeypatch.setenv(CACHE, str(tmp_path))
    return replace(DARK_EXCESSES, measure=measure)


def test_it_is_measured_once_and_read_back_as_it_was(
    kept: KeptMeasurements[DarkExcess], measured: list[Datapath]
) -> None:
    assert not kept.has("netdev")
    first = kept.of("netdev")
    assert kept.has("netdev")
    assert not kept.has("kernel")
    assert kept.of("netdev") == first
    kept.of("netdev", anew=True)
    assert measured == ["netdev"] * 2


@pytest.mark.parametrize(
    "change",
    [
        {"format": FORMAT_VERSION - 1},
        {"calibrations": [{"machine": "m"}]},
        {"by_ocses": []},
        {"by_ocses": [{"ocses": 1, "p50_s": 0.0, "p99_s": 0.0}]},
        {"by_ocses": [{"ocses": 1}]},
        {"alone": False, "taken": (NOW - timedelta(seconds=2 * SHARED_S)).isoformat()},
    ],
)
def test_what_is_of_another_format_or_not_valid_is_measured_anew(
    kept: KeptMeasurements[DarkExcess], measured: list[Datapath], tmp_path: Path, change: dict[str, object]
) -> None:
    kept.of("netdev")
    file = tmp_path / "dark_excess.json"
    data = json.loads(file.read_text())
    for name, value in change.items():
        (data if name in data else data["calibrations"][0])[name] = value
    file.write_text(json.dumps(data))
    assert not kept.has("netdev")
    kept.of("netdev")
    assert measured == ["netdev"] * 2
