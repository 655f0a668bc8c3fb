"""The plots of training: a bar per phase and scheme, as high as the summary says."""

import pytest

from testbed.experiment.dilation import Dilation
from testbed.experiment.experiment import Experiment
from testbed.model.predict import predict
from testbed.report.figures import figures
from testbed.report.palette import colours
from testbed.report.training_plots import phase_bars, phased
from testbed.trust.outcome import Outcome, summary
from tests.testbed.cases import bars_of
from topologies.rail import rail_fabric
from traffic.job import Compute
from traffic.workloads.mixtral import mixtral_replay

FABRIC = rail_fabric(4, 2)


def outcomes() -> list[Outcome]:
    """Return two phases under two schemes, by the model."""
    found = []
    for phase in ("start", "stable"):
        for scheme in ("ecmp", "rails"):
            job = mixtral_replay(FABRIC, phase, "sparse")
            asked = Experiment(FABRIC, job, scheme, Dilation(1.0, 1.0), chunk_bytes=1 << 20)
            found.append(Outcome(asked, predict(asked)))
    return found


def test_bars_are_the_ccts_and_the_iteration_times() -> None:
    table = summary(outcomes())
    figure = phase_bars(table, colours(table["name"]), "mixtral sparse")
    for axes, column in zip(figure.axes, ("cct_s", "iteration_s"), strict=True):
        drawn = {gid: bar.get_height() for gid, (bar,) in bars_of(axes).items()}
        expected = {
            f"{workload}|{scheme}": pytest.approx(seconds * 1e3)
            for workload, scheme, seconds in zip(
                table["workload"], table["scheme"], table[column], strict=True
            )
        }
        assert drawn == expected
        assert [label.get_text() for label in axes.get_xticklabels()] == ["start", "stable"]


def test_an_iteration_is_its_steps_and_their_compute() -> None:
    (outcome, *_) = outcomes()
    row = summary([outcome]).iloc[0]
    compute_s = sum(n.duration_s for n in outcome.experiment.job.nodes if isinstance(n, Compute))
    assert row["iteration_s"] == pytest.approx(row["cct_s"] + compute_s)
    assert compute_s > 0


def test_only_what_has_phases_gets_the_plot() -> None:
    found = outcomes()
    names = [plot.name for plot in figures(found, summary(found))]
    assert phased(summary(found)) == ["mixtral sparse"]
    assert "phases_mixtral_sparse" in names
    for other in ("uniform", "trace mixtral dense start"):
        assert phased(summary(found).assign(workload=other)) == []
