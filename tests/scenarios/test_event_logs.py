"""Event logs from the option to the comparison: beside points, with checksums, kept by --resume."""

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import lightrail as lr
from scenarios.api.diff_events import diff_events
from testbed.machine.signals import ENDING
from testbed.report.checksums import Sums
from testbed.study.command import main
from tests.scenarios.command import ran
from tests.scenarios.test_resume import sums_hold

SMALL = ("--model-only", "--servers", "4", "--rails", "2", "--seeds", "1", "--schemes", "rails,ecmp")


@pytest.fixture(autouse=True)
def same_signals() -> Iterator[None]:
    """Have this process hear signals as before: a command that has ended ignores them."""
    before = {number: signal.getsignal(number) for number in ENDING}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run of two points."""
    directory = tmp_path_factory.mktemp("events") / "out"
    done = ran("rails_uniform", *SMALL, "--events", "--out", directory)
    assert done.returncode == 0, done.stderr
    return directory


def logs(out: Path) -> list[Path]:
    """Return the logs of a run."""
    return sorted((out / "points").glob("*.events"))


def compared(monkeypatch: pytest.MonkeyPatch, *words: str | Path) -> int:
    """Return the exit code of the command that compares."""
    monkeypatch.setattr(sys, "argv", ["lightrail diff-events", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main(diff_events)
    return int(ended.value.code or 0)


def test_each_point_has_a_log_that_is_listed_and_says_whose_it_is(out: Path) -> None:
    points = {file.name for file in (out / "points").iterdir() if not file.suffix}
    assert {file.name for file in logs(out)} == {f"{key}.predicted.events" for key in points}
    assert {f"points/{file.name}" for file in logs(out)} < set(Sums(out, out).listed)
    assert sums_hold(out)
    second = {file.read_text().splitlines()[1] for file in logs(out)}
    assert second == {f"# predicted: uniform, {scheme}, credit, seed 0" for scheme in ("rails", "ecmp")}


def test_a_run_that_goes_on_writes_the_logs_of_points_that_it_carries_out(out: Path, tmp_path: Path) -> None:
    again = tmp_path / "out"
    assert ran("rails_uniform", *SMALL, "--events", "--out", again).returncode == 0
    damaged, whole = logs(again)
    before = {file.name: file.read_bytes() for file in logs(again)}
    point = damaged.with_name(damaged.name.partition(".")[0])
    point.unlink()
    damaged.write_text("damaged")
    inode = whole.stat().st_ino
    done = ran("rails_uniform", "--resume", again)
    assert done.returncode == 0, done.stderr
    assert {file.name: file.read_bytes() for file in logs(again)} == before
    assert whole.stat().st_ino == inode, "a point that was there has been carried out again"
    assert sums_hold(again)


@pytest.mark.parametrize("other", ["--cli", "--dry-run"])
def test_where_no_point_is_carried_out_it_has_no_effect(other: str) -> None:
    done = ran("rails_uniform", "--events", other)
    said = f"{other} carries out no point, so --events has no effect; leave it out\n"
    assert (done.returncode, done.stderr) == (2, said)


def test_predictions_of_one_point_agree_and_of_two_do_not(
    out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = logs(out)
    assert compared(monkeypatch, one, one, "--tolerance", "0%") == 0
    assert capsys.readouterr().out.endswith("the logs agree, within 0.000 us\n")
    assert compared(monkeypatch, one, other) == 1
    assert "the first decision that differs: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nowhere", "nowhere"], "nowhere cannot be read: No such file or directory; give a file that"),
        ([".", "."], ". cannot be read: Is a directory; give a file that"),
        (["zero", "zero"], "zero cannot be read: it is not text; give a file that"),
        (["csv", "csv"], "csv does not begin with '# lightrail event log, format 1'; give a file that"),
        (["csv", "csv", "--tolerance", "-1%"], "'-1%' is not a tolerance; give a share such as 2%"),
        (["csv", "csv", "--tolerance", "2"], "'2' is not a tolerance; give a share such as 2%"),
    ],
)
def test_bad_input_is_a_sentence(
    words: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "zero").write_bytes(b"\xff")
    (tmp_path / "csv").write_text("a,b\n")
    monkeypatch.chdir(tmp_path)
    assert compared(monkeypatch, *words) == 2
    assert capsys.readouterr().err.startswith(sentence)


def test_from_python_a_run_writes_logs_and_a_prediction_fills_one(tmp_path: Path) -> None:
    fabric = lr.rail_fabric(servers=2, rails=2)
    experiment = lr.Experiment(fabric, lr.single(lr.uniform(4)), "rails")
    results = lr.run([experiment], tmp_path / "out", events=True)
    log = lr.EventLog("predicted: uniform, rails, credit, seed 0")
    run = lr.predict(experiment, log=log)
    assert logs(results.path)[0].read_text() == log.text
    last = log.text.splitlines()[-1].split()
    assert last[1:] == ["ended", "node", "step", "0"]
    assert float(last[0]) / 1e6 == pytest.approx(run.iteration_s, abs=1e-9)
