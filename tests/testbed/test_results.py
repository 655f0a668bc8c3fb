"""What a run leaves behind: whole files after every point, killed or not, and whose they are."""

import errno
import gzip
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from io import StringIO
from pathlib import Path

import pandas as pd
import pytest

from testbed.machine.files import GrowingFile, append_text, directory_lock, write_whole
from testbed.report.chrome_trace import chrome_trace
from testbed.report.page import Block, Findings, Line, Sheet
from testbed.report.results import ResultsDirectory
from testbed.report.rows import GrowingTable
from testbed.report.run_json import RunRecord, experiments_of
from testbed.trust.outcome import Outcome, summary
from tests.testbed.cases import VOID, experiment_of, outcome_of, small_outcomes, with_verdict
from tests.tools import CHECKOUT
from topologies.errors import MachineError, ScenarioError
from topologies.rail import rail_fabric
from traffic.workloads.synthetic import uniform

RUN = RunRecord("rails_sparse", "RailS under sparse load", ["rails_sparse.py"], datetime(2026, 1, 2, 3, 4, 5))
TABLES = {"nodes.csv", "records.csv", "summary.csv"}
PLOTS = {
    "timeline_uniform.png",
    "timeline_sparse_0.4.png",
    "busbw.png",
    "fabric.png",
    "cct_percentiles.png",
    "cct_cdf.png",
    "emulated_against_predicted.png",
    "nic_load_uniform.png",
    "nic_load_sparse_0.4.png",
    "uplink_load_uniform.png",
    "uplink_load_sparse_0.4.png",
}


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def same_table(file: Path, table: pd.DataFrame) -> None:
    """Check that a CSV file reads back as a table."""
    pd.testing.assert_frame_equal(
        pd.read_csv(file, keep_default_na=False),
        pd.read_csv(StringIO(table.to_csv(index=False)), keep_default_na=False),
    )


@contextmanager
def failing(call: str) -> Iterator[None]:
    """Let a call of the kernel's fail, or a write after some bytes, as on a full disk."""
    if call == "write":
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, call, raising(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))))
        yield


def raising(error: OSError) -> Callable[..., None]:
    """Return a function that raises an error."""

    def fail(*_args: object, **_kwargs: object) -> None:
        raise error

    return fail


@pytest.mark.drawn
def test_all_files_are_there_and_read_back(tmp_path: Path) -> None:
    outcomes = with_verdict(small_outcomes(seeds=2), VOID, 3)
    with ResultsDirectory(RUN, root=tmp_path) as results:
        for outcome in outcomes:
            results.add(outcome)
    assert results.path == tmp_path / "rails_sparse" / "2026-01-02T03-04-05"
    assert names(results.path) == PLOTS | {
        "traces",
        "nodes.csv",
        "records.csv",
        "summary.csv",
        "summary.parquet",
        "points",
        "run.json",
        "report.html",
        "SHA256SUMS",
    }
    same_table(results.path / "summary.csv", summary(outcomes))
    assert experiments_of(results.path / "run.json") == [outcome.experiment for outcome in outcomes]


def test_records_hold_both_backends_of_every_outcome(tmp_path: Path) -> None:
    outcomes = small_outcomes(seeds=1)
    outcomes[0] = Outcome(outcomes[0].experiment, outcomes[0].predicted)
    with ResultsDirectory(RUN, root=tmp_path) as results:
        for outcome in outcomes:
            results.add(outcome)
    table = pd.read_csv(results.path / "records.csv", dtype={"path": str})
    assert list(table.columns[:6]) == ["workload", "scheme", "circuits", "transport", "seed", "backend"]
    rows = table.groupby(["workload", "scheme", "backend"], sort=False)
    assert list(rows.groups) == [
        ("uniform", "ecmp", "predicted"),
        ("uniform", "rails", "emulated"),
        ("uniform", "rails", "predicted"),
        ("sparse 0.4", "ecmp", "emulated"),
        ("sparse 0.4", "ecmp", "predicted"),
        ("sparse 0.4", "rails", "emulated"),
        ("sparse 0.4", "rails", "predicted"),
    ]
    emulated = rows.get_group(("sparse 0.4", "rails", "emulated"))
    assert emulated["end_s"].tolist() == outcomes[3].run.records["end_s"].tolist()


