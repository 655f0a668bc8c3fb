"""Studies whose points are calls: kept one by one, gone on with, joined from parts, refused where mixed."""

import math
import os
import pickle
import re
import shutil
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from subprocess import run

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from testbed.report.checksums import with_checksum
from testbed.report.page import Block, Findings, Line, Sheet
from testbed.study.computed import Call, ComputedReport, ComputedStudy, Found, KeptResults, compute
from testbed.study.study import Options, StudyPart
from tests.testbed.run_files import unsealed
from tests.tools import CHECKOUT
from topologies.errors import ScenarioError

NUMBERS = (7, 3, 5, 7, 2)
SQUARES = {7: 49, 3: 9, 5: 25, 2: 4}


def square(folder: Path, number: int) -> int:
    """Return a square; leave a trace of it, and do what a file of the folder says."""
    with (folder / "carried_out").open("a") as file:
        file.write(f"{number}\n")
    if number == 5 and (folder / "raises").exists():
        raise ScenarioError("no square of 5", "take another number")
    if number == 5 and (folder / "killed").exists():
        os.kill(os.getppid(), signal.SIGKILL)
    return number * number


def said(numbers: tuple[int, ...], found: Found) -> ComputedReport:
    """Return the report of squares: a row each, in their order."""
    rows = [
        {"number": number, "square": result, "seed": 0, "verdict": "model"}
        for number, result in zip(numbers, found, strict=True)
    ]
    lines = [Line([str(row["number"]), str(row["square"])]) for row in rows]
    sheet = Sheet(("number",), ("square",), [Block(lines)], "Squares.")
    tables = {"lines": pd.DataFrame(rows)}
    return ComputedReport("Squares.", Findings([sheet]), rows, "None.", tables, settings={"power": 2})


def squares(folder: Path, numbers: tuple[int, ...] = NUMBERS) -> ComputedStudy:
    """Return a study of squares."""
    points = [Call(square, (folder, number)) for number in numbers]
    return ComputedStudy("squares", "Squares", points, partial(said, numbers))


def carried_out(folder: Path) -> list[int]:
    """Return what was carried out since this was asked last."""
    file = folder / "carried_out"
    numbers = [int(line) for line in file.read_text().split()] if file.exists() else []
    file.unlink(missing_ok=True)
    return sorted(numbers)


def written(out: Path) -> dict[str, str]:
    """Return the tables of a run."""
    return {file.name: file.read_text() for file in out.glob("*.csv")}


@pytest.fixture
def fresh(tmp_path: Path) -> dict[str, str]:
    """Return the tables of a run that nothing interrupted."""
    compute(squares(tmp_path), Options(out=tmp_path / "fresh", jobs=2))
    assert carried_out(tmp_path) == sorted(SQUARES), "each once"
    return written(tmp_path / "fresh")


def test_a_study_prints_and_writes_what_it_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "fresh"
    compute(squares(tmp_path), Options(out=out))
    table = pd.read_csv(out / "summary.csv")
    assert dict(zip(table["number"], table["square"], strict=True)) == SQUARES
    assert (out / "summary.csv").read_text() == (out / "lines.csv").read_text()
    assert '"power": 2' in (out / "run.json").read_text()
    assert "Squares." in (out / "report.html").read_text()
    assert capsys.readouterr().out.rstrip().endswith(f"results: {out}/report.html")


@pytest.mark.parametrize("cut", ["raises", "killed"])
def test_what_was_cut_off_keeps_its_points_and_goes_on_with_the_others(
    tmp_path: Path, fresh: dict[str, str], cut: str
) -> None:
    (tmp_path / cut).touch()
    out = tmp_path / "out"
    process = get_context("fork").Process(
        target=compute, args=(squares(tmp_path), Options(out=out, jobs=1)), daemon=False
    )
    process.start()
    process.join()
    assert process.exitcode == (1 if cut == "raises" else -signal.SIGKILL)
    assert set(carried_out(tmp_path)) >= {3, 5, 7}
    kept = len(list((out / "points").glob("[!.]*")))
    assert kept == 2 or (cut == "killed" and kept < 2), "what came before, and was written"
    assert not list(out.glob("*.csv"))
    (tmp_path / cut).unlink()
    compute(squares(tmp_path), Options(resume=out))
    assert carried_out(tmp_path) == sorted(list(SQUARES)[kept:]), "what is missing"
    assert written(out) == fresh
    compute(squares(tmp_path), Options(resume=out))
    assert carried_out(tmp_path) == []
    assert written(out) == fresh


