"""Cross-ToR traffic of orchestrated jobs: what predictions send over ToR uplinks is X_mate and X_rank."""

from pathlib import Path

import pytest

from controller.schedulers.infinitehbd import FatTree
from scenarios._infinitehbd.crossing import (
    OPTIMISED,
    SHUFFLED,
    UNCONSTRAINED,
    Setting,
    crossed_share,
    crossings,
    drawn_faults,
)
from testbed.run.predict import predict
from tests.scenarios.command import ran
from topologies.errors import ScenarioError

TREE = FatTree(32, 2, 16)


@pytest.mark.parametrize(("seed", "share"), [(0, 0.75), (1, 0.9), (2, 0.9)])
def test_bytes_over_uplinks_are_the_shares_that_the_orchestration_counts(seed: int, share: float) -> None:
    setting = Setting(TREE, drawn_faults(32, 3, seed), hops=3, gpus_per_node=8, tp_gpus=16, share=share)
    found = crossings(setting, seed)
    assert {each.placement for each in found} == {OPTIMISED, UNCONSTRAINED, SHUFFLED}
    for each in found:
        run = predict(each.experiment)
        assert crossed_share(run, each.experiment.fabric) == pytest.approx(each.share)
    if share == 0.75:
        shares = {(each.placement, each.figure): each.share for each in found}
        assert shares[OPTIMISED, "X_mate"] == shares[OPTIMISED, "X_rank"] == 0
        assert shares[UNCONSTRAINED, "X_mate"] == 0.25
        assert shares[SHUFFLED, "X_rank"] == 1


def test_four_nodes_to_a_tor_owe_three_peers_each() -> None:
    tree = FatTree(32, 4, 16)
    setting = Setting(tree, drawn_faults(32, 3, 1), hops=3, gpus_per_node=8, tp_gpus=16, share=0.5)
    for each in crossings(setting, 1):
        assert crossed_share(predict(each.experiment), each.experiment.fabric) == pytest.approx(each.share)


@pytest.mark.parametrize(("faulty", "share"), [(20, 0.9), (0, 0.01)])
def test_a_job_that_does_not_fit_is_named(faulty: int, share: float) -> None:
    setting = Setting(TREE, drawn_faults(32, faulty, 0), hops=3, gpus_per_node=8, tp_gpus=16, share=share)
    with pytest.raises(ScenarioError, match="does not fit"):
        crossings(setting, 0)


@pytest.mark.drawn
def test_a_table_has_predicted_bytes_beside_the_orchestrator_s_figures(tmp_path: Path) -> None:
    done = ran("infinitehbd_dcn", "--model-only", "--transport", "tcp", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert "optimised tcp model 0.00 0.00 -" in lines
    assert "unconstrained tcp model 25.00 25.00 -" in lines
    assert "shuffled tcp model 100.00 100.00 -" in lines


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--faulty", "32"], "32 faulty nodes of 32; leave some that work"),
        (["--faulty", "20"], "does not fit around 20 of 32 nodes"),
        (["--job", "0"], "a job of 0 % of the GPUs"),
        (["--tor-nodes", "3"], "under ToRs of 3"),
        (["--tp", "12"], "TP groups of 12 GPUs on nodes of 8"),
    ],
)
def test_bad_input_is_one_sentence(options: list[str], said: str) -> None:
    done = ran("infinitehbd_dcn", "--model-only", *options)
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    assert said in line
