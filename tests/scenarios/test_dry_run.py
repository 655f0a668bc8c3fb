"""A dry run prints what a run would be, and boots nothing: it needs no rights, and no Open vSwitch."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.calibrated import calibrated
from tests.scenarios.command import ran

JOB = {
    "format": "lightrail job 1",
    "name": "small step",
    "gpus": 4,
    "nodes": [{"kind": "all_to_all", "name": "tokens", "uniform_bytes": 4_000_000}],
}
NAMES = [
    "(BDP)",
    "port buffer / BDP",
    "message, median",
    "message, least",
    "round trip / CCT",
    "timeout / round",
]


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have no tool on the PATH, and a machine that is calibrated; return a directory to run in."""
    monkeypatch.setenv("PATH", str(tmp_path / "no tools"))
    monkeypatch.setenv("COLUMNS", "80")
    for name, value in calibrated(tmp_path / "cache", taken=datetime(2026, 1, 31, 12, tzinfo=UTC)).items():
        monkeypatch.setenv(name, value)
    (tmp_path / "job.json").write_text(json.dumps(JOB))
    return tmp_path


def dry(directory: Path, name: str, *options: str) -> "CompletedProcess[str]":
    """Run a scenario dry."""
    return ran(name, "--dry-run", "--out", "out", *options, cwd=directory)


@pytest.mark.parametrize(
    ("name", "options", "points", "wired"),
    [
        (
            "rails_uniform",
            ["--servers", "4", "--rails", "2", "--seeds", "2", "--schemes", "rails,reps"],
            8,
            "8 NICs on 6 packet switches",
        ),
        ("job", ["--job", "job.json", "--servers", "2", "--rails", "2"], 2, "4 NICs on 4 packet switches"),
        (
            "infinitehbd_alltoall",
            ["--bundles", "2,3", "--mb", "80"],
            6,
            "32 NICs on 16 OCSes; 64 NICs on 32 OCSes",
        ),
        (
            "infinitehbd_ring",
            ["--nodes", "5", "--node-gpus", "2", "--tp", "6", "--dying", "1", "--mb", "1000,4000"],
            2,
            "20 NICs on 10 OCSes",
        ),
        (
            "ocs_spectra",
            ["--servers", "4", "--ocses", "2", "--schedulers", "spectra,less"],
            3,
            "8 NICs on 2 OCSes; 8 NICs on 1 packet switch",
        ),
        (
            "topoopt_testbed",
            ["--models", "resnet50"],
            5,
            "12 NICs on 1 packet switch; 48 NICs on 1 OCS",
        ),
    ],
)
def test_the_table_and_the_time_are_printed_and_nothing_is_booted(
    bare: Path, name: str, options: list[str], points: int, wired: str
) -> None:
    done = dry(bare, name, *options)
    assert done.returncode == 0, done.stderr
    assert [each for each in NAMES if each not in done.stdout] == []
    assert re.search(r"this machine was calibrated \d+ days ago; --calibrate does so anew", done.stderr)
    assert f"\n{points} point" in done.stdout
    said = " ".join(done.stdout.split())
    assert re.search(rf" {wired}\. NICs at [\d.]{{1,4}}( to [\d.]{{1,4}})? Mbit/s", said)
    assert re.search(r"About [\d.]+ (s|min), within 30 % on an idle machine .*, and 0\.\d GB of memory", said)
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert done.stdout.replace("\n", " ").rstrip().endswith("Nothing was booted.")
    assert sorted(path.name for path in bare.iterdir()) == ["cache", "job.json"]


def test_what_the_options_change_is_in_the_table(bare: Path) -> None:
    small = ["--servers", "2", "--rails", "2", "--seeds", "1", "--schemes", "rails"]
    done = dry(bare, "rails_uniform", *small, "--mtu", "1500", "--buffer", "10", "--volume", "0.01")
    said = " ".join(done.stdout.split())
    assert "bytes x 0.01," in said
    assert "MTU 1500 bytes, port buffers of 15140 bytes." in said
    halved = dry(bare, "rails_uniform", *small, "--volume", "0.005").stdout
    assert "bytes x 0.005," in " ".join(halved.split())