def test_parts_make_the_whole_and_say_how(
    tmp_path: Path, fresh: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    for number, mine in ((2, [3]), (3, [5]), (1, [2, 7])):
        compute(squares(tmp_path), Options(out=out, part=StudyPart(number, 3)))
        assert carried_out(tmp_path) == mine
        assert f" --resume {out}\n" in capsys.readouterr().err
        assert not list(out.glob("*.csv"))
    compute(squares(tmp_path), Options(resume=out))
    assert carried_out(tmp_path) == []
    assert written(out) == fresh


def test_a_first_point_that_raises_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "raises").touch()
    with pytest.raises(ScenarioError, match="no square of 5"):
        compute(squares(tmp_path, (5, 3)), Options(out=tmp_path / "out", jobs=1))
    assert not (tmp_path / "out").exists()


def test_a_study_that_says_nothing_is_refused(tmp_path: Path) -> None:
    silent = ComputedStudy("silent", "Silent", [], lambda _found: ComputedReport("", Findings(), [], ""))
    with pytest.raises(ScenarioError, match="without a table"):
        compute(silent, Options(out=tmp_path / "out"))


def changed_sources(out: Path) -> None:
    """Have a run begun by other code."""
    text = unsealed(out / "run.json")
    (out / "run.json").write_text(text.replace("(sources ", "(sources of another "))


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize(
    ("spoil", "numbers", "sentence"),
    [
        (lambda _out: None, (7, 3, 5), "holds the points of another study"),
        (lambda _out: None, (*NUMBERS, 11), "holds the points of another study"),
        (changed_sources, NUMBERS, "was begun by lightrail"),
        (lambda out: (out / "run.json").unlink(), NUMBERS, "holds no run to go on with"),
    ],
)
def test_what_is_not_of_this_study_is_refused(
    tmp_path: Path, spoil: Callable[[Path], None], numbers: tuple[int, ...], sentence: str
) -> None:
    out = tmp_path / "fresh"
    spoil(out)
    with pytest.raises(ScenarioError, match=sentence):
        compute(squares(tmp_path, numbers), Options(resume=out))
    assert carried_out(tmp_path) == []


def points_of(out: Path) -> list[Path]:
    """Return the files of a run's points."""
    return sorted((out / "points").iterdir())


def swapped(out: Path) -> int:
    """Exchange two points; return how many files are not what they were."""
    one, other = points_of(out)[:2]
    kept = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(kept)
    return 2


def cut_short(out: Path) -> int:
    """Cut a point short."""
    file = points_of(out)[0]
    file.write_bytes(file.read_bytes()[:-3])
    return 1


def another_result(out: Path) -> int:
    """Change a result without its checksum."""
    file = points_of(out)[0]
    file.write_bytes(re.sub(rb'"result": ?\d+', b'"result":0', file.read_bytes()))
    return 1


def another_format(out: Path) -> int:
    """Write a result as another version would, its checksum agrees."""
    (out / "SHA256SUMS").unlink()
    file = points_of(out)[0]
    file.write_bytes(with_checksum(b'{"format":0,"result":[4]}', file.name))
    return 1


def another_type(out: Path) -> int:
    """Write a result of another type, its checksum agrees."""
    (out / "SHA256SUMS").unlink()
    file = points_of(out)[0]
    file.write_bytes(with_checksum(b'{"format":1,"result":"4"}', file.name))
    return 1


def no_json(out: Path) -> int:
    """Write results that are not JSON, whose checksums agree."""
    (out / "SHA256SUMS").unlink()
    deep = b'{"format":1,"result":' + b"[" * 10_000 + b"]" * 10_000 + b"}"
    files = points_of(out)
    for file, content in zip(files, (b"no json", deep, b"", b'"\\ud800"'), strict=True):
        file.write_bytes(with_checksum(content, file.name))
    return len(files)


def code(out: Path) -> int:
    """Have every point be a pickle that leaves a file where it is read."""
    files = points_of(out)
    for file in files:
        file.write_bytes(pickle.dumps(Leaves(out / "ran")))
    return len(files)


