"""A run that was cut off, or done in parts: every point once, and the same files as of a run in one go."""

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pandas as pd
import pytest

from testbed.machine.files import directory_lock
from testbed.machine.residue import until
from testbed.report.checksums import content_of, with_checksum
from tests.other_user import NO_FILES, OTHER, become_other, given, need_root, plant, yard
from tests.scenarios.command import ran
from tests.testbed.run_files import unsealed
from tests.tools import CHECKOUT, ends, hears_interrupts

SMALL = ("--model-only", "--servers", "4", "--rails", "2", "--seeds", "9", "--schemes", "rails,ecmp,pxn")
POINTS = 3 * 9
COMMAND = (sys.executable, str(CHECKOUT / "scenarios" / "rails_uniform.py"))
TABLES = ("summary.csv", "records.csv", "nodes.csv")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return the directory of a run in one go, and what it printed."""
    out = tmp_path_factory.mktemp("whole") / "out"
    done = ran("rails_uniform", *SMALL, "--out", out)
    assert done.returncode == 0, done.stderr
    return out, tables_of(done.stdout)


def tables_of(printed: str) -> str:
    """Return what a run printed, but for where its results are."""
    return printed[: printed.rindex("results: ")]


def same(one: Path, other: Path) -> bool:
    """Return whether two directories have the same tables."""
    return all((one / name).read_bytes() == (other / name).read_bytes() for name in TABLES)


def test_a_run_that_was_killed_goes_on_where_it_was_cut_off(whole: tuple[Path, str], tmp_path: Path) -> None:
    out, points = tmp_path / "out", tmp_path / "out" / "points"
    command = [*COMMAND, *SMALL, "--jobs", "1", "--out", str(out)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
        assert until(lambda: points.exists() and len(list(points.iterdir())) > 2, 60)
        run.kill()
    made = {file.name: file.stat().st_mtime_ns for file in points.iterdir() if not file.name.startswith(".")}
    assert 0 < len(made) < POINTS
    done = ran("rails_uniform", "--resume", out)
    assert done.returncode == 0, done.stderr
    assert {name: (points / name).stat().st_mtime_ns for name in made} == made, "carried out again"
    assert same(out, whole[0])
    assert tables_of(done.stdout) == whole[1]


def test_parts_share_all_points_and_are_joined(whole: tuple[Path, str], tmp_path: Path) -> None:
    out, seen = tmp_path / "out", [0]
    for part in (3, 1, 1, 2):  # a part that is carried out again leaves what is there
        done = ran("rails_uniform", *SMALL, "--part", f"{part}/3", "--out", out)
        assert done.returncode == 0, done.stderr
        assert done.stderr.endswith(f"rails_uniform.py --resume {out}\n")
        assert not (out / "summary.csv").exists()
        seen.append(len(list((out / "points").iterdir())))
    assert [after - before for before, after in pairwise(seen)] == [POINTS // 3, POINTS // 3, 0, POINTS // 3]
    done = ran("rails_uniform", "--resume", out)
    assert done.returncode == 0, done.stderr
    assert same(out, whole[0])
    assert tables_of(done.stdout) == whole[1]
    assert pd.read_parquet(out / "summary.parquet")["key"].is_unique


@pytest.mark.parametrize(
    ("words", "culprit"),
    [
        (("--resume", "{out}", "--seeds", "3"), "{out} was begun with --seeds 9, and --seeds 3 is given"),
        (("--resume", "{out}", "--fail", "nic:0:0@10%"), "{out} was begun without --fail, and --fail nic:0:"),
        (("--resume", "{out}", "--real-link-delay-us", "9"), "{out} was begun without --real-link-delay-us"),
        (("--resume", "{out}", "--out", "x"), "--resume and --out name a directory each"),
        (("--resume", "{out}/none"), "{out}/none holds no run to go on with"),
        (
            ("--resume", "{out}", "--dry-run"),
            "--resume, --part and --cluster are for points that are carried out",
        ),
        (("--resume", "{out}", "--volume", "0.1"), "{out} was begun without --volume, and --volume 0.1 is"),
        (("--part", "1/3"), "parts of a run write into one directory, and none is named"),
        (("--part", "4/3", "--out", "x"), "'4/3' is not a part"),
        (("--part", "²/3", "--out", "x"), "'²/3' is not a part"),
        (("--part", f"{'1' * 5000}/3", "--out", "x"), "is not a part"),
        (("--jobs", "0"), "0 processes"),
        (("--cluster", ""), "--cluster names no cluster"),
        (("--cluster", "127.0.0.1:1"), "Ray"),
    ],
)
def test_what_cannot_be_gone_on_with_is_named(
    words: tuple[str, ...], culprit: str, whole: tuple[Path, str], tmp_path: Path
) -> None:
    given = [word.format(out=whole[0]) for word in words]
    shared = [word for word in SMALL if word != "--model-only" or "--dry-run" not in given]
    before = sorted(whole[0].iterdir())
    done = ran("rails_uniform", *shared, *given, cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert culprit.format(out=whole[0]) in done.stderr
    assert sorted(whole[0].iterdir()) == before
    assert not list(tmp_path.iterdir())


def test_a_run_of_another_version_is_not_gone_on_with(whole: tuple[Path, str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(whole[0], out)
    text = unsealed(out / "run.json")
    before = json.loads(text)["versions"]["sources"]
    (out / "run.json").write_text(text.replace(before, "0123456789ab (sources other)"))
    done = ran("rails_uniform", *SMALL, "--resume", out)
    assert done.returncode == 2
    assert f"begun by lightrail 0123456789ab (sources other), and this is {before}" in done.stderr


def test_a_scheme_that_has_changed_is_not_mixed_with_what_it_was(tmp_path: Path) -> None:
    scheme, out = tmp_path / "changing_scheme.py", tmp_path / "out"
    text = (
        "from traffic.spraying.rails import Rails\n\n\n"
        "def mine(*, fabric, messages, chunks, rng):\n"
        "    return Rails().assign(fabric=fabric, messages=messages, chunks=chunks, rng=rng)\n"
    )
    scheme.write_text(text)
    options = [*SMALL, "--schemes", "changing_scheme:mine,ecmp", "--out", out]
    command = [*COMMAND, *map(str, options), "--part", "1/2"]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True).returncode == 0
    scheme.write_text(f"{text}\n")
    command = [*COMMAND, *map(str, options[:-2]), "--resume", str(out)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert "the source of changing_scheme has changed since" in done.stderr


def test_two_runs_do_not_write_into_one_directory(whole: tuple[Path, str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(whole[0], out)
    with directory_lock(out):
        done = ran("rails_uniform", *SMALL, "--resume", out)
    assert done.returncode == 2
    assert f"another run writes into {out}" in done.stderr
    assert (out / "summary.csv").read_bytes() == (whole[0] / "summary.csv").read_bytes()


class Proof:
    """A value that leaves a file where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Callable[[str, int], int], tuple[str, int]]:
        """Have a file made."""
        return os.open, (str(self._path), os.O_CREAT)