def test_run_json_says_all_that_is_needed_to_run_it_again(tmp_path: Path) -> None:
    outcomes = small_outcomes(seeds=2)
    with ResultsDirectory(RUN, root=tmp_path, planned=[o.experiment for o in outcomes]) as results:
        results.describe(calibration={"aggregate_bps": 1.2e9})
        results.describe(settings={"mtu": 9000})
        results.add(outcomes[0])
        data = json.loads((results.path / "run.json").read_text())
    assert data["format"] == 6
    assert data["command"] == ["rails_sparse.py"]
    assert data["transports"] == ["credit"]
    assert data["seeds"] == [0, 1]
    assert data["dilations"] == [{"rate": 1e-3, "volume": 1e-2}]
    assert (data["calibration"], data["settings"]) == ({"aggregate_bps": 1.2e9}, {"mtu": 9000})
    assert [len(data[name]) for name in ("fabrics", "jobs", "experiments")] == [1, 3, 8]
    assert {"python", "kernel", "openvswitch", "commit", "numpy", "os-ken"} <= data["versions"].keys()


def test_an_outcome_that_tables_would_take_for_a_seed_of_another_is_refused(tmp_path: Path) -> None:
    first = small_outcomes(seeds=1)[0]
    other = replace(first, experiment=replace(first.experiment, seed=1, chunk_bytes=1 << 16))
    with pytest.raises(ScenarioError, match=r"and differ in chunk_bytes .*; give a label"):
        ResultsDirectory(RUN, root=tmp_path, planned=[first.experiment, other.experiment])
    with ResultsDirectory(RUN, root=tmp_path) as results:
        results.add(first)
        with pytest.raises(ScenarioError, match=r"and differ in chunk_bytes .*; give a label"):
            results.add(other)
    assert [outcome.experiment for outcome in results.outcomes] == [first.experiment]
    assert len(results.table) == 1


def test_the_first_seed_of_each_scheme_leaves_a_trace(tmp_path: Path) -> None:
    outcomes = small_outcomes(seeds=2)
    with ResultsDirectory(RUN, root=tmp_path) as results:
        for outcome in outcomes:
            results.add(outcome)
    names = [
        "sparse_0.4_ecmp_credit",
        "sparse_0.4_rails_credit",
        "uniform_ecmp_credit",
        "uniform_rails_credit",
    ]
    files = sorted((results.path / "traces").iterdir())
    assert [file.name for file in files] == [f"{name}.json.gz" for name in names]
    assert gzip.decompress(files[2].read_bytes()).decode() == chrome_trace(
        outcomes[0].runs, outcomes[0].experiment.fabric
    )


def test_at_any_time_the_files_that_are_there_are_whole(tmp_path: Path) -> None:
    outcomes = small_outcomes(seeds=1)
    begun = {"summary.csv", "run.json", "traces", "points", "SHA256SUMS"}
    with ResultsDirectory(RUN, root=tmp_path) as results:
        for count, outcome in enumerate(outcomes, 1):
            results.add(outcome)
            assert names(results.path) == begun
            same_table(results.path / "summary.csv", summary(outcomes[:count]))
    assert names(results.path) >= begun | TABLES
    assert len(pd.read_csv(results.path / "records.csv").groupby(["workload", "scheme"])) == len(outcomes)


def test_the_summary_is_written_anew_when_it_has_grown_by_a_tenth(tmp_path: Path) -> None:
    rows, file, lacking = GrowingTable(), tmp_path / "summary.csv", []
    for number in range(200):
        rows.append([{"seed": number}], file)
        lacking.append(number + 1 - len(pd.read_csv(file)))
    assert lacking[:10] == [0] * 10
    assert max(lacking[100:]) > 0
    assert all(10 * lacks <= number for number, lacks in enumerate(lacking, 1))


def test_a_run_that_is_stopped_leaves_a_report_of_what_it_finished(tmp_path: Path) -> None:
    outcomes = small_outcomes(seeds=1)
    planned = [outcome.experiment for outcome in outcomes]
    results = ResultsDirectory(RUN, root=tmp_path, planned=planned)

    def stopped() -> None:
        with results:
            results.add(outcomes[0])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert "3 more experiments have no result" in (results.path / "report.html").read_text()


