"""A study from a TOML file: the cross product of its lists is its points (docs/reference/study.md)."""

import _checkout  # first: runs this file under the checkout's Python

from pathlib import Path
from typing import Annotated

import typer

from testbed.study.command import run
from testbed.study.study import Study
from testbed.study.study_file import study_of_file
from testbed.study.toml_document import assigned

File = Annotated[
    Path, typer.Argument(metavar="FILE.toml", help="The study, as docs/reference/study.md describes it.")
]
Set = Annotated[
    list[str],
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="A value in place of the file's, once for each: grid.seed=0..4, workload.sparsity=0.6,0.",
    ),
]


def study(file: File, assignments: Set = []) -> Study:  # noqa: B006
    """All points of a study: a fabric, workloads, schemes and seeds, from one file.

    Any value in the file may be a list; the points are the cross product of the lists. Each is predicted and
    emulated as a scenario's points are, and what varies is in the table of results. With --dry-run nothing is
    booted, and the points, the time and the memory that they take are printed.
    """
    return study_of_file(file, [assigned(text) for text in assignments])


if __name__ == "__main__":
    run(study)