@pytest.mark.parametrize("how", ["resume", "part", "repeat", "link"])
def test_nothing_of_another_user_is_read_or_written_and_a_copy_of_it_is(
    how: str, whole: tuple[Path, str]
) -> None:
    need_root()
    with yard() as ground:
        theirs, proof = ground / "theirs", ground / "proof"
        shutil.copytree(whole[0], theirs)
        (theirs / "points" / min(os.listdir(theirs / "points"))).write_bytes(pickle.dumps(Proof(proof)))
        for path in (theirs, *theirs.rglob("*")):
            given(path)
        before = {path: path.stat().st_mtime_ns for path in theirs.rglob("*")}
        link = ground / "all" / "link"
        link.parent.mkdir()
        link.parent.chmod(0o1777)
        link.symlink_to(whole[0])
        words: dict[str, tuple[str | Path, ...]] = {
            "resume": ("rails_uniform", *SMALL, "--resume", theirs),
            "part": ("rails_uniform", *SMALL, "--part", "1/2", "--out", theirs),
            "repeat": ("repeat", theirs, "--out", ground / "again"),
            "link": ("rails_uniform", *SMALL, "--resume", link),
        }
        done = ran(str(words[how][0]), *words[how][1:])
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1
        said = f"{link} leads over the symbolic link" if how == "link" else f"belongs to user {OTHER}, who"
        assert said in done.stderr
        assert {path: path.stat().st_mtime_ns for path in theirs.rglob("*")} == before
        assert not proof.exists()
        if how == "repeat":
            subprocess.run(["cp", "-r", theirs, ground / "mine"], check=True)
            done = ran("repeat", ground / "mine", "--out", ground / "again")
            assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("folder", ["points", "traces", "parts"])