def test_a_run_that_fails_before_its_first_point_leaves_no_directory(tmp_path: Path) -> None:
    results = ResultsDirectory(RUN, root=tmp_path / "results")

    def interrupted() -> None:
        with results:
            results.judge_again(0, lambda outcome: outcome)  # as when the first of a network is interrupted
            raise MachineError("no Open vSwitch")

    with pytest.raises(MachineError):
        interrupted()
    assert names(tmp_path) == set()


def test_a_run_that_is_interrupted_as_it_begins_leaves_no_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("testbed.report.results.write_whole", interrupted)
    with pytest.raises(KeyboardInterrupt), ResultsDirectory(RUN, root=tmp_path / "results"):
        pass
    assert names(tmp_path) == set()


def test_a_run_that_is_interrupted_while_it_writes_a_point_has_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = small_outcomes(seeds=1)[:2]
    results = ResultsDirectory(RUN, out=tmp_path / "out")

    append = GrowingFile.append

    def interrupted(table: GrowingFile, text: str) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        append(table, text)

    def run() -> None:
        with results:
            results.add(outcomes[0])
            monkeypatch.setattr(GrowingFile, "append", interrupted)
            results.add(outcomes[1])

    with pytest.raises(KeyboardInterrupt):
        run()
    assert len(results.outcomes) == len(results.table) == 2
    assert len(pd.read_csv(tmp_path / "out" / "records.csv").groupby(["workload", "scheme"])) == 2
    assert (tmp_path / "out" / "report.html").exists()


def test_a_run_that_is_interrupted_in_its_first_point_can_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = small_outcomes(seeds=1)[0]

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    def run() -> None:
        with ResultsDirectory(RUN, planned=[outcome.experiment], out=tmp_path / "out") as results:
            results.add(outcome)

    monkeypatch.setattr("testbed.report.rows.write_whole", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run()
    monkeypatch.undo()
    assert [each.key for each in experiments_of(tmp_path / "out" / "run.json")] == [outcome.experiment.key]
    with ResultsDirectory(RUN, planned=[outcome.experiment], out=tmp_path / "out", resume=True) as results:
        assert outcome.experiment in results.kept


def test_what_a_killed_run_had_begun_to_write_is_removed_unless_another_run_writes(tmp_path: Path) -> None:
    outcome, out = small_outcomes()[0], tmp_path / "out"

    def go_on() -> None:
        with ResultsDirectory(RUN, planned=[outcome.experiment], out=out, resume=True) as results:
            results.add(outcome)

    with ResultsDirectory(RUN, planned=[outcome.experiment], out=out) as results:
        results.add(outcome)
    begun = [
        out / f".summary.csv.{8 * '0f'}.part",
        out / "points" / f".{outcome.experiment.key}.{8 * 'a1'}.part",
    ]
    mine = out / ".notes.part"
    for file in (*begun, mine):
        file.touch()
    with directory_lock(out, shared=True), pytest.raises(ScenarioError, match="another run writes into"):
        go_on()
    assert [file.exists() for file in (*begun, mine)] == [True, True, True]
    go_on()
    assert [file.exists() for file in (*begun, mine)] == [False, False, True]


@pytest.mark.parametrize("replaced", [False, True])
def test_a_directory_that_is_removed_in_mid_run_is_a_sentence_and_nothing_takes_its_place(
    replaced: bool, tmp_path: Path
) -> None:
    first, second, *_ = small_outcomes()
    out = tmp_path / "out"

    def carry_out() -> None:
        with ResultsDirectory(RUN, out=out) as results:
            results.add(first)
            shutil.rmtree(out)
            if replaced:
                (out / "points").mkdir(parents=True)
            results.add(second)

    with pytest.raises(MachineError, match=f"{out} was removed, or another directory took its name, while"):
        carry_out()
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "points"] * replaced


def test_points_that_are_removed_in_mid_run_are_said_with_what_brings_them_back(tmp_path: Path) -> None:
    outcome, out = small_outcomes()[0], tmp_path / "out"
    with ResultsDirectory(RUN, out=out) as results:
        results.add(outcome)
        (out / "points" / outcome.experiment.key).unlink()
        with pytest.raises(ScenarioError, match=f"was removed while .* --resume {out} carries it out again"):
            results.kept.outcome(outcome.experiment)


