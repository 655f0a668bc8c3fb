"""The notebook of the documentation: it is kept as it ran, and runs again."""

import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode

from tests.docs.pages import DOCS
from tests.tools import CHECKOUT

NOTEBOOK = DOCS / "start" / "notebook.ipynb"
MOST_BYTES = 200_000
"""Of the notebook with its outputs, which every clone holds."""


@pytest.fixture
def notebook() -> NotebookNode:
    book: NotebookNode = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    return book


def test_it_is_kept_with_outputs(notebook: NotebookNode) -> None:
    assert all(cell.outputs for cell in code_cells(notebook)[1:])
    assert NOTEBOOK.stat().st_size < MOST_BYTES
    assert complaints(notebook) == []


def test_its_cells_run_as_a_script(notebook: NotebookNode, tmp_path: Path) -> None:
    script = "\n".join(cell.source for cell in code_cells(notebook))
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"import sys; sys.path.insert(0, {str(CHECKOUT)!r})\n{script}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (ran.returncode, ran.stderr.strip()) == (0, "")
    assert (tmp_path / "results").is_dir()


@pytest.mark.slow
def test_it_runs_in_jupyter(notebook: NotebookNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(CHECKOUT))
    NotebookClient(notebook, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert complaints(notebook) == []


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    """Return the cells that run."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def complaints(notebook: NotebookNode) -> list[NotebookNode]:
    """Return the outputs that are errors, warnings, or written to standard error."""
    outputs = [output for cell in code_cells(notebook) for output in cell.outputs]
    return [
        output
        for output in outputs
        if output.output_type == "error"
        or output.get("name") == "stderr"
        or "Warning" in str(output.get("data", ""))
    ]
