"""The note of a file stands under the table of every command that reads one: what was read, what left out."""

import json
from pathlib import Path

import pytest

from tests.scenarios.command import ran
from tests.traffic.test_readers_simai import HEADER, LAYER, NORM
from tests.traffic.trace_files import AICB_LOG, HTSIM, written

STUDY = """title = "noted"
scheme = ["ecmp", "rails"]
seeds = 2
[fabric]
builder = "rail"
servers = 2
rails = 2
[[workload]]
trace = "bytes.csv"
[[workload]]
generator = "uniform"
"""
JOB = {
    "format": "lightrail job 1", "name": "step", "gpus": 4, "note": "written by hand",
    "nodes": [{"kind": "all_to_all", "name": "a", "uniform_bytes": 4_000_000}],
}  # fmt: skip
FEW = ["--model-only", "--servers", "2", "--rails", "2"]


@pytest.mark.parametrize(
    ("scenario", "words", "notes"),
    [
        ("study", ["study.toml", "--model-only"], ["matrix bytes.csv"]),
        (
            "rails_sparse",
            [*FEW, "--schemes", "ecmp", "--seeds", "1", "--trace", "bytes.csv"],
            ["matrix bytes.csv"],
        ),
        ("job", [*FEW, "--job", "job.json"], ["written by hand"]),
        (
            "ring_trace",
            [*FEW, "--trace", "step.txt", "--least-mb", "0"],
            ["SimAI workload step.txt, 2 of 2 layers", "left out: BROADCAST (1), weight update (2)."],
        ),
        (
            "ocs_spectra",
            ["--model-only", "--workload", "log.csv", "--schedulers", "less"],
            ["ep_group has no size: 4, of 4 data-parallel ranks", "the first of 3 exchanges, "],
        ),
        (
            "spray_permutation",
            ["--model-only", "--trace", "few.cm"],
            ["matrix few.cm", "; on GPUs 0 to 3 of 16"],
        ),
    ],
)
def test_a_files_note_is_printed_once(
    tmp_path: Path, scenario: str, words: list[str], notes: list[str]
) -> None:
    written(tmp_path, STUDY, "study.toml")
    written(tmp_path, "0,1e6,1e6,1e6\n" * 4, "bytes.csv")
    written(tmp_path, json.dumps(JOB), "job.json")
    written(tmp_path, "\n".join([HEADER, "2", NORM, LAYER]), "step.txt")
    written(tmp_path, AICB_LOG, "log.csv")
    written(tmp_path, HTSIM, "few.cm")
    done = ran(scenario, *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert {note: said.count(note) for note in notes} == dict.fromkeys(notes, 1), done.stdout
    assert "synthetic:" not in said.lower()
