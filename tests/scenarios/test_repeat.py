"""A run again, by the model; and what is said where there is no run."""

import json
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest

from tests.scenarios.command import ran
from tests.testbed.run_files import unsealed


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run a small scenario by the model, and return its directory."""
    out = tmp_path_factory.mktemp("runs") / "first"
    small = ["--servers", "2", "--rails", "2", "--seeds", "2", "--schemes", "ecmp,rails"]
    done = ran("rails_uniform", "--model-only", *small, "--out", out)
    assert done.returncode == 0, done.stderr
    return out


def test_a_run_again_takes_as_long(first: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    done = ran("repeat", first, "--events", "--out", again)
    assert done.returncode == 0, done.stderr
    assert len(list((again / "points").glob("*.predicted.events"))) == 4
    same = ["workload", "scheme", "seed", "cct_s", "verdict"]
    before, after = (pd.read_csv(out / "summary.csv")[same] for out in (first, again))
    pd.testing.assert_frame_equal(before, after)
    assert "as in first" in done.stdout
    assert "holds: credit 2 of 2" in done.stdout


def test_a_run_that_took_another_time_is_found_out(first: Path, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text((first / "run.json").read_text())
    table = pd.read_csv(first / "summary.csv")
    table.loc[table["scheme"] == "ecmp", "cct_s"] *= 1.1
    table.to_csv(tmp_path / "summary.csv", index=False)
    done = ran("repeat", tmp_path / "run.json", "--out", tmp_path / "again")
    assert "holds: credit 1 of 2" in done.stdout
    assert len(re.findall(r"x no\s*$", done.stdout, re.MULTILINE)) == 1


def test_a_summary_that_is_not_as_it_was_written_is_refused(first: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(first, out)
    text = (out / "summary.csv").read_text()
    (out / "summary.csv").write_text(text.replace(",0.00", ",0.01", 1))
    done = ran("repeat", out, "--out", tmp_path / "again")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert f"{out}/summary.csv is damaged: its checksum in SHA256SUMS does not agree" in done.stderr


def test_half_a_line_of_a_run_that_was_killed_is_no_row(first: Path, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text((first / "run.json").read_text())
    rows = (first / "summary.csv").read_bytes().splitlines(keepends=True)
    half = rows[-1].index(b",0.00") + 4  # its CCT has begun
    (tmp_path / "summary.csv").write_bytes(b"".join(rows[:-1]) + rows[-1][:half])
    done = ran("repeat", tmp_path, "--out", tmp_path / "again")
    assert done.returncode == 0, done.stderr
    assert "holds: credit 2 of 2" in done.stdout


SOURCE = (
    "import helper\nfrom traffic.spraying.rails import Rails\n\n\nclass Mine(Rails):\n    name = 'mine'\n"
)


def test_an_edited_module_of_the_user_is_named_and_nothing_is_said_to_hold_of_it(tmp_path: Path) -> None:
    own, helper = tmp_path / "own.py", tmp_path / "helper.py"
    own.write_text(SOURCE)
    helper.write_text("")
    small = ["--model-only", "--servers", "2", "--rails", "2", "--seeds", "1"]
    done = ran("rails_uniform", *small, "--schemes", "ecmp,own:Mine", "--out", "first", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "holds: credit 2 of 2" in ran("repeat", "first", "--out", "same", cwd=tmp_path).stdout
    for number, edited in enumerate((own, helper)):
        before = edited.read_text()
        edited.write_text(f"{before}# edited\n")
        again = ran("repeat", "first", "--out", f"again{number}", cwd=tmp_path)
        assert "holds: credit 1 of 2" in again.stdout
        assert f"the source of {edited.stem} has changed since" in " ".join(again.stdout.split())
        assert len(re.findall(r"1\.00x -\s*$", again.stdout, re.MULTILINE)) == 1
        edited.write_text(before)


def test_what_is_no_run_is_told_in_a_sentence(first: Path, tmp_path: Path) -> None:
    file, summary = tmp_path / "run.json", tmp_path / "summary.csv"

    def told() -> str:
        done = ran("repeat", tmp_path, "--out", tmp_path / "out")
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert not (tmp_path / "out").exists()
        return done.stderr

    assert f"{file} cannot be read: No such file or directory" in told()
    file.write_text((first / "run.json").read_text())
    assert f"{summary} cannot be read: No such file or directory" in told()
    summary.write_text("")
    assert f"{summary} is not a valid summary" in told()
    summary.write_text("workload,scheme\n")
    assert f"{summary} has no column cct_s, name, seed, transport, verdict" in told()
    file.write_text('{"format": 1, "experiments": []}')
    summary.write_text((first / "summary.csv").read_text())
    assert f"{file} has the format 1, and this version reads 6; run the command line in it again" in told()
    none = json.loads(unsealed(first / "run.json")) | {"experiments": []}
    file.write_text(json.dumps(none))
    assert f"{file} holds no experiments" in told()
