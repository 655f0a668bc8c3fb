"""Failures in a training step on mFabric: which points there are, what tables say, and bad input."""

from pathlib import Path

import pandas as pd
import pytest

from testbed.report.run_json import experiments_of
from tests.scenarios import command

SMALL = ["--model-only", "--layers", "1", "--transport", "credit"]


def test_every_failure_has_a_step_in_which_it_comes_and_one_after_it(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = command.ran("mfabric_failures", *SMALL, "--failures", "gpu,server,circuit-nic", "--out", out)
    assert done.returncode == 0, done.stderr
    kept = experiments_of(out / "run.json")
    assert [each.scheme_name for each in kept] == [
        "mFabric",
        "mFabric, a GPU", "mFabric, steady, a GPU",
        "mFabric, a server", "mFabric, steady, a server",
        "mFabric, one circuit NIC", "mFabric, steady, one circuit NIC",
    ]  # fmt: skip
    assert len({each.fabric for each in kept}) == len({each.job.name for each in kept}) == 1
    assert [len(each.faults) for each in kept] == [0, 1, 0, 1, 0, 1, 1]
    assert "0 bytes lack" in " ".join(done.stdout.split())
    took_s = pd.read_csv(out / "summary.csv").set_index("scheme")["iteration_s"]
    for name in ("a GPU", "a server"):
        assert took_s[f"mFabric, {name}"] > took_s["mFabric"]
        assert took_s[f"mFabric, steady, {name}"] > took_s["mFabric"]
    assert took_s["mFabric, one circuit NIC"] >= took_s["mFabric"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--failures", "fan"], "unknown failure 'fan' of --failures; choose from packet-nic,"),
        (["--failures", ""], "the list '' is empty"),
        (["--layers", "0"], "experts in 0 layers"),
        (["--known-ms", "-1"], "known after -1 ms"),
        (["--at", "100"], "a failure at 100 %"),
        (["--rate", "nan"], "NICs of nan Gbit/s"),
        (["--fail", "nic:0:0@40%"], "foresees what fails in it"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path: Path, options: list[str], said: str) -> None:
    done = command.ran("mfabric_failures", "--model-only", "--out", tmp_path / "out", *options)
    lines = done.stderr.strip().splitlines()
    assert (done.returncode, len(lines)) == (2, 1), done.stderr
    assert said in lines[0]
    assert not (tmp_path / "out").exists()