def test_open_files_are_counted_and_held_against_the_limit(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 8 x 4 NICs ECMP opens 28 queue pairs from each to the others, over the daemon's 12 x 4 and 96."""
    small = ["--servers", "8", "--rails", "4", "--seeds", "1", "--schemes", "ecmp"]
    monkeypatch.setattr("testbed.study.dry_run.raise_descriptor_limit", lambda: 1024)
    over_tcp = " ".join(dry(bare, "rails_uniform", *small, "--transport", "tcp").stdout.split())
    assert "Up to 1,920 open files of a process (ecmp over tcp), and it may have 1,024; raise the" in over_tcp
    followed = " ".join(dry(bare, "rails_uniform", *small, "--transport", "credit").stdout.split())
    found = re.search(
        r"Up to (\d+) open files of a process \(ecmp over credit\), and it may have 1,024\.", followed
    )
    assert found
    assert int(found[1]) < 300


@pytest.mark.parametrize("options", [[], ["--dry-run", "--calibrate"]], ids=" ".join)
def test_a_run_with_an_empty_path_does_boot_something(bare: Path, options: list[str]) -> None:
    """The tests above can fail: without --dry-run the same command needs tools, and to be calibrated too."""
    done = ran("rails_uniform", "--servers", "2", "--rails", "1", *options, cwd=bare)
    assert done.returncode != 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--mtu", "1400"], "an MTU of 1400 bytes; give --mtu from 1500 to 9000"),
        (["--mtu", "9001"], "an MTU of 9001 bytes"),
        (["--buffer", "0"], "port buffers of 0 packets; give --buffer from 1 to 119119"),
        (["--buffer", "1000000"], "port buffers of 1000000 packets"),
        (["--volume", "0"], "0 times the bytes; give --volume from 1e-12 to 1000"),
        (["--volume", "nan"], "nan times the bytes"),
        (["--model-only"], "--dry-run and --model-only exclude each other"),
        (["--cli"], "--dry-run and --cli exclude each other"),
    ],
)
def test_values_that_make_no_sense_are_refused_in_a_sentence(
    bare: Path, options: list[str], said: str
) -> None:
    done = dry(bare, "rails_uniform", "--seeds", "1", *options)
    assert done.returncode == 2
    [told] = done.stderr.strip().splitlines()
    assert said in told


@pytest.mark.parametrize("rate", ["nan", "0", "1001"])
def test_a_rate_that_no_link_can_have_is_refused_where_none_is_emulated_too(bare: Path, rate: str) -> None:
    done = ran("rails_uniform", "--model-only", "--emulated-rate", rate, cwd=bare)
    assert done.returncode == 2
    assert done.stderr.startswith(
        f"NICs cannot be emulated at {rate} Mbit/s each; give --emulated-rate from 1"
    )


@pytest.mark.parametrize("option", ["--cli", "--calibrate"])
def test_a_run_without_a_network_refuses_what_needs_one(bare: Path, option: str) -> None:
    done = ran("rails_uniform", "--model-only", option, cwd=bare)
    assert done.returncode == 2
    assert done.stderr.startswith(f"--model-only and {option} exclude each other")


def test_rings_of_light_are_shaped_to_what_many_ports_allow_unless_a_rate_is_asked_for(bare: Path) -> None:
    small = ["--nodes", "7", "--node-gpus", "3", "--tp", "9", "--dying", "1", "--hops", "2,3", "--mb", "500"]
    assert "NICs at 20 Mbit/s" in dry(bare, "infinitehbd_ring", *small).stdout
    assert "NICs at 12 Mbit/s" in dry(bare, "infinitehbd_ring", *small, "--emulated-rate", "12").stdout


def test_a_buffer_is_that_of_all_fabrics(bare: Path) -> None:
    small = ["--nodes", "7", "--node-gpus", "3", "--tp", "9", "--dying", "1", "--hops", "2,3", "--mb", "500"]
    said = " ".join(dry(bare, "infinitehbd_ring", *small, "--buffer", "10", "--mtu", "1500").stdout.split())
    assert "port buffers of 15140 bytes" in said
    assert "2 points on 2 networks" in said
