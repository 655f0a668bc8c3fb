"""Plots as PNG, PDF and SVG: the same names in each format, and PDFs that a publisher takes."""

from base64 import b64encode
from pathlib import Path

import numpy as np
import pytest

from scenarios.api.experiments import run
from testbed.experiment.experiment import Experiment
from testbed.report.images import image_of
from testbed.report.page import FORMATS, Format
from testbed.report.palette import canvas
from testbed.study.study import Options
from topologies.big_switch import big_switch_fabric
from topologies.errors import ScenarioError
from traffic.demand import Demand
from traffic.steps import single

FABRIC = big_switch_fabric(3)
JOB = single(Demand("three", 1_000_000 * np.roll(np.eye(3, dtype=np.int64), 1, axis=1)))


def files(folder: Path, form: str) -> set[str]:
    return {path.stem for path in folder.glob(f"*.{form}")}


@pytest.mark.drawn
def test_every_plot_is_written_in_each_format_that_is_asked_for(tmp_path: Path) -> None:
    experiments = [Experiment(FABRIC, JOB, "ecmp")]
    run(experiments, tmp_path / "all", plots="png,pdf,svg")
    names = files(tmp_path / "all", "png")
    assert len(names) >= 3
    assert names == files(tmp_path / "all", "pdf") == files(tmp_path / "all", "svg")
    report = (tmp_path / "all" / "report.html").read_text()
    drawing = b64encode((tmp_path / "all" / "fabric.png").read_bytes()).decode()
    assert 0 < report.find(drawing) < report.find("<h2>Results</h2>") < report.find("<h2>Plots</h2>")
    listed = (tmp_path / "all" / "SHA256SUMS").read_text().split()
    assert {f"{name}.{form}" for name in names for form in FORMATS} <= set(listed)


@pytest.mark.drawn
def test_the_report_has_its_plots_whatever_the_format_of_their_files(tmp_path: Path) -> None:
    run([Experiment(FABRIC, JOB, "ecmp")], tmp_path / "pdf", plots="pdf")
    assert files(tmp_path / "pdf", "png") == set() != files(tmp_path / "pdf", "pdf")
    images = (tmp_path / "pdf" / "report.html").read_text().count("data:image/png;base64,iVBOR")
    assert images == len(files(tmp_path / "pdf", "pdf"))


def test_a_pdf_has_vectors_and_its_fonts_embedded_as_truetype() -> None:
    figure = canvas(2, 2, "title")
    figure.subplots().plot([1, 2])
    pdf = image_of(figure, "pdf")
    assert b"/FontFile2" in pdf
    assert b"/Type3" not in pdf
    assert b"/Subtype /Image" not in pdf


@pytest.mark.parametrize("form", FORMATS)
def test_equal_figures_are_equal_files(form: Format) -> None:
    first, second = (image_of(canvas(2, 2, "title"), form) for _ in range(2))
    assert first == second


def test_another_format_is_refused() -> None:
    with pytest.raises(ScenarioError, match="unknown word 'jpg' of --plots"):
        Options(plots="png,jpg")