@pytest.mark.parametrize("target", ["directory", "file", "nothing"])
def test_a_link_in_a_copy_is_refused_before_anything_is_carried_out(
    folder: str, target: str, whole: tuple[Path, str], tmp_path: Path
) -> None:
    out, victim = tmp_path / "out", tmp_path / "victim"
    shutil.copytree(whole[0], out)
    victim.mkdir()
    (victim / "1-of-2.json").write_text("secret")
    shutil.rmtree(out / folder, ignore_errors=True)
    to = {"directory": victim, "file": victim / "1-of-2.json"}
    (out / folder).symlink_to(to.get(target, tmp_path / "nothing"))
    before = {path: path.stat().st_mtime_ns for path in (out / "summary.csv", victim, *victim.iterdir())}
    done = ran("rails_uniform", *SMALL, "--resume", out)
    assert done.returncode == 2
    assert done.stderr.startswith(f"{out / folder} is a link, or not a directory; remove it, or")
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert len([*tmp_path.iterdir()]) == 2
    (out / folder).unlink()
    done = ran("rails_uniform", *SMALL, "--resume", out)
    assert done.returncode == 0, done.stderr
    assert same(out, whole[0])


@pytest.mark.parametrize("how", ["out", "resume", "part", "repeat"])
def test_a_directory_that_this_user_may_not_enter_is_a_sentence(how: str, whole: tuple[Path, str]) -> None:
    with yard() as ground:
        out = ground / "closed" / "out"
        shutil.copytree(whole[0], out)
        out.parent.chmod(0o000)
        words: dict[str, tuple[str | Path, ...]] = {
            "out": ("rails_uniform.py", *SMALL, "--out", out),
            "resume": ("rails_uniform.py", *SMALL, "--resume", out),
            "part": ("rails_uniform.py", *SMALL, "--part", "1/2", "--out", out),
            "repeat": ("repeat.py", out),
        }
        scenario, *options = words[how]
        done = subprocess.run(
            [sys.executable, CHECKOUT / "scenarios" / scenario, *options],
            cwd=ground,
            capture_output=True,
            text=True,
            preexec_fn=become_other if os.geteuid() == 0 else None,
        )
        out.parent.chmod(0o700)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert "Permission denied; " in done.stderr


