"""Mixtral 8x7B by the size of the cluster: what is predicted, and what tables and claims make of it."""

import pytest

from scenarios._mfabric.fabrics import FAT_TREE, MFABRIC, RAIL
from scenarios._mfabric.figures.size import STUDY, checked_servers, size_table
from scenarios._mfabric.step.parts import PARTS
from scenarios._mfabric.step.points import DELAY_S, Iteration, StepSetup, iteration
from tests.results_page import SCALE, documented
from topologies.errors import ScenarioError

PAPER_SERVERS = (128, 256, 512, 1024, 2048, 4096)
SETUP = StepSetup([], sizes=(128, 256))
MADE_UP = {
    point: Iteration(10.0 + (point.fabric == MFABRIC), 0, dict.fromkeys(PARTS, 0.0))
    for point in STUDY.points(SETUP)
}


def test_sizes_are_whole_replicas() -> None:
    assert checked_servers([32, 16, 16]) == [16, 32]
    assert checked_servers(PAPER_SERVERS) == list(PAPER_SERVERS)
    for servers in (0, 8, 24):
        with pytest.raises(ScenarioError, match="multiples of 16"):
            checked_servers([servers])


def test_tokens_grow_with_the_cluster_and_rail_is_as_the_fat_tree() -> None:
    found = size_table(SETUP, MADE_UP)
    assert list(found.columns) == documented(SCALE, "size.csv")
    rows = found.to_dict("records")
    table = {(row["gpus"], row["fabric"]): row for row in rows}
    # 8 sequences of 4,096 tokens, 4 micro-batches, 8 ranks, 8 replicas; in 10 s.
    assert table[1024, FAT_TREE]["tokens_per_s"] == 8 * 4096 * 4 * 8 * 8 / 10
    assert table[2048, FAT_TREE]["tokens_per_s"] == 2 * table[1024, FAT_TREE]["tokens_per_s"]
    assert table[1024, RAIL]["iteration_s"] == table[1024, FAT_TREE]["iteration_s"]
    # The spec's costs: 11,625,472 and 5,078,272 dollars.
    assert table[1024, MFABRIC]["over_fat_tree"] == pytest.approx(11625472 / 5078272 / 1.1)


def test_claims_are_about_the_worst_size() -> None:
    same, worth = STUDY.section(SETUP, MADE_UP).findings.claims
    assert "; not in the range" in same.reason
    assert "; in the range" in worth.reason
    assert same.measured == pytest.approx(1 / 1.1)
    assert "2,048 GPUs 2.0" in worth.reason


@pytest.mark.slow  # test_mfabric_training.py predicts a step on all fabrics
def test_a_replica_on_16_servers_is_predicted() -> None:
    setup = StepSetup([], sizes=(16,))
    found = {point: iteration(setup, point) for point in STUDY.points(setup)}
    times_s = {(point.fabric, point.delay_s): iteration.seconds for point, iteration in found.items()}
    over_packets, over_circuits = times_s[FAT_TREE, DELAY_S], times_s[MFABRIC, DELAY_S]
    assert 1.0 < over_circuits / over_packets < 1.1
    assert times_s[MFABRIC, 0.0] <= over_circuits
