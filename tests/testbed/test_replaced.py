"""Results that are replaced: by other results alone, and with nothing lost that no run wrote."""

import shutil
from datetime import datetime
from pathlib import Path

import pytest

from testbed.machine.files import directory_lock
from testbed.report.replaced import replaced
from testbed.report.results import ResultsDirectory
from testbed.report.run_json import RunRecord
from tests.testbed.cases import small_outcomes
from topologies.errors import ScenarioError


def run(title: str) -> RunRecord:
    """Return a run."""
    return RunRecord("python", title, ["python"], datetime(2026, 1, 2, 3, 4, 5))


def begin(out: Path) -> None:
    """Leave as much as a run does before its first point."""
    with ResultsDirectory(run("after"), out=out):
        pass


def title_of(out: Path) -> str:
    """Return which run's results a directory holds."""
    return "after" if '"after"' in (out / "run.json").read_text() else "before"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the results of a run of one point."""
    with ResultsDirectory(run("before"), out=tmp_path_factory.mktemp("finished")) as results:
        results.add(small_outcomes()[0])
    return results.path


@pytest.fixture
def out(tmp_path: Path, finished: Path) -> Path:
    """Return the results of a run, in a folder of their own, with what its user put beside them."""
    out = shutil.copytree(finished, tmp_path / "out")
    (out / "mine.png").write_text("mine")
    (out / "notes").mkdir()
    return out


def test_new_results_take_the_place_of_old_ones_and_what_is_a_users_stays(out: Path) -> None:
    assert len(list(out.glob("*.png"))) > 1
    with replaced(out):
        begin(out)
    assert title_of(out) == "after"
    assert {path.name for path in out.iterdir()} == {"run.json", "mine.png", "notes"}
    assert (out / "mine.png").read_text() == "mine"
    assert list(out.parent.iterdir()) == [out]


def test_a_run_that_leaves_nothing_leaves_the_old_results(out: Path) -> None:
    before = sorted(out.rglob("*"))
    with pytest.raises(ScenarioError, match="no such scheme"), replaced(out):
        raise ScenarioError("no such scheme")
    assert (title_of(out), sorted(out.rglob("*"))) == ("before", before)
    assert list(out.parent.iterdir()) == [out]


def test_where_there_is_nothing_nothing_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for out in (tmp_path / "empty", tmp_path / "new"):
        with replaced(out):
            begin(out)
        assert title_of(out) == "after"


def refused(out: Path, reason: str) -> None:
    """Check that a directory is not replaced, and that all in it stays."""
    before = sorted(out.rglob("*"))
    with pytest.raises(ScenarioError, match=reason), replaced(out):
        pytest.fail("it began")
    assert sorted(out.rglob("*")) == before


def test_a_folder_that_no_run_wrote_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    refused(tmp_path, "holds no results that could be replaced")
    (tmp_path / "run.json").write_text('{"speed": 3}')
    refused(tmp_path, "run.json is not a valid run")


def test_a_link_to_results_is_refused(out: Path) -> None:
    (out.parent / "link").symlink_to(out)
    refused(out.parent / "link", "is a symbolic link")


def test_the_directory_that_a_script_runs_in_is_refused(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(out / "notes")
    refused(out, "holds the directory that this runs in")


def test_results_of_a_run_that_goes_on_are_refused(out: Path) -> None:
    with directory_lock(out):
        refused(out, "another run writes into")
