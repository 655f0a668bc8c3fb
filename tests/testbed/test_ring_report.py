"""The table of a step's collectives, and that what stays inside servers does not set the scale."""

import pytest

from testbed.experiment.dilation import Dilation
from testbed.experiment.experiment import Experiment
from testbed.model.predict import predict
from testbed.report.ring_report import kinds_table
from testbed.trust.outcome import Outcome
from testbed.trust.scale import job_volume
from topologies.rail import rail_fabric
from traffic.collectives.ring import Ring
from traffic.job import Collective, Job
from traffic.packets import packet_bytes
from traffic.training import Layout, Phases, StepPhase, job_of_phases
from traffic.transports.host_settings import TransportSetup

FABRIC = rail_fabric(2, 2)


def test_collectives_that_are_alike_share_a_row() -> None:
    phases = (
        StepPhase("first", 0.0, "all-reduce", "dp", 8_000_000),
        StepPhase("second", 0.0, "all-reduce", "dp", 8_000_000),
        StepPhase("other size", 0.0, "all-reduce", "dp", 4_000_000),
        StepPhase("inside", 0.0, "all-gather", "tp", 8_000_000),
        StepPhase("tokens", 0.0, "all-to-all", "all", 8_000_000),
    )
    job = job_of_phases(Phases("step", Layout(2, 2), phases))
    experiment = Experiment(FABRIC, job, "ecmp", Dilation(1.0, 1.0), transport=TransportSetup("credit"))
    kinds = kinds_table(Outcome(experiment, predict(experiment)))
    shown = kinds[["kind", "over", "gpus", "rings", "bytes", "count"]].to_numpy().tolist()
    assert sorted(shown) == [
        ["all-to-all", "network", 4, 0, 8_000_000, 1],
        ["ring all-gather", "NVLink", 2, 1, 8_000_000, 2],
        ["ring all-reduce", "network", 2, 1, 4_000_000, 2],
        ["ring all-reduce", "network", 2, 1, 8_000_000, 4],
    ]
    rings = kinds[kinds["rings"] > 0]
    assert rings["busbw"].tolist() == pytest.approx(rings["closed_busbw"].tolist(), rel=0.001)
    assert sorted(rings["closed_busbw"]) == pytest.approx([12.5, 12.5, 450.0])
    assert kinds[kinds["rings"] == 0]["closed_busbw"].isna().all()


def test_small_rings_inside_servers_do_not_set_the_scale() -> None:
    across = Collective("across", Ring(((0, 2),), 100_000_000))
    inside = Collective("inside", Ring(((0, 1),), 1000))
    volumes = [
        job_volume(Job("drawn", 4, nodes), FABRIC, 1e-3, [0.008], 0.008)
        for nodes in ((across,), (across, inside), (across, Collective("small", Ring(((0, 2),), 1_000_000))))
    ]
    assert volumes[0] == volumes[1] < volumes[2]


@pytest.mark.parametrize(
    ("longest_s", "packets"),
    [(0.01, 80.0), (1.0, 25.0), (2.0, 20.0), (8.0, 15.0)],
    ids=["short", "as many as take 25 s", "at least", "as many as take 120 s"],
)
def test_steps_of_rings_are_of_as_many_packets_as_there_is_time_for(longest_s: float, packets: float) -> None:
    ring = Ring(((0, 2, 1, 3),), 4 * 1000 * packet_bytes(9000))  # 1,000 packets a step with all bytes
    job = Job("drawn", 4, (Collective("across", ring),))
    volume = job_volume(job, FABRIC, 1e-3, [1.0], longest_s, 9000)
    assert 1000 * volume == pytest.approx(packets)
