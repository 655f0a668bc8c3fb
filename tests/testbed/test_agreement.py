"""Agreement: a mark where the model disagrees, and where the time went."""

import math
from dataclasses import replace

import numpy as np
import pytest

from testbed.trust.agreement import agreement_text, findings, nic_busy
from testbed.trust.outcome import Verdict, summary_row
from tests.testbed.cases import HEALTHY, experiment_of, outcome_of, slowed, small_fabric
from traffic.workloads.synthetic import uniform

BUSY = np.array([0.25, 0.75])


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(0.89, "0.89 !"), (0.9, "0.90"), (1.0, "1.00"), (1.15, "1.15"), (1.16, "1.16 !"), (math.nan, "-")],
)
def test_what_is_marked_has_findings_and_nothing_else_has(ratio: float, text: str) -> None:
    assert agreement_text(ratio) == text
    found = findings(ratio, packets=100.0, retransmits=0.0, queue_drops=0.0, nic_busy=BUSY)
    assert bool(found) == text.endswith("!")


def test_drops_resent_packets_and_idle_nics_are_named() -> None:
    found = findings(1.3, packets=1000.0, retransmits=50.0, queue_drops=20.0, nic_busy=BUSY)
    assert found == (
        "it took 1.30 times the prediction",
        "queues dropped 20 packets (2.0%)",
        "5.0% of the packets were sent again",
        "the busiest NIC was idle 25% of the CCT, NICs on average 50%",
    )
    unknown = findings(1.3, packets=math.nan, retransmits=math.nan, queue_drops=math.nan, nic_busy=BUSY)
    assert len(unknown) == 2


@pytest.mark.parametrize("slower", [1.0, 2.0, 4.0])
def test_a_uniform_run_that_takes_longer_leaves_nics_idle(slower: float) -> None:
    """Two servers with two rails: every NIC is busy all the time as predicted."""
    outcome = outcome_of(
        experiment_of(small_fabric(), uniform(4), "rails"), Verdict("faithful"), slower, HEALTHY
    )
    busy = nic_busy(outcome.link_bytes, outcome.experiment.fabric, outcome.cct_s)
    assert busy == pytest.approx(1 / slower, rel=0.01)
    row = summary_row(outcome)
    assert row["over_predicted"] == pytest.approx(slower)
    assert (row["findings"] == "") == (slower == 1.0)
    assert row["verdict"] == "faithful"


@pytest.mark.parametrize(
    ("informed", "free", "said"),
    [
        (1.02, 1.02, ()),
        (1.02, 1.10, ()),
        (
            1.02,
            2.04,
            ("it took 2.04 times what the model's own paths and delays give: those of the emulation ",),
        ),
        (1.30, 1.30, ("it took 1.30 times the prediction", "the busiest NIC was idle 25% ")),
        (
            1.30,
            1.95,
            ("it took 1.30 times the prediction", "it took 1.95 times ", "the busiest NIC was idle"),
        ),
    ],
)
def test_decisions_are_held_against_the_free_prediction_and_physics_against_the_informed(
    informed: float, free: float, said: tuple[str, ...]
) -> None:
    found = findings(informed, over_free=free, packets=1.0, retransmits=0.0, queue_drops=0.0, nic_busy=BUSY)
    assert len(found) == len(said)
    assert all(text.startswith(begins) for text, begins in zip(found, said, strict=True))
    assert not any("own paths" in text for text in found) or f"{free / informed:.2f}" in " ".join(found)


def test_a_summary_has_both_predictions() -> None:
    """Paths that take twice as long as the model's own: physics agrees, decisions do not."""
    outcome = outcome_of(experiment_of(small_fabric(), uniform(4), "rails"), Verdict("faithful"), 1.0)
    alone = summary_row(outcome)
    assert (alone["free_s"], alone["over_free"]) == (alone["predicted_s"], alone["over_predicted"])
    row = summary_row(replace(outcome, free=slowed(outcome.predicted, 0.5)))
    assert row["over_predicted"] == pytest.approx(1.0)
    assert row["over_free"] == pytest.approx(2.0)
    assert str(row["findings"]).startswith("it took 2.00 times what the model's own paths and delays give")


def test_a_model_run_has_no_findings() -> None:
    assert outcome_of(experiment_of(small_fabric(), uniform(4), "rails")).findings == ()