def test_points_that_were_exchanged_are_named_and_carried_out_anew(
    whole: tuple[Path, str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    shutil.copytree(whole[0], out)
    one, other = sorted((out / "points").iterdir())[:2]
    one.write_bytes(other.read_bytes())
    check_anew(out, whole[0], one)


@pytest.mark.parametrize("kept", [0.0, 0.2, 0.9])
def test_a_point_that_is_no_point_is_named_and_carried_out_anew(
    kept: float, whole: tuple[Path, str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    shutil.copytree(whole[0], out)
    file = sorted((out / "points").iterdir())[0]
    before = file.read_bytes()
    file.write_bytes(before[: int(kept * len(before))] or b"nothing that was ever packed")
    check_anew(out, whole[0], file)


def test_a_point_that_is_valid_and_not_the_one_that_was_written_is_carried_out_anew(
    whole: tuple[Path, str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    shutil.copytree(whole[0], out)
    file = sorted((out / "points").iterdir())[0]
    content = content_of(file.read_bytes(), file.name)
    file.write_bytes(with_checksum(content.replace(b'"machine":"', b'"machine":"other-'), file.name))
    check_anew(out, whole[0], file)


@pytest.mark.parametrize("kind", [*NO_FILES, "dangling link"])
def test_what_is_no_file_is_refused_in_a_points_place_and_left_out_beside(
    kind: str, whole: tuple[Path, str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    shutil.copytree(whole[0], out)
    point = sorted((out / "points").iterdir())[0]
    for path in (point, out / "points" / "zz", out / "points" / "a\nb", out / "zz.png"):
        path.unlink(missing_ok=True)
        leads = path == point and kind == "link"
        plant(kind.split()[-1], path, whole[0] / "run.json" if leads else tmp_path / "no")
    before = (out / "summary.csv").stat().st_mtime_ns
    done = ran("rails_uniform", *SMALL, "--resume", out)
    assert (done.returncode, len(done.stderr.strip().splitlines())) == (2, 1)
    assert done.stderr.strip().startswith(f"{point} is not a plain file; remove it, or")
    assert (out / "summary.csv").stat().st_mtime_ns == before
    point.rmdir() if kind == "directory" else point.unlink()
    done = ran("rails_uniform", *SMALL, "--resume", out)
    assert (done.returncode, done.stderr.strip()) == (0, "")
    assert same(out, whole[0])
    assert listed(out) == listed(whole[0])


@pytest.mark.parametrize("content", [b"\x80\n\xff", b"\r\n", b"no list\n"])
def test_a_list_that_cannot_be_read_is_said_and_made_anew(
    content: bytes, whole: tuple[Path, str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    shutil.copytree(whole[0], out)
    (out / "SHA256SUMS").write_bytes(content)
    done = ran("repeat", out, "--dry-run")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert f"{out}/SHA256SUMS is damaged: line 1 is not a checksum and a name; delete it" in done.stderr
    done = ran("rails_uniform", *SMALL, "--resume", out)
    assert (done.returncode, len(done.stderr.strip().splitlines())) == (0, 1)
    assert done.stderr.startswith(f"{out}/SHA256SUMS is damaged: line 1 is not a checksum and a name: points")
    assert sums_hold(out)


@pytest.mark.parametrize("content", ["garbage", "{}", '{"run": 1}'])
def test_the_advice_on_a_parts_file_that_is_none_helps_and_other_files_are_left(
    content: str, whole: tuple[Path, str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    shutil.copytree(whole[0], out)
    (out / "parts").mkdir()
    for name in ("zz.json", "1-of-2.json"):
        (out / "parts" / name).write_text(content)
    done = ran("rails_uniform", *SMALL, "--resume", out)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert str(out / "parts" / "1-of-2.json") in done.stderr
    assert "delete it: what its part read back" in done.stderr
    (out / "parts" / "1-of-2.json").unlink()
    command = [*COMMAND, *SMALL, "--resume", str(out)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr.strip()) == (0, "")
    assert (out / "parts" / "zz.json").read_text() == content


@pytest.mark.parametrize("name", ["records.csv", "summary.parquet", "report.html", "summary.csv"])
def test_a_directory_in_a_files_place_is_refused_before_anything_is_carried_out(
    name: str, whole: tuple[Path, str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    shutil.copytree(whole[0], out)
    (out / name).unlink(missing_ok=True)
    (out / name).mkdir()
    point = sorted((out / "points").iterdir())[0]
    point.unlink()
    done = ran("rails_uniform", *SMALL, "--resume", out)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert done.stderr.startswith(f"{out / name} is a directory, where a file is written; remove it")
    assert not point.exists()


def test_a_link_in_the_place_of_the_list_is_refused(whole: tuple[Path, str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(whole[0], out)
    (out / "SHA256SUMS").unlink()
    (out / "SHA256SUMS").symlink_to(tmp_path / "nothing")
    done = ran("rails_uniform", *SMALL, "--resume", out)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert done.stderr.startswith(f"{out}/SHA256SUMS is not a plain file; remove it, or")


def listed(out: Path) -> set[str]:
    """Return the names in a directory's list of checksums, which all agree."""
    check = ["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"]
    subprocess.run(check, cwd=out, check=True)
    return {line.split("  ")[1] for line in (out / "SHA256SUMS").read_text().splitlines()}


def check_anew(out: Path, whole: Path, damaged: Path) -> None:
    """Assert that a run that goes on names a point and carries it out anew, and ends as the whole run did."""
    assert sums_hold(whole)
    assert not sums_hold(out)
    done = ran("rails_uniform", *SMALL, "--resume", out)
    assert (done.returncode, done.stderr.strip()) == (0, f"{damaged} is damaged: it is carried out anew")
    assert damaged.read_bytes() == (whole / "points" / damaged.name).read_bytes()
    assert same(out, whole)
    assert sums_hold(out)


def sums_hold(out: Path) -> bool:
    """Return whether all other files of a directory are in its list of checksums, and have these."""
    there = {str(file.relative_to(out)) for file in out.rglob("*") if file.is_file()} - {"SHA256SUMS"}
    listed = {line.split("  ")[1] for line in (out / "SHA256SUMS").read_text().splitlines()}
    check = ["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"]
    right = subprocess.run(check, cwd=out, capture_output=True).returncode == 0
    return right and there == listed


def test_ctrl_c_ends_all_workers_and_keeps_what_is_there(tmp_path: Path) -> None:
    out, points = tmp_path / "out", tmp_path / "out" / "points"
    command = [*COMMAND, *SMALL, "--seeds", "100", "--out", str(out)]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, start_new_session=True, preexec_fn=hears_interrupts
    ) as run:
        assert until(lambda: points.exists() and len(list(points.iterdir())) > 2, 60)
        os.killpg(run.pid, signal.SIGINT)
        assert run.wait(60) == 130
        assert run.stderr
        assert run.stderr.read().endswith(f"rails_uniform.py --resume {out}\n")
    assert (out / "report.html").exists()
    assert 0 < len(pd.read_csv(out / "summary.csv")) < 300
    assert ends(run.pid)
