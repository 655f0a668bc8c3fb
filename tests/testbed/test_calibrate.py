"""What a machine was measured to carry is kept, for the machine and the datapath that it was measured on."""

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st

from testbed.machine.datapath import Datapath
from testbed.trust import kept
from testbed.trust.calibrate import (
    CALIBRATIONS,
    FORMAT_VERSION,
    HEADROOM,
    LEAST_FURTHER,
    MOST_FURTHER,
    SAFE_SHARES,
    Calibration,
    CarriedLoad,
    further_hop,
    rate_factor,
    safe_share,
)
from testbed.trust.control import Control
from testbed.trust.kept import CACHE, SHARED_S, machine_name
from tests.other_user import NO_FILES, OTHER, given, need_root, plant, yard
from topologies.errors import MachineError
from topologies.rail import rail_fabric
from traffic.packets import DEFAULT_MTU, packet_bytes

PACKETS_S: dict[Datapath, float] = {"netdev": 3e4, "kernel": 4e4}
FURTHER_HOP, SAFE_SHARE = 0.2, 0.4
NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
NOTE = "set LIGHTRAIL_CACHE to another directory"
KEPT = Calibration("m", NOW.isoformat(), True, 5e4, FURTHER_HOP, SAFE_SHARE)


class Machine:
    """A machine that is measured at once, and counts it."""

    def __init__(self) -> None:
        self.measured: list[Datapath] = []
        self.alone = True
        self.meanwhile: Callable[[], object] = lambda: None
        self.kept = replace(CALIBRATIONS, measure=self.measure)

    def measure(self, datapath: Datapath) -> Calibration:
        """Take the place of `calibrate.measure`."""
        self.measured.append(datapath)
        self.meanwhile()
        now = datetime.now(UTC).isoformat()
        return Calibration(
            machine_name(datapath), now, self.alone, PACKETS_S[datapath], FURTHER_HOP, SAFE_SHARE
        )


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Have an empty cache."""
    monkeypatch.setenv(CACHE, str(tmp_path))
    return Machine()


def test_a_calibration_of_one_datapath_never_serves_the_other(machine: Machine) -> None:
    order: list[Datapath] = ["netdev", "kernel", "netdev", "kernel"]
    assert [machine.kept.of(each).packets_s for each in order] == [3e4, 4e4, 3e4, 4e4]
    assert machine.measured == ["netdev", "kernel"], "both are kept"


@pytest.mark.parametrize(
    "text",
    [
        '{"format": 4, "calibrations": [{"machine": "m", "hop_packets_s": 1.0, "safe_share": 0.4}]}',
        f'{{"format": {FORMAT_VERSION}, "calibrations": [{{"machine": "m"}}]}}',
        f'{{"format": {FORMAT_VERSION}, "calibrations": 7}}',
        "[]",
        "{",
    ],
)
def test_a_file_of_another_format_is_measured_anew_and_replaced(
    machine: Machine, tmp_path: Path, text: str
) -> None:
    (tmp_path / "calibration.json").write_text(text)
    assert [machine.kept.of("netdev").packets_s for _ in range(2)] == [3e4, 3e4]
    assert machine.measured == ["netdev"]


@pytest.mark.parametrize(
    ("name", "value"),
    [("packets_s", 0), ("packets_s", "1"), ("safe_share", 1.1), ("further_hop", -1.0), ("taken", "today")],
)
def test_a_value_that_is_not_valid_is_measured_anew(
    machine: Machine, tmp_path: Path, name: str, value: object
) -> None:
    file = tmp_path / "calibration.json"
    machine.kept.of("netdev")
    data = json.loads(file.read_text())
    data["calibrations"][0][name] = value
    file.write_text(json.dumps(data))
    assert machine.kept.of("netdev").packets_s == 3e4
    assert machine.measured == ["netdev"] * 2


def test_it_is_taken_anew_on_request_and_when_it_was_forgotten(machine: Machine) -> None:
    first, _ = machine.kept.of("netdev"), machine.kept.of("kernel")
    second = machine.kept.of("netdev", anew=True)
    assert machine.kept.of("netdev") == second
    machine.kept.forget(first)
    assert machine.kept.has("netdev"), "another run has taken it anew"
    machine.kept.forget(second)
    assert (machine.kept.has("netdev"), machine.kept.has("kernel")) == (False, True)
    assert machine.measured == ["netdev", "kernel", "netdev"]


def test_what_was_taken_beside_other_work_serves_for_some_minutes(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.alone = False
    assert machine.kept.of("netdev") == machine.kept.of("netdev")
    assert machine.measured == ["netdev"]
    monkeypatch.setattr(kept, "SHARED_S", 0.0)
    assert not machine.kept.has("netdev")
    machine.kept.of("netdev")
    assert machine.measured == ["netdev"] * 2


def test_two_runs_at_once_measure_once(machine: Machine) -> None:
    both = threading.Barrier(2)

    def meet() -> None:
        with suppress(threading.BrokenBarrierError):  # the other waits for the lock
            both.wait(0.2)

    machine.meanwhile = meet
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: machine.kept.of("netdev"), range(2))
    assert first == second
    assert machine.measured == ["netdev"]


@pytest.mark.parametrize("kind", NO_FILES)
def test_a_cache_that_cannot_be_used_costs_a_measurement_each_time_and_a_note(
    machine: Machine, tmp_path: Path, capfd: pytest.CaptureFixture[str], kind: str
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("kept")
    plant("directory", tmp_path / "calibration.json", secret)
    plant(kind, tmp_path / "calibration.lock", secret)
    assert [machine.kept.of("netdev").packets_s for _ in range(2)] == [3e4, 3e4]
    assert machine.measured == ["netdev"] * 2
    assert secret.read_text() == "kept"
    notes = capfd.readouterr().err.splitlines()
    assert [note.partition(": no measurement is kept; ")[2] for note in notes] == [NOTE] * 2


def test_the_cache_of_another_user_decides_nothing_and_stays_as_it_is(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    need_root()
    with yard() as ground:
        monkeypatch.setenv(CACHE, str(ground / "cache"))
        now, name = datetime.now(UTC).isoformat(), machine_name("netdev")
        theirs = replace(
            machine.kept, measure=lambda _: Calibration(name, now, True, 1e9, FURTHER_HOP, SAFE_SHARE)
        )
        (ground / "cache").mkdir()
        theirs.of("netdev")
        for path in (ground / "cache", *(ground / "cache").iterdir()):
            given(path)
        before = {path.name: path.read_bytes() for path in (ground / "cache").iterdir()}
        assert not machine.kept.has("netdev")
        assert machine.kept.of("netdev").packets_s == 3e4
        assert {path.name: path.read_bytes() for path in (ground / "cache").iterdir()} == before
    assert f"belongs to user {OTHER}, who could" in (note := capfd.readouterr().err)
    assert note.endswith(f": no measurement is kept; {NOTE}\n")


@pytest.mark.parametrize(
    ("age", "said"),
    [
        (timedelta(seconds=20), "0 min ago;"),
        (timedelta(minutes=90), "90 min ago;"),
        (timedelta(hours=40), "40 h ago;"),
        (timedelta(days=12), "12 days ago;"),
    ],
)
def test_a_run_says_how_old_it_is(age: timedelta, said: str) -> None:
    assert f"calibrated {said} --calibrate" in KEPT.sentence(NOW + age)
    assert "something else" in replace(KEPT, alone=False).sentence(NOW + age)
    assert KEPT.serves(NOW + age)
    assert replace(KEPT, alone=False).serves(NOW + age) == (age.total_seconds() < SHARED_S)


@pytest.mark.parametrize(
    ("share", "error", "pressure", "contradicts"),
    [
        (SAFE_SHARE, 0.12, 0.3, True),
        (0.1, 0.12, 0.3, True),
        (SAFE_SHARE, 0.09, 0.3, False),  # a machine that is a little slow
        (SAFE_SHARE, -0.12, 0.3, False),
        (0.6, 0.12, 0.3, False),  # the user has asked for more than is safe
        (SAFE_SHARE, 0.12, 0.9, False),  # something else uses the CPUs
        (SAFE_SHARE, 0.12, float("nan"), False),
    ],
)
def test_a_control_contradicts_what_promised_more_than_the_machine_carries(
    share: float, error: float, pressure: float, contradicts: bool
) -> None:
    said = KEPT.contradiction(Control(1e9, 4, error, pressure), share)
    assert bool(said) == contradicts
    assert not contradicts or f"{error:.0%} longer" in said


@pytest.mark.parametrize("carried", [1.0, 0.4, 0.3, 0.15, 0.01])
def test_no_share_is_chosen_at_which_known_traffic_takes_longer_unless_none_holds(carried: float) -> None:
    chosen = safe_share(lambda share: share <= carried)
    held = [share for share in SAFE_SHARES if HEADROOM * share <= carried]
    assert chosen == max(held, default=min(SAFE_SHARES))


def test_a_fabric_of_slow_nics_is_refused_for_its_rates_and_not_for_its_size() -> None:
    said = "the fastest NIC has 100 bit/s, and one of an emulation 1e.06 at least; give rates in bit/s"
    with pytest.raises(MachineError, match=said):
        rate_factor(rail_fabric(2, 1, rate_bps=100), CarriedLoad(100.0, 100.0), KEPT, None)
    assert rate_factor(rail_fabric(2, 1, rate_bps=1e6), CarriedLoad(1e6, 1e6), KEPT, None) == 1


@hypothesis.given(
    packets_s=st.floats(1e3, 1e6), further=st.floats(LEAST_FURTHER, MOST_FURTHER), hops=st.floats(2, 6)
)
def test_what_two_overloads_carried_is_all_that_a_machine_carries(
    packets_s: float, further: float, hops: float
) -> None:
    """A packet over several hops costs what one over one hop does, and a share of that for each other."""
    packet_bits = 8 * packet_bytes(DEFAULT_MTU)
    many_s = packets_s / (1 + further * (hops - 1))
    one, many = (
        CarriedLoad(packets_s, packets_s) * packet_bits,
        CarriedLoad(many_s, hops * many_s) * packet_bits,
    )
    assert further_hop(one, many) == pytest.approx(further)
    found = replace(KEPT, packets_s=packets_s, further_hop=further_hop(one, many))
    assert [found.share(load, DEFAULT_MTU) for load in (one, many, many * 0.5)] == pytest.approx([1, 1, 0.5])


def test_an_overload_that_something_disturbed_makes_no_hop_free_and_none_dearer_than_a_packet() -> None:
    one = CarriedLoad(1e9, 1e9)
    assert further_hop(one, CarriedLoad(1.2e9, 4e9)) == LEAST_FURTHER
    assert further_hop(one, CarriedLoad(1e8, 4e8)) == MOST_FURTHER


@pytest.mark.parametrize("hops", [1, 3, 6])
def test_the_automatic_rate_is_the_safe_share_of_what_is_carried(hops: int) -> None:
    """Each NIC sends all the time over so many hops, so that the load is known."""
    fabric = rail_fabric(8, 4)
    full = sum(map(fabric.nic_rate_bps, fabric.nics))
    load = CarriedLoad(full, hops * full)
    rate = rate_factor(fabric, load, KEPT, None)
    assert 0.9 * SAFE_SHARE < KEPT.share(load * rate, DEFAULT_MTU) <= SAFE_SHARE
    most_bps = rate * fabric.nic_rate_bps(fabric.nics[0]) / SAFE_SHARE
    assert rate_factor(fabric, load, KEPT, 0.9 * most_bps) > rate, "who asks for more than is safe gets it"
    with pytest.raises(MachineError, match="cannot emulate 32 NICs at"):
        rate_factor(fabric, load, KEPT, 1.2 * most_bps)