@dataclass
class Leaves:
    """A value that makes a folder when it is unpickled."""

    folder: Path

    def __reduce__(self) -> tuple[object, ...]:
        """Return the call that unpickling makes."""
        return os.mkdir, (str(self.folder),)


@pytest.mark.parametrize(
    "spoil",
    [swapped, cut_short, another_result, another_format, another_type, no_json, code],
    ids=lambda f: f.__name__,
)
def test_a_file_that_does_not_agree_is_named_and_its_call_carried_out_anew(
    tmp_path: Path,
    fresh: dict[str, str],
    capsys: pytest.CaptureFixture[str],
    spoil: Callable[[Path], int],
) -> None:
    out = tmp_path / "fresh"
    sound = {file: file.read_bytes() for file in points_of(out)}
    spoiled = spoil(out)
    named = {file for file in sound if file.read_bytes() != sound[file]}
    assert len(named) == spoiled
    compute(squares(tmp_path), Options(resume=out))
    said = [line for line in capsys.readouterr().err.splitlines() if "carried out anew" in line]
    assert {file for file in sound if any(str(file) in line for line in said)} == named
    assert len(said) == len(carried_out(tmp_path)) == spoiled
    assert written(out) == fresh
    assert {file: file.read_bytes() for file in points_of(out)} == sound
    assert not (out / "ran").exists()


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_flipped_bit_gives_another_result(tmp_path: Path, data: st.DataObject) -> None:
    kept, call = KeptResults(tmp_path), Call(square, (tmp_path, 7))
    kept.write(call, 49)
    content = bytearray(kept.file(call).read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    kept.file(call).write_bytes(content)
    assert kept.found([call]) == {}


def roots(numbers: tuple[int, ...], found: Found) -> ComputedReport:
    """Return the report of squares, which needs their roots."""
    assert [math.sqrt(each) for each in found] == [*numbers], "squares"
    return said(numbers, found)


def test_results_of_which_no_report_is_made_are_laid_to_their_directory(tmp_path: Path) -> None:
    out, study = tmp_path / "out", replace(squares(tmp_path), report=partial(roots, NUMBERS))
    compute(study, Options(out=out))
    fresh = written(out)
    for content in (b'{"format":1,"result":-4}', b'{"format":1,"result":16}'):
        (out / "SHA256SUMS").unlink()
        file = points_of(out)[0]
        file.write_bytes(with_checksum(content, file.name))
        with pytest.raises(ScenarioError) as caught:
            compute(study, Options(resume=out))
        assert str(caught.value).startswith(f"4 results of {out / 'points'} make no report: ")
        assert caught.value.hint.startswith("delete that folder")
        shutil.rmtree(out / "points")
        carried_out(tmp_path)
        compute(study, Options(resume=out))
        assert carried_out(tmp_path) == sorted(SQUARES)
        assert written(out) == fresh


def test_a_report_that_raises_is_not_laid_to_what_was_computed_here(tmp_path: Path) -> None:
    study = replace(squares(tmp_path), report=partial(roots, NUMBERS[::-1]))
    with pytest.raises(AssertionError, match="squares"):
        compute(study, Options(out=tmp_path / "out"))


def unannotated(number):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Return a square."""
    return number * number


def of_arrays() -> list[pd.DataFrame]:
    """Return tables, which no file can hold."""
    raise AssertionError


@pytest.mark.parametrize("function", [unannotated, of_arrays])
def test_a_function_whose_results_cannot_be_kept_is_refused_before_it_is_called(
    function: Callable[..., object],
) -> None:
    with pytest.raises(ScenarioError, match=f"{function.__name__} cannot be kept"):
        Call(function, ())


def test_a_part_of_another_study_is_refused(tmp_path: Path) -> None:
    compute(squares(tmp_path), Options(out=tmp_path / "out", part=StudyPart(1, 2)))
    with pytest.raises(ScenarioError, match="holds the points of another study"):
        compute(squares(tmp_path, (11, 13)), Options(out=tmp_path / "out", part=StudyPart(2, 2)))


def test_a_key_is_the_same_in_another_python() -> None:
    code = "from tests.testbed.test_computed import *; print(Call(square, (Path('x'), 3)).key)"
    done = run([sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == Call(square, (Path("x"), 3)).key
    assert done.stdout.strip() != Call(square, (Path("x"), 4)).key