def test_a_lock_ends_with_its_run_though_a_process_that_was_forked_goes_on(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    with directory_lock(tmp_path):
        if (child := os.fork()) == 0:
            os.close(write_end)
            os.read(read_end, 1)
            os._exit(0)
        with pytest.raises(ScenarioError, match="another run writes into"), directory_lock(tmp_path):
            pass
    try:
        with directory_lock(tmp_path):
            pass
    finally:
        os.close(write_end)
        os.close(read_end)
        os.waitpid(child, 0)


def test_runs_of_one_second_have_directories_of_their_own(tmp_path: Path) -> None:
    paths = []
    for _ in range(3):
        with ResultsDirectory(RUN, root=tmp_path) as results:
            paths.append(results.path.name)
    assert paths == ["2026-01-02T03-04-05", "2026-01-02T03-04-05.2", "2026-01-02T03-04-05.3"]


def test_results_go_to_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with ResultsDirectory(RUN) as results:
        assert (tmp_path / results.path / "run.json").exists()
    assert results.path == Path("results", "rails_sparse", "2026-01-02T03-04-05")


def test_out_is_taken_as_it_is_but_never_twice(tmp_path: Path) -> None:
    out = tmp_path / "a" / "b"
    with ResultsDirectory(RUN, out=out) as results:
        assert results.path == out
    with (
        pytest.raises(ScenarioError, match="holds the results of another run"),
        ResultsDirectory(RUN, out=out),
    ):
        pass
    with pytest.raises(ScenarioError, match="entered twice"), results:
        pass


@pytest.mark.parametrize("name", ["records.csv", "summary.csv", "report.html", "busbw.png"])
def test_a_file_that_a_run_writes_is_never_written_over(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    (tmp_path / "notes.txt").touch()
    with (
        pytest.raises(ScenarioError, match=f"has {name}, which a run could overwrite"),
        ResultsDirectory(RUN, out=tmp_path),
    ):
        pass
    assert (names(tmp_path), (tmp_path / name).read_text()) == ({name, "notes.txt"}, "mine")


def test_a_directory_with_files_that_no_run_writes_is_taken(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with ResultsDirectory(RUN, out=tmp_path) as results:
        assert results.path == tmp_path


@pytest.mark.drawn
def test_a_run_in_which_nothing_took_time_has_a_report(tmp_path: Path) -> None:
    # One server with one GPU: what there is stays inside it, and every time is 0.
    idle = [experiment_of(rail_fabric(1, 1), uniform(1), scheme) for scheme in ("ecmp", "rails", "reps")]
    with ResultsDirectory(RUN, out=tmp_path) as results:
        for experiment in idle:
            results.add(outcome_of(experiment, VOID))
    assert {"report.html", "emulated_against_predicted.png"} <= names(tmp_path)


def test_a_directory_that_cannot_be_made_is_said_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        MachineError, match="cannot be written: Not a directory; begin anew with --out in another directory"
    ):
        ResultsDirectory(RUN, out=tmp_path / "file" / "out").__enter__()
    with pytest.raises(ScenarioError, match="is not a directory"):
        ResultsDirectory(RUN, out=tmp_path / "file").__enter__()


@pytest.mark.parametrize("call", ["open", "write", "replace"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(call: str, tmp_path: Path) -> None:
    file = tmp_path / "summary.csv"
    write_whole(file, "a\n")
    with failing(call), pytest.raises(MachineError, match=r"No space left on device|File too large"):
        write_whole(file, "new")
    assert (file.read_text(), names(tmp_path)) == ("a\n", {"summary.csv"})


@pytest.mark.parametrize("call", ["open", "write"])
def test_an_append_that_fails_leaves_the_file_as_it_was(call: str, tmp_path: Path) -> None:
    file = tmp_path / "summary.csv"
    write_whole(file, "\n")
    with failing(call), pytest.raises(MachineError, match=r"No space left on device|File too large"):
        append_text(file, "new\n")
    assert (file.read_text(), names(tmp_path)) == ("\n", {"summary.csv"})


def test_appending_keeps_what_was_there(tmp_path: Path) -> None:
    file = tmp_path / "records.csv"
    append_text(file, "a\n1\n")
    append_text(file, "2\n")
    assert (file.read_text(), names(tmp_path)) == ("a\n1\n2\n", {"records.csv"})


@pytest.mark.parametrize("lines", ["", "a\n", f"{'a' * 5_000}\nb\n"])
@pytest.mark.parametrize("cut", ["", "1", "1" * 4_095, "1" * 4_096, "1" * 12_763])
def test_appending_cuts_a_line_that_a_killed_writer_did_not_end(tmp_path: Path, lines: str, cut: str) -> None:
    file = tmp_path / "records.csv"
    file.write_text(lines + cut)
    append_text(file, "2\n")
    assert file.read_text() == f"{lines}2\n"


WRITER = """
import sys
from pathlib import Path
from testbed.machine.files import GrowingFile, append_text, write_whole
from testbed.report.rows import GrowingTable
folder, row, rows = Path(sys.argv[1]), "x" * 20_000, GrowingTable()
with GrowingFile(folder / "nodes.csv") as table:
    for number in range(10**6):
        table.append(f"{number},{row}\\n")
        rows.append([{"number": number, "row": row}], folder / "summary.csv")
        append_text(folder / "records.csv", f"{number},{row}\\n")
        write_whole(folder / "run.json", f'{{"number": {number}, "row": "{row}"}}')
        print(number, flush=True)
"""


@pytest.mark.parametrize("points", [1, 7, 30])
def test_a_killed_writer_leaves_whole_files_but_for_a_line_that_the_next_cuts(
    points: int, tmp_path: Path
) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)], cwd=CHECKOUT, stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    with writer, writer.stdout:
        for _ in range(points):
            writer.stdout.readline()
        writer.send_signal(signal.SIGKILL)
    assert not (tmp_path / "nodes.csv").exists(), "a table has its place once it is whole"
    summary = (tmp_path / "summary.csv").read_text()
    assert {len(line.rpartition(",")[2]) for line in summary.splitlines()[1:]} == {20_000}
    assert summary.endswith("x\n")
    append_text(tmp_path / "records.csv", "")
    rows = [line.split(",") for line in (tmp_path / "records.csv").read_text().splitlines()]
    assert [int(number) for number, _ in rows] == list(range(len(rows)))
    assert {len(row) for _, row in rows} == {20_000}
    assert len(rows) >= points
    assert json.loads((tmp_path / "run.json").read_text())["number"] >= points - 1


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    with pytest.raises(ScenarioError, match="cannot be read: No such file"):
        experiments_of(file)
    file.write_text("{}")
    with pytest.raises(ScenarioError, match="is not a valid run"):
        experiments_of(file)
    for other in (1, 2, 99):
        file.write_text(f'{{"format": {other}}}')
        with pytest.raises(ScenarioError, match=f"has the format {other}, and this version reads 6"):
            experiments_of(file)


@pytest.mark.parametrize("leads", [True, False])
def test_what_a_scenario_says_itself_leads_where_it_is_the_question(tmp_path: Path, leads: bool) -> None:
    own = Sheet(("own",), ("number",), [Block([Line(["it", "1"])])], "what the scenario is about")
    out = tmp_path / "out"
    found = Findings([own], leads=leads)
    with ResultsDirectory(RUN, out=out, findings=lambda _outcomes: found) as results:
        results.add(small_outcomes()[0])
    page = results.page()
    assert (page.results is own) == leads
    assert own in [page.results, *page.more]
    assert "scheme" in (page.more[0] if leads else page.results).words


def test_outcomes_judged_again_replace_their_rows_and_no_others(tmp_path: Path) -> None:
    outcomes = small_outcomes(seeds=1)
    with ResultsDirectory(RUN, root=tmp_path) as results:
        for outcome in outcomes:
            results.add(outcome)
        results.judge_again(2, lambda outcome: replace(outcome, verdict=VOID))
    judged = with_verdict(outcomes, VOID, 2, 3)
    same_table(results.path / "summary.csv", summary(judged))
    assert [outcome.verdict.word for outcome in results.outcomes] == ["faithful"] * 2 + ["void"] * 2
    assert len(experiments_of(results.path / "run.json")) == len(outcomes)
